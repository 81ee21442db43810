package runtime

import (
	"math/rand/v2"
	"testing"
)

// bytesOf lists the bytes that a tensor takes.
func bytesOf(t *Tensor) map[int64]bool {
	taken := map[int64]bool{}
	var walk func(axis int, at int64)
	walk = func(axis int, at int64) {
		if axis == len(t.Shape) {
			for i := range t.DType.Bytes() {
				taken[at+i] = true
			}
			return
		}
		for i := range t.Shape[axis] {
			walk(axis+1, at+i*t.strideBytes(axis))
		}
	}
	walk(0, int64(t.Ptr))
	return taken
}

// TestExtents: two tensors share memory when a byte belongs to both, whatever
// their strides.
func TestExtents(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	random := func(other *Tensor) Tensor {
		x := Tensor{Ptr: Ptr(64 + r.IntN(200)), DType: []DType{BF16, F32, S64}[r.IntN(3)]}
		if other != nil && r.IntN(2) == 0 { // another view of the same
			x.Strides, x.DType = other.Strides, other.DType
		}
		rank := 1 + r.IntN(4)
		if x.Strides != nil {
			rank = len(x.Strides)
		}
		dense := x.Strides == nil && r.IntN(4) == 0
		for range rank {
			x.Shape = append(x.Shape, 1+r.Int64N(4))
		}
		if x.Strides == nil && !dense {
			for range rank {
				x.Strides = append(x.Strides, r.Int64N(30))
			}
		}
		return x
	}
	found := map[bool]int{}
	for range 20000 {
		a := random(nil)
		b := random(&a)
		x, y := bytesOf(&a), bytesOf(&b)
		want := false
		for at := range x {
			want = want || y[at]
		}
		ea, eb := extentOf(&a), extentOf(&b)
		if got := ea.shares(&eb); got != want || eb.shares(&ea) != want {
			t.Fatalf("%+v and %+v share memory: %v, want %v", a, b, got, want)
		}
		if ea.end()-1 != maximum(x) {
			t.Fatalf("%+v ends at %d, want %d", a, ea.end(), maximum(x)+1)
		}
		found[want]++
	}
	if found[true] < 1000 || found[false] < 1000 {
		t.Errorf("only %v", found)
	}
}

func maximum(of map[int64]bool) (m int64) {
	for at := range of {
		m = max(m, at)
	}
	return m
}

// TestEntangledExtents: views that no engine has are decided about in bounded
// time.
func TestEntangledExtents(t *testing.T) {
	a := extentOf(&Tensor{0x1000, BF16, []int64{1 << 20, 1 << 10, 3}, []int64{1 << 14, 14, 2}})
	b := extentOf(&Tensor{0x1002, BF16, []int64{1 << 20, 1 << 10}, []int64{1<<14 - 14, 14}})
	if !a.shares(&b) {
		t.Error("apart, for all that is known")
	}
	// Two columns of a cache with rows of 576 elements, and pages between another's.
	kv := extentOf(&Tensor{0x1000, BF16, []int64{1 << 20, 64, 512}, []int64{64 * 640, 640, 1}})
	rope := extentOf(&Tensor{0x1000 + 1024, BF16, []int64{1 << 20, 64, 64}, []int64{64 * 640, 640, 1}})
	if kv.shares(&rope) {
		t.Error("columns beside each other")
	}
	odd := extentOf(&Tensor{0x1000, BF16, []int64{1 << 20, 64, 576}, []int64{2 * 64 * 576, 576, 1}})
	even := extentOf(&Tensor{0x1000 + 2*64*576, BF16, []int64{1 << 20, 64, 576}, []int64{2 * 64 * 576, 576, 1}})
	if odd.shares(&even) || !odd.shares(&odd) {
		t.Error("pages beside each other")
	}
}

func BenchmarkApart(b *testing.B) {
	l := newPlaces(newFake(), 9)
	for i := range 9 {
		x := expectation{name: "x", dtype: BF16, rank: 4, axes: [4]axis{{"a", -1}, {"b", -1}, {"c", -1}, {"d", -1}}, output: i > 6}
		t := Dense(Ptr(0x100000*(i+1)), BF16, 4, 2, 16, 576)
		if err := x.check(&t); err != nil {
			b.Fatal(err)
		}
		l.taken = append(l.taken, taken{x.name, extentOf(&t), int64(t.Ptr) + 4*2*16*576*2, x.output})
	}
	b.ReportAllocs()
	for range b.N {
		if err := apart(&l); err != nil {
			b.Fatal(err)
		}
	}
}
