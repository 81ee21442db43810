package faulty

import (
	"errors"
	"fmt"

	"github.com/mlagen/mlagen/runtime"
)

type stream struct {
	runtime.Stream
	d *Driver
}

// copier is a stream that copies.
type copier struct {
	*stream
	inner runtime.Copier
}

// NewStream makes a stream.
func (d *Driver) NewStream() (runtime.Stream, error) {
	if err := d.call("new stream"); err != nil {
		return nil, err
	}
	inner, err := d.device.NewStream()
	if err != nil {
		return nil, err
	}
	s := &stream{inner, d}
	d.hold(s, "stream")
	if c, ok := inner.(runtime.Copier); ok {
		return copier{s, c}, nil
	}
	return s, nil
}

func (s *stream) Launch(l runtime.Launch) error {
	f, ok := l.Function.(*function)
	if !ok {
		return fmt.Errorf("launch: %T is another driver's", l.Function)
	}
	if err := s.d.call("launch of %s", f.name); err != nil {
		return err
	}
	l.Function = f.Function
	return s.Stream.Launch(l)
}

func (s *stream) FillAsync(dst runtime.Ptr, value byte, size int64) error {
	if err := s.d.call("fill in a stream"); err != nil {
		return err
	}
	return s.Stream.FillAsync(dst, value, size)
}

func (c copier) CopyAsync(dst, src runtime.Ptr, size int64) error {
	if err := c.d.call("copy in a stream"); err != nil {
		return err
	}
	return c.inner.CopyAsync(dst, src, size)
}

func (s *stream) Record(e runtime.Event) error {
	if err := s.d.call("record"); err != nil {
		return err
	}
	return s.Stream.Record(e.(*event).Event)
}

func (s *stream) Synchronize() error {
	if err := s.d.call("synchronize"); err != nil {
		return err
	}
	return s.Stream.Synchronize()
}

// Capturing says what the device's stream does, that it may be when that does not
// know.
func (s *stream) Capturing() bool {
	c, ok := s.Stream.(runtime.Capturer)
	return !ok || c.Capturing()
}

func (s *stream) BeginCapture() error {
	if err := s.d.call("begin capture"); err != nil {
		return err
	}
	return s.Stream.BeginCapture()
}

// EndCapture ends the capture even where it fails.
func (s *stream) EndCapture() (runtime.Graph, error) {
	fault := s.d.call("end capture")
	inner, err := s.Stream.EndCapture()
	if err != nil || fault != nil {
		if err == nil {
			err = inner.Destroy()
		}
		return nil, errors.Join(fault, err)
	}
	g := &graph{inner, s.d}
	s.d.hold(g, "graph")
	return g, nil
}

func (s *stream) Replay(g runtime.Graph) error {
	if err := s.d.call("replay"); err != nil {
		return err
	}
	return s.Stream.Replay(g.(*graph).Graph)
}

func (s *stream) Destroy() error { return s.d.release(s, "destroy stream", s.Stream.Destroy) }

type graph struct {
	runtime.Graph
	d *Driver
}

func (g *graph) Destroy() error { return g.d.release(g, "destroy graph", g.Graph.Destroy) }

type event struct {
	runtime.Event
	d *Driver
}

// NewEvent makes an event.
func (d *Driver) NewEvent() (runtime.Event, error) {
	if err := d.call("new event"); err != nil {
		return nil, err
	}
	inner, err := d.device.NewEvent()
	if err != nil {
		return nil, err
	}
	e := &event{inner, d}
	d.hold(e, "event")
	return e, nil
}

func (e *event) Synchronize() error {
	if err := e.d.call("synchronize event"); err != nil {
		return err
	}
	return e.Event.Synchronize()
}

func (e *event) Since(start runtime.Event) (float64, error) {
	if err := e.d.call("time between events"); err != nil {
		return 0, err
	}
	return e.Event.Since(start.(*event).Event)
}

func (e *event) Destroy() error { return e.d.release(e, "destroy event", e.Event.Destroy) }
