package tma

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"github.com/mlagen/mlagen/ptx/hopper"
)

// Memory returns n bytes of global memory at addr, n > 0. The bytes alias the
// memory: a store writes to them. An error, such as an address out of bounds,
// ends the copy.
type Memory func(addr uint64, n int) ([]byte, error)

// Row is one row of a box, Bytes long: Map.Box[0] elements.
type Row struct {
	Shared uint32 // address before the swizzle
	Global uint64 // address of the first byte inside the tensor
	First  int    // offset in the row of the first byte inside the tensor
	Inside int    // bytes inside the tensor, 0 when the whole row is outside
}

// ErrAlign is wrapped by Check's errors about alignment.
var ErrAlign = errors.New("misaligned")

// chunkBytes is the unit that the copy engine moves: rows start on one in
// both memories, and a store writes whole ones.
const chunkBytes = 16

// Check reports a copy whose operands the hardware does not accept: the number
// of coordinates, a shared-memory address that is not a multiple of 128 or
// leaves the shared memory of so many bytes, and an innermost coordinate that
// is not a multiple of 16 bytes. The manual does not say the last; an H200
// takes such a copy for an illegal instruction.
func (m *Map) Check(shared uint32, sharedBytes int, coords []int32) error {
	switch {
	case len(coords) != len(m.Box):
		return fmt.Errorf("tensor copy: %d coordinates, the map has %d dimensions", len(coords), len(m.Box))
	case shared%hopper.TileAlign != 0:
		return fmt.Errorf("tensor copy: %w: shared address %#x is not a multiple of %d", ErrAlign, shared, hopper.TileAlign)
	case int64(coords[0])*int64(m.ElemBytes())%chunkBytes != 0:
		return fmt.Errorf("tensor copy: %w: innermost coordinate %d of %d-byte elements is not a multiple of %d bytes", ErrAlign, coords[0], m.ElemBytes(), chunkBytes)
	case int(shared)+m.BoxBytes() > sharedBytes:
		return fmt.Errorf("tensor copy: box of %d bytes at %#x leaves the shared memory of %d bytes", m.BoxBytes(), shared, sharedBytes)
	}
	return nil
}

// CheckStore reports what Check does, and a negative coordinate: an H200 took
// every store and reduction tried at a negative innermost coordinate for an
// illegal instruction. The other coordinates were not tried alone and are
// refused with it.
func (m *Map) CheckStore(shared uint32, sharedBytes int, coords []int32) error {
	if err := m.Check(shared, sharedBytes, coords); err != nil {
		return err
	}
	if slices.Min(coords) < 0 {
		return fmt.Errorf("tensor store: coordinates %v: must not be negative", coords)
	}
	return nil
}

// PatternAligned reports whether a box at this shared address starts where the
// swizzle pattern starts. Others are legal, but a matrix descriptor with base
// offset 0 reads them wrongly.
func (m *Map) PatternAligned(shared uint32) bool {
	return int(shared)%m.Swizzle.AtomBytes() == 0
}

// Rows calls f for every row of the box at the given coordinates (innermost
// first), in the order of shared memory, until f fails. Rows are contiguous
// in both memories apart from the swizzle. The bytes of a box in shared
// memory are always [shared, shared+BoxBytes()): the swizzle moves chunks
// within rows.
func (m *Map) Rows(shared uint32, coords []int32, f func(Row) error) error {
	elem := int64(m.ElemBytes())
	width := int64(m.Box[0]) * elem
	// The part of a row inside the tensor is the same for all rows.
	start := int64(coords[0]) * elem
	first := max(0, -start)
	end := min(width, int64(m.Sizes[0])*elem-start)
	inside := max(0, end-first)

	rank := len(m.Box)
	var at [hopper.MaxRank]int // position in the box; at[0] stays 0
	for {
		row := Row{Shared: shared}
		if inside > 0 {
			row.First, row.Inside = int(first), int(inside)
			row.Global = m.Address + uint64(start+first)
			for d := 1; d < rank; d++ {
				c := int64(coords[d]) + int64(at[d])
				if c < 0 || uint64(c) >= m.Sizes[d] {
					row = Row{Shared: shared}
					break
				}
				row.Global += uint64(c) * m.Strides[d-1]
			}
		}
		if err := f(row); err != nil {
			return err
		}
		shared += uint32(width)
		d := 1
		for ; d < rank; d++ {
			if at[d]++; at[d] < m.Box[d] {
				break
			}
			at[d] = 0
		}
		if d >= rank {
			return nil
		}
	}
}

// Load copies the box at coords into smem, a CTA's shared memory from address
// 0, at address shared. Elements outside the tensor become zero.
func (m *Map) Load(smem []byte, shared uint32, coords []int32, global Memory) error {
	if err := m.Check(shared, len(smem), coords); err != nil {
		return err
	}
	width := m.Box[0] * m.ElemBytes()
	var buffer [hopper.MaxBox * 8]byte
	return m.Rows(shared, coords, func(r Row) error {
		src := buffer[:width]
		if r.Inside > 0 {
			part, err := global(r.Global, r.Inside)
			if err != nil {
				return err
			}
			if r.Inside == width {
				src = part
			} else {
				clear(src)
				copy(src[r.First:], part)
			}
		} else {
			clear(src)
		}
		m.scatter(smem, r.Shared, src)
		return nil
	})
}

// Store copies a box from smem at address shared to coords. It writes the
// 16-byte chunks that start inside the tensor, and all of each: where the
// innermost size is not a multiple of 16 bytes, the bytes up to the next
// multiple, outside the tensor, are written too, as an H200 does.
func (m *Map) Store(smem []byte, shared uint32, coords []int32, global Memory) error {
	return m.write(smem, shared, coords, global, func(dst, src []byte) { copy(dst, src) })
}

// Reduce combines a box of smem into the tensor at coords, element by element.
// An innermost size that is not a multiple of 16 bytes is an error: what
// hardware does with the chunk across the edge is not known.
func (m *Map) Reduce(op ReduceOp, smem []byte, shared uint32, coords []int32, global Memory) error {
	f, err := op.combiner(m.DType)
	if err != nil {
		return err
	}
	if n := m.Sizes[0] * uint64(m.ElemBytes()); n%chunkBytes != 0 {
		return fmt.Errorf("tensor reduction: innermost size of %d elements = %d bytes: not a multiple of %d bytes, which is not emulated", m.Sizes[0], n, chunkBytes)
	}
	return m.write(smem, shared, coords, global, f)
}

func (m *Map) write(smem []byte, shared uint32, coords []int32, global Memory, f func(dst, src []byte)) error {
	if err := m.CheckStore(shared, len(smem), coords); err != nil {
		return err
	}
	width := m.Box[0] * m.ElemBytes()
	var buffer [hopper.MaxBox * 8]byte
	return m.Rows(shared, coords, func(r Row) error {
		if r.Inside == 0 {
			return nil
		}
		n := (r.Inside + chunkBytes - 1) / chunkBytes * chunkBytes // at most width, and r.First is 0
		dst, err := global(r.Global, n)
		if err != nil {
			return err
		}
		m.gather(buffer[:width], smem, r.Shared)
		f(dst[:n], buffer[:n])
		return nil
	})
}

// scatter writes a row to shared memory, 16-byte chunks swizzled.
func (m *Map) scatter(smem []byte, shared uint32, row []byte) {
	if m.Swizzle == hopper.SwizzleNone {
		copy(smem[shared:], row)
		return
	}
	le := binary.LittleEndian
	for o := 0; o+16 <= len(row); o += 16 {
		a := m.Swizzle.Apply(shared + uint32(o))
		dst, src := smem[a:a+16:a+16], row[o:o+16:o+16]
		le.PutUint64(dst, le.Uint64(src))
		le.PutUint64(dst[8:], le.Uint64(src[8:]))
	}
}

// gather is the inverse of scatter.
func (m *Map) gather(row, smem []byte, shared uint32) {
	if m.Swizzle == hopper.SwizzleNone {
		copy(row, smem[shared:])
		return
	}
	for o := 0; o+16 <= len(row); o += 16 {
		a := m.Swizzle.Apply(shared + uint32(o))
		copy(row[o:o+16], smem[a:a+16])
	}
}
