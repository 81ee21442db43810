package golden_test

import (
	"errors"
	"fmt"

	"github.com/mlagen/mlagen/runtime"
)

// paper is a device on paper, which is its own stream. It loads anything, its
// memory has addresses and no contents, and it counts launches.
type paper struct {
	runtime.Driver
	launches  []string
	capturing bool
	loaded    int // modules that are not unloaded

	// With maps it says where addresses lie. A device without is the one of whose
	// memory nothing is known.
	maps   bool
	blocks []runtime.Location
	next   runtime.Ptr
}

func newPaper() *paper { return &paper{next: 0x7f0000000000} }

func (*paper) Name() string { return "paper" }
func (*paper) Attributes() runtime.Attributes {
	return runtime.Attributes{SMs: 132, SharedPerBlock: 232448, ComputeMajor: 9, DriverVersion: 13000, Clusters: true, GraphCapture: true}
}

func (p *paper) Load([]byte) (runtime.Module, error)                      { p.loaded++; return paperModule{p: p}, nil }
func (*paper) EncodeTensorMap(runtime.TensorMap) (m [128]byte, err error) { return m, nil }

// Alloc leaves a gap behind every block.
func (p *paper) Alloc(_ string, size int64) (runtime.Ptr, error) {
	at := p.next
	p.blocks = append(p.blocks, runtime.Location{Local: true, Base: at, Size: size})
	p.next += runtime.Ptr(size+511) / 256 * 256
	return at, nil
}

func (p *paper) Locate(at runtime.Ptr) (runtime.Location, error) {
	if !p.maps {
		return runtime.Location{Local: true, Open: true}, nil
	}
	for _, b := range p.blocks {
		if at >= b.Base && at < b.Base+runtime.Ptr(max(b.Size, 1)) {
			return b, nil
		}
	}
	return runtime.Location{Where: "not device memory"}, nil
}

func (p *paper) Capturing() bool { return p.capturing }

func (p *paper) Launch(l runtime.Launch) error {
	f, ok := l.Function.(paperFunction)
	if !ok || f.p != p {
		return &runtime.ArgumentError{Argument: "stream", Was: "was another device's", Must: "one of the device that loaded the kernel"}
	}
	p.launches = append(p.launches, f.name)
	return nil
}

func (*paper) FillAsync(runtime.Ptr, byte, int64) error { return nil }
func (*paper) Record(runtime.Event) error               { return nil }
func (*paper) Synchronize() error                       { return nil }
func (*paper) BeginCapture() error                      { return errors.New("no graphs") }
func (*paper) EndCapture() (runtime.Graph, error)       { return nil, errors.New("no graphs") }
func (*paper) Replay(runtime.Graph) error               { return errors.New("no graphs") }
func (*paper) Destroy() error                           { return nil }

type paperModule struct{ p *paper }

func (m paperModule) Function(name string) (runtime.Function, error) {
	return paperFunction{m.p, name}, nil
}
func (paperModule) Log() string             { return "" }
func (paperModule) CompileSeconds() float64 { return 0 }
func (m paperModule) Unload() error         { m.p.loaded--; return nil }

type paperFunction struct {
	p    *paper
	name string
}

func (paperFunction) Attributes() (runtime.FunctionAttributes, error) {
	return runtime.FunctionAttributes{Registers: 128}, nil
}

func (paperFunction) SetDynamicShared(n int) error {
	if n < 0 || n > 232448 {
		return fmt.Errorf("%d bytes of shared memory", n)
	}
	return nil
}
