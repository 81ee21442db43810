package runtime

import "github.com/mlagen/mlagen/ptx/manifest"

// Ptr is an address in device memory.
type Ptr uint64

// Dim3 is a grid, block or cluster shape; zero components count as 1.
type Dim3 struct{ X, Y, Z int }

// Driver is a device that executes PTX: a GPU (runtime/cuda) or the emulator
// (runtime/emu). Methods may be called from any goroutine, one at a time.
type Driver interface {
	// Name identifies the device to people: "NVIDIA H200", "emulator".
	Name() string
	Attributes() Attributes

	// Alloc returns size bytes of device memory, at least 256-byte aligned,
	// its contents undefined. name appears in diagnostics. Size 0 is legal.
	Alloc(name string, size int64) (Ptr, error)
	Free(Ptr) error
	// Upload and Download copy synchronously between host and device.
	Upload(dst Ptr, src []byte) error
	Download(dst []byte, src Ptr) error
	// Fill sets size bytes to value.
	Fill(dst Ptr, value byte, size int64) error

	// Load compiles PTX text. Its warnings are part of the Module; a failure
	// carries the compiler's log.
	Load(ptx []byte) (Module, error)
	// EncodeTensorMap makes the 128 bytes that a kernel takes by value.
	EncodeTensorMap(TensorMap) ([128]byte, error)

	NewStream() (Stream, error)
	NewEvent() (Event, error)
	Close() error
}

// Attributes are the device's facts that planning needs.
type Attributes struct {
	SMs                int
	SharedPerBlock     int // opt-in dynamic shared memory limit in bytes
	ComputeMajor       int
	ComputeMinor       int
	L2Bytes            int64
	MemoryBytes        int64
	ClockKHz           int
	DriverVersion      int // 13000 for CUDA 13.0
	UUID               string
	GraphCapture       bool // the device supports stream capture
	Clusters           bool
	ProgrammaticLaunch bool // programmatic dependent launch has an effect
}

// Module is loaded code.
type Module interface {
	Function(name string) (Function, error)
	// Log holds the compiler's informational lines, empty when it said nothing.
	Log() string
	// CompileSeconds is the wall time that Load spent compiling.
	CompileSeconds() float64
	Unload() error
}

// FunctionAttributes is what the compiler made of a kernel.
type FunctionAttributes struct {
	Registers    int
	LocalBytes   int // per thread; a spill or a stack frame
	StaticShared int
	MaxThreads   int
}

// Function is a kernel of a loaded module.
type Function interface {
	Attributes() (FunctionAttributes, error)
	// SetDynamicShared raises the limit of dynamic shared memory, in bytes.
	SetDynamicShared(bytes int) error
}

// Launch is one kernel launch. Params is the packed parameter buffer, laid out
// as the manifest's offsets say; Offsets are the parameters' starts in it.
type Launch struct {
	Function     Function
	Grid, Block  Dim3
	Cluster      Dim3 // zero = none
	Shared       int
	Programmatic bool // programmatic dependent launch: may start before the previous kernel has ended
	Params       []byte
	Offsets      []int
}

// Stream is an ordered queue of work.
type Stream interface {
	Launch(Launch) error
	// FillAsync sets size bytes to value in stream order. A stream that can
	// also copy within the device is a Copier.
	FillAsync(dst Ptr, value byte, size int64) error
	Record(Event) error
	Synchronize() error
	// BeginCapture starts recording what follows into a graph instead of running it.
	BeginCapture() error
	EndCapture() (Graph, error)
	Replay(Graph) error
	Destroy() error
}

// Event marks a point in a stream.
type Event interface {
	Synchronize() error
	// Since returns the microseconds from start to this event.
	Since(start Event) (float64, error)
	Destroy() error
}

// Graph is a captured, instantiated sequence of launches.
type Graph interface{ Destroy() error }

// TensorMap is a tensor map's static part together with a tensor's place.
type TensorMap struct {
	manifest.TensorMap
	Address Ptr
	Sizes   []uint64 // elements per dimension, innermost first
	Strides []uint64 // bytes, of every dimension but the innermost
}
