package templates

import (
	"github.com/mlagen/mlagen/gen"
	"github.com/mlagen/mlagen/ptx/isa"
)

// batchLengths are the requests' lengths, in tiles.
type batchLengths interface {
	// measure reads them and returns their sum and the longest.
	measure() (sum, most gen.Value)
	// tiles returns a request's.
	tiles(request gen.Value) gen.Value
	// line lays them end to end, even of it for every part. It may take their
	// place: after that its tiles are to be asked for.
	line(even gen.Value) line
}

// line is where requests lie, each as long as its tiles and pieceCost.
type line interface {
	tiles(request gen.Value) gen.Value
	// position returns where a request begins, or where the last one ends; to be
	// asked for before items are written.
	position(request gen.Value) gen.Value
	// partBefore returns a part that begins where the request does or before.
	partBefore(request gen.Value, parts partTable) gen.Value
}

// tilesOf returns the tiles of so many tokens.
func (c *scheduler) tilesOf(tokens gen.Value) gen.Value {
	return tokens.Max(0).As(isa.U32).Add(c.s.BlockN - 1).Div(c.s.BlockN).As(isa.S32)
}

// loadsUnderWay is how many lengths of a large batch a thread awaits at once.
const loadsUnderWay = 8

// eachLength calls use for the requests that are dealt to this thread, from
// number first on, and for up to loadsUnderWay numbers beyond the batch, which
// are not there and have no tiles.
func (c *scheduler) eachLength(first gen.Value, use func(request, tiles, there gen.Value)) {
	k := c.k
	k.For("lengths", first, c.batch, loadsUnderWay*scanThreads, func(i gen.Value) {
		var there, tokens [loadsUnderWay]gen.Value
		for n := range tokens {
			at := i.Add(n * scanThreads)
			there[n] = at.Lt(c.batch)
			tokens[n] = c.kvLen.At(at).LoadIf(there[n], 0, k.Int(0))
		}
		for n := range tokens {
			use(i.Add(n*scanThreads), c.tilesOf(tokens[n]), there[n])
		}
	})
}

// measured combines what all threads found.
func (c *scheduler) measured(sum, most gen.Value) (gen.Value, gen.Value) {
	w := ofWarps(c.k, "sum and longest by warp", sum.SumOfWarp(), most.MaxOfWarp())
	return w[0].SumOfWarp(), w[1].MaxOfWarp()
}

// residentLengths lie in shared memory: first the requests' tiles, then, as a
// line, the tiles before each of them.
type residentLengths struct {
	c     *scheduler
	words gen.Region // for each request, and for as many more as eachLength may use
	own   gen.Value  // tiles of the request with the thread's number
}

// newResidentLengths reserves room for a batch of so many requests.
func newResidentLengths(c *scheduler, requests int) *residentLengths {
	return &residentLengths{c: c, words: c.k.SharedArray("tiles of requests", isa.S32, requests+(loadsUnderWay+1)*scanThreads)}
}

func (l *residentLengths) measure() (sum, most gen.Value) {
	c, k := l.c, l.c.k
	tokens := c.kvLen.At(c.thread).LoadIf(c.thread.Lt(c.batch), 0, k.Int(0))
	c.byParts = k.Divisor(c.parts) // while the lengths are on their way
	all, longest := k.Var(k.Int(0)), k.Var(k.Int(0))
	keep := func(i, tiles, _ gen.Value) {
		l.words.At(i).Store(0, tiles)
		all.Increase(tiles)
		longest.Set(longest.Max(tiles))
	}
	c.eachLength(c.thread.Add(scanThreads), keep)
	l.own = c.tilesOf(tokens)
	keep(c.thread, l.own, gen.Value{})
	return c.measured(all.Value, longest.Value)
}

func (l *residentLengths) tiles(i gen.Value) gen.Value { return l.words.At(i).Load(0) }

// residentLine keeps in words the tiles before each request.
type residentLine struct {
	*residentLengths
	byEven gen.Divisor
}

func (l *residentLengths) line(even gen.Value) line {
	c, k := l.c, l.c.k
	// A thread's requests are consecutive. Their number is odd: threads then
	// find their words in different banks.
	count := c.batch.Add(scanThreads - 1).Shr(10).Or(1)
	begin := c.thread.Mul(count)
	end := begin.Add(count).Min(c.batch)
	sum := k.Var(k.Int(0))
	k.For("request", begin, end, 1, func(i gen.Value) { sum.Increase(l.words.At(i).Load(0)) })
	upTo := sum.InclusiveSum()
	before, total := sumOfWarps(k, ofWarps(k, "tiles by warp", upTo)[0])
	at := k.Var(before.Add(upTo).Sub(sum))
	k.For("request", begin, end, 1, func(i gen.Value) {
		tiles := l.words.At(i).Load(0)
		l.words.At(i).Store(0, at)
		at.Increase(tiles)
	})
	k.If(c.thread.Eq(0), func() { l.words.At(c.batch).Store(0, total) })
	byEven := k.Divisor(even.Max(1))
	k.SyncCTA()
	return residentLine{l, byEven}
}

func (l residentLine) position(i gen.Value) gen.Value {
	return l.words.At(i).Load(0).Add(i.Mul(l.c.s.pieceCost()))
}

func (l residentLine) tiles(i gen.Value) gen.Value {
	at := l.words.At(i)
	return at.Load(1).Sub(at.Load(0))
}

// partBefore: a boundary is moved from its even place by less than a request,
// and never over the beginning of one.
func (l residentLine) partBefore(i gen.Value, _ partTable) gen.Value {
	return l.byEven.Floor(l.position(i))
}

// distantLengths stay in global memory, for batches that shared memory cannot
// hold: slower, and the line is kept where items come later.
type distantLengths struct{ c *scheduler }

func (l *distantLengths) measure() (gen.Value, gen.Value) {
	c, k := l.c, l.c.k
	c.byParts = k.Divisor(c.parts)
	sum, most := k.Var(k.Int(0)), k.Var(k.Int(0))
	c.eachLength(c.thread, func(_, tiles, _ gen.Value) {
		sum.Increase(tiles)
		most.Set(most.Max(tiles))
	})
	return c.measured(sum.Value, most.Value)
}

func (l *distantLengths) tiles(i gen.Value) gen.Value {
	return l.c.tilesOf(l.c.kvLen.At(i).Load(0))
}

type distantLine struct{ *distantLengths }

func (l *distantLengths) line(gen.Value) line {
	c, k := l.c, l.c.k
	carry := k.Var(k.Int(0))
	k.For("prefix", 0, c.batch, scanThreads, func(base gen.Value) {
		i := base.Add(c.thread)
		tiles := k.Var(k.Int(0))
		k.If(i.Lt(c.batch), func() { tiles.Set(l.tiles(i)) })
		upTo := tiles.InclusiveSum()
		before, total := sumOfWarps(k, ofWarps(k, "tiles by warp", upTo)[0])
		k.If(i.Lt(c.batch), func() { c.items.At(i).Store(1, carry.Add(before).Add(upTo)) })
		carry.Increase(total)
		k.SyncCTA()
	})
	k.If(c.thread.Eq(0), func() { c.items.Store(0, 0) })
	k.SyncCTA()
	return distantLine{l}
}

func (l distantLine) position(i gen.Value) gen.Value {
	return l.c.items.At(i).Load(0).Add(i.Mul(l.c.s.pieceCost()))
}

func (l distantLine) partBefore(i gen.Value, parts partTable) gen.Value {
	return lastAtMost(l.c.k, l.c.k.Int(0), l.c.parts, func(p gen.Value) gen.Value { return parts.firstIn(p).Le(i) })
}
