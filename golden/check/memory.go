package check

import (
	"bytes"
	"fmt"

	"github.com/mlagen/mlagen/runtime"
)

// guardBytes is the size of the zone on each side of a guarded buffer.
const guardBytes = 64 << 10

// guardByte fills the zones; as bf16 it is −2.9e−16, as s32 −1515870811:
// neither a NaN nor a plausible result.
const guardByte = 0xa5

// memory owns the device buffers of one case.
type memory struct {
	driver  runtime.Driver
	ptrs    []runtime.Ptr
	guarded []buffer
}

// buffer is a range of device memory.
type buffer struct {
	name string
	base runtime.Ptr // of the allocation
	ptr  runtime.Ptr // of the buffer in it
	size int64
}

func (m *memory) alloc(name string, size int64) (buffer, error) {
	p, err := m.driver.Alloc(name, size)
	if err != nil {
		return buffer{}, err
	}
	m.ptrs = append(m.ptrs, p)
	return buffer{name, p, p, size}, nil
}

// guard allocates a buffer between two zones that checkGuards watches.
func (m *memory) guard(name string, size int64) (buffer, error) {
	b, err := m.alloc(name, size+2*guardBytes)
	if err != nil {
		return buffer{}, err
	}
	b.ptr, b.size = b.base+guardBytes, size
	for _, zone := range b.zones() {
		if err := m.driver.Fill(zone, guardByte, guardBytes); err != nil {
			return buffer{}, err
		}
	}
	m.guarded = append(m.guarded, b)
	return b, nil
}

func (b buffer) zones() [2]runtime.Ptr { return [2]runtime.Ptr{b.base, b.ptr + runtime.Ptr(b.size)} }

// upload allocates a buffer that holds data.
func (m *memory) upload(name string, data []byte) (buffer, error) {
	b, err := m.alloc(name, int64(len(data)))
	if err != nil || len(data) == 0 {
		return b, err
	}
	return b, m.driver.Upload(b.ptr, data)
}

func (m *memory) download(b buffer) ([]byte, error) {
	data := make([]byte, b.size)
	if b.size == 0 {
		return data, nil
	}
	return data, m.driver.Download(data, b.ptr)
}

// checkGuards reports the first byte that was written outside a guarded buffer.
func (m *memory) checkGuards() error {
	zone := make([]byte, guardBytes)
	intact := bytes.Repeat([]byte{guardByte}, guardBytes)
	for _, b := range m.guarded {
		for side, p := range b.zones() {
			if err := m.driver.Download(zone, p); err != nil {
				return err
			}
			if bytes.Equal(zone, intact) {
				continue
			}
			first, count := -1, 0
			for i, v := range zone {
				if v != guardByte {
					if first < 0 {
						first = i
					}
					count++
				}
			}
			if side == 0 {
				return fmt.Errorf("%d bytes before %s were written, from byte %d on", count, b.name, first-guardBytes)
			}
			return fmt.Errorf("%d bytes past %s (%d bytes) were written, from byte %d on", count, b.name, b.size, b.size+int64(first))
		}
	}
	return nil
}

func (m *memory) free() error {
	var first error
	for _, p := range m.ptrs {
		if err := m.driver.Free(p); err != nil && first == nil {
			first = err
		}
	}
	m.ptrs = nil
	return first
}
