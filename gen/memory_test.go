package gen_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/mlagen/mlagen/gen"
	"github.com/mlagen/mlagen/ptx/isa"
)

func TestGlobalMemory(t *testing.T) {
	r := newRig(t, 32)
	k := r.k
	in := r.array("in", isa.S32, each(256, func(i int) uint32 { return uint32(1000 + i) })...)
	factor := k.Scalar("factor", isa.S32)
	r.values["factor"] = 3
	lane := k.Lane()
	at := in.Read().At(lane.Mul(4))
	v := at.LoadVector(0, 4)
	w := at.LoadVectorIf(lane.Ge(8), 128, 2)
	sum := v[0].Add(v[1]).Add(v[2]).Add(v[3]).Mul(factor.Read())
	to := r.out.At(lane.Mul(4))
	to.Store(0, sum.As(isa.U32))
	to.StoreVector(2, w[0].As(isa.U32), w[1].As(isa.U32))
	to.Store(1, in.At(lane).At(7).Load(1).As(isa.U32))
	got := r.run(128)
	want := each(128, func(i int) uint32 {
		lane := i / 4
		switch i % 4 {
		case 0:
			return uint32(3 * (4*(1000+4*lane) + 6))
		case 1:
			return uint32(1000 + lane + 8)
		}
		if lane < 8 {
			return 0
		}
		return uint32(1000 + 128 + 4*lane + i%4 - 2)
	})
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestFarElements: an index of 32 bits reaches elements beyond 2³² bytes.
func TestFarElements(t *testing.T) {
	r := newRig(t, 32)
	k := r.k
	const far = 1<<31 - 1 // elements
	p, err := r.machine.Alloc("pool", 4*(far+1))
	if err != nil {
		t.Fatal(err)
	}
	if err := r.machine.Write(p+4*far, []byte{42, 0, 0, 0}); err != nil {
		t.Fatal(err)
	}
	index := r.array("index", isa.S32, far, 1<<30)
	pool := k.Pointer("pool", isa.S32)
	r.values["pool"] = p
	i := index.Load(0)
	k.If(k.Thread().Eq(0), func() {
		r.out.Store(0, pool.At(i).Load(0).As(isa.U32))
		r.out.Store(1, pool.At(index.Load(1).Extend().Mul(2)).Load(-1).As(isa.U32))
		r.out.Store(2, pool.At(far).Load(0).As(isa.U32))
	})
	if diff := cmp.Diff([]uint32{42, 42, 42}, r.run(3)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestSharedMemory(t *testing.T) {
	r := newRig(t, 64)
	k := r.k
	a := k.SharedArray("a", isa.U32, 64)
	b := k.SharedArray("b", isa.U32, 4*64)
	tid := k.Thread()
	a.At(tid).Store(0, tid.Mul(5).As(isa.U32))
	b.At(tid.Mul(4)).StoreVector(0, tid.As(isa.U32), tid.Add(1).As(isa.U32))
	b.At(tid.Mul(4)).At(2).StoreVector(0, tid.Add(2).As(isa.U32), tid.Add(3).As(isa.U32))
	k.SyncCTA()
	other := tid.Xor(63)
	v := b.At(other.Mul(4)).LoadVector(0, 4)
	sum := a.At(other).Load(0).Add(v[0]).Add(v[1]).Add(v[2]).Add(v[3])
	r.mine().Store(0, sum)
	want := each(64, func(i int) uint32 { return uint32(9*(63-i) + 6) })
	if diff := cmp.Diff(want, r.run(64)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestCluster: a CTA reads its peer's shared memory.
func TestCluster(t *testing.T) {
	r := newRig(t, 32)
	k := r.k
	k.Cluster(2)
	r.grid = 4
	a := k.SharedArray("a", isa.U32, 32)
	tid, rank := k.Thread(), k.ClusterRank()
	a.At(tid).Store(0, k.Block().Mul(100).Add(tid).As(isa.U32))
	k.SyncCluster()
	v := a.Peer(rank.Xor(1)).At(tid).Load(0)
	k.SyncCluster() // a CTA must not end while a peer reads it
	r.out.At(k.Block().Mul(32).Add(tid)).Store(0, v)
	want := each(128, func(i int) uint32 { return uint32(i/32^1)*100 + uint32(i%32) })
	if diff := cmp.Diff(want, r.run(128)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestPack(t *testing.T) {
	for _, c := range []struct {
		dtype gen.DType
		want  uint32
	}{{gen.BF16, 0xc0003f80}, {gen.FP16, 0xc0003c00}} { // 1 in the low half, −2 in the high one
		r := newRig(t, 32)
		k := r.k
		packed := k.Pack(c.dtype, k.Thread().ToFloat().Add(1.0), k.Thread().ToFloat().Sub(2.0))
		k.If(k.Thread().Eq(0), func() { r.out.Store(0, packed.As(isa.U32)) })
		if got := r.run(1)[0]; got != c.want {
			t.Errorf("%s: %#x, want %#x", c.dtype.Name, got, c.want)
		}
	}
	if _, err := gen.ParseDType("fp8"); err == nil {
		t.Error("fp8 was taken")
	}
	for _, d := range []gen.DType{gen.BF16, gen.FP16} {
		if got, err := gen.ParseDType(d.Name); err != nil || got != d {
			t.Errorf("%s: %v, %v", d.Name, got, err)
		}
	}
}

// TestPinnedSharedMemory: an address kept in a register leads where one computed
// anew does, and is computed once.
func TestPinnedSharedMemory(t *testing.T) {
	r := newRig(t, 64)
	k := r.k
	k.SharedArray("before", isa.U32, 4)
	a, b := k.SharedArray("a", isa.U32, 64), k.SharedArray("b", isa.U32, 1)
	a.At(k.Thread()).Store(0, k.Thread().As(isa.U32))
	k.If(k.Thread().Eq(0), func() { b.Store(0, k.Const(isa.U32, 100)) })
	anew := a.At(k.Thread()).Address()
	k.PinShared()
	pinned := a.At(k.Thread()).Address()
	k.SyncCTA()
	far := a.At(k.Int(63).Sub(k.Thread()))
	r.mine().Store(0, far.Load(0).Add(b.Load(0)).Add(pinned.Sub(anew).As(isa.U32)))
	out := r.build()
	if n := strings.Count(string(out.PTX), ", smem;"); n != 3 { // each once before, and to be kept
		t.Errorf("the address is taken %d times, want 3:\n%s", n, out.PTX)
	}
	if diff := cmp.Diff(each(64, func(i int) uint32 { return uint32(63 - i + 100) }), r.execute(out, 64)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
