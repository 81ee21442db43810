package extremes

import (
	"errors"

	"github.com/mlagen/mlagen/runtime"
)

// memory is what a check allocates. After an error nothing more is done, so that
// it need only be looked at before the memory is used.
type memory struct {
	driver runtime.Driver
	ptrs   []runtime.Ptr
	err    error
}

// alloc returns memory of so many bytes.
func (m *memory) alloc(name string, size int64) (at runtime.Ptr) {
	if m.err != nil {
		return 0
	}
	if at, m.err = m.driver.Alloc(name, size); m.err == nil {
		m.ptrs = append(m.ptrs, at)
	}
	return at
}

// upload returns memory that holds the data.
func (m *memory) upload(name string, data []byte) runtime.Ptr {
	at := m.alloc(name, int64(len(data)))
	if m.err == nil && len(data) > 0 {
		m.err = m.driver.Upload(at, data)
	}
	return at
}

// free gives everything back.
func (m *memory) free() (err error) {
	for _, at := range m.ptrs {
		err = errors.Join(err, m.driver.Free(at))
	}
	m.ptrs = nil
	return err
}
