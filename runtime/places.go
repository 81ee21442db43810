package runtime

import "fmt"

// places checks the arguments of a call, again and again: that each is what it
// must be and lies in memory of the device, where its driver can tell, and that
// what a call writes shares no memory with anything else of it. It asks the
// driver only about ranges that differ from the call before.
type places struct {
	driver  Driver
	locator Locator // nil when the driver cannot say where addresses lie
	known   []addressRange
	taken   []taken // by the arguments of this call that have been checked
}

// addressRange is memory that was found to lie on the device.
type addressRange struct{ first, last Ptr }

// taken is memory that an argument takes.
type taken struct {
	name    string
	extent  extent
	past    int64 // the first address past it
	written bool
}

// newPlaces is for so many arguments.
func newPlaces(drv Driver, arguments int) places {
	l, _ := drv.(Locator)
	return places{drv, l, make([]addressRange, arguments), make([]taken, 0, arguments)}
}

// begin begins a call.
func (l *places) begin() { l.taken = l.taken[:0] }

// tensor checks a tensor argument, the index-th.
func (l *places) tensor(index int, x *expectation, t *Tensor) error {
	if err := x.check(t); err != nil || t.empty() {
		return err
	}
	size, _ := t.span()
	if err := l.locate(index, x.name, t.Ptr, size); err != nil {
		return err
	}
	l.taken = append(l.taken, taken{x.name, extentOf(t), int64(t.Ptr) + size, x.output})
	return nil
}

// buffer checks a buffer argument of at least size bytes. Buffers are written.
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
	if b.Ptr > maxAddress-Ptr(size) {
		return argumentError(name, "memory that ends below 2^63 bytes", "it was %d bytes at %#x", size, b.Ptr)
	}
	if err := l.locate(index, name, b.Ptr, size); err != nil {
		return err
	}
	l.taken = append(l.taken, taken{name, extent{first: int64(b.Ptr), width: size}, int64(b.Ptr) + size, true})
	return nil
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

// apart makes sure that no argument of a call is written where another lies. The
// arguments may have been checked in several places.
func apart(sets ...*places) error {
	for i, l := range sets {
		for j := range l.taken {
			for k := range l.taken[:j] {
				if err := l.taken[k].apart(&l.taken[j]); err != nil {
					return err
				}
			}
			for _, other := range sets[i+1:] {
				for k := range other.taken {
					if err := l.taken[j].apart(&other.taken[k]); err != nil {
						return err
					}
				}
			}
		}
	}
	return nil
}

// shares reports whether both share memory.
func (a *taken) shares(b *taken) bool {
	return a.extent.first < b.past && b.extent.first < a.past && a.extent.shares(&b.extent)
}

func (a *taken) apart(b *taken) error {
	if !a.written && !b.written || !a.shares(b) {
		return nil
	}
	if !a.written {
		a, b = b, a
	}
	return argumentError(a.name, "memory of its own, for it is written", "it shared memory with %s: %#x to %#x, and %#x to %#x",
		b.name, a.extent.first, a.past-1, b.extent.first, b.past-1)
}

// maxAddress is the end of what addresses may reach.
const maxAddress Ptr = 1<<63 - 1

// noStream is the error of a call without a stream.
func noStream() error {
	return argumentError("stream", "a stream of the driver that loaded the kernels", "was nil")
}
