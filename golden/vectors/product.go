package vectors

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/x448/float16"

	"github.com/mlagen/mlagen/ptx/emu/wgmma"
	"github.com/mlagen/mlagen/ptx/isa"
)

// layout is a canonical operand layout of 16-bit elements, written out here as
// the manual draws it and not taken from ptx/hopper: element (mn, k) lies at
// place bytes from the start that the descriptor names.
type layout struct {
	name     string
	mode     uint64 // swizzle code of a descriptor: 0 none, 1 128B, 2 64B, 3 32B
	trans    bool   // MN-major
	lbo, sbo uint64
	place    func(mn, k int) int
}

var layouts = []layout{
	{"k_128", 1, false, 16, 1024, func(mn, k int) int { return mn*128 + (k/8^mn%8)*16 + k%8*2 }},
	{"mn_128", 1, true, 8192, 1024, func(mn, k int) int { return mn/64*8192 + k*128 + (mn%64/8^k%8)*16 + mn%8*2 }},
	{"k_none", 0, false, 8192, 128, func(mn, k int) int { return mn/8*128 + k/8*8192 + mn%8*16 + k%8*2 }},
	{"k_none_near", 0, false, 128, 256, func(mn, k int) int { return mn/8*256 + k/8*128 + mn%8*16 + k%8*2 }},
	{"k_32", 3, false, 16, 256, func(mn, k int) int { return mn*32 + (k/8^mn/4%2)*16 + k%8*2 }},
	{"k_64", 2, false, 16, 512, func(mn, k int) int { return mn*64 + (k/8^mn/2%4)*16 + k%8*2 }},
	{"k_128_apart", 1, false, 16, 2048, func(mn, k int) int { return mn/8*2048 + mn%8*128 + (k/8^mn%8)*16 + k%8*2 }},
	{"mn_none", 0, true, 128, 256, func(mn, k int) int { return mn/8*256 + k/8*128 + k%8*16 + mn%8*2 }},
	{"mn_32", 3, true, 1024, 256, func(mn, k int) int { return mn/16*1024 + k*32 + (mn%16/8^k/4%2)*16 + mn%8*2 }},
	{"mn_64", 2, true, 2048, 512, func(mn, k int) int { return mn/32*2048 + k*64 + (mn%32/8^k/2%4)*16 + mn%8*2 }},
	{"mn_128_apart", 1, true, 1024, 4096, func(mn, k int) int { return mn/64*1024 + k/8*4096 + k%8*128 + (mn%64/8^k%8)*16 + mn%8*2 }},
}

func layoutNamed(name string) layout {
	for _, l := range layouts {
		if l.name == name {
			return l
		}
	}
	panic("no layout " + name)
}

// k8place is the layout of 8-bit operands: K-major, rows of 32 bytes.
func k8place(mn, k int) int { return mn*32 + (k/16^mn/4%2)*16 + k%16 }

func (l layout) descriptor(start uint64) uint64 {
	return start>>4 | l.lbo>>4<<16 | l.sbo>>4<<32 | l.mode<<62
}

// The operands' places in the region.
const (
	startA = 0
	startB = regionBytes / 2
)

// product is a multiplication experiment.
type product struct {
	variant
	name         string
	image        []byte
	descA, descB uint64
	regsA        []uint32  // four registers of 128 threads
	d            []float32 // before
	scaleD       bool
	exact        bool // integers: every order of summation gives the same
}

// newProduct returns an experiment whose shared memory is NaN everywhere.
func newProduct(name string, v variant) *product {
	p := &product{variant: v, name: name, image: make([]byte, regionBytes), d: make([]float32, v.Values()*wgmma.Threads)}
	for i := range p.image {
		p.image[i] = 0xff // NaN in bf16, fp16, e4m3 and e5m2
	}
	p.regsA = make([]uint32, wgmma.ARegisters*wgmma.Threads)
	for i := range p.regsA {
		p.regsA[i] = 0xffff_ffff
	}
	for i := range p.d {
		p.d[i] = float32(math.NaN()) // scale-d is false unless said: it must not be read
	}
	return p
}

func (p *product) put(t isa.Type, at int, x float32) {
	switch t {
	case isa.BF16:
		binary.LittleEndian.PutUint16(p.image[at:], bf16(x))
	case isa.F16:
		binary.LittleEndian.PutUint16(p.image[at:], fp16(x))
	}
}

// a and b lay an operand out; value gives its elements.
func (p *product) a(l layout, step int, value func(mn, k int) float32) {
	p.descA = l.descriptor(startA + uint64(step))
	for mn := range wgmma.Rows {
		for k := range p.K {
			p.put(p.A, startA+l.place(mn, k+l.stepK(step)), value(mn, k))
		}
	}
}

func (p *product) b(l layout, step int, value func(mn, k int) float32) {
	p.descB = l.descriptor(startB + uint64(step))
	for mn := range p.N {
		for k := range p.K {
			p.put(p.B, startB+l.place(mn, k+l.stepK(step)), value(mn, k))
		}
	}
}

// stepK is the k that a start of so many bytes later begins at: 16-byte chunks
// of a swizzled K-major row, atoms of eight k when MN-major.
func (l layout) stepK(bytes int) int {
	if l.trans {
		return bytes / int(l.sbo) * 8
	}
	return bytes / 2
}

// a8 and b8 lay 8-bit patterns out K-major with the 32-byte swizzle.
func (p *product) a8(pattern func(mn, k int) byte) {
	p.descA = layout{mode: 3, lbo: 16, sbo: 256}.descriptor(startA)
	for mn := range wgmma.Rows {
		for k := range p.K {
			p.image[startA+k8place(mn, k)] = pattern(mn, k)
		}
	}
}

func (p *product) b8(pattern func(mn, k int) byte) {
	p.descB = layout{mode: 3, lbo: 16, sbo: 256}.descriptor(startB)
	for mn := range p.N {
		for k := range p.K {
			p.image[startB+k8place(mn, k)] = pattern(mn, k)
		}
	}
}

// registers lays A out in registers as the manual's figures show: thread t
// has rows 16(t/32) + t%32/4 and the eighth after it.
func (p *product) registers(value func(mn, k int) float32) {
	for t := range wgmma.Threads {
		for r := range wgmma.ARegisters {
			row := t/32*16 + t%32/4 + 8*(r%2)
			k := t%4*2 + 8*(r/2)
			lo, hi := value(row, k), value(row, k+1)
			if p.A == isa.BF16 {
				p.regsA[r*wgmma.Threads+t] = uint32(bf16(lo)) | uint32(bf16(hi))<<16
			} else {
				p.regsA[r*wgmma.Threads+t] = uint32(fp16(lo)) | uint32(fp16(hi))<<16
			}
		}
	}
}

func (p *product) registers8(pattern func(mn, k int) byte) {
	for t := range wgmma.Threads {
		for r := range wgmma.ARegisters {
			row := t/32*16 + t%32/4 + 8*(r%2)
			k := t%4*4 + 16*(r/2)
			p.regsA[r*wgmma.Threads+t] = uint32(pattern(row, k)) | uint32(pattern(row, k+1))<<8 | uint32(pattern(row, k+2))<<16 | uint32(pattern(row, k+3))<<24
		}
	}
}

// accumulate sets D before the multiplication.
func (p *product) accumulate(value func() float32) {
	p.scaleD = true
	for i := range p.d {
		p.d[i] = value()
	}
}

func bf16(x float32) uint16 { return uint16(math.Float32bits(x) >> 16) }
func fp16(x float32) uint16 { return float16.Fromfloat32(x).Bits() }

// tolerance is how far the hardware's sum may lie from the unit's, as a part
// of the largest magnitude among a result's terms: the hardware aligns all
// terms to the largest one and cuts them there, and rounds the sum by cutting.
func (p *product) tolerance() float64 {
	terms := float64(p.K + 1)
	if p.K == 32 {
		return terms * 0x1p-13 // 8-bit operands: 14 bits of the sum are kept
	}
	return terms * 0x1p-24
}

// result computes D with the units, and the largest magnitude among the terms
// of each element.
func (p *product) result() (d []float32, largest []float64, err error) {
	a, b := make([]float64, wgmma.Rows*p.K), make([]float64, p.N*p.K)
	if p.registersA {
		p.RegistersA(a, p.regsA)
	} else {
		o, err := p.OperandA(p.descA)
		if err != nil {
			return nil, nil, err
		}
		if err := o.Gather(a, p.image); err != nil {
			return nil, nil, err
		}
	}
	o, err := p.OperandB(p.descB)
	if err != nil {
		return nil, nil, err
	}
	if err := o.Gather(b, p.image); err != nil {
		return nil, nil, err
	}
	d = make([]float32, len(p.d))
	const lanes = len(wgmma.Registers{})
	regs := make([]wgmma.Registers, len(d)/lanes)
	at := func(i int) *uint64 { return &regs[i/lanes][i%lanes] }
	for i, v := range p.d {
		*at(i) = uint64(math.Float32bits(v))
	}
	p.Multiply(new(wgmma.Scratch), func(i, warp int) *wgmma.Registers { return &regs[4*i+warp] }, a, b, p.scaleD)
	for i := range d {
		d[i] = math.Float32frombits(uint32(*at(i)))
	}
	largest = make([]float64, len(d))
	for i := range d {
		t, r := i%wgmma.Threads, i/wgmma.Threads
		row, column := t/32*16+t%32/4+8*(r/2%2), r/4*8+t%4*2+r%2
		if p.scaleD {
			largest[i] = math.Abs(float64(p.d[i]))
		}
		for k := range p.K {
			largest[i] = max(largest[i], math.Abs(a[row*p.K+k]*b[k*p.N+column]))
		}
	}
	return d, largest, nil
}

func (p *product) check(got []byte) error {
	want, largest, err := p.result()
	if err != nil {
		return err
	}
	if len(got) != 4*len(want) {
		return fmt.Errorf("%d bytes, must be %d", len(got), 4*len(want))
	}
	for i, w := range want {
		g := math.Float32frombits(binary.LittleEndian.Uint32(got[4*i:]))
		bound := 0.0
		if !p.exact {
			bound = p.tolerance()*largest[i] + 0x1p-149
		}
		same := math.Float32bits(g) == math.Float32bits(w) || g == 0 && w == 0
		special := math.IsInf(float64(w), 0) || w != w
		if !same && (special || !(math.Abs(float64(g)-float64(w)) <= bound)) {
			return fmt.Errorf("register %d of thread %d: recorded %v (%#08x), computed %v (%#08x), largest term %v",
				i/wgmma.Threads, i%wgmma.Threads, g, math.Float32bits(g), w, math.Float32bits(w), largest[i])
		}
	}
	return nil
}
