// Package tma is the emulator's copy engine: tensor maps, the walk of a box
// between global and shared memory with swizzle, zero fill and reduction, and
// the rules of one-dimensional bulk copies.
//
// It moves bytes when it is called; when a copy completes, and on which
// barrier, is the caller's business, and so is multicast (the same box into
// several CTAs' shared memory).
package tma

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"slices"

	"github.com/mlagen/mlagen/ptx/hopper"
	"github.com/mlagen/mlagen/ptx/isa"
	"github.com/mlagen/mlagen/ptx/manifest"
)

// Map is a tensor map in tiled mode without interleave: element strides 1,
// elements outside the tensor read as zero. Lists are innermost first.
type Map struct {
	DType     isa.Type // scalar, 1 to 8 bytes
	Address   uint64   // of the tensor, in global memory
	Sizes     []uint64 // elements per dimension
	Strides   []uint64 // bytes, of every dimension but the innermost
	Box       []int    // elements per dimension
	Swizzle   hopper.Swizzle
	Promotion int // L2 promotion in bytes: 0, 64, 128 or 256; without effect here
}

// New returns the map of a manifest's static description and a tensor's place.
func New(m manifest.TensorMap, address uint64, sizes, strides []uint64) (*Map, error) {
	dtype, err := dtypeOf(m.DType)
	if err != nil {
		return nil, fmt.Errorf("tensor map %s: %w", m.Param, err)
	}
	swizzle, err := hopper.SwizzleOf(m.Swizzle)
	if err != nil {
		return nil, fmt.Errorf("tensor map %s: %w", m.Param, err)
	}
	t := &Map{dtype, address, sizes, strides, m.Box, swizzle, m.Promotion}
	if err := t.Validate(); err != nil {
		return nil, fmt.Errorf("tensor map %s: %w", m.Param, err)
	}
	return t, nil
}

// dtypeOf reads a manifest's dtype, which calls half precision fp16.
func dtypeOf(name string) (isa.Type, error) {
	if name == "fp16" {
		return isa.F16, nil
	}
	if t, ok := isa.ParseType(name); ok {
		return t, nil
	}
	return isa.NoType, fmt.Errorf("dtype: was %q, must be a scalar type such as bf16, fp16 or f32", name)
}

// ElemBytes returns the size of an element.
func (m *Map) ElemBytes() int { return m.DType.Bytes() }

// BoxBytes returns the bytes of a box in shared memory. A load counts all of
// them towards complete_tx, those outside the tensor included.
func (m *Map) BoxBytes() int { return hopper.BoxBytes(m.Box, m.ElemBytes()) }

// Validate reports what the driver or the hardware would refuse, and what is
// not emulated: a swizzled box narrower than the swizzle.
func (m *Map) Validate() error {
	switch m.DType {
	case isa.U8, isa.E4M3, isa.E5M2, isa.U16, isa.U32, isa.S32, isa.U64, isa.S64, isa.F16, isa.BF16, isa.F32, isa.F64:
	default:
		return fmt.Errorf("tensor map dtype: was %q, must be u8, u16, u32, s32, u64, s64, f16, bf16, f32, f64, e4m3 or e5m2", m.DType)
	}
	err := hopper.TensorMap{Address: m.Address, ElemBytes: m.ElemBytes(), Dims: m.Sizes, Strides: m.Strides, Box: m.Box, Swizzle: m.Swizzle}.Validate()
	if err != nil {
		return err
	}
	if w := m.Box[0] * m.ElemBytes(); m.Swizzle != hopper.SwizzleNone && w != m.Swizzle.Bytes() {
		return fmt.Errorf("box dimension 0: was %d elements = %d bytes, must be %d bytes with the %v swizzle (narrower boxes are not emulated)", m.Box[0], w, m.Swizzle.Bytes(), m.Swizzle)
	}
	if !slices.Contains([]int{0, 64, 128, 256}, m.Promotion) {
		return fmt.Errorf("tensor map promotion: was %d, must be 0, 64, 128 or 256", m.Promotion)
	}
	return nil
}

// The encoding is the emulator's own, little-endian; a checksum tells a map
// from other bytes.
const (
	magic = 0x50414d5441544d45 // "EMTATMAP"

	atMagic    = 0
	atSum      = 8 // CRC-32 of everything after it
	atDType    = 12
	atRank     = 13
	atSwizzle  = 14
	atPromoted = 15 // promotion / 64
	atBox      = 16 // 5 × u16
	atSizes    = 32 // 5 × u64
	atStrides  = 72 // 4 × u64
	atAddress  = 104
)

// Encode returns the 128 bytes that a kernel takes by value.
func (m *Map) Encode() (b [hopper.TensorMapBytes]byte, err error) {
	if err := m.Validate(); err != nil {
		return b, err
	}
	le := binary.LittleEndian
	le.PutUint64(b[atMagic:], magic)
	b[atDType], b[atRank] = byte(m.DType), byte(len(m.Box))
	b[atSwizzle], b[atPromoted] = byte(m.Swizzle), byte(m.Promotion/64)
	for i := range m.Box {
		le.PutUint16(b[atBox+2*i:], uint16(m.Box[i]))
		le.PutUint64(b[atSizes+8*i:], m.Sizes[i])
	}
	for i, s := range m.Strides {
		le.PutUint64(b[atStrides+8*i:], s)
	}
	le.PutUint64(b[atAddress:], m.Address)
	le.PutUint32(b[atSum:], crc32.ChecksumIEEE(b[atSum+4:]))
	return b, nil
}

// ErrNotMap is wrapped by the errors of Decode for bytes that Encode did not make.
var ErrNotMap = errors.New("not a tensor map")

// Decode reads what Encode wrote.
func Decode(b []byte) (*Map, error) {
	le := binary.LittleEndian
	switch {
	case len(b) != hopper.TensorMapBytes:
		return nil, fmt.Errorf("%w: %d bytes, must be %d", ErrNotMap, len(b), hopper.TensorMapBytes)
	case le.Uint64(b[atMagic:]) != magic:
		return nil, fmt.Errorf("%w: it starts with % x", ErrNotMap, b[:8])
	case le.Uint32(b[atSum:]) != crc32.ChecksumIEEE(b[atSum+4:]):
		return nil, fmt.Errorf("%w: its checksum is wrong, it was overwritten", ErrNotMap)
	}
	rank := int(b[atRank])
	if rank < 1 || rank > hopper.MaxRank {
		return nil, fmt.Errorf("%w: rank %d", ErrNotMap, rank)
	}
	m := &Map{
		DType:     isa.Type(b[atDType]),
		Address:   le.Uint64(b[atAddress:]),
		Sizes:     make([]uint64, rank),
		Strides:   make([]uint64, rank-1),
		Box:       make([]int, rank),
		Swizzle:   hopper.Swizzle(b[atSwizzle]),
		Promotion: int(b[atPromoted]) * 64,
	}
	for i := range rank {
		m.Box[i] = int(le.Uint16(b[atBox+2*i:]))
		m.Sizes[i] = le.Uint64(b[atSizes+8*i:])
	}
	for i := range m.Strides {
		m.Strides[i] = le.Uint64(b[atStrides+8*i:])
	}
	if err := m.Validate(); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNotMap, err)
	}
	return m, nil
}
