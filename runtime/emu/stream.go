package emu

import (
	"errors"
	"slices"

	"github.com/mlagen/mlagen/runtime"
)

// stream runs work as it comes, or records it.
type stream struct {
	d         *Driver
	recording bool
	recorded  []func() error
	failed    error // the first failure since the last Synchronize
}

// graph is recorded work.
type graph struct{ work []func() error }

func (*graph) Destroy() error { return nil }

// do runs or records f. As on a GPU, work after a failure does not run.
func (s *stream) do(f func() error) error {
	if s.recording {
		s.recorded = append(s.recorded, f)
		return nil
	}
	if s.failed == nil {
		s.failed = f()
	}
	return s.failed
}

// Launch runs a kernel to its end. Its error is reported here and again by
// Synchronize.
func (s *stream) Launch(l runtime.Launch) error {
	l.Params = slices.Clone(l.Params) // a graph keeps the values of its recording
	l.Offsets = slices.Clone(l.Offsets)
	return s.do(func() error { return s.d.launch(l) })
}

// FillAsync sets size bytes to value.
func (s *stream) FillAsync(dst runtime.Ptr, value byte, size int64) error {
	return s.do(func() error { return s.d.Fill(dst, value, size) })
}

// CopyAsync copies within the device.
func (s *stream) CopyAsync(dst, src runtime.Ptr, size int64) error {
	return s.do(func() error {
		b := make([]byte, size)
		if err := s.d.Download(b, src); err != nil {
			return err
		}
		return s.d.Upload(dst, b)
	})
}

func (s *stream) Record(runtime.Event) error { return nil }

// Synchronize returns the first failure since the last call.
func (s *stream) Synchronize() error {
	err := s.failed
	s.failed = nil
	return err
}

// Capturing reports whether the stream is recording a graph.
func (s *stream) Capturing() bool { return s.recording }

func (s *stream) BeginCapture() error {
	if s.recording {
		return errors.New("the stream is recording a graph already")
	}
	s.recording, s.recorded = true, nil
	return nil
}

func (s *stream) EndCapture() (runtime.Graph, error) {
	if !s.recording {
		return nil, errCapture
	}
	g := &graph{s.recorded}
	s.recording, s.recorded = false, nil
	return g, nil
}

// Replay runs what a graph has recorded.
func (s *stream) Replay(g runtime.Graph) error {
	own, ok := g.(*graph)
	if !ok {
		return errors.New("the graph is another driver's")
	}
	for _, f := range own.work {
		if err := s.do(f); err != nil {
			return err
		}
	}
	return nil
}

func (*stream) Destroy() error { return nil }

// event marks nothing: emulated work is over when it has been given.
type event struct{}

func (event) Synchronize() error                   { return nil }
func (event) Since(runtime.Event) (float64, error) { return 0, nil }
func (event) Destroy() error                       { return nil }
