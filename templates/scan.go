package templates

import (
	"github.com/mlagen/mlagen/gen"
	"github.com/mlagen/mlagen/ptx/isa"
)

// blockScan adds up values over the CTA's 1024 threads.
type blockScan struct {
	k      *gen.Kernel
	totals gen.Region // one word per warp
}

const scanThreads = 1024

func newBlockScan(k *gen.Kernel) blockScan {
	return blockScan{k, k.SharedArray("warp totals", isa.S32, scanThreads/32)}
}

// inclusive returns the sum of v over this thread and those before it, and the
// sum over all threads. All threads must take part.
func (b blockScan) inclusive(v gen.Value) (sum, total gen.Value) {
	k := b.k
	sum = v.InclusiveSum()
	warp := k.Warp()
	k.If(k.Lane().Eq(31), func() { b.totals.At(warp).Store(0, sum) })
	k.SyncCTA()
	warps := b.totals.At(k.Lane()).Load(0).InclusiveSum()
	before := k.Select(warp.Eq(0), k.Int(0), warps.FromLane(warp.Sub(1).Max(0)))
	k.SyncCTA() // the totals have been read
	return sum.Add(before), warps.Broadcast(31)
}

// combined returns v combined over all threads.
func (b blockScan) combined(v gen.Value, combine func(x, y gen.Value) gen.Value) gen.Value {
	k := b.k
	v = v.Reduce(combine, 1, 2, 4, 8, 16)
	k.If(k.Lane().Eq(0), func() { b.totals.At(k.Warp()).Store(0, v) })
	k.SyncCTA()
	all := b.totals.At(k.Lane()).Load(0).Reduce(combine, 1, 2, 4, 8, 16)
	k.SyncCTA() // the totals have been read
	return all
}

// lastAtMost returns the greatest i in [low, high) for which atMost holds; it
// must hold for low, and never again once it has failed.
func lastAtMost(k *gen.Kernel, low, high gen.Value, atMost func(i gen.Value) gen.Value) gen.Value {
	lo, hi := k.Var(low), k.Var(high)
	k.While("search", func() gen.Value { return hi.Sub(lo).Gt(1) }, func() {
		middle := lo.Add(hi).Shr(1)
		ok := atMost(middle)
		hi.Set(k.Select(ok, hi.Value, middle))
		lo.Set(k.Select(ok, middle, lo.Value))
	})
	return lo.Value
}
