// Package emu executes the PTX subset of ptx/isa on the CPU: grids of CTAs and
// clusters, warps with divergence, every state space, barriers, mbarriers,
// asynchronous copies and wgmma.
//
// It runs the same text that a GPU gets. What the PTX manual leaves open — when
// an asynchronous copy lands, when a wgmma reads its operands, which warp goes
// first — a seed decides, and one seed gives one run. Semantics are pure: they
// compute values and know nothing of races. Observers (Config.Hazards) watch the
// accesses and report what hardware punishes only now and then.
//
// An instruction without semantics stops the run with an error that names it.
package emu
