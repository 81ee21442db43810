//go:build cuda

package cuda

import (
	"errors"
	"fmt"
	goruntime "runtime"
	"unsafe"

	"gorgonia.org/cu"

	"github.com/mlagen/mlagen/runtime"
)

// Driver is one GPU. It implements runtime.Driver and runtime.Locator.
type Driver struct {
	device     cu.Device
	ordinal    int
	context    cu.CUContext
	name       string
	attributes runtime.Attributes
	allocated  map[runtime.Ptr]allocation
	closed     bool
}

type allocation struct {
	name string
	size int64
}

var (
	_ runtime.Driver  = (*Driver)(nil)
	_ runtime.Locator = (*Driver)(nil)
)

// Open takes the primary context of the ordinal-th GPU, the one that other
// libraries of the process use too, so that addresses can be shared. A GPU of
// another compute capability than 9.0 is an error: the kernels are sm_90a.
func Open(ordinal int) (runtime.Driver, error) {
	count, err := cu.NumDevices()
	if err != nil {
		return nil, wrap("cuDeviceGetCount", err)
	}
	if ordinal < 0 || ordinal >= count {
		return nil, fmt.Errorf("GPU %d does not exist: the driver sees %d", ordinal, count)
	}
	d := &Driver{ordinal: ordinal, allocated: map[runtime.Ptr]allocation{}}
	if d.device, err = cu.GetDevice(ordinal); err != nil {
		return nil, wrap("cuDeviceGet", err)
	}
	if d.name, err = d.device.Name(); err != nil {
		return nil, wrap("cuDeviceGetName", err)
	}
	if d.attributes, err = readAttributes(d.device); err != nil {
		return nil, err
	}
	if a := d.attributes; a.ComputeMajor != 9 || a.ComputeMinor != 0 {
		return nil, fmt.Errorf("GPU %d (%s) has compute capability %d.%d; the kernels are sm_90a and need 9.0 (H100, H200, H800, H20, GH200)",
			ordinal, d.name, a.ComputeMajor, a.ComputeMinor)
	}
	if d.context, err = d.device.RetainPrimaryCtx(); err != nil {
		return nil, wrap("cuDevicePrimaryCtxRetain", err)
	}
	return d, nil
}

func readAttributes(device cu.Device) (runtime.Attributes, error) {
	a := runtime.Attributes{DriverVersion: cu.Version(), GraphCapture: true}
	var l2, clusters int
	for _, want := range []struct {
		attribute cu.DeviceAttribute
		to        *int
	}{
		{cu.MultiprocessorCount, &a.SMs},
		{attributeSharedOptin, &a.SharedPerBlock},
		{cu.ComputeCapabilityMajor, &a.ComputeMajor},
		{cu.ComputeCapabilityMinor, &a.ComputeMinor},
		{cu.L2CacheSize, &l2},
		{cu.ClockRate, &a.ClockKHz},
		{attributeClusterLaunch, &clusters},
	} {
		v, err := device.Attribute(want.attribute)
		if err != nil {
			return a, wrap(fmt.Sprintf("cuDeviceGetAttribute(%d)", want.attribute), err)
		}
		*want.to = v
	}
	memory, err := device.TotalMem()
	if err != nil {
		return a, wrap("cuDeviceTotalMem", err)
	}
	uuid, err := device.UUID()
	if err != nil {
		return a, wrap("cuDeviceGetUuid", err)
	}
	a.L2Bytes = int64(l2)
	a.MemoryBytes = memory
	a.UUID = "GPU-" + uuid.String()
	a.Clusters = clusters != 0
	a.ProgrammaticLaunch = a.ComputeMajor >= 9
	return a, nil
}

// usable returns an error after Close.
func (d *Driver) usable(what string) error {
	if d.closed {
		return fmt.Errorf("%s: GPU %d is closed", what, d.ordinal)
	}
	return nil
}

// do runs f on an OS thread that has the context current. Goroutines move
// between threads, and the current context belongs to the thread.
func (d *Driver) do(call string, f func() error) error {
	if err := d.usable(call); err != nil {
		return err
	}
	goruntime.LockOSThread()
	defer goruntime.UnlockOSThread()
	if err := cu.SetCurrentContext(d.context); err != nil {
		return wrap("cuCtxSetCurrent", err)
	}
	return wrap(call, f())
}

// Name returns the GPU's name.
func (d *Driver) Name() string { return d.name }

// Attributes returns the GPU's facts.
func (d *Driver) Attributes() runtime.Attributes { return d.attributes }

// Alloc returns size bytes of device memory, 256-byte aligned.
func (d *Driver) Alloc(name string, size int64) (runtime.Ptr, error) {
	if size < 0 {
		return 0, fmt.Errorf("allocate %q: size is %d bytes", name, size)
	}
	var p cu.DevicePtr
	err := d.do("cuMemAlloc", func() (err error) {
		p, err = cu.MemAlloc(max(size, 256)) // the driver refuses size 0
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("allocate %q, %d bytes%s: %w", name, size, d.free(), err)
	}
	d.allocated[runtime.Ptr(p)] = allocation{name, size}
	return runtime.Ptr(p), nil
}

// short adds to an error how much memory is left, if that is what it is about.
func (d *Driver) short(err error) error {
	if err == nil {
		return nil
	}
	var e *Error
	if errors.As(err, &e) && e.Code == outOfMemory {
		return fmt.Errorf("%w%s", err, d.free())
	}
	return err
}

// free says how much memory is left, for error messages.
func (d *Driver) free() (s string) {
	_ = d.do("cuMemGetInfo", func() error {
		free, total, err := cu.MemInfo()
		if err == nil {
			s = fmt.Sprintf(" (%d of %d bytes free)", free, total)
		}
		return err
	})
	return s
}

// Free returns memory that Alloc gave. It waits for the device.
func (d *Driver) Free(p runtime.Ptr) error {
	a, ok := d.allocated[p]
	if !ok {
		return fmt.Errorf("free %#x: not an address that Alloc returned", p)
	}
	if err := d.do("cuMemFree", func() error { return cu.MemFree(cu.DevicePtr(p)) }); err != nil {
		return fmt.Errorf("free %q: %w", a.name, err)
	}
	delete(d.allocated, p)
	return nil
}

// settled waits for all work on the device, runs f, and waits for f. Streams
// here do not wait for the default stream in which f works, and a copy from
// pageable memory may still be on its way when the driver returns.
func (d *Driver) settled(call string, f func() error) error {
	return d.do(call, func() error {
		if err := cu.Synchronize(); err != nil {
			return wrap("cuCtxSynchronize before "+call, err)
		}
		if err := f(); err != nil {
			return err
		}
		return cu.Synchronize()
	})
}

// Upload waits for all work on the device, then copies src to dst.
func (d *Driver) Upload(dst runtime.Ptr, src []byte) error {
	if len(src) == 0 {
		return nil
	}
	return d.settled("cuMemcpyHtoD", func() error {
		return cu.MemcpyHtoD(cu.DevicePtr(dst), unsafe.Pointer(unsafe.SliceData(src)), int64(len(src)))
	})
}

// Download waits for all work on the device, then copies src to dst.
func (d *Driver) Download(dst []byte, src runtime.Ptr) error {
	if len(dst) == 0 {
		return nil
	}
	return d.settled("cuMemcpyDtoH", func() error {
		return cu.MemcpyDtoH(unsafe.Pointer(unsafe.SliceData(dst)), cu.DevicePtr(src), int64(len(dst)))
	})
}

// Fill waits for all work on the device, then sets size bytes to value.
func (d *Driver) Fill(dst runtime.Ptr, value byte, size int64) error {
	if size <= 0 {
		return checkSize("fill", size)
	}
	return d.settled("cuMemsetD8", func() error { return cu.MemsetD8(cu.DevicePtr(dst), value, size) })
}

func checkSize(what string, size int64) error {
	if size < 0 {
		return fmt.Errorf("%s: size is %d bytes", what, size)
	}
	return nil
}

// EncodeTensorMap lets the GPU driver make the tensor map.
func (d *Driver) EncodeTensorMap(t runtime.TensorMap) ([128]byte, error) {
	if err := d.usable("encode tensor map"); err != nil {
		return [128]byte{}, err
	}
	return shimEncode(d.context, &t)
}

// Locate asks the GPU driver which allocation p lies in.
func (d *Driver) Locate(p runtime.Ptr) (runtime.Location, error) {
	if err := d.usable("locate"); err != nil {
		return runtime.Location{}, err
	}
	l, device, onGPU, err := shimLocate(d.context, p)
	if err != nil {
		return l, err
	}
	l.Local = onGPU && device == d.ordinal
	switch {
	case !onGPU:
		l.Where = "not device memory"
	case !l.Local:
		l.Where = fmt.Sprintf("memory of GPU %d", device)
	}
	return l, nil
}

// Close gives the primary context back. Memory that was not freed goes with it
// unless another part of the process holds the context.
func (d *Driver) Close() error {
	if d.closed {
		return nil
	}
	for p := range d.allocated {
		if err := d.Free(p); err != nil {
			break // a context in an error state frees nothing; releasing it does
		}
	}
	d.closed = true
	return wrap("cuDevicePrimaryCtxRelease", d.device.ReleasePrimaryCtx())
}
