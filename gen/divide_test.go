package gen_test

import (
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/mlagen/mlagen/gen"
	"github.com/mlagen/mlagen/ptx/isa"
)

// TestDivisor: quotients are exact over the whole range of u32.
func TestDivisor(t *testing.T) {
	numbers := []uint32{0, 1, 2, 3, 6, 7, 63, 64, 65, 132, 1000, 65535, 65536, 1<<24 + 1, 1<<31 - 1, 1 << 31, 1<<31 + 1, math.MaxUint32 - 1, math.MaxUint32}
	var n, by, floor, ceil []uint32
	for _, a := range numbers {
		for _, b := range numbers[1:] {
			for _, a := range []uint32{a, a / b * b, a/b*b - 1} { // multiples, and one below
				n, by, floor = append(n, a), append(by, b), append(floor, a/b)
				if uint64(a)+uint64(b) > 1<<32 {
					ceil = append(ceil, 0)
				} else {
					ceil = append(ceil, uint32((uint64(a)+uint64(b)-1)/uint64(b)))
				}
			}
		}
	}
	rest := each(len(n), func(i int) uint32 { return n[i] % by[i] })
	for of, want := range map[string][]uint32{"floor": floor, "ceil": ceil, "rest": rest} {
		r := newRig(t, 1024)
		k := r.k
		pn, pby := r.array("n", isa.U32, n...), r.array("by", isa.U32, by...)
		k.For("number", k.Thread(), len(n), 1024, func(i gen.Value) {
			a, b := pn.At(i).Load(0), pby.At(i).Load(0)
			d := k.Divisor(b)
			q := d.Floor(a)
			switch of {
			case "rest":
				_, q = d.Split(a)
			case "ceil":
				fits := a.Extend().Add(b.Extend()).Le(k.Const(isa.U64, 1<<32))
				q = k.Select(fits, d.Ceil(a), k.Const(isa.U32, 0))
			}
			r.out.At(i).Store(0, q)
		})
		if diff := cmp.Diff(want, r.run(len(want))); diff != "" {
			t.Errorf("%s (-want +got):\n%s", of, diff)
		}
	}
}

// TestDivisorSigned: s32 values stay s32, and one declaration serves many.
func TestDivisorSigned(t *testing.T) {
	r := newRig(t, 32)
	k := r.k
	d := k.Divisor(k.Thread().Add(1))
	floor, ceil := d.Floor(k.Int(100)), d.Ceil(k.Thread().Mul(7))
	if floor.Type() != isa.S32 || ceil.Type() != isa.S32 {
		t.Errorf("quotients of s32 are %v and %v", floor.Type(), ceil.Type())
	}
	r.mine().Store(0, floor.Mul(1000).Add(ceil).As(isa.U32))
	built := r.build()
	if n := count(built, "div."); n != 1 {
		t.Errorf("%d divisions, want 1", n)
	}
	want := each(32, func(i int) uint32 { return uint32(100/(i+1)*1000 + (7*i+i)/(i+1)) })
	if diff := cmp.Diff(want, r.execute(built, 32)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestDivideByConstant: quotients and remainders by constants are exact over the
// whole range of s32, rounded toward zero, and of natural numbers too; no
// division is left.
func TestDivideByConstant(t *testing.T) {
	var numbers []int32
	for _, n := range []int32{0, 1, 2, 3, 5, 6, 7, 63, 64, 65, 127, 128, 129, 131, 575, 576, 1000, 65535, 65536, 1<<24 + 1, 1<<30 - 1, 1 << 30, math.MaxInt32 - 1, math.MaxInt32} {
		numbers = append(numbers, n, -n, -n-1)
	}
	var words []uint32
	for _, n := range numbers {
		words = append(words, uint32(n))
	}
	const most = math.MaxInt32
	for _, by := range []int{1, 2, 3, 5, 6, 7, 9, 10, 12, 20, 24, 25, 48, 64, 96, 127, 128, 130, 576, 641, 1000, 65537, 1 << 30, 1<<30 + 1, most - 1, most} {
		for _, natural := range []bool{false, true} {
			r := newRig(t, 128)
			k := r.k
			pn := r.array("n", isa.S32, words...)
			k.For("number", k.Thread(), len(numbers), 128, func(i gen.Value) {
				n := pn.At(i).Load(0)
				if natural {
					n = n.And(most)
				}
				r.out.At(i.Mul(2)).Store(0, n.Div(by).As(isa.U32))
				r.out.At(i.Mul(2)).Store(1, n.Rem(by).As(isa.U32))
			})
			var want []uint32
			for _, n := range numbers {
				if natural {
					n &= most
				}
				want = append(want, uint32(n/int32(by)), uint32(n%int32(by)))
			}
			text := string(r.build().PTX)
			if diff := cmp.Diff(want, r.run(len(want))); diff != "" {
				t.Errorf("by %d, natural %v (-want +got):\n%s", by, natural, diff)
			}
			if strings.Contains(text, "div.") || strings.Contains(text, "rem.") {
				t.Errorf("by %d, natural %v: a division is left in\n%s", by, natural, text)
			}
		}
	}
}
