package hopper

import "fmt"

// Resources of a streaming multiprocessor of compute capability 9.0
// (CUDA Programming Guide, technical specifications per compute capability).
const (
	WarpThreads   = 32
	MaxThreads    = 1024  // per CTA
	RegistersSM   = 65536 // 32-bit registers
	MaxRegisters  = 255   // per thread, by the instruction encoding
	RegisterUnit  = 8     // registers per thread are allocated in eights: 256 per warp
	SharedSM      = 233472
	SharedReserve = 1024   // per CTA, taken by the system
	SharedLimit   = 232448 // dynamic shared memory of one CTA, opted in
	StaticShared  = 49152  // static shared memory of one CTA
	NamedBarriers = 16     // per CTA, 0 being __syncthreads'
	MaxCluster    = 8      // CTAs, portable

	partitions = 4 // each with its scheduler and a quarter of the registers
)

// Bounds of setmaxnreg's immediate, a multiple of RegisterUnit.
// PTX manual, #miscellaneous-instructions-setmaxnreg.
const (
	MinSetMaxNReg = 24
	MaxSetMaxNReg = 256
)

// RegistersPerThread returns the most registers a thread can have when ctas
// CTAs (at least 1) of so many threads shall reside on one SM. Warps are dealt
// to four partitions, each with a quarter of the registers, so a ninth warp
// costs as much as a twelfth. It returns 0 when they cannot reside at all.
func RegistersPerThread(threads, ctas int) int {
	if threads < 1 || threads > MaxThreads || ctas < 1 {
		return 0
	}
	perPartition := ceilDiv(ceilDiv(threads, WarpThreads)*ctas, partitions)
	n := RegistersSM / partitions / (perPartition * WarpThreads)
	return min(n/RegisterUnit*RegisterUnit, MaxRegisters)
}

// Pool returns the registers a CTA is allocated at launch: all of its warps
// times registers per thread, rounded up to RegisterUnit. setmaxnreg moves
// registers within this pool; it takes none from outside.
func Pool(threads, registers int) int {
	return ceilDiv(threads, WarpThreads) * WarpThreads * roundUp(registers, RegisterUnit)
}

// Share is a role's claim on the pool.
type Share struct {
	Role      string
	Warps     int
	Registers int // per thread after setmaxnreg; 0 = as launched
}

// CheckPool reports a set of claims that setmaxnreg cannot satisfy for a CTA
// launched with so many registers per thread. The shares are all the CTA's
// warps. A setmaxnreg.inc beyond the pool never returns, so this is an error
// and not a slow kernel.
func CheckPool(launched int, shares ...Share) error {
	warps := 0
	for _, s := range shares {
		if s.Warps < 1 {
			return wrong(s.Role+" warps", s.Warps, "at least 1")
		}
		warps += s.Warps
	}
	threads := warps * WarpThreads
	if threads < 1 || threads > MaxThreads {
		return wrong("threads", threads, "1 to %d", MaxThreads)
	}
	if most := RegistersPerThread(threads, 1); launched < 1 || launched > most {
		return wrong("registers per thread at launch", launched, "1 to %d with %d threads", most, threads)
	}
	pool, claimed, first := Pool(threads, launched), 0, 0
	for _, s := range shares {
		n := roundUp(launched, RegisterUnit)
		if s.Registers != 0 {
			if err := checkSetMaxNReg(s, first); err != nil {
				return err
			}
			n = s.Registers
		}
		claimed += n * s.Warps * WarpThreads
		first += s.Warps
	}
	if claimed > pool {
		return wrong("registers claimed by setmaxnreg", claimed, "at most %d, what %d threads of %d registers are launched with",
			pool, threads, launched)
	}
	return nil
}

// checkSetMaxNReg checks one role, whose first warp is first: all warps of a
// warpgroup execute setmaxnreg together.
func checkSetMaxNReg(s Share, first int) error {
	n := s.Registers
	if n < MinSetMaxNReg || n > MaxSetMaxNReg || n%RegisterUnit != 0 {
		return wrong(s.Role+" registers", n, "a multiple of %d from %d to %d", RegisterUnit, MinSetMaxNReg, MaxSetMaxNReg)
	}
	const group = WarpgroupThreads / WarpThreads
	if s.Warps%group != 0 || first%group != 0 {
		return wrong(s.Role+" warps", fmt.Sprintf("%d from warp %d", s.Warps, first), "whole warpgroups for setmaxnreg")
	}
	return nil
}

// CheckShared reports dynamic shared memory beyond what a CTA may opt in to.
func CheckShared(bytes int) error {
	if bytes < 0 || bytes > SharedLimit {
		return wrong("dynamic shared memory", bytes, "at most %d bytes", SharedLimit)
	}
	return nil
}

func ceilDiv(a, b int) int { return (a + b - 1) / b }

func roundUp(a, unit int) int { return ceilDiv(a, unit) * unit }
