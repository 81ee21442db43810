//go:build cuda

package cuda

import (
	"fmt"

	"gorgonia.org/cu"

	"github.com/mlagen/mlagen/runtime"
)

type stream struct {
	driver    *Driver
	stream    cu.Stream
	capturing bool
}

var (
	_ runtime.Copier   = (*stream)(nil)
	_ runtime.Capturer = (*stream)(nil)
)

// NewStream makes a stream that does not wait for the default stream.
func (d *Driver) NewStream() (runtime.Stream, error) {
	s := &stream{driver: d}
	err := d.do("cuStreamCreate", func() (err error) {
		s.stream, err = cu.MakeStream(cu.NonBlocking)
		return err
	})
	if err != nil {
		return nil, d.short(err)
	}
	return s, nil
}

func (s *stream) Launch(l runtime.Launch) error {
	f, ok := l.Function.(*function)
	if !ok || f.driver != s.driver {
		return &runtime.ArgumentError{Argument: "stream", Was: "was another device's", Must: "one of the device that loaded the kernel"}
	}
	if err := s.driver.usable("launch"); err != nil {
		return err
	}
	return s.driver.short(shimLaunch(s.driver.context, s.stream, f.function, &l))
}

// FillAsync works in 32-bit units where it can, which is faster.
func (s *stream) FillAsync(dst runtime.Ptr, value byte, size int64) error {
	if size <= 0 {
		return checkSize("fill", size)
	}
	if dst%4 == 0 && size%4 == 0 {
		return s.driver.do("cuMemsetD32Async", func() error {
			return cu.MemsetD32Async(cu.DevicePtr(dst), uint(value)*0x01010101, size/4, s.stream)
		})
	}
	return s.driver.do("cuMemsetD8Async", func() error {
		return cu.MemsetD8Async(cu.DevicePtr(dst), value, size, s.stream)
	})
}

func (s *stream) CopyAsync(dst, src runtime.Ptr, size int64) error {
	if size <= 0 {
		return checkSize("copy", size)
	}
	return s.driver.do("cuMemcpyDtoDAsync", func() error {
		return cu.MemcpyDtoDAsync(cu.DevicePtr(dst), cu.DevicePtr(src), size, s.stream)
	})
}

func (s *stream) Record(e runtime.Event) error {
	ev, ok := e.(*event)
	if !ok {
		return fmt.Errorf("record: event %T is of another driver", e)
	}
	return s.driver.do("cuEventRecord", func() error { return ev.event.Record(s.stream) })
}

func (s *stream) Synchronize() error {
	return s.driver.do("cuStreamSynchronize", s.stream.Synchronize)
}

func (s *stream) BeginCapture() error {
	if err := s.driver.usable("capture"); err != nil {
		return err
	}
	err := shimBeginCapture(s.driver.context, s.stream)
	s.capturing = s.capturing || err == nil
	return err
}

// Capturing reports whether the stream is recording a graph.
func (s *stream) Capturing() bool { return s.capturing }

func (s *stream) EndCapture() (runtime.Graph, error) {
	if err := s.driver.usable("end of capture"); err != nil {
		return nil, err
	}
	s.capturing = false
	exec, err := shimEndCapture(s.driver.context, s.stream)
	if err != nil {
		return nil, s.driver.short(err)
	}
	return &graph{s.driver, exec}, nil
}

func (s *stream) Replay(g runtime.Graph) error {
	captured, ok := g.(*graph)
	if !ok || captured.exec == nil {
		return fmt.Errorf("replay: graph %T is destroyed or of another driver", g)
	}
	if err := s.driver.usable("replay"); err != nil {
		return err
	}
	return s.driver.short(shimReplay(s.driver.context, s.stream, captured.exec))
}

func (s *stream) Destroy() error {
	return s.driver.do("cuStreamDestroy", s.stream.Destroy)
}

type graph struct {
	driver *Driver
	exec   execGraph
}

func (g *graph) Destroy() error {
	if g.exec == nil {
		return nil
	}
	if err := g.driver.usable("destroy graph"); err != nil {
		return err
	}
	err := shimDestroyGraph(g.driver.context, g.exec)
	g.exec = nil
	return err
}

type event struct {
	driver *Driver
	event  cu.Event
}

// NewEvent makes an event that takes the time.
func (d *Driver) NewEvent() (runtime.Event, error) {
	e := &event{driver: d}
	err := d.do("cuEventCreate", func() (err error) {
		e.event, err = cu.MakeEvent(cu.DefaultEvent)
		return err
	})
	if err != nil {
		return nil, d.short(err)
	}
	return e, nil
}

func (e *event) Synchronize() error {
	return e.driver.do("cuEventSynchronize", e.event.Synchronize)
}

// Since waits for both events, for the driver refuses to compare those that
// have not happened.
func (e *event) Since(start runtime.Event) (float64, error) {
	s, ok := start.(*event)
	if !ok {
		return 0, fmt.Errorf("since: event %T is of another driver", start)
	}
	var milliseconds float64
	err := e.driver.do("cuEventElapsedTime", func() (err error) {
		if err := s.event.Synchronize(); err != nil {
			return err
		}
		if err := e.event.Synchronize(); err != nil {
			return err
		}
		milliseconds, err = s.event.Elapsed(e.event)
		return err
	})
	return milliseconds * 1000, err
}

func (e *event) Destroy() error {
	return e.driver.do("cuEventDestroy", func() error { return cu.DestroyEvent(&e.event) })
}
