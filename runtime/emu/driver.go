// Package emu is the CPU emulator as a device of the runtime: the same PTX,
// plans and launches as on a GPU, with observers that report hazards. A hazard
// that is proven makes the launch fail.
package emu

import (
	"crypto/sha256"
	"errors"
	"fmt"
	goruntime "runtime"
	"strings"
	"sync"

	"github.com/mlagen/mlagen/ptx/emu"
	"github.com/mlagen/mlagen/ptx/emu/tma"
	"github.com/mlagen/mlagen/runtime"
)

// Options configure the emulated device.
type Options struct {
	// SMs is the number of multiprocessors that planning sees; 0 means 8:
	// enough to split work, few enough that a CTA has several items.
	SMs int
	// Seed decides every timing that PTX leaves open.
	Seed uint64
	// NoHazards turns the observers off.
	NoHazards bool
	// KeepGoing lets a launch with proven hazards succeed; they are in Reports.
	KeepGoing bool
	// Copied, when not nil, is told what bulk copies read and write of global
	// memory, by several goroutines at once (see ptx/emu's Config).
	Copied func(allocation string, offset uint64, bytes int)
	// Programs, when not nil, has what other devices have loaded, and gets what
	// this one loads.
	Programs *Programs
}

// Driver is an emulated Hopper GPU.
type Driver struct {
	opts Options
	m    *emu.Machine

	mu       sync.Mutex
	reports  []*emu.Report
	total    emu.Stats
	programs map[[sha256.Size]byte]*emu.Program // compiled and not yet loaded, by the text
}

var (
	_ runtime.Driver       = (*Driver)(nil)
	_ runtime.Locator      = (*Driver)(nil)
	_ runtime.Compiler     = (*Driver)(nil)
	_ runtime.Copier       = (*stream)(nil)
	_ runtime.Capturer     = (*stream)(nil)
	_ runtime.ParamLocator = (*function)(nil)
)

// Open returns a new device with empty memory. It cannot fail; the error is
// for the symmetry with other drivers.
func Open(opts Options) (*Driver, error) {
	if opts.SMs <= 0 {
		opts.SMs = 8
	}
	d := &Driver{opts: opts, programs: map[[sha256.Size]byte]*emu.Program{}}
	d.m = emu.New(emu.Config{SMs: opts.SMs, Seed: opts.Seed, NoHazards: opts.NoHazards, Copied: opts.Copied, Workers: goruntime.GOMAXPROCS(0)})
	return d, nil
}

// Name identifies the device to people.
func (d *Driver) Name() string { return "emulator" }

// Attributes are those of an H200 with the emulated number of multiprocessors.
func (d *Driver) Attributes() runtime.Attributes {
	return runtime.Attributes{
		SMs: d.opts.SMs, SharedPerBlock: 232448, ComputeMajor: 9, ComputeMinor: 0,
		L2Bytes: 50 << 20, MemoryBytes: 141 << 30, ClockKHz: 1980000, DriverVersion: 13000,
		UUID: "emulator", GraphCapture: true, Clusters: true, ProgrammaticLaunch: true,
	}
}

// SetSeed changes the schedule of later launches.
func (d *Driver) SetSeed(seed uint64) {
	d.opts.Seed = seed
	d.m.SetSeed(seed)
}

// Reports returns the reports of the launches since the last call, and forgets
// them.
func (d *Driver) Reports() []*emu.Report {
	d.mu.Lock()
	defer d.mu.Unlock()
	r := d.reports
	d.reports = nil
	return r
}

// Total returns the counts of all launches.
func (d *Driver) Total() emu.Stats {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.total
}

// Resident returns the bytes of host memory that back device memory.
func (d *Driver) Resident() uint64 { return d.m.Resident() }

// Alloc reserves device memory; reading it before it is written is a hazard.
func (d *Driver) Alloc(name string, size int64) (runtime.Ptr, error) {
	if size < 0 {
		return 0, fmt.Errorf("allocate %q: size was %d, must not be negative", name, size)
	}
	p, err := d.m.Alloc(name, uint64(size))
	return runtime.Ptr(p), err
}

// Free ends an allocation.
func (d *Driver) Free(p runtime.Ptr) error { return d.m.Free(uint64(p)) }

// Upload copies src to the device.
func (d *Driver) Upload(dst runtime.Ptr, src []byte) error { return d.m.Write(uint64(dst), src) }

// Download copies from the device to dst.
func (d *Driver) Download(dst []byte, src runtime.Ptr) error { return d.m.Read(dst, uint64(src)) }

// Fill sets size bytes to value.
func (d *Driver) Fill(dst runtime.Ptr, value byte, size int64) error {
	if size < 0 {
		return fmt.Errorf("fill: size was %d, must not be negative", size)
	}
	return d.m.Fill(uint64(dst), value, uint64(size))
}

// Locate says which allocation p lies in.
func (d *Driver) Locate(p runtime.Ptr) (runtime.Location, error) {
	base, size, ok := d.m.Locate(uint64(p))
	if !ok {
		return runtime.Location{Where: "not device memory"}, nil
	}
	return runtime.Location{Local: true, Base: runtime.Ptr(base), Size: int64(size)}, nil
}

// EncodeTensorMap makes the 128 bytes that a kernel takes by value, in the
// emulator's own encoding.
func (d *Driver) EncodeTensorMap(t runtime.TensorMap) ([128]byte, error) {
	m, err := tma.New(t.TensorMap, uint64(t.Address), t.Sizes, t.Strides)
	if err != nil {
		return [128]byte{}, err
	}
	return m.Encode()
}

// NewStream returns a stream; work runs when it is given to it.
func (d *Driver) NewStream() (runtime.Stream, error) { return &stream{d: d}, nil }

// NewEvent returns an event. Emulated time stands still: every interval is 0.
func (d *Driver) NewEvent() (runtime.Event, error) { return event{}, nil }

// Close does nothing.
func (d *Driver) Close() error { return nil }

// launch runs one kernel and turns proven hazards into an error.
func (d *Driver) launch(l runtime.Launch) error {
	f, ok := l.Function.(*function)
	if !ok || f.driver != d {
		return &runtime.ArgumentError{Argument: "stream", Was: "was another device's", Must: "one of the device that loaded the kernel"}
	}
	dim := func(v runtime.Dim3) emu.Dim { return emu.Dim{X: v.X, Y: v.Y, Z: v.Z} }
	r, err := d.m.Launch(f.program, f.name, emu.LaunchConfig{
		Grid: dim(l.Grid), Block: dim(l.Block), Cluster: dim(l.Cluster), Shared: l.Shared,
		Params: f.pack(l), Programmatic: l.Programmatic,
	})
	if r != nil {
		d.mu.Lock()
		d.reports = append(d.reports, r)
		d.total.Add(r.Stats)
		d.mu.Unlock()
	}
	if err != nil {
		return err
	}
	if bad := r.Errors(); len(bad) > 0 && !d.opts.KeepGoing {
		return &HazardError{Kernel: f.name, Hazards: bad}
	}
	return nil
}

// HazardError is the error of a launch with proven hazards.
type HazardError struct {
	Kernel  string
	Hazards []emu.Hazard
}

// Error lists the first hazards.
func (e *HazardError) Error() string {
	const shown = 5
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %d hazards", e.Kernel, len(e.Hazards))
	for i, h := range e.Hazards {
		if i == shown {
			fmt.Fprintf(&b, "\n%d more", len(e.Hazards)-shown)
			break
		}
		b.WriteString("\n")
		b.WriteString(h.String())
	}
	return b.String()
}

var errCapture = errors.New("the stream is not recording a graph")
