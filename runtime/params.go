package runtime

import (
	"encoding/binary"
	"fmt"
	"math"
	"strings"

	"github.com/mlagen/mlagen/ptx/manifest"
)

// Params is a kernel's parameter buffer, filled by name and laid out as the
// manifest says. It may be filled and launched again and again; a launch
// copies it. The setters return the Params to be chained and keep the first
// mistake for Err.
type Params struct {
	kernel *Kernel
	bytes  []byte
	set    []bool
	err    error
}

// NewParams returns the kernel's parameters, none of them set.
func (k *Kernel) NewParams() *Params {
	size := 0
	for _, p := range k.Manifest.Params {
		size = max(size, p.Offset+p.Size)
	}
	return &Params{kernel: k, bytes: make([]byte, size), set: make([]bool, len(k.Manifest.Params))}
}

// Pointer sets a pointer parameter.
func (p *Params) Pointer(name string, v Ptr) *Params {
	if i := p.find(name, manifest.PointerParam); i >= 0 {
		p.put(i, uint64(v))
	}
	return p
}

// Int sets an integer scalar, which must fit the parameter's type.
func (p *Params) Int(name string, v int64) *Params {
	if i := p.find(name, manifest.ScalarParam); i >= 0 {
		p.putInt(i, v)
	}
	return p
}

// Float sets an f32 or f64 scalar.
func (p *Params) Float(name string, v float64) *Params {
	if i := p.find(name, manifest.ScalarParam); i >= 0 {
		p.putFloat(i, v)
	}
	return p
}

// TensorMap sets a tensor map, passed by value.
func (p *Params) TensorMap(name string, v *[128]byte) *Params {
	if i := p.find(name, manifest.TensorMapParam); i >= 0 {
		p.putMap(i, v)
	}
	return p
}

// Table sets the first words of a table parameter, row by row; the rest keep
// what they held.
func (p *Params) Table(name string, words []uint64) *Params {
	i := p.find(name, manifest.TableParam)
	if i < 0 {
		return p
	}
	m := &p.kernel.Manifest.Params[i]
	if 8*len(words) > m.Size {
		p.fail("table %q has room for %d words, not for %d", name, m.Size/8, len(words))
		return p
	}
	for j, w := range words {
		binary.LittleEndian.PutUint64(p.bytes[m.Offset+8*j:], w)
	}
	p.set[i] = true
	return p
}

// Err returns the first mistake made in filling the parameters: a name that
// the kernel does not have, a value that its type does not hold, or parameters
// that were never set.
func (p *Params) Err() error {
	if p.err != nil {
		return p.err
	}
	var missing []string
	for i, set := range p.set {
		if !set {
			missing = append(missing, p.kernel.Manifest.Params[i].Name)
		}
	}
	if missing != nil {
		return fmt.Errorf("%s: parameters not set: %s", p.kernel.label(), strings.Join(missing, ", "))
	}
	return nil
}

func (p *Params) fail(format string, args ...any) {
	if p.err == nil {
		p.err = fmt.Errorf("%s: %s", p.kernel.label(), fmt.Sprintf(format, args...))
	}
}

// find returns the index of the parameter called name, −1 after a failure.
func (p *Params) find(name string, kind manifest.ParamKind) int {
	for i := range p.kernel.Manifest.Params {
		m := &p.kernel.Manifest.Params[i]
		if m.Name != name {
			continue
		}
		if m.Kind != kind {
			p.fail("parameter %q is a %s, not a %s", name, m.Kind, kind)
			return -1
		}
		return i
	}
	p.fail("no parameter %q; it has %s", name, paramNames(p.kernel.Manifest))
	return -1
}

func paramNames(m *manifest.Manifest) string {
	var names []string
	for _, p := range m.Params {
		names = append(names, p.Name)
	}
	return strings.Join(names, ", ")
}

// put writes the low bytes of v into the i-th parameter.
func (p *Params) put(i int, v uint64) {
	m := &p.kernel.Manifest.Params[i]
	at := p.bytes[m.Offset:]
	switch m.Size {
	case 1:
		at[0] = byte(v)
	case 2:
		binary.LittleEndian.PutUint16(at, uint16(v))
	case 4:
		binary.LittleEndian.PutUint32(at, uint32(v))
	case 8:
		binary.LittleEndian.PutUint64(at, v)
	default:
		p.fail("parameter %q has %d bytes, which no scalar has", m.Name, m.Size)
		return
	}
	p.set[i] = true
}

func (p *Params) putInt(i int, v int64) {
	m := &p.kernel.Manifest.Params[i]
	width := m.Size * 8
	low, high := int64(math.MinInt64), int64(math.MaxInt64)
	switch {
	case strings.HasPrefix(m.Type, "f") || strings.HasPrefix(m.Type, "bf"):
		p.fail("parameter %q is %s, not an integer", m.Name, m.Type)
		return
	case strings.HasPrefix(m.Type, "s") && width < 64:
		low, high = -1<<(width-1), 1<<(width-1)-1
	case strings.HasPrefix(m.Type, "u"):
		if low = 0; width < 64 {
			high = 1<<width - 1
		}
	case width < 64: // bits
		low, high = -1<<(width-1), 1<<width-1
	}
	if v < low || v > high {
		p.fail("parameter %q was %d, must be %d to %d (%s)", m.Name, v, low, high, m.Type)
		return
	}
	p.put(i, uint64(v))
}

func (p *Params) putFloat(i int, v float64) {
	switch m := &p.kernel.Manifest.Params[i]; m.Type {
	case "f32":
		p.put(i, uint64(math.Float32bits(float32(v))))
	case "f64":
		p.put(i, math.Float64bits(v))
	default:
		p.fail("parameter %q is %s, not f32 or f64", m.Name, m.Type)
	}
}

func (p *Params) putMap(i int, v *[128]byte) {
	m := &p.kernel.Manifest.Params[i]
	if m.Size != len(v) {
		p.fail("tensor map %q has %d bytes, must be %d", m.Name, m.Size, len(v))
		return
	}
	if v == nil {
		p.fail("tensor map %q was nil, must be %d bytes", m.Name, len(v))
		return
	}
	copy(p.bytes[m.Offset:], v[:])
	p.set[i] = true
}
