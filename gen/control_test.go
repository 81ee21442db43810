package gen_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/mlagen/mlagen/gen"
	"github.com/mlagen/mlagen/ptx/isa"
)

// TestBranches: threads of one warp take different ways and meet again.
func TestBranches(t *testing.T) {
	r := newRig(t, 64)
	k := r.k
	v := k.Var(k.Int(0))
	k.IfElse(k.Thread().Rem(3).Eq(0), func() {
		v.Set(k.Thread().Mul(10))
	}, func() {
		k.If(k.Thread().Gt(40), func() { v.Set(7) })
		v.Increase(1)
	})
	k.SyncWarp()
	v.Increase(k.Lane().Butterfly(1)) // all lanes are here
	r.mine().Store(0, v.As(isa.U32))
	want := each(64, func(i int) uint32 {
		w := uint32(1)
		switch {
		case i%3 == 0:
			w = uint32(10 * i)
		case i > 40:
			w = 8
		}
		return w + uint32(i%32^1)
	})
	if diff := cmp.Diff(want, r.run(64)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestLoops: every loop runs as often as Go's does, also not at all, with
// bounds that differ between threads.
func TestLoops(t *testing.T) {
	r := newRig(t, 32)
	k := r.k
	tid := k.Thread()
	sum := k.Var(k.Int(0))
	k.For("constant", 2, 11, 3, func(i gen.Value) { sum.Increase(i) }) // 2+5+8
	k.For("none", 5, 5, 1, func(i gen.Value) { sum.Increase(1000) })
	k.For("backwards", 5, 3, 1, func(i gen.Value) { sum.Increase(1000) })
	k.For("thread", tid, 20, tid.Add(1), func(i gen.Value) {
		k.For("inner", 0, i.Rem(3), 1, func(j gen.Value) { sum.Increase(1) })
	})
	n := k.Var(tid)
	k.While("halve", func() gen.Value { return n.Gt(0) }, func() {
		n.Set(n.Shr(1))
		sum.Increase(100)
	})
	k.Loop("leave", func(leaveIf func(gen.Value)) {
		leaveIf(n.Ge(tid))
		n.Increase(1)
		leaveIf(n.Eq(4))
		sum.Increase(10000)
	})
	r.mine().Store(0, sum.As(isa.U32))
	want := each(32, func(id int) uint32 {
		sum := 2 + 5 + 8
		for i := id; i < 20; i += id + 1 {
			sum += i % 3
		}
		for n := id; n > 0; n >>= 1 {
			sum += 100
		}
		for n := 0; n < id; {
			if n++; n == 4 {
				break
			}
			sum += 10000
		}
		return uint32(sum)
	})
	if diff := cmp.Diff(want, r.run(32)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestReturn(t *testing.T) {
	r := newRig(t, 32)
	k := r.k
	r.mine().Store(0, k.Const(isa.U32, 1))
	k.ReturnIf(k.Thread().Ge(20))
	r.mine().Store(0, k.Const(isa.U32, 2))
	k.If(k.Thread().Ge(10), k.Return)
	r.mine().Store(0, k.Const(isa.U32, 3))
	want := each(32, func(i int) uint32 { return uint32(3 - i/10 + i/30) })
	if diff := cmp.Diff(want, r.run(32)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestWarp: what lanes tell each other.
func TestWarp(t *testing.T) {
	r := newRig(t, 64)
	k := r.k
	lane, tid := k.Lane(), k.Thread()
	var want [][]uint32
	put := func(v gen.Value, f func(i int) uint32) {
		r.out.At(tid).Store(64*len(want), v.As(isa.U32))
		want = append(want, each(64, f))
	}
	flag := func(p gen.Value) gen.Value { return k.Select(p, k.Int(1), k.Int(0)) }
	put(lane, func(i int) uint32 { return uint32(i % 32) })
	put(k.Warp(), func(i int) uint32 { return uint32(i / 32) })
	put(tid.Broadcast(5), func(i int) uint32 { return uint32(i/32*32 + 5) })
	put(tid.FromLane(lane.Xor(3)), func(i int) uint32 { return uint32(i ^ 3) })
	put(tid.Butterfly(16), func(i int) uint32 { return uint32(i ^ 16) })
	below, there := tid.FromBelow(4)
	put(flag(there), func(i int) uint32 { return uint32(min(i%32/4, 1)) })
	put(k.Select(there, below, k.Int(99)), func(i int) uint32 {
		if i%32 < 4 {
			return 99
		}
		return uint32(i - 4)
	})
	put(tid.InclusiveSum(), func(i int) uint32 {
		s := 0
		for j := i / 32 * 32; j <= i; j++ {
			s += j
		}
		return uint32(s)
	})
	put(tid.Reduce(gen.MaxOf, 4, 8, 16), func(i int) uint32 { return uint32(i/32*32 + 28 + i%4) })
	put(tid.Reduce(gen.SumOf, 1, 2), func(i int) uint32 { return uint32(i/4*16 + 6) })
	put(flag(k.AnyInWarp(tid.Eq(40))), func(i int) uint32 { return uint32(i / 32) })
	odd := tid.And(1)
	put(tid.SumOfWarp(), func(i int) uint32 { return uint32(i/32*1024 + 496) })
	put(tid.Sub(40).MinOfWarp(), func(i int) uint32 { return uint32(i/32*32 - 40) })
	put(tid.Sub(40).MaxOfWarp(), func(i int) uint32 { return uint32(i/32*32 - 9) })
	upTo, all := k.CountInWarp(odd.Eq(1).And(tid.Ge(8)))
	put(upTo, func(i int) uint32 { return uint32(max(0, i%32+1-8*(1-i/32))) / 2 })
	put(all, func(i int) uint32 { return uint32(12 + i/32*4) })
	elected := k.Var(k.Int(0))
	k.OneLane(func() { elected.Set(1) })
	k.SyncWarp()
	put(elected.Reduce(gen.SumOf, 1, 2, 4, 8, 16), func(int) uint32 { return 1 })
	got := r.run(64 * len(want))
	for i, w := range want {
		if diff := cmp.Diff(w, got[64*i:64*i+64]); diff != "" {
			t.Errorf("result %d (-want +got):\n%s", i, diff)
		}
	}
}
