package runtime

import "fmt"

// addressRange is memory that was found to lie on the device.
type addressRange struct{ first, last Ptr }

// locate makes sure that the size bytes from p lie in memory of the device. It
// asks the driver only about ranges that differ from the one known.
func locate(drv Driver, locator Locator, known *addressRange, name string, p Ptr, size int64) error {
	last := p + Ptr(size) - 1
	if locator == nil || *known == (addressRange{p, last}) {
		return nil
	}
	at, err := locator.Locate(p)
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	if !at.Local {
		return argumentError(name, "memory of "+drv.Name(), "address %#x was %s", p, at.Where)
	}
	if end := at.Base + Ptr(at.Size); last >= end && !at.Open {
		return argumentError(name, "inside one allocation", "it ran from %#x to %#x, %d bytes past the end of its allocation (%d bytes at %#x)",
			p, last, last-end+1, at.Size, at.Base)
	}
	*known = addressRange{p, last}
	return nil
}

// arguments checks the arguments of a call again and again, and remembers
// which memory was found to lie on the device.
type arguments struct {
	driver  Driver
	locator Locator // nil when the driver cannot say where addresses lie
	known   []addressRange
}

func newArguments(drv Driver, count int) arguments {
	a := arguments{driver: drv, known: make([]addressRange, count)}
	a.locator, _ = drv.(Locator)
	return a
}

// tensor checks a tensor, the index-th of the call's arguments, and that it
// lies on the device.
func (a *arguments) tensor(index int, x *expectation, t *Tensor) error {
	if err := x.check(t); err != nil || t.empty() {
		return err
	}
	size, _ := t.span()
	return locate(a.driver, a.locator, &a.known[index], x.name, t.Ptr, size)
}

// noStream is the error of a call without a stream.
func noStream() error {
	return argumentError("stream", "a stream of the driver that loaded the kernels", "was nil")
}
