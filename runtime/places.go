package runtime

import "fmt"

// places makes sure that arguments lie in memory of a device, where its driver
// can tell. It asks only about ranges that differ from the call before.
type places struct {
	driver  Driver
	locator Locator // nil when the driver cannot say where addresses lie
	known   []addressRange
}

// newPlaces is for so many arguments.
func newPlaces(drv Driver, arguments int) places {
	l, _ := drv.(Locator)
	return places{drv, l, make([]addressRange, arguments)}
}

// tensor checks a tensor argument and that it lies on the device.
func (l *places) tensor(index int, x *expectation, t *Tensor) error {
	if err := x.check(t); err != nil || t.empty() {
		return err
	}
	size, _ := t.span()
	return l.locate(index, x.name, t.Ptr, size)
}

// buffer checks a buffer argument of at least size bytes.
func (l *places) buffer(index int, name string, b Buffer, size int64) error {
	if b.Ptr == 0 {
		return argumentError(name, fmt.Sprintf("%d bytes of device memory", size), "address was null")
	}
	if b.Ptr%rowAlign != 0 {
		return argumentError(name, fmt.Sprintf("aligned to %d bytes", rowAlign), "address was %#x", b.Ptr)
	}
	if b.Bytes < size {
		return argumentError(name, fmt.Sprintf("at least %d", size), "size was %d bytes", b.Bytes)
	}
	return l.locate(index, name, b.Ptr, size)
}

// locate makes sure that the size bytes from p lie in memory of the device.
func (l *places) locate(index int, name string, p Ptr, size int64) error {
	last := p + Ptr(size) - 1
	known := &l.known[index]
	if l.locator == nil || *known == (addressRange{p, last}) {
		return nil
	}
	at, err := l.locator.Locate(p)
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	if !at.Local {
		return argumentError(name, "memory of "+l.driver.Name(), "address %#x was %s", p, at.Where)
	}
	if end := at.Base + Ptr(at.Size); last >= end && !at.Open {
		return argumentError(name, "inside one allocation", "it ran from %#x to %#x, %d bytes past the end of its allocation (%d bytes at %#x)",
			p, last, last-end+1, at.Size, at.Base)
	}
	*known = addressRange{p, last}
	return nil
}
