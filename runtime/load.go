package runtime

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/mlagen/mlagen/ptx"
	"github.com/mlagen/mlagen/ptx/manifest"
)

// Variant is one generated kernel: its text and its description.
type Variant struct {
	Name     string // for people, such as "absorb_decode heads=16"
	PTX      []byte
	Manifest *manifest.Manifest
}

// Kernel is a loaded variant.
type Kernel struct {
	Variant
	Attributes     FunctionAttributes
	Warnings       []Warning // what the compiler complained about, when it compiled; and what else asks for attention
	CompileSeconds float64   // spent by the driver; 0 where the image was there already
	Cached         bool      // the image is from the cache
	Whole          bool      // the driver compiled it while loading, see WholeProgram: at most its own cache keeps the image

	driver   Driver
	module   Module
	function Function
	offsets  []int
	shared   int32 // operations that have the kernel, beside the first
}

// Load compiles a variant and holds it against its manifest and the device.
// It is an error when the device or its driver cannot run the kernel, when the
// text is not the one that the manifest describes, when the compiler refuses
// it, gives it local memory (a spill or a stack frame) or finds other
// parameters in it. Lesser complaints of the compiler are in Kernel.Warnings.
//
// A driver that is a Compiler compiles a text once for all processes: images are
// kept in the cache (cache.Default), and one from there is held against the
// manifest like a new one. A cache that cannot be used is a warning. Of a text
// that must be compiled as a WholeProgram there may be no image to keep; a GPU's
// driver has a cache of its own for those.
func Load(drv Driver, v Variant, o ...LoadOption) (*Kernel, error) {
	return loadAhead(drv, o, []Variant{v}, func(l *loader) (*Kernel, error) { return l.load(v) })
}

func (v *Variant) label() string {
	switch {
	case v.Name != "":
		return v.Name
	case v.Manifest != nil:
		return v.Manifest.Kernel
	}
	return "a kernel without name"
}

// checkFor finds what can be found before compiling: a variant that is not
// whole, and a device that cannot run it.
func (v *Variant) checkFor(a Attributes) error {
	if err := v.check(); err != nil {
		return err
	}
	if err := v.checkText(); err != nil {
		return err
	}
	return checkDevice(a, v.Manifest)
}

// check finds a variant that is not whole.
func (v *Variant) check() error {
	if v.Manifest == nil {
		return errors.New("it has no manifest")
	}
	if len(v.PTX) == 0 {
		return errors.New("it has no PTX")
	}
	if err := v.Manifest.Validate(); err != nil {
		return err
	}
	if want := v.Manifest.PTXSHA256; want != "" {
		sum := sha256.Sum256(v.PTX)
		if got := hex.EncodeToString(sum[:]); got != want {
			return fmt.Errorf("the manifest describes another text: PTX has SHA-256 %s, the manifest says %s", got, want)
		}
	}
	return nil
}

// checkDevice says what m needs and the device lacks. Zero attributes are
// unknown, and not held against it.
func checkDevice(a Attributes, m *manifest.Manifest) error {
	if a.DriverVersion > 0 && a.DriverVersion < m.MinDriver {
		return fmt.Errorf("PTX %s needs a driver for CUDA %s or later; this one is for %s",
			m.PTXVersion, cudaVersion(m.MinDriver), cudaVersion(a.DriverVersion))
	}
	if m.Target == "sm_90a" && a.ComputeMajor > 0 && (a.ComputeMajor != 9 || a.ComputeMinor != 0) {
		return fmt.Errorf("target sm_90a needs compute capability 9.0; the device has %d.%d", a.ComputeMajor, a.ComputeMinor)
	}
	if a.SharedPerBlock > 0 && m.Shared > a.SharedPerBlock {
		return fmt.Errorf("it needs %d bytes of shared memory; the device allows %d per block", m.Shared, a.SharedPerBlock)
	}
	if m.Cluster > 1 && !a.Clusters {
		return fmt.Errorf("it runs in clusters of %d blocks; the device has none", m.Cluster)
	}
	return nil
}

func cudaVersion(v int) string { return fmt.Sprintf("%d.%d", v/1000, v%1000/10) }

// inspected holds what the compiler made against the manifest, and unloads what
// does not stand.
func (k *Kernel) inspected() (*Kernel, error) {
	if err := k.inspect(); err != nil {
		return nil, errors.Join(err, k.module.Unload())
	}
	return k, nil
}

// inspect holds what the compiler made against the manifest.
func (k *Kernel) inspect() (err error) {
	m := k.Manifest
	if k.function, err = k.module.Function(m.Kernel); err != nil {
		return err
	}
	if k.Attributes, err = k.function.Attributes(); err != nil {
		return err
	}
	a := k.Attributes
	if a.LocalBytes != 0 {
		return fmt.Errorf("the compiler gave each thread %d bytes of local memory (spills or a stack frame); a kernel must not need any%s",
			a.LocalBytes, k.quote(Spill))
	}
	if a.MaxThreads > 0 && m.Threads > a.MaxThreads {
		return fmt.Errorf("it launches %d threads per block; as compiled (%d registers) at most %d fit", m.Threads, a.Registers, a.MaxThreads)
	}
	if limit := k.driver.Attributes().SharedPerBlock; limit > 0 && m.Shared+a.StaticShared > limit {
		return fmt.Errorf("it needs %d bytes of dynamic and %d of static shared memory; the device allows %d per block", m.Shared, a.StaticShared, limit)
	}
	if err := k.function.SetDynamicShared(m.Shared); err != nil {
		return fmt.Errorf("set %d bytes of dynamic shared memory: %w", m.Shared, err)
	}
	if l, ok := k.function.(ParamLocator); ok {
		return checkParams(l, m.Params)
	}
	return nil
}

// checkParams compares the compiled parameters with the manifest's.
func checkParams(l ParamLocator, params []manifest.Param) error {
	for i, p := range params {
		_, size, exists, known := l.Param(i)
		if !known {
			return nil
		}
		if !exists {
			return fmt.Errorf("the manifest lists %d parameters; the kernel takes %d", len(params), i)
		}
		// Only sizes are compared: offsets as compiled count from the
		// parameters' place in constant memory, so that a strongly aligned
		// first parameter does not lie at 0, and launches hand over each
		// parameter by its own address.
		if size != p.Size {
			return fmt.Errorf("parameter %q has %d bytes as compiled; the manifest says %d", p.Name, size, p.Size)
		}
	}
	return nil
}

// checkText holds the kernel's parameters, as written, against the manifest's:
// the driver can be asked for one that exists, but not how many there are. A
// text whose head is beyond package ptx's subset is the driver's to judge.
func (v *Variant) checkText() error {
	m, err := ptx.ParseHeads("", v.PTX)
	if err != nil {
		return nil
	}
	for _, k := range m.Kernels {
		if k.Name != v.Manifest.Kernel {
			continue
		}
		if n := len(v.Manifest.Params); n != len(k.Params) {
			return fmt.Errorf("the manifest lists %d parameters; the kernel takes %d", n, len(k.Params))
		}
		for i, p := range v.Manifest.Params {
			if k.Params[i].Name != p.Name {
				return fmt.Errorf("parameter %d is %q in the text; the manifest says %q", i, k.Params[i].Name, p.Name)
			}
		}
	}
	return nil
}

// Limits of a grid's dimensions.
const (
	maxGridX  = 1<<31 - 1
	maxGridYZ = 65535
)

// Launch launches the kernel with the manifest's block, cluster and shared
// memory. programmatic allows it to start before the previous kernel of the
// stream has ended; the kernel itself waits where it must.
func (k *Kernel) Launch(s Stream, grid Dim3, p *Params, programmatic bool) error {
	if s == nil {
		return fmt.Errorf("launch %s: %w", k.label(), noStream())
	}
	if p == nil {
		return fmt.Errorf("launch %s: %w", k.label(), argumentError("params", "the kernel's, from NewParams", "was nil"))
	}
	if p.kernel != k {
		return fmt.Errorf("launch %s: the parameters were made for %s", k.label(), p.kernel.label())
	}
	if err := p.Err(); err != nil {
		return err
	}
	if grid.X < 0 || grid.Y < 0 || grid.Z < 0 {
		return fmt.Errorf("launch %s: grid was %d × %d × %d, must be at least 0", k.label(), grid.X, grid.Y, grid.Z)
	}
	if grid.X > maxGridX || grid.Y > maxGridYZ || grid.Z > maxGridYZ {
		return fmt.Errorf("launch %s: grid was %d × %d × %d, must be at most %d × %d × %d", k.label(), grid.X, grid.Y, grid.Z, maxGridX, maxGridYZ, maxGridYZ)
	}
	l := Launch{
		Function: k.function, Grid: grid, Block: Dim3{X: k.Manifest.Threads}, Shared: k.Manifest.Shared,
		Programmatic: programmatic, Params: p.bytes, Offsets: k.offsets,
	}
	if c := k.Manifest.Cluster; c > 1 {
		if grid.X%c != 0 {
			return fmt.Errorf("launch %s: grid was %d blocks wide, must be a multiple of the cluster of %d", k.label(), grid.X, c)
		}
		l.Cluster = Dim3{X: c}
	}
	if err := s.Launch(l); err != nil {
		return fmt.Errorf("launch %s: %w", k.label(), err)
	}
	return nil
}

// EncodeTensorMap makes the tensor map for the parameter called param, whose
// static part is the manifest's. sizes are in elements, innermost first;
// strides are in bytes, of every dimension but the innermost.
func (k *Kernel) EncodeTensorMap(param string, address Ptr, sizes, strides []uint64) ([128]byte, error) {
	return k.encodePromoted(param, 0, address, sizes, strides)
}

// encodePromoted is EncodeTensorMap with another L2 promotion than the
// manifest's, unless it is 0.
func (k *Kernel) encodePromoted(param string, promotion int, address Ptr, sizes, strides []uint64) ([128]byte, error) {
	for _, t := range k.Manifest.TensorMaps {
		if t.Param == param {
			if promotion > 0 {
				t.Promotion = promotion
			}
			return k.driver.EncodeTensorMap(TensorMap{TensorMap: t, Address: address, Sizes: sizes, Strides: strides})
		}
	}
	return [128]byte{}, fmt.Errorf("%s has no tensor map %q", k.label(), param)
}

// Unload frees the code, with a shared kernel's (see WithLoaded) last call. The
// kernel must not be running.
func (k *Kernel) Unload() error {
	if atomic.AddInt32(&k.shared, -1) >= 0 {
		return nil
	}
	return k.module.Unload()
}
