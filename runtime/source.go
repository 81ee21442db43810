package runtime

// DecodeShape is what a decode kernel is generated for.
type DecodeShape struct {
	Heads  int   // query heads on this device
	SQ     int   // query tokens per request
	Latent int   // 512
	Rope   int   // 64
	Page   int   // tokens per page
	DType  DType // of q and kv
	BlockH int   // packed query rows per CTA, 0 = as the source thinks best without knowing the load

	// What tuning tries besides; zero as a rule, and a source may refuse others.
	Evict     string // how the L2 keeps pages: "" or "normal"
	Cluster   int    // CTAs that begin together, 0 = the source's
	Teams     int    // warpgroups that take a row block's tiles in turn, 0 = the source's
	PieceCost int    // what the balanced schedule counts for a piece beside its tiles, in tiles; 0 = the source's estimate
}

// Source makes variants. The runtime does not know how: from templates, from
// files, from what a program embeds.
type Source interface {
	// Decode returns the kernels for a shape, or an error that says why that
	// shape cannot be had.
	Decode(DecodeShape) (DecodeVariants, error)
}

// Chooser is a source that knows what suits a load.
type Chooser interface {
	// BlockH returns DecodeShape.BlockH for batch requests of so many tokens
	// each on a device of so many SMs. It is a hint: kernels with any row block
	// are right for every load.
	BlockH(shape DecodeShape, batch, tokens, sms int) int
	// Splits returns into how many pieces every request should be cut (see
	// ScheduleArgs) where batch requests of so many tokens each are the most that
	// will come, for engines that want a request's bits to depend on no other: they
	// ask once, with what they are built for, and keep to it.
	Splits(shape DecodeShape, batch, tokens, sms int) int
}
