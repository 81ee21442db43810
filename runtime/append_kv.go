package runtime

import (
	"errors"
	"fmt"
	"math"
)

// The ways to rotate rope keys by their positions.
const (
	RotateInterleaved = "interleaved" // pairs of neighbouring columns, (2i, 2i+1)
	RotateHalf        = "half"        // columns of the two halves, (i, i + rope/2)
)

// AppendShape is what an append kernel is generated for.
type AppendShape struct {
	Latent int    `json:"latent"` // width of the latent
	Rope   int    `json:"rope"`   // width of the rope key
	Page   int    `json:"page"`   // tokens per page
	DType  DType  `json:"dtype"`  // of the new records and of the cache
	Rotate string `json:"rotate"` // RotateInterleaved, RotateHalf, or "" for keys that are rotated already
}

// AppendKV writes the latents and rope keys of new tokens into the paged cache,
// rotating the keys on their way where the kernel was made for it. It serves any
// number of tokens. Its methods allocate nothing and never wait for the device;
// they must not be called concurrently.
type AppendKV struct {
	shape  AppendShape
	kernel *Kernel
	params *Params
	places places
	blocks int // the most that a launch is worth
}

// The arguments of an append whose addresses are looked up.
const (
	appendLatent = iota
	appendRope
	appendCache
	appendSlots
	appendPositions
	appendCos
	appendSin
	appendArguments
)

// LoadAppendKV loads an append_kv kernel and makes sure that it fits this
// runtime and the device.
func LoadAppendKV(drv Driver, v Variant, o ...LoadOption) (_ *AppendKV, err error) {
	if v.Manifest != nil && v.Manifest.Kernel != "append_kv" {
		return nil, fmt.Errorf("%s is kernel %q, must be %q", v.label(), v.Manifest.Kernel, "append_kv")
	}
	a := &AppendKV{}
	if a.kernel, err = Load(drv, v, o...); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, a.kernel.Unload())
		}
	}()
	if err := readShape(v.Manifest, &a.shape); err != nil {
		return nil, err
	}
	if s := a.shape; s.Latent < 1 || s.Rope < 1 || s.Page < 1 || s.DType.Bytes() != 2 || s.Rotate != "" && s.Rotate != RotateInterleaved && s.Rotate != RotateHalf {
		return nil, fmt.Errorf("spec of %s has latent %d, rope %d, page %d, dtype %q, rotate %q: not an append kernel's",
			v.label(), s.Latent, s.Rope, s.Page, string(s.DType), s.Rotate)
	}
	a.params = a.kernel.NewParams()
	a.places = newPlaces(drv, appendArguments)
	a.blocks = 16 * max(1, drv.Attributes().SMs)
	a.fill(&AppendArgs{KV: Dense(0, a.shape.DType, 1, 1, 1), Latent: Dense(0, a.shape.DType, 1, 1), RopeKey: Dense(0, a.shape.DType, 1, 1),
		Cos: Dense(0, F32, 1, 1), Sin: Dense(0, F32, 1, 1)}, 1)
	return a, a.params.Err() // of a parameter that this runtime does not know
}

// Shape returns what the kernel was generated for.
func (a *AppendKV) Shape() AppendShape { return a.shape }

// Kernel returns the loaded kernel, for its compile time and warnings.
func (a *AppendKV) Kernel() *Kernel { return a.kernel }

// Close unloads the kernel, which must not be running.
func (a *AppendKV) Close() error {
	if a.kernel == nil {
		return nil
	}
	k := a.kernel
	a.kernel = nil
	return k.Unload()
}

// AppendArgs are the arguments of Run. Of the latents, the rope keys, the cache
// and the tables the innermost stride is 1 element and the others are multiples
// of 16 bytes, as are their addresses. Latent and RopeKey may be views of one
// tensor.
type AppendArgs struct {
	Latent  Tensor // [tokens, latent], of the shape's DType
	RopeKey Tensor // [tokens, rope], of the shape's DType
	KV      Tensor // [pages, page, latent+rope], of the shape's DType: the cache
	// Slots says where a token goes: page · page size + place in the page. A
	// negative one is skipped. One past the cache, as a position past the tables,
	// stops the kernel with an error on the device; of a slot that is named twice
	// it is open whose record it gets.
	Slots Tensor // s64 [tokens], dense

	// For kernels that rotate: column i of a pair's angle at position p is the one
	// whose cosine is Cos[p, i]. The position of a token that is skipped means
	// nothing.
	Positions Tensor // s32 [tokens], dense
	Cos, Sin  Tensor // f32 [positions, rope/2]
}

// maxAppend bounds the tokens of a call: chunks of records are counted in 31 bits.
const maxAppend = 1 << 22

// Run appends. A mistake in the arguments is an ArgumentError and launches
// nothing; without a token nothing is launched either.
func (a *AppendKV) Run(s Stream, args AppendArgs) error {
	if a.kernel == nil {
		return errors.New("append kv: " + closed)
	}
	if err := a.check(s, &args); err != nil {
		return fmt.Errorf("append kv: %w", err)
	}
	tokens := args.Latent.Shape[0]
	if tokens == 0 {
		return nil
	}
	a.fill(&args, tokens)
	const bytesPerThread = 32
	work := tokens * int64(a.shape.Latent+a.shape.Rope) * a.shape.DType.Bytes()
	perBlock := int64(a.kernel.Manifest.Threads) * bytesPerThread
	grid := Dim3{X: int(min((work+perBlock-1)/perBlock, int64(a.blocks)))}
	return a.kernel.Launch(s, grid, a.params, true)
}

// check validates args.
func (a *AppendKV) check(s Stream, args *AppendArgs) error {
	if s == nil {
		return noStream()
	}
	shape := &a.shape
	a.places.begin()
	x := expectation{name: "latent", dtype: shape.DType, rank: 2, align: rowAlign, axes: [4]axis{{"tokens", -1}, {"latent", int64(shape.Latent)}}}
	if err := a.places.tensor(appendLatent, &x, &args.Latent); err != nil {
		return err
	}
	tokens := args.Latent.Shape[0]
	if tokens > maxAppend {
		return argumentError("latent", fmt.Sprintf("at most %d tokens", maxAppend), "shape was %v", args.Latent.Shape)
	}
	x = expectation{name: "rope_key", dtype: shape.DType, rank: 2, align: rowAlign, axes: [4]axis{{"tokens", tokens}, {"rope", int64(shape.Rope)}}}
	if err := a.places.tensor(appendRope, &x, &args.RopeKey); err != nil {
		return err
	}
	x = expectation{
		name: "kv", dtype: shape.DType, rank: 3, align: rowAlign, output: true,
		axes: [4]axis{{"pages", -1}, {"page", int64(shape.Page)}, {"latent+rope", int64(shape.Latent + shape.Rope)}},
	}
	if err := a.places.tensor(appendCache, &x, &args.KV); err != nil {
		return err
	}
	if args.KV.Shape[0] < 1 && tokens > 0 {
		return argumentError("kv", "at least 1", "it had 0 pages")
	}
	x = expectation{name: "slots", dtype: S64, rank: 1, dense: true, axes: [4]axis{{"tokens", tokens}}}
	if err := a.places.tensor(appendSlots, &x, &args.Slots); err != nil {
		return err
	}
	if shape.Rotate == "" {
		for i, given := range [...]bool{!args.Positions.absent(), !args.Cos.absent(), !args.Sin.absent()} {
			if given {
				return argumentError([...]string{"positions", "cos", "sin"}[i], "absent: the kernel was made for keys that are rotated already", "was given")
			}
		}
	} else if err := a.checkRotation(args, tokens); err != nil {
		return err
	}
	return apart(&a.places)
}

func (a *AppendKV) checkRotation(args *AppendArgs, tokens int64) error {
	x := expectation{name: "positions", dtype: S32, rank: 1, dense: true, axes: [4]axis{{"tokens", tokens}}}
	if err := a.places.tensor(appendPositions, &x, &args.Positions); err != nil {
		return err
	}
	x = expectation{name: "cos", dtype: F32, rank: 2, align: rowAlign, axes: [4]axis{{"positions", -1}, {"rope/2", int64(a.shape.Rope / 2)}}}
	if err := a.places.tensor(appendCos, &x, &args.Cos); err != nil {
		return err
	}
	positions := args.Cos.Shape[0]
	if positions > math.MaxInt32 || positions < 1 && tokens > 0 {
		return argumentError("cos", fmt.Sprintf("1 to %d positions", math.MaxInt32), "shape was %v", args.Cos.Shape)
	}
	x.name, x.axes[0].size = "sin", positions
	return a.places.tensor(appendSin, &x, &args.Sin)
}

// fill sets the parameters.
func (a *AppendKV) fill(args *AppendArgs, tokens int64) {
	p, kv := a.params, &args.KV
	p.err = nil
	p.Pointer("latent", args.Latent.Ptr).Int("latent_row", args.Latent.strideBytes(0)).
		Pointer("rope", args.RopeKey.Ptr).Int("rope_row", args.RopeKey.strideBytes(0)).
		Pointer("kv", kv.Ptr).Int("kv_page", kv.strideBytes(0)).Int("kv_row", kv.strideBytes(1)).
		Pointer("slots", args.Slots.Ptr).Int("slot_count", kv.Shape[0]*kv.Shape[1]).Int("tokens", tokens)
	if a.shape.Rotate != "" {
		p.Pointer("positions", args.Positions.Ptr).Int("position_count", args.Cos.Shape[0]).
			Pointer("cos", args.Cos.Ptr).Int("cos_row", args.Cos.strideBytes(0)).
			Pointer("sin", args.Sin.Ptr).Int("sin_row", args.Sin.strideBytes(0))
	}
}
