package emu

import (
	"fmt"
	"sync/atomic"
)

// Config describes the machine.
type Config struct {
	// SMs is how many CTAs (one per SM) may be resident at once; 0 means 132.
	SMs int
	// Seed decides every timing that PTX leaves open. Equal seeds give equal runs.
	Seed uint64
	// NoHazards turns the observers off.
	NoHazards bool
	// Workers is how many clusters run at the same time on the host; 0 means
	// one. Kernels with global atomics always run on one, so that a seed
	// gives one result.
	Workers int
	// Copied, when not nil, is told what bulk copies read and write of global
	// memory, range by range: so many bytes from an offset in an allocation. With
	// several Workers it is called by several goroutines at once.
	Copied func(allocation string, offset uint64, bytes int)
	// MaxSteps stops a launch after so many warp instructions of one cluster
	// without any effect on memory or barriers; 0 means 20 million.
	MaxSteps uint64
}

// Machine is a device: global memory and a way to launch programs on it. Its
// methods may be called from any goroutine, one at a time.
type Machine struct {
	cfg      Config
	heap     *heap
	launches atomic.Int64

	seeded     int64 // launches before the seed was set
	unfinished int64 // first launch that the next one, when programmatic, may overlap
}

// New returns a machine with empty memory.
func New(cfg Config) *Machine {
	if cfg.SMs <= 0 {
		cfg.SMs = 132
	}
	if cfg.Workers <= 0 {
		cfg.Workers = 1
	}
	if cfg.MaxSteps == 0 {
		cfg.MaxSteps = 20e6
	}
	return &Machine{cfg: cfg, heap: newHeap()}
}

// SetSeed changes the seed of later launches; the same launches after it run
// the same way.
func (m *Machine) SetSeed(seed uint64) { m.cfg.Seed, m.seeded = seed, m.launches.Load() }

// Alloc reserves bytes of global memory whose contents are undefined: reading
// them before they are written is a hazard. name appears in reports.
func (m *Machine) Alloc(name string, bytes uint64) (uint64, error) { return m.heap.alloc(name, bytes) }

// Free ends an allocation; later accesses to it are reported by its name.
func (m *Machine) Free(addr uint64) error { return m.heap.free(addr) }

// Write copies src to global memory at addr.
func (m *Machine) Write(addr uint64, src []byte) error { return m.heap.write(addr, src) }

// Read copies global memory at addr to dst; bytes never written read as zero.
func (m *Machine) Read(dst []byte, addr uint64) error { return m.heap.read(dst, addr) }

// Fill sets n bytes at addr to value.
func (m *Machine) Fill(addr uint64, value byte, n uint64) error { return m.heap.fill(addr, value, n) }

// Locate returns the live allocation that addr lies in.
func (m *Machine) Locate(addr uint64) (base, size uint64, ok bool) {
	a, _ := m.heap.locate(addr, 0)
	if a == nil || addr >= a.end() && addr != a.base {
		return 0, 0, false
	}
	return a.base, a.size, true
}

// Resident returns the bytes of host memory that back global memory.
func (m *Machine) Resident() uint64 { return m.heap.resident() }

// KernelInfo is what a driver tells of a compiled kernel.
type KernelInfo struct {
	MaxThreads   int // per CTA
	Registers    int // per thread at launch, for a full CTA
	StaticShared int // bytes
	LocalBytes   int // per thread
	Params       []ParamInfo
}

// ParamInfo is a parameter's place in the parameter buffer.
type ParamInfo struct{ Offset, Size int }

// Kernel describes the kernel called name.
func (p *Program) Kernel(name string) (KernelInfo, bool) {
	k := p.kernels[name]
	if k == nil {
		return KernelInfo{}, false
	}
	info := KernelInfo{MaxThreads: k.maxThreads, Registers: k.launchRegisters(k.maxThreads), StaticShared: k.static - sharedBase, LocalBytes: k.local}
	for _, q := range k.def.Params {
		info.Params = append(info.Params, ParamInfo{k.params[q.Name], q.Size()})
	}
	return info, true
}

// Dim is a grid, block or cluster shape; zero components count as 1.
type Dim struct{ X, Y, Z int }

func (d Dim) fill() Dim { return Dim{max(d.X, 1), max(d.Y, 1), max(d.Z, 1)} }

func (d Dim) count() int { return d.X * d.Y * d.Z }

// at returns the coordinates of linear index i, x fastest.
func (d Dim) at(i int) [3]uint32 {
	return [3]uint32{uint32(i % d.X), uint32(i / d.X % d.Y), uint32(i / d.X / d.Y)}
}

// LaunchConfig is one launch.
type LaunchConfig struct {
	Grid, Block, Cluster Dim
	Shared               int    // dynamic shared memory in bytes
	Params               []byte // packed, naturally aligned
	// Programmatic: the launch may start before the previous one has ended,
	// so memory that the previous one wrote may be read only after
	// griddepcontrol.wait.
	Programmatic bool
}

// limits of a Hopper SM (CUDA Programming Guide, compute capability 9.0).
const (
	maxShared        = 232448
	maxStaticShared  = 49152
	maxBlock         = 1024
	maxClusterCTAs   = 16
	maxGridX         = 1<<31 - 1
	maxGridYZ        = 65535
	registersPerCTA  = 65536
	maxRegsPerThread = 255
)

// prepare checks a launch as the driver would.
func (p *Program) prepare(name string, cfg *LaunchConfig) (*kernel, error) {
	k := p.kernels[name]
	if k == nil {
		return nil, fmt.Errorf("emu: no kernel %q in the module", name)
	}
	cfg.Grid, cfg.Block, cfg.Cluster = cfg.Grid.fill(), cfg.Block.fill(), cfg.Cluster.fill()
	if r := k.def.ReqNCTAPerClust; r[0] > 0 {
		want := Dim{r[0], max(r[1], 1), max(r[2], 1)}
		if cfg.Cluster.count() > 1 && cfg.Cluster != want {
			return nil, fmt.Errorf("emu: %s: cluster %v, but .reqnctapercluster is %v", name, cfg.Cluster, want)
		}
		cfg.Cluster = want
	}
	threads := cfg.Block.count()
	switch {
	case threads > maxBlock || threads > k.maxThreads:
		return nil, fmt.Errorf("emu: %s: block of %d threads, at most %d", name, threads, min(k.maxThreads, maxBlock))
	case k.def.ReqNTID[0] > 0 && threads != k.maxThreads:
		return nil, fmt.Errorf("emu: %s: block of %d threads, .reqntid says %d", name, threads, k.maxThreads)
	case cfg.Shared < 0 || k.dynBase()-sharedBase+cfg.Shared > maxShared:
		return nil, fmt.Errorf("emu: %s: %d bytes of shared memory, at most %d", name, k.dynBase()-sharedBase+cfg.Shared, maxShared)
	case k.static-sharedBase > maxStaticShared:
		return nil, fmt.Errorf("emu: %s: %d bytes of static shared memory, at most %d", name, k.static-sharedBase, maxStaticShared)
	case cfg.Grid.X > maxGridX || cfg.Grid.Y > maxGridYZ || cfg.Grid.Z > maxGridYZ:
		return nil, fmt.Errorf("emu: %s: grid %v exceeds the device's limits", name, cfg.Grid)
	case cfg.Grid.X%cfg.Cluster.X != 0 || cfg.Grid.Y%cfg.Cluster.Y != 0 || cfg.Grid.Z%cfg.Cluster.Z != 0:
		return nil, fmt.Errorf("emu: %s: grid %v is not a multiple of the cluster %v", name, cfg.Grid, cfg.Cluster)
	case cfg.Cluster.count() > maxClusterCTAs:
		return nil, fmt.Errorf("emu: %s: cluster of %d CTAs, at most %d", name, cfg.Cluster.count(), maxClusterCTAs)
	case len(cfg.Params) < k.paramBytes:
		return nil, fmt.Errorf("emu: %s: %d bytes of parameters, the kernel takes %d", name, len(cfg.Params), k.paramBytes)
	}
	return k, nil
}
