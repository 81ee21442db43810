// Package manifest describes a generated kernel to those who launch it: what
// its parameters are, which tensor maps to encode and how, how much shared
// memory and how many threads it needs, and by which rules a launch follows
// from a call's arguments. It is derived by the generator, never written by
// hand, and read by the runtime, the emulator and clients in any language.
//
// A manifest is a JSON file beside the PTX. schema.json in this folder is its
// JSON Schema; the types of this package document each field. What a host does
// with PTX and manifest, without knowing the kernel:
//
//  1. Load the PTX, find the function Kernel, allow it Shared bytes of dynamic
//     shared memory.
//  2. Evaluate Launch: the quantities in their order, then the grid.
//  3. Encode each tensor map: the static part and the Source.
//  4. Fill each parameter by its Fill, at its Offset, and launch Grid CTAs of
//     Threads threads, in clusters of Cluster.
//
// The kernels of an operation are launched in the order of Launch.Steps.
package manifest
