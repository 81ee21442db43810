package gen_test

import (
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/mlagen/mlagen/gen"
	"github.com/mlagen/mlagen/ptx/isa"
)

// operands of the integer tests: signs, zero, powers of two and their neighbours.
var ints = []int32{0, 1, 2, 3, 7, 8, 31, 33, 64, 100, 1000, 65537, math.MaxInt32, -1, -2, -3, -8, -33, -1000, math.MinInt32 + 1}

// TestIntegers: an operation gives the same on values in registers, on a value
// and a constant, and on two constants, which cost no instruction.
func TestIntegers(t *testing.T) {
	for _, c := range []struct {
		name string
		op   func(a gen.Value, b any) gen.Value
		want func(a, b int64) int64
		skip func(b int32) bool
	}{
		{"add", gen.Value.Add, func(a, b int64) int64 { return a + b }, nil},
		{"sub", gen.Value.Sub, func(a, b int64) int64 { return a - b }, nil},
		{"mul", gen.Value.Mul, func(a, b int64) int64 { return a * b }, nil},
		{"div", gen.Value.Div, func(a, b int64) int64 { return a / b }, func(b int32) bool { return b == 0 }},
		{"rem", gen.Value.Rem, func(a, b int64) int64 { return a % b }, func(b int32) bool { return b == 0 }},
		{"min", gen.Value.Min, func(a, b int64) int64 { return min(a, b) }, nil},
		{"max", gen.Value.Max, func(a, b int64) int64 { return max(a, b) }, nil},
		{"and", gen.Value.And, func(a, b int64) int64 { return a & b }, nil},
		{"or", gen.Value.Or, func(a, b int64) int64 { return a | b }, nil},
		{"xor", gen.Value.Xor, func(a, b int64) int64 { return a ^ b }, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			n := len(ints)
			var a, b, want []uint32
			for _, x := range ints {
				for _, y := range ints {
					if c.skip != nil && c.skip(y) {
						y = 5
					}
					a, b, want = append(a, uint32(x)), append(b, uint32(y)), append(want, uint32(c.want(int64(x), int64(y))))
				}
			}
			r := newRig(t, (n*n+31)/32*32)
			k := r.k
			pa, pb := r.array("a", isa.S32, a...), r.array("b", isa.S32, b...)
			k.If(k.Thread().Lt(n*n), func() {
				x, y := pa.At(k.Thread()).Load(0), pb.At(k.Thread()).Load(0)
				r.mine().Store(0, c.op(x, y))
			})
			if diff := cmp.Diff(want, r.run(n*n)); diff != "" {
				t.Errorf("registers (-want +got):\n%s", diff)
			}

			// One thread, a constant on the right and then on both sides.
			r = newRig(t, 32)
			k = r.k
			pa = r.array("a", isa.S32, a...)
			k.If(k.Thread().Eq(0), func() {
				for i := range a {
					r.out.Store(i, c.op(pa.Load(i), int(int32(b[i]))))
				}
			})
			if diff := cmp.Diff(want, r.run(n*n)); diff != "" {
				t.Errorf("constant on the right (-want +got):\n%s", diff)
			}
			r = newRig(t, 32)
			k = r.k
			k.If(k.Thread().Eq(0), func() {
				for i := range a {
					x, y := int(int32(a[i])), int(int32(b[i]))
					if exact := c.want(int64(x), int64(y)); exact != int64(int32(exact)) {
						want[i] = 0 // constants beyond 32 bits are a mistake, see TestMistakes
						r.out.Store(i, 0)
						continue
					}
					r.out.Store(i, c.op(k.Int(x), k.Int(y)))
				}
			})
			out := r.build()
			if n := count(out, c.name+"."); n != 0 {
				t.Errorf("%d instructions for constants", n)
			}
			if diff := cmp.Diff(want, r.execute(out, n*n)); diff != "" {
				t.Errorf("constants (-want +got):\n%s", diff)
			}
		})
	}
}

// TestNeutralOperands: an operation that changes nothing costs nothing, and a
// multiplication by a power of two is a shift, as is an unsigned division.
func TestNeutralOperands(t *testing.T) {
	k := gen.NewKernel("k", nil)
	k.Threads(32)
	out := k.Pointer("out", isa.S32)
	x := k.Thread()
	for i, v := range []gen.Value{x.Add(0), x.Sub(0), x.Mul(1), x.Div(1), x.Shl(0), x.Shr(0), k.Int(0).Add(x)} {
		out.Store(i, v)
	}
	out.Store(7, x.Rem(1))
	out.Store(8, x.Mul(64))
	out.Store(9, x.As(isa.U32).Div(64))
	built, err := k.Build()
	if err != nil {
		t.Fatal(err)
	}
	for _, op := range []string{"add.s32", "sub.", "mul.", "div.", "rem.", "shr.s32"} {
		if n := count(built, op); n != 0 {
			t.Errorf("%d × %s", n, op)
		}
	}
	for _, op := range []string{"shl.", "shr.u32"} {
		if n := count(built, op); n != 1 {
			t.Errorf("%d × %s, want 1", n, op)
		}
	}
}

func TestWidths(t *testing.T) {
	r := newRig(t, 32)
	k := r.k
	in := r.array("in", isa.S32, 0x40000000, 0xffffffff, 100)
	x, minus, hundred := in.Load(0), in.Load(1), in.Load(2)
	k.If(k.Thread().Eq(0), func() {
		put := func(i int, v gen.Value) {
			r.out.Store(i, v.Truncate().As(isa.U32))
			r.out.Store(i+1, k.Const(isa.S64, 0).Add(v).Div(k.Const(isa.S64, 1<<32)).Truncate().As(isa.U32))
		}
		put(0, x.MulWide(8))                                      // 2³³, not 0
		put(2, minus.Extend().Mul(4))                             // sign extended
		put(4, minus.As(isa.U32).Extend().As(isa.S64))            // zero extended
		r.out.Store(6, x.MulWide(100).Div64(hundred).As(isa.U32)) // 2³⁰
		r.out.Store(7, k.Select(hundred.Gt(99), x, minus))        //
		r.out.Store(8, minus.Shr(4))                              // arithmetic
		r.out.Store(9, minus.As(isa.U32).Shr(4))                  // logical
		put(10, minus.Extend().Add(k.Int(5).Sub(7).Extend()))     // a widened constant
		r.out.Store(12, hundred.MulAdd(3, minus))                 // 299
	})
	want := []uint32{0, 2, 0xfffffffc, 0, 0xffffffff, 0, 1 << 30, 0x40000000, 0xffffffff, 0x0fffffff, 0xfffffffd, 0, 299}
	if diff := cmp.Diff(want, r.run(len(want))); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestComparisons(t *testing.T) {
	values := []float32{0, 1, -1, float32(math.Inf(-1)), float32(math.NaN())}
	r := newRig(t, 32)
	k := r.k
	var bits, want []uint32
	for _, v := range values {
		bits = append(bits, math.Float32bits(v))
	}
	in := r.array("in", isa.F32, bits...)
	for i, a := range values {
		for j, b := range values {
			x, y := in.Load(i), in.Load(j)
			word := k.Var(k.Int(0))
			expect := uint32(0)
			for bit, c := range []struct {
				p    gen.Value
				want bool
			}{{x.Lt(y), a < b}, {x.Le(y), a <= b}, {x.Gt(y), a > b}, {x.Ge(y), a >= b}, {x.Eq(y), a == b}, {x.Ne(y), a != b},
				{x.Lt(y).And(x.Ne(y)), a < b}, {x.Eq(y).Or(x.Gt(y)), a >= b}, {x.Eq(y).Not(), a != b}} {
				word.Set(k.Select(c.p, word.Or(1<<bit), word.Value))
				if c.want {
					expect |= 1 << bit
				}
			}
			k.If(k.Thread().Eq(0), func() { r.out.Store(len(want), word.As(isa.U32)) })
			want = append(want, expect)
		}
	}
	if diff := cmp.Diff(want, r.run(len(want))); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestFloats: sums and products are rounded one by one, never fused, so that
// x·s − max is 0 where x·s is the maximum; a NaN loses against a number; 2^−∞
// is 0.
func TestFloats(t *testing.T) {
	inf, nan := float32(math.Inf(1)), float32(math.NaN())
	a, b := []float32{1 + 0x1p-12, 3, nan, 2, -inf, 1e30}, []float32{1 + 0x1p-12, -2, 4, nan, 5, 1e30}
	r := newRig(t, 32)
	k := r.k
	word := func(list []float32) []uint32 {
		return each(len(list), func(i int) uint32 { return math.Float32bits(list[i]) })
	}
	pa, pb := r.array("a", isa.F32, word(a)...), r.array("b", isa.F32, word(b)...)
	var want []float32
	floats := k.Pointer("floats", isa.F32) // the output again, as another type
	put := func(v gen.Value, w float32) {
		k.If(k.Thread().Eq(0), func() { floats.Store(len(want), v) })
		want = append(want, w)
	}
	for i := range a {
		x, y := pa.Load(i), pb.Load(i)
		put(x.Mul(y).Sub(1.0), float32(a[i]*b[i])-1)
		put(x.Add(y), a[i]+b[i])
		put(x.Max(y), max2(a[i], b[i]))
		put(x.Min(y), -max2(-a[i], -b[i]))
	}
	put(pa.Load(4).Exp2(), 0)
	put(pa.Load(1).Exp2(), 8)
	put(pa.Load(3).Reciprocal(), 0.5)
	put(pb.Load(2).Log2(), 2)
	put(pa.Load(1).MulAdd(2.0, 0.5), 6.5)
	put(k.Thread().ToFloat(), 0)
	put(k.NegInf(), -inf)
	for _, c := range []struct{ x, want float32 }{{2.9, 2}, {-0.9, 0}, {-5, 0}, {0x1p31, 0x1p31}, {nan, 0}} {
		u := k.Float(float64(c.x)).ToUnsigned()
		put(u.Shr(8).As(isa.S32).ToFloat().MulAdd(256.0, u.And(255).As(isa.S32).ToFloat()), c.want)
	}
	put(k.Const(isa.U32, 0xffffffff).MulHigh(k.Int(-3)).As(isa.S32).ToFloat(), -4)
	got := r.run(len(want))
	for i, w := range want {
		g := math.Float32frombits(got[i])
		if g != w && !(g != g && w != w) {
			t.Errorf("result %d: %v, want %v", i, g, w)
		}
	}
}

// max2 is the larger, a NaN loses.
func max2(a, b float32) float32 {
	if a != a || b > a {
		return b
	}
	return a
}
