package runtime

// DecodeShape is what a decode kernel is generated for.
type DecodeShape struct {
	Heads  int   // query heads on this device
	SQ     int   // query tokens per request
	Latent int   // 512
	Rope   int   // 64
	Page   int   // tokens per page
	DType  DType // of q and kv
}

// Source makes variants. The runtime does not know how: from templates, from
// files, from what a program embeds.
type Source interface {
	// Decode returns the kernels for a shape, or an error that says why that
	// shape cannot be had.
	Decode(DecodeShape) (DecodeVariants, error)
}
