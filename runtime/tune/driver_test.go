package tune

import (
	"errors"

	"github.com/mlagen/mlagen/runtime"
)

// deskDriver is a device without contents: what is read is zero. Every launch
// takes a microsecond of its time, a merge one more for each hundred blocks.
type deskDriver struct {
	attributes runtime.Attributes
	next       runtime.Ptr
	live       int
	now        float64
	still      bool // it keeps no time
	grids      []int
	loads      int
	refuse     string // a text that it cannot compile
}

func newDesk() *deskDriver {
	return &deskDriver{next: 1 << 20, attributes: runtime.Attributes{
		SMs: 132, DriverVersion: 13000, MemoryBytes: 1 << 30, L2Bytes: 1, GraphCapture: true, SharedPerBlock: 232448,
	}}
}

func (d *deskDriver) Name() string                   { return "fake" }
func (d *deskDriver) Attributes() runtime.Attributes { return d.attributes }
func (d *deskDriver) Close() error                   { return nil }
func (d *deskDriver) Alloc(_ string, size int64) (runtime.Ptr, error) {
	d.live++
	p := d.next
	d.next += runtime.Ptr(size+511) &^ 255
	return p, nil
}
func (d *deskDriver) Free(runtime.Ptr) error                   { d.live--; return nil }
func (d *deskDriver) Upload(runtime.Ptr, []byte) error         { return nil }
func (d *deskDriver) Download(dst []byte, _ runtime.Ptr) error { clear(dst); return nil }
func (d *deskDriver) Fill(runtime.Ptr, byte, int64) error      { return nil }
func (d *deskDriver) NewStream() (runtime.Stream, error)       { return &deskStream{d: d}, nil }
func (d *deskDriver) NewEvent() (runtime.Event, error)         { return &deskEvent{d: d}, nil }
func (d *deskDriver) EncodeTensorMap(runtime.TensorMap) ([128]byte, error) {
	return [128]byte{}, nil
}
func (d *deskDriver) Load(ptx []byte) (runtime.Module, error) {
	if d.refuse != "" && string(ptx) == d.refuse {
		return nil, errors.New("ptxas: no")
	}
	d.loads++
	return deskModule{d}, nil
}

type deskModule struct{ d *deskDriver }

func (m deskModule) Function(name string) (runtime.Function, error) { return deskFunction(name), nil }
func (m deskModule) Log() string                                    { return "" }
func (m deskModule) CompileSeconds() float64                        { return 0 }
func (m deskModule) Unload() error                                  { m.d.loads--; return nil }

type deskFunction string

func (deskFunction) Attributes() (runtime.FunctionAttributes, error) {
	return runtime.FunctionAttributes{}, nil
}
func (deskFunction) SetDynamicShared(int) error { return nil }

type deskEvent struct {
	d  *deskDriver
	at float64
}

func (*deskEvent) Synchronize() error { return nil }
func (*deskEvent) Destroy() error     { return nil }
func (e *deskEvent) Since(start runtime.Event) (float64, error) {
	if e.d.still {
		return 0, nil
	}
	return e.at - start.(*deskEvent).at, nil
}

type deskStream struct {
	d         *deskDriver
	capturing bool
	captured  deskGraph
}

type deskGraph []runtime.Launch

func (deskGraph) Destroy() error { return nil }

func (s *deskStream) Synchronize() error                        { return nil }
func (s *deskStream) Destroy() error                            { return nil }
func (s *deskStream) FillAsync(runtime.Ptr, byte, int64) error  { s.d.now++; return nil }
func (s *deskStream) CopyAsync(_, _ runtime.Ptr, _ int64) error { return nil }
func (s *deskStream) Record(e runtime.Event) error              { e.(*deskEvent).at = s.d.now; return nil }
func (s *deskStream) BeginCapture() error                       { s.capturing, s.captured = true, nil; return nil }
func (s *deskStream) EndCapture() (runtime.Graph, error)        { s.capturing = false; return s.captured, nil }
func (s *deskStream) Replay(g runtime.Graph) error {
	for _, l := range g.(deskGraph) {
		s.run(l)
	}
	return nil
}

func (s *deskStream) Launch(l runtime.Launch) error {
	if s.capturing {
		s.captured = append(s.captured, l)
	} else {
		s.run(l)
	}
	return nil
}

// run passes a launch's time.
func (s *deskStream) run(l runtime.Launch) {
	s.d.now++
	s.d.grids = append(s.d.grids, l.Grid.X)
	if l.Function.(deskFunction) == "decode_combine" {
		s.d.now += float64(l.Grid.X) / 100
	}
}
