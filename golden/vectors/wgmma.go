package vectors

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"

	"github.com/mlagen/mlagen/ptx/emu/wgmma"
	"github.com/mlagen/mlagen/ptx/isa"
)

// variant is a wgmma instruction: the part that is fixed in a kernel's text.
type variant struct {
	wgmma.Op
	registersA bool
}

func (v variant) name() string {
	s := fmt.Sprintf("wgmma_n%d_%v", v.N, v.A)
	if v.A != v.B {
		s += "_" + v.B.String()
	}
	if v.registersA {
		s += "_rs"
	}
	for _, m := range []struct {
		on   bool
		name string
	}{{v.TransA, "_ta"}, {v.TransB, "_tb"}, {v.NegateA, "_na"}, {v.NegateB, "_nb"}} {
		if m.on {
			s += m.name
		}
	}
	return s
}

// kernel multiplies once. D comes from memory and goes back there, register i
// of thread t at i*128+t; so do the four registers of an A in registers. The
// descriptors are relative to the region.
func (v variant) kernel() *kernel {
	k := &kernel{name: v.name()}
	k.params = []string{".param .u64 desc_a", ".param .u64 desc_b", ".param .u32 scale_d", ".param .u32 words", ".param .u64 image", ".param .u64 regs_a", ".param .u64 d"}
	k.prologue()
	k.load("u64", "%rd4", "desc_a")
	k.load("u64", "%rd5", "desc_b")
	k.load("u32", "%r33", "scale_d")
	k.load("u32", "%r32", "words")
	k.load("u64", "%rd0", "image")
	k.load("u64", "%rd1", "regs_a")
	k.load("u64", "%rd2", "d")
	k.fill(128, "%rd0", "%r32")
	k.line("shr.u32 %%r34, %s, 4;", region)
	k.line("cvt.u64.u32 %%rd6, %%r34;")
	k.line("add.u64 %%rd4, %%rd4, %%rd6;")
	k.line("add.u64 %%rd5, %%rd5, %%rd6;")
	k.line("setp.ne.u32 %%p0, %%r33, 0;")
	k.line("shl.b32 %%r10, %s, 2;", tid)
	k.addressInto("%rd7", "%rd2")
	var d []string
	for i := range v.Values() {
		d = append(d, fmt.Sprintf("%%f%d", i))
		k.line("ld.global.f32 %%f%d, [%%rd7+%d];", i, 512*i)
	}
	a := "%rd4"
	if v.registersA {
		k.addressInto("%rd8", "%rd1")
		for i := range wgmma.ARegisters {
			k.line("ld.global.u32 %%r%d, [%%rd8+%d];", 40+i, 512*i)
		}
		a = "{%r40, %r41, %r42, %r43}"
	}
	sign := map[bool]int{false: 1, true: -1}
	immediates := []string{fmt.Sprint(sign[v.NegateA]), fmt.Sprint(sign[v.NegateB])}
	if v.K == 16 {
		if !v.registersA {
			immediates = append(immediates, bit(v.TransA))
		}
		immediates = append(immediates, bit(v.TransB))
	}
	k.line("wgmma.fence.sync.aligned;")
	k.line("wgmma.mma_async.sync.aligned.m64n%dk%d.f32.%v.%v {%s}, %s, %%rd5, %%p0, %s;",
		v.N, v.K, v.A, v.B, strings.Join(d, ", "), a, strings.Join(immediates, ", "))
	k.line("wgmma.commit_group.sync.aligned;")
	k.line("wgmma.wait_group.sync.aligned 0;")
	for i := range v.Values() {
		k.line("st.global.f32 [%%rd7+%d], %%f%d;", 512*i, i)
	}
	return k
}

func bit(b bool) string {
	if b {
		return "1"
	}
	return "0"
}

// oneHot has one 1 per row, at k = row mod 16 or mod 32.
func oneHot(period int) func(mn, k int) float32 {
	return func(mn, k int) float32 {
		if mn%period == k {
			return 1
		}
		return 0
	}
}

// distinct gives values that differ from place to place and are exact in fp16.
func distinct(mn, k int) float32 { return float32((mn*16+k)%2039 + 1) }

func products() (list []*product) {
	op := func(n int, t isa.Type) variant { return variant{Op: wgmma.Op{N: n, K: 16, A: t, B: t}} }
	k128 := layoutNamed("k_128")

	// Where B lies: D[m][n] = B[n][m mod 16].
	for _, l := range layouts {
		ns := []int{32, 128}
		if l.mode <= 1 {
			ns = []int{8, 16, 32, 64, 128}
		}
		if l.name == "mn_128" || l.name == "k_128" {
			ns = append(ns, 256)
		}
		for _, n := range ns {
			v := op(n, isa.F16)
			v.TransB = l.trans
			p := newProduct(fmt.Sprintf("b_%s_n%d", l.name, n), v)
			p.a(k128, 0, oneHot(16))
			p.b(l, 0, distinct)
			p.exact = true
			list = append(list, p)
		}
	}
	// Where A lies: D[m][n] = A[m][n].
	for _, l := range layouts {
		v := op(16, isa.F16)
		v.TransA = l.trans
		p := newProduct("a_"+l.name, v)
		p.a(l, 0, distinct)
		p.b(k128, 0, oneHot(16))
		p.exact = true
		list = append(list, p)
	}
	// Later K blocks of a tile: a later start, the same pattern.
	for _, s := range []struct {
		layout string
		bytes  int
	}{{"k_128", 32}, {"k_128", 64}, {"k_128", 96}, {"k_64", 32}, {"mn_128", 2048}, {"mn_64", 1024}} {
		l := layoutNamed(s.layout)
		v := op(32, isa.F16)
		v.TransA, v.TransB = l.trans, l.trans
		for _, side := range []string{"a", "b"} {
			p := newProduct(fmt.Sprintf("step_%s_%s_%d", side, s.layout, s.bytes), v)
			if side == "a" {
				p.a(l, s.bytes, distinct)
				p.b(l, 0, oneHot(16))
			} else {
				p.a(l, 0, oneHot(16))
				p.b(l, s.bytes, distinct)
			}
			p.exact = true
			list = append(list, p)
		}
	}
	// A in registers.
	for _, t := range []isa.Type{isa.F16, isa.BF16} {
		v := op(16, t)
		v.registersA = true
		p := newProduct(fmt.Sprintf("registers_%v", t), v)
		if t == isa.F16 {
			p.registers(distinct)
		} else {
			p.registers(func(mn, k int) float32 { return float32((mn*16+k)%251 + 1) })
		}
		p.b(k128, 0, oneHot(16))
		p.exact = true
		list = append(list, p)
	}
	// 8-bit operands: patterns 0x38…0x77 are different positive e4m3 values.
	hot8 := func(one byte) func(mn, k int) byte {
		return func(mn, k int) byte {
			if mn%32 == k {
				return one
			}
			return 0
		}
	}
	ramp8 := func(mn, k int) byte { return byte(0x38 + (mn*7+k)%64) }
	for _, registers := range []bool{false, true} {
		p := newProduct("a_e4m3"+map[bool]string{true: "_registers"}[registers], variant{Op: wgmma.Op{N: 32, K: 32, A: isa.E4M3, B: isa.E5M2}, registersA: registers})
		if registers {
			p.registers8(ramp8)
		} else {
			p.a8(ramp8)
		}
		p.b8(hot8(0x3c))
		p.exact = true
		list = append(list, p)
	}
	// Signs and scale-d.
	for _, s := range [][2]bool{{true, false}, {false, true}, {true, true}} {
		v := op(8, isa.BF16)
		v.NegateA, v.NegateB = s[0], s[1]
		p := newProduct(fmt.Sprintf("negate_%v_%v", s[0], s[1]), v)
		small := func(mn, k int) float32 { return float32((mn*3+k*5)%17 - 8) }
		p.a(k128, 0, small)
		p.b(k128, 0, small)
		i := 0
		p.accumulate(func() float32 { i++; return float32(i % 1000) })
		p.exact = true
		list = append(list, p)
	}
	return append(list, numeric()...)
}

// numeric are experiments on rounding: random values of several spreads.
func numeric() (list []*product) {
	k128 := layoutNamed("k_128")
	for i, c := range []struct {
		n         int
		t         isa.Type
		spread    int // powers of two
		registers bool
	}{
		{8, isa.BF16, 0, false}, {16, isa.BF16, 0, false}, {32, isa.BF16, 0, false}, {64, isa.BF16, 0, false},
		{16, isa.BF16, 0, true}, {16, isa.BF16, 12, false}, {16, isa.BF16, 60, false}, {16, isa.F16, 0, false}, {16, isa.F16, 8, true},
	} {
		rng := rand.New(rand.NewPCG(11, uint64(i)))
		value := func(int, int) float32 {
			x := rng.NormFloat64()
			if c.spread > 0 {
				x = math.Ldexp(x, rng.IntN(2*c.spread+1)-c.spread)
			}
			return float32(x)
		}
		v := variant{Op: wgmma.Op{N: c.n, K: 16, A: c.t, B: c.t}, registersA: c.registers}
		p := newProduct(fmt.Sprintf("random%d_%s", i, strings.TrimPrefix(v.name(), "wgmma_")), v)
		if c.registers {
			p.registers(value)
		} else {
			p.a(k128, 0, value)
		}
		p.b(k128, 0, value)
		p.accumulate(func() float32 { return value(0, 0) })
		list = append(list, p)
	}
	for i, t := range [][2]isa.Type{{isa.E4M3, isa.E4M3}, {isa.E5M2, isa.E4M3}} {
		rng := rand.New(rand.NewPCG(12, uint64(i)))
		pattern := func(int, int) byte { return byte(rng.IntN(2)<<7 | 0x28 + rng.IntN(24)) } // around 1, no NaN
		p := newProduct(fmt.Sprintf("random_%v_%v", t[0], t[1]), variant{Op: wgmma.Op{N: 16, K: 32, A: t[0], B: t[1]}})
		p.a8(pattern)
		p.b8(pattern)
		p.accumulate(func() float32 { return float32(rng.NormFloat64()) })
		list = append(list, p)
	}
	// Special values: row m of A has one of them at k = 0 against 1, 0 and −1.
	special := []float32{float32(math.Inf(1)), float32(math.Inf(-1)), float32(math.NaN()), 0x1p-126 * 0.5, 0x1.8p127, -0x1.8p127, 0, 0x1p-70}
	p := newProduct("special", variant{Op: wgmma.Op{N: 8, K: 16, A: isa.BF16, B: isa.BF16}})
	p.a(k128, 0, func(mn, k int) float32 {
		switch k {
		case 0:
			return special[mn%len(special)]
		case 1:
			return special[mn/8]
		}
		return 0
	})
	p.b(k128, 0, func(mn, k int) float32 {
		switch k {
		case 0:
			return []float32{1, 0, -1, 2, 0x1p-70, 1, 1, 0}[mn]
		case 1:
			return []float32{0, 1, 1, 0, 0x1p-70, -1, 1, 0}[mn]
		}
		return 0
	})
	return append(list, p)
}

func wgmmaFamily() family {
	f := family{name: "wgmma"}
	var kernels []*kernel
	seen := map[string]bool{}
	for _, p := range products() {
		if !seen[p.variant.name()] {
			seen[p.variant.name()] = true
			kernels = append(kernels, p.kernel())
		}
		regs, d := &buffer{name: "a"}, &buffer{name: "d", elem: 4}
		for _, r := range p.regsA {
			regs.data = binary.LittleEndian.AppendUint32(regs.data, r)
		}
		for _, x := range p.d {
			d.data = binary.LittleEndian.AppendUint32(d.data, math.Float32bits(x))
		}
		scale := uint32(0)
		if p.scaleD {
			scale = 1
		}
		f.experiments = append(f.experiments, experiment{
			name: p.name, entry: p.variant.name(), threads: wgmma.Threads, blocks: 1,
			params: []any{p.descA, p.descB, scale, uint32(regionBytes / 4), &buffer{name: "image", data: p.image}, regs, d},
			check:  p.check,
		})
	}
	f.ptx = module(kernels...)
	return f
}
