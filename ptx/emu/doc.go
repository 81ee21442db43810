// Package emu executes the PTX subset of ptx/isa on the CPU: grids of CTAs and
// clusters, warps with divergence, every state space, barriers, mbarriers,
// asynchronous copies and wgmma.
//
// It runs the same text that a GPU gets. What the PTX manual leaves open — when
// an asynchronous copy lands, when a wgmma reads its operands, which warp goes
// first, when a try_wait gives up — a seed decides, and one seed gives one run,
// on any number of host threads. Semantics are pure: they compute values and
// know nothing of races. Observers watch the accesses and report what hardware
// punishes only now and then; see the Rule constants.
//
// An instruction without semantics stops the run with an error that names it.
//
// # Decoding
//
// Compile turns every instruction into a closure over register slots. A slot
// holds a register of all 32 lanes; constants and special registers have slots
// too, so that an instruction reads slots alone. Families of instructions are in
// files of their own, and each registers its decoders by the root of the form.
//
// # Lanes
//
// The lanes of a warp run as splits, each with its own program counter. A branch
// that divides a split makes two, which meet again at the branch's immediate
// post-dominator. Any split may run while another waits, so that lanes may wait
// for each other.
//
// # Order
//
// The observers keep vector clocks with a component per thread of the cluster
// and per asynchronous agent (clocks.go), and a shadow of shared memory
// (shadow.go) and of what the grid writes to global memory (observe_grid.go).
// Barriers, mbarriers, releases and fences move clocks; an access must know the
// ones it conflicts with. Findings do not depend on the timing of the run, but
// code that the run does not reach is not seen.
//
// # Not modelled
//
// Time (clocks count instructions), caches and their hints, register
// allocation and spills, read-after-write order of global memory through weak
// polling, races of reads with later writes of global memory, and the global
// side of bulk stores.
package emu
