package main

import (
	"errors"
	"io"
	"testing"

	"github.com/mlagen/mlagen/runtime"
)

// stingy is a device on which things can be made so many times. It counts what
// it made and has not got back.
type stingy struct {
	runtime.Driver
	budget, left int
}

var errStingy = errors.New("no more of it")

func (d *stingy) grant() error {
	if d.budget == 0 {
		return errStingy
	}
	d.budget--
	return nil
}

// made counts a thing that was made.
func made[T any](d *stingy, make func() (T, error)) (x T, err error) {
	if err = d.grant(); err == nil {
		if x, err = make(); err == nil {
			d.left++
		}
	}
	return x, err
}

func (d *stingy) back() { d.left-- }

func (d *stingy) Load(ptx []byte) (runtime.Module, error) {
	m, err := made(d, func() (runtime.Module, error) { return d.Driver.Load(ptx) })
	if err != nil {
		return nil, err
	}
	return stingyModule{m, d}, nil
}

func (d *stingy) NewStream() (runtime.Stream, error) {
	s, err := made(d, d.Driver.NewStream)
	if err != nil {
		return nil, err
	}
	return stingyStream{s, d}, nil
}

func (d *stingy) NewEvent() (runtime.Event, error) {
	e, err := made(d, d.Driver.NewEvent)
	if err != nil {
		return nil, err
	}
	return stingyEvent{e, d}, nil
}

func (d *stingy) Alloc(name string, size int64) (runtime.Ptr, error) {
	return made(d, func() (runtime.Ptr, error) { return d.Driver.Alloc(name, size) })
}

func (d *stingy) Free(p runtime.Ptr) error { d.back(); return d.Driver.Free(p) }

type stingyModule struct {
	runtime.Module
	d *stingy
}

func (m stingyModule) Unload() error { m.d.back(); return m.Module.Unload() }

type stingyStream struct {
	runtime.Stream
	d *stingy
}

func (s stingyStream) Destroy() error { s.d.back(); return s.Stream.Destroy() }

type stingyEvent struct {
	runtime.Event
	d *stingy
}

func (e stingyEvent) Destroy() error { e.d.back(); return e.Event.Destroy() }

// TestEngineFails: whatever a device refuses, kernels, stream, events or
// memory, is told, and what it gave until then goes back.
func TestEngineFails(t *testing.T) {
	c, err := parse(small, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	const all = 14 // 4 kernels, a stream, 2 events and 7 blocks of memory
	for budget := range all + 1 {
		drv, err := c.open()
		if err != nil {
			t.Fatal(err)
		}
		d := &stingy{Driver: drv, budget: budget}
		e, err := newEngine(d, &c)
		switch {
		case err == nil:
			err = e.close()
			if budget < all {
				t.Errorf("made of %d things", budget)
			}
		case errors.Is(err, errStingy) && e == nil && budget < all:
			err = nil
		}
		if err := errors.Join(err, drv.Close()); err != nil || d.left != 0 {
			t.Errorf("after %d things: %d are left, %v", budget, d.left, err)
		}
	}
}
