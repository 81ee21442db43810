package templates

import (
	"github.com/mlagen/mlagen/gen"
	"github.com/mlagen/mlagen/ptx/isa"
)

// scanThreads is the CTA over which values are combined: as many warps as a
// warp has lanes, so that one lane reads what one warp has found.
const scanThreads = 1024

// ofWarps gives lane w of every warp the words that warp w holds in its last
// lane. All threads must take part. The words go through memory of this call's
// own, so one barrier is enough; in a loop another must come before the next
// turn.
func ofWarps(k *gen.Kernel, name string, words ...gen.Value) []gen.Value {
	n := len(words)
	array := k.SharedArray(name, isa.S32, n*scanThreads/32)
	mine, theirs := array.At(k.Warp().Mul(n)), array.At(k.Lane().Mul(n))
	last := k.Lane().Eq(31)
	if n == 1 {
		k.If(last, func() { mine.Store(0, words[0]) })
		k.SyncCTA()
		return []gen.Value{theirs.Load(0)}
	}
	k.If(last, func() { mine.StoreVector(0, words...) })
	k.SyncCTA()
	return theirs.LoadVector(0, n)
}

// sumOfWarps takes one word per warp, as ofWarps gives them, and returns the
// sum over the warps before this one and over all.
func sumOfWarps(k *gen.Kernel, word gen.Value) (before, total gen.Value) {
	return k.Select(k.Lane().Lt(k.Warp()), word, k.Int(0)).SumOfWarp(), word.SumOfWarp()
}

// runningSum returns the sum of v over this thread and those before it, and over
// all, with the reservations of ofWarps.
func runningSum(k *gen.Kernel, name string, v gen.Value) (through, total gen.Value) {
	sum := v.InclusiveSum()
	before, total := sumOfWarps(k, ofWarps(k, name, sum)[0])
	return before.Add(sum), total
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
