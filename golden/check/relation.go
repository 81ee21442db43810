package check

import (
	"fmt"
	"math"
	"math/rand/v2"

	"github.com/mlagen/mlagen/golden/cases"
	"github.com/mlagen/mlagen/golden/dtype"
	"github.com/mlagen/mlagen/golden/oracle"
)

// answer is what attention gives: rows in order of request, query token, head.
type answer struct {
	t        dtype.Type
	width    int
	out, lse []byte           // lse is nil where the operation gives none
	name     func(int) string // of a row
}

func (a answer) rows() int { return len(a.out) / (a.width * a.t.Size()) }

// row is a row's output.
func (a answer) row(i int) []float32 {
	n := a.width * a.t.Size()
	return a.t.Decode(nil, a.out[i*n:(i+1)*n])
}

func (a answer) rowLSE(i int) float64 { return float64(dtype.F32.Decode(nil, a.lse[4*i:4*i+4])[0]) }

// same is an error where a row of b, which is row of(i) of a, differs from it by
// a bit. Rows of which of is negative are anybody's.
func (a answer) same(b answer, of func(i int) int) error {
	n := a.width * a.t.Size()
	for i := range b.rows() {
		j := of(i)
		if j < 0 {
			continue
		}
		if at := differs(a.out[j*n:(j+1)*n], b.out[i*n:(i+1)*n]); at >= 0 {
			return fmt.Errorf("%s: out[%d] is another, of %v became %v", a.name(j), at/a.t.Size(), a.row(j)[at/a.t.Size()], b.row(i)[at/a.t.Size()])
		}
		if a.lse != nil && differs(a.lse[4*j:4*j+4], b.lse[4*i:4*i+4]) >= 0 {
			return fmt.Errorf("%s: lse is another, of %v became %v", a.name(j), a.rowLSE(j), b.rowLSE(i))
		}
	}
	return nil
}

// near is an error where a row of b, which is row of(i) of a, is further from it
// than rounding of both explains; b's LSEs are shift more.
func (a answer) near(b answer, of func(i int) int, tol cases.Tolerance, shift float64) error {
	for i := range b.rows() {
		j := of(i)
		if j < 0 {
			continue
		}
		var want []float64
		for _, v := range a.row(j) {
			want = append(want, float64(v))
		}
		e, err := rowError(want, b.row(i))
		if err == nil && e > 2*tol.Out {
			err = fmt.Errorf("out moved by %.2e of its norm, more than %.0e", e, 2*tol.Out)
		}
		if a.lse != nil && err == nil {
			was, is := a.rowLSE(j), b.rowLSE(i)
			if d := math.Abs(is - was - shift); is != was && !(d <= 2*tol.LSE) {
				err = fmt.Errorf("lse was %.7g and is %.7g, which should be %.4g more", was, is, shift)
			}
		}
		if err != nil {
			return fmt.Errorf("%s: %w", a.name(j), err)
		}
	}
	return nil
}

func identity(i int) int { return i }

// rowOf returns where rows come from when requests, and in them heads, are
// permuted: request and head i are what requests[i] and heads[i] were. tokens
// are those of the requests before.
func rowOf(tokens []int, requests, heads []int) func(row int) int {
	first := []int{0} // rows before a request
	for _, n := range tokens {
		first = append(first, first[len(first)-1]+n*len(heads))
	}
	var of []int
	for _, r := range requests {
		for t := range tokens[r] {
			for _, h := range heads {
				of = append(of, first[r]+t*len(heads)+h)
			}
		}
	}
	return func(row int) int { return of[row] }
}

func count(n int) (list []int) {
	for i := range n {
		list = append(list, i)
	}
	return list
}

// others returns the rows that do not belong to request v.
func others(tokens []int, heads, v int) func(row int) int {
	first := 0
	for _, n := range tokens[:v] {
		first += n * heads
	}
	last := first + tokens[v]*heads
	return func(row int) int {
		if row >= first && row < last {
			return -1
		}
		return row
	}
}

// related is an operation on inputs of type T that relations are held against.
type related[T any] struct {
	c      *cases.Case
	build  func(c *cases.Case) (T, error)
	answer func(in T) (answer, error)
	tokens []int // query tokens of each request
	r      *rand.Rand
}

// relate runs the relations that a case asks for.
func (r *Runner) relate(c *cases.Case) error {
	seeds := r.Seeds
	r.Seeds = 1
	defer func() { r.Seeds = seeds }()
	plain := *c
	plain.Graph, plain.Repeat, plain.BatchInvariant, plain.Holds = nil, 1, false, nil
	if c.BatchInvariant && c.Splits == 0 {
		plain.Splits = invariantSplits
	}
	for _, relation := range c.Holds {
		err := r.schedules(func(int) error {
			switch c.Op {
			case "decode":
				return r.relateDecode(relation, &plain)
			case "prefill":
				return r.relatePrefill(relation, &plain)
			case "extend":
				return r.relateExtend(relation, &plain)
			case "layer":
				return r.relateLayer(relation, &plain)
			}
			return fmt.Errorf("%s has no relations", c.Op)
		})
		if err != nil {
			return fmt.Errorf("%s: %w", relation, err)
		}
	}
	return nil
}

// newRelated describes an operation on a case.
func newRelated[T any](c *cases.Case, build func(*cases.Case) (T, error), run func(T) (answer, error)) related[T] {
	x := related[T]{c: c, build: build, answer: run, r: rand.New(rand.NewPCG(c.Seed, 101))}
	for i := range c.KVLen {
		x.tokens = append(x.tokens, c.Queries(i))
	}
	return x
}

// pair runs the case as it is and with its inputs changed.
func (x related[T]) pair(change func(in T) (T, error)) (was, is answer, err error) {
	in, err := x.build(x.c)
	if err != nil {
		return was, is, err
	}
	if was, err = x.answer(in); err != nil {
		return was, is, err
	}
	if in, err = change(in); err != nil {
		return was, is, err
	}
	is, err = x.answer(in)
	return was, is, err
}

// pagesPermuted has other pages hold the same, and other garbage behind.
func (x related[T]) pagesPermuted() error {
	c := *x.c
	if c.Pages.Order = "identity"; x.c.Pages.Order == "identity" {
		c.Pages.Order = "reversed"
	}
	c.Pages.Base, c.Pages.Tail = c.Pages.Base+2, ^c.Pages.Tail
	if c.Pages.Pool > 0 {
		c.Pages.Pool += 2
	}
	was, is, err := x.pair(func(T) (T, error) { return x.build(&c) })
	if err != nil {
		return err
	}
	return was.same(is, identity)
}

// permuted has requests and heads in another order.
func (x related[T]) permuted(requests, heads []int, change func(in T, requests, heads []int) T, exactly bool) error {
	was, is, err := x.pair(func(in T) (T, error) { return change(in, requests, heads), nil })
	if err != nil {
		return err
	}
	of := rowOf(x.tokens, requests, heads)
	if exactly {
		return was.same(is, of)
	}
	return was.near(is, of, x.c.Tolerance, 0)
}

// foreignNaN spoils the keys of a request, where there is one that has any.
func (x related[T]) foreignNaN(spoil func(in T, victim int)) error {
	victim := -1
	for _, i := range x.r.Perm(len(x.c.KVLen)) {
		if x.c.KVLen[i] > 0 {
			victim = i
		}
	}
	if victim < 0 {
		return nil // no request has a key: none can be foreign
	}
	was, is, err := x.pair(func(in T) (T, error) { spoil(in, victim); return in, nil })
	if err != nil {
		return err
	}
	return was.same(is, others(x.tokens, x.c.Model.Heads, victim))
}

func nan(x []float32) {
	for i := range x {
		x[i] = float32(math.NaN())
	}
}

// moved compares two runs on inputs of which one is the other's changed: out
// stays, and LSEs move by shift.
func (x related[T]) moved(first, second func(in T), shift float64) error {
	in, err := x.build(x.c)
	if err != nil {
		return err
	}
	first(in)
	was, err := x.answer(in)
	if err != nil {
		return err
	}
	second(in)
	is, err := x.answer(in)
	if err != nil {
		return err
	}
	if x.c.LSEBase == "2" {
		shift /= math.Ln2
	}
	return was.near(is, identity, x.c.Tolerance, shift)
}

// A query's last column of these, and a key's, make logits that are known.
const (
	shiftQuery = 16
	shiftKey   = 2
	loudQuery  = 1024
	junkValue  = 100 // of a key without weight
)

// loudKey is so far below zero as the type has, and f32 sums hold.
func loudKey(t dtype.Type) float32 {
	if t == dtype.FP16 {
		return -6e4
	}
	return t.Round(-1e30)
}

// cutPoint draws where a context is cut in two, so that every query sees all of
// the first part.
func (x related[T]) cutPoint(i int) int {
	most := x.c.KVLen[i]
	if x.c.Causal {
		most = max(0, min(most, oracle.Visible(true, most, x.c.Queries(i), 0)))
	}
	return x.r.IntN(most + 1)
}

// seeing returns the rows that see a key.
func (x related[T]) seeing() func(row int) int {
	var of []int
	for i, n := range x.c.KVLen {
		for j := range x.tokens[i] {
			for range x.c.Model.Heads {
				row := len(of)
				if oracle.Visible(x.c.Causal, n, x.tokens[i], j) == 0 {
					row = -1
				}
				of = append(of, row)
			}
		}
	}
	return func(row int) int { return of[row] }
}

// merged compares the merge of two answers with the answer to the whole.
func (r *Runner) merged(c *cases.Case, whole, first, second answer) error {
	m := &cases.Merge{Case: c, Heads: c.Model.Heads, Tokens: whole.rows() / c.Model.Heads, Width: whole.width}
	for _, part := range []answer{first, second} {
		m.Outs = append(m.Outs, part.t.Decode(nil, part.out))
		m.LSEs = append(m.LSEs, dtype.F32.Decode(nil, part.lse))
	}
	merge := *c
	merge.Partial, merge.Layout.Out, merge.Op = "", "dense", "merge"
	merge.Model.Value = whole.width
	m.Case = &merge
	out, lse, err := r.states(m)
	if err != nil {
		return err
	}
	return whole.near(answer{t: whole.t, width: whole.width, out: out, lse: lse, name: whole.name}, identity, c.Tolerance, 0)
}
