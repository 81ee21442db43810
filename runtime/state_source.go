package runtime

// StateSource is a source of the kernels that work on attention states and on
// the cache itself.
type StateSource interface {
	// MergeStates returns the kernel for a shape, or an error that says why that
	// shape cannot be had.
	MergeStates(MergeShape) (Variant, error)
	// AppendKV does so for appending.
	AppendKV(AppendShape) (Variant, error)
}
