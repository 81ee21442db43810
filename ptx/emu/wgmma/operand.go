package wgmma

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/mlagen/mlagen/ptx/emu/num"
	"github.com/mlagen/mlagen/ptx/hopper"
	"github.com/mlagen/mlagen/ptx/isa"
)

// chunkBytes is the unit in which operands lie in shared memory: in every
// layout 16 aligned bytes hold neighbours of one row (K-major) or of one k
// (MN-major).
const chunkBytes = 16

// Operand is an A or B in shared memory: a descriptor read the way an Op
// reads it.
type Operand struct {
	Name       string // "A" or "B", for errors
	Descriptor hopper.Descriptor
	MN, K      int // M or N, and K
	Type       isa.Type
	MNMajor    bool
	Negate     bool
	ByK        bool // gathered K×MN, not MN×K
}

// OperandA returns the operand A that a descriptor names.
func (op Op) OperandA(desc uint64) (Operand, error) {
	return decode(Operand{Name: "A", MN: Rows, K: op.K, Type: op.A, MNMajor: op.TransA, Negate: op.NegateA}, desc)
}

// OperandB returns the operand B that a descriptor names.
func (op Op) OperandB(desc uint64) (Operand, error) {
	return decode(Operand{Name: "B", MN: op.N, K: op.K, Type: op.B, MNMajor: op.TransB, Negate: op.NegateB, ByK: true}, desc)
}

// decode checks the descriptor. Bits without a meaning must be zero: others
// are the mark of a value that is no descriptor.
func decode(o Operand, bits uint64) (Operand, error) {
	o.Descriptor = hopper.DecodeDescriptor(bits)
	fail := func(format string, args ...any) (Operand, error) {
		return Operand{}, fmt.Errorf("wgmma operand %s: descriptor %#016x: %s", o.Name, bits, fmt.Sprintf(format, args...))
	}
	const reserved = 0x3ff1_c000_c000_c000 // bits 14–15, 30–31, 46–48 and 52–61
	if bits&reserved != 0 {
		return fail("reserved bits %#x are set", bits&reserved)
	}
	d := o.Descriptor
	if err := d.Validate(); err != nil {
		return fail("%v", err)
	}
	if d.Swizzle != hopper.SwizzleNone {
		row, atom := d.Swizzle.RowBytes(), d.Swizzle.AtomBytes()
		inRow := int(d.Start) % atom
		if inRow >= row {
			return fail("start %#x lies %d bytes into the %d-byte pattern of the %v swizzle, but the base offset is 0: the start must be in its first row of %d bytes", d.Start, inRow, atom, d.Swizzle, row)
		}
		// Blocks that do not start on the pattern would be permuted otherwise
		// than the ones before them.
		if (o.MNMajor || o.MN > 8) && int(d.StrideBytes)%atom != 0 {
			return fail("stride offset %d is not a multiple of the %d-byte pattern of the %v swizzle", d.StrideBytes, atom, d.Swizzle)
		}
		if o.MNMajor && o.MN*o.Type.Bytes() > row-inRow && int(d.LeadingBytes)%atom != 0 {
			return fail("leading offset %d is not a multiple of the %d-byte pattern of the %v swizzle", d.LeadingBytes, atom, d.Swizzle)
		}
		if !o.MNMajor && inRow+o.K*o.Type.Bytes() > row {
			return fail("%d bytes of K from %d bytes into the row leave the %d-byte row of the %v swizzle", o.K*o.Type.Bytes(), inRow, row, d.Swizzle)
		}
		if o.MNMajor && inRow != 0 {
			return fail("start %#x lies %d bytes into a row: MN-major operands that do not start with one are not emulated", d.Start, inRow)
		}
	}
	return o, nil
}

// chunks calls f for every chunk of the operand: where it lies, and the first
// element (mn, k) in it. The others follow along K, or along MN when MNMajor.
func (o Operand) chunks(f func(addr uint32, mn, k int)) {
	bytes := o.Type.Bytes()
	n := chunkBytes / bytes
	if o.MNMajor {
		for k := range o.K {
			for mn := 0; mn < o.MN; mn += n {
				f(o.Descriptor.MNMajorAddress(mn, k, bytes), mn, k)
			}
		}
		return
	}
	for mn := range o.MN {
		for k := 0; k < o.K; k += n {
			f(o.Descriptor.KMajorAddress(mn, k, bytes), mn, k)
		}
	}
}

// Chunks appends the address of every 16-byte chunk that the operand is read
// from to list, for observers of hazards.
func (o Operand) Chunks(list []uint32) []uint32 {
	o.chunks(func(addr uint32, _, _ int) { list = append(list, addr) })
	return list
}

// Gather reads the operand from smem, a CTA's shared memory from address 0,
// into dst, negated when the operation says so: element (mn, k) of an A at
// mn*K + k, of a B at k*N + mn. len(dst) ≥ MN*K.
func (o Operand) Gather(dst []float64, smem []byte) error {
	list := o.Chunks(nil)
	for _, addr := range list {
		if int(addr)+chunkBytes > len(smem) {
			return fmt.Errorf("wgmma operand %s: address %#x is outside the shared memory of %d bytes", o.Name, addr, len(smem))
		}
	}
	o.GatherFrom(dst, smem, list)
	return nil
}

// GatherFrom is Gather of an operand whose chunks, as Chunks lists them, are
// known to lie in smem.
func (o Operand) GatherFrom(dst []float64, smem []byte, list []uint32) {
	n := chunkBytes / o.Type.Bytes()
	if o.ByK == o.MNMajor { // the values of a chunk are neighbours in dst, and so are chunks
		for i, addr := range list {
			widen(o.Type, dst[i*n:][:n], (*[chunkBytes]byte)(smem[addr:]))
		}
	} else {
		outer, inner := o.MN, o.K
		if o.MNMajor {
			outer, inner = inner, outer
		}
		var v [chunkBytes]float64
		for i, addr := range list {
			widen(o.Type, v[:n], (*[chunkBytes]byte)(smem[addr:]))
			to := dst[i*n%inner*outer+i*n/inner:]
			for k, x := range v[:n] {
				to[k*outer] = x
			}
		}
	}
	if o.Negate {
		negate(dst[:o.MN*o.K])
	}
}

// RegistersA reads an operand A from registers: register r of thread t (of the
// warpgroup) is regs[r*Threads+t], r < ARegisters. dst is as in Gather.
func (op Op) RegistersA(dst []float64, regs []uint32) {
	regs = regs[:ARegisters*Threads]
	if fp8(op.A) {
		for t := range Threads {
			for i := range hopper.A8Values {
				row, k := hopper.A8At(t, i)
				dst[row*op.K+k] = widen8(op.A, uint8(regs[i/4*Threads+t]>>(8*(i%4))))
			}
		}
	} else {
		for t := range Threads {
			for i := range hopper.A16Values {
				row, k := hopper.A16At(t, i)
				dst[row*op.K+k] = widen16(op.A, uint16(regs[i/2*Threads+t]>>(16*(i%2))))
			}
		}
	}
	if op.NegateA {
		negate(dst[:Rows*op.K])
	}
}

// widen converts a chunk's values.
func widen(t isa.Type, dst []float64, chunk *[chunkBytes]byte) {
	switch t {
	case isa.BF16:
		dst = dst[:8]
		for i := range dst {
			dst[i] = float64(num.BF16ToF32(binary.LittleEndian.Uint16(chunk[2*i:])))
		}
	case isa.F16:
		dst = dst[:8]
		for i := range dst {
			dst[i] = float64(num.F16ToF32(binary.LittleEndian.Uint16(chunk[2*i:])))
		}
	default:
		for i := range dst {
			dst[i] = widen8(t, chunk[i])
		}
	}
}

func widen16(t isa.Type, p uint16) float64 {
	if t == isa.BF16 {
		return float64(math.Float32frombits(uint32(p) << 16))
	}
	return float64(num.F16ToF32(p))
}

func widen8(t isa.Type, p uint8) float64 {
	if t == isa.E4M3 {
		return float64(num.E4M3ToF32(p))
	}
	return float64(num.E5M2ToF32(p))
}

func negate(v []float64) {
	for i := range v {
		v[i] = -v[i]
	}
}
