package gen_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/mlagen/mlagen/gen"
	"github.com/mlagen/mlagen/ptx"
	"github.com/mlagen/mlagen/ptx/emu/num"
	"github.com/mlagen/mlagen/ptx/hopper"
	"github.com/mlagen/mlagen/ptx/isa"
)

// The test kernel is a decode without softmax: over a list of pages of 64
// tokens by width columns,
//
//	S = K·Qᵀ          64 × rows
//	O += Kᵀ·S         width × rows
//
// with small whole numbers, so that results are exact.
const rows = 16

// attend builds the kernel on r, with a ring of so many slots; the second
// result is what O must be, [width][rows]. A part is released when the columns
// in it have been multiplied, by one thread of each warp where it wants 4
// arrivals and by all where it wants 128.
func attend(r *rig, seed uint64, slots int, pages []uint32, parts ...gen.Part) (*gen.Output, []uint32) {
	r.t.Helper()
	k := r.k
	width := 0
	for _, p := range parts {
		width += 64 * p.Count
	}
	rnd := rand.New(rand.NewPCG(seed, 1))
	const pool = 5 // pages
	cache, queries := make([]float32, pool*64*width), make([]float32, rows*width)
	for i := range cache {
		cache[i] = float32(rnd.IntN(8) / 7 * (1 + rnd.IntN(2)))
	}
	for i := range queries {
		queries[i] = float32(rnd.IntN(4) / 3)
	}
	packed := func(x []float32) []uint32 {
		return each(len(x)/2, func(i int) uint32 { return num.PackBF16(x[2*i+1], x[2*i]) })
	}

	kv := k.Tensor("kv", gen.BF16, []string{"column", "token", "page"}, []int{64, 64, 1}, hopper.Swizzle128, 128)
	q := r.array("q", isa.B32, packed(queries)...)
	list := r.array("pages", isa.S32, pages...)
	floats := k.Pointer("floats", isa.F32)
	ring := k.Pipeline("kv", slots, gen.Tile{DType: gen.BF16, Rows: 64, Cols: width, Swizzle: hopper.Swizzle128}, parts...)
	qTile := k.SharedTile("q", gen.Tile{DType: gen.BF16, Rows: rows, Cols: width, Swizzle: hopper.Swizzle128})
	sTile := k.SharedTile("s", gen.Tile{DType: gen.BF16, Rows: rows, Cols: 64, Swizzle: hopper.Swizzle128})
	k.AlignmentCheck()
	k.InitBarriers()
	k.Roles(
		gen.Role{Name: "attend", Warps: gen.Warpgroups(1), Body: func() {
			team := k.NamedBarrier(128)
			scores := k.Accumulator(rows)
			out := make([]gen.Accumulator, width/64)
			for i := range out {
				out[i] = k.Accumulator(rows)
				out[i].Zero()
			}
			k.For("chunk", k.Thread(), rows*width/8, 128, func(i gen.Value) {
				qTile.Chunk(i.Div(width/8), i.Rem(width/8)).StoreVector(0, q.At(i.Mul(4)).LoadVector(0, 4)...)
			})
			k.FenceAsync()
			team.Sync()
			tiles := ring.Consumer()
			k.For("tile", 0, len(pages), 1, func(gen.Value) {
				slot := tiles.Next()
				k.Multiply(scores, slot.KMajor(), qTile.KMajor(), 0, false)
				k.CommitMultiply()
				k.WaitMultiply(0)
				var p []gen.Value
				for e := 0; e < len(scores.R); e += 2 {
					p = append(p, k.Pack(gen.BF16, scores.R[e].Value, scores.R[e+1].Value))
				}
				sTile.StoreTransposed(p, 0)
				k.FenceAsync()
				team.Sync()
				for _, p := range parts {
					k.MultiplyRows(out[p.First:p.First+p.Count], slot.Columns(64*p.First, 64*p.Count).Transposed(), sTile.KMajor())
					k.CommitMultiply()
				}
				for i, p := range parts {
					k.WaitMultiply(len(parts) - 1 - i)
					speaker := k.Lane().Eq(0)
					if p.Arrivals == 128 {
						speaker = k.Lane().Ge(0)
					}
					slot.Release(speaker, i)
				}
				team.Sync() // the scores have been read
			})
			for m, o := range out {
				for e, v := range o.R {
					row := k.FragmentRow().Add(64*m + o.RowStep(e))
					floats.At(row.Mul(rows).Add(k.FragmentColumn()).Add(o.ColumnStep(e))).Store(0, v.Value)
				}
			}
		}},
		gen.Role{Name: "load", Warps: 1, Body: func() {
			k.OneLane(func() {
				policy := k.EvictFirst()
				tiles := ring.Producer()
				k.For("page", 0, len(pages), 1, func(i gen.Value) {
					tiles.Load(kv, policy, k.Int(0), list.At(i).Load(0))
				})
			})
		}},
	)
	out := r.build()
	r.bind(out.Manifest.TensorMaps[0], packed(cache), []uint64{uint64(width), 64, pool}, []uint64{uint64(2 * width), uint64(2 * width * 64)})

	sum := make([]float64, width*rows)
	for _, page := range pages {
		tile := cache[int(page)*64*width:][:64*width]
		for token := range 64 {
			row := tile[token*width:][:width]
			for h := range rows {
				s := 0.0
				for c, x := range row {
					s += float64(x * queries[h*width+c])
				}
				for c, x := range row {
					sum[c*rows+h] += float64(x) * s
				}
			}
		}
	}
	return out, each(width*rows, func(i int) uint32 { return math.Float32bits(float32(sum[i])) })
}

// rings are the parts of tiles, and the slots of the rings that they are run
// through: less than a whole number of tiles too, where tiles wrap within.
var rings = map[string]struct {
	slots []int
	parts []gen.Part
}{
	"one part":          {[]int{1, 2, 3}, []gen.Part{{First: 0, Count: 2, Arrivals: 4}}},
	"two":               {[]int{2, 3, 4, 5}, []gen.Part{{First: 0, Count: 1, Arrivals: 4}, {First: 1, Count: 1, Arrivals: 4}}},
	"two backwards":     {[]int{2, 3, 4, 5}, []gen.Part{{First: 1, Count: 1, Arrivals: 4}, {First: 0, Count: 1, Arrivals: 4}}},
	"three":             {[]int{3, 4, 5, 7, 8}, []gen.Part{{First: 0, Count: 1, Arrivals: 4}, {First: 1, Count: 1, Arrivals: 4}, {First: 2, Count: 1, Arrivals: 4}}},
	"three in disorder": {[]int{3, 4, 8}, []gen.Part{{First: 2, Count: 1, Arrivals: 128}, {First: 0, Count: 1, Arrivals: 128}, {First: 1, Count: 1, Arrivals: 128}}},
	"three of two":      {[]int{4, 5}, []gen.Part{{First: 0, Count: 2, Arrivals: 4}, {First: 2, Count: 2, Arrivals: 4}, {First: 4, Count: 2, Arrivals: 4}}},
	"unlike in size":    {[]int{2, 4, 6}, []gen.Part{{First: 2, Count: 1, Arrivals: 4}, {First: 0, Count: 2, Arrivals: 4}}},
	"unlike in readers": {[]int{2, 4}, []gen.Part{{First: 0, Count: 1, Arrivals: 128}, {First: 1, Count: 1, Arrivals: 4}}},
}

// TestPipeline: rings hand on every tile once, and in order, for several
// rounds; whichever copy or warp is late.
func TestPipeline(t *testing.T) {
	pages := []uint32{3, 0, 4, 1, 1, 2, 0}
	for name, ring := range rings {
		for _, slots := range ring.slots {
			for seed := range uint64(4) {
				t.Run(fmt.Sprintf("%s, %d slots, seed %d", name, slots, seed), func(t *testing.T) {
					r := newRig(t, 0)
					r.machine.SetSeed(seed)
					out, want := attend(r, seed, slots, pages, ring.parts...)
					if diff := cmp.Diff(want, r.execute(out, len(want))); diff != "" {
						t.Errorf("(-want +got):\n%.2000s", diff)
					}
				})
			}
		}
	}
}

// TestPipelineText: what is announced is the bytes of the boxes, and each part
// has its barriers.
func TestPipelineText(t *testing.T) {
	r := newRig(t, 0)
	out, _ := attend(r, 1, 4, []uint32{0}, gen.Part{First: 0, Count: 1, Arrivals: 4}, gen.Part{First: 1, Count: 1, Arrivals: 4})
	var announced, counts []int
	for _, s := range out.Module.Kernels[0].Body {
		i, ok := s.(*ptx.Instr)
		if !ok {
			continue
		}
		switch i.Form.Root {
		case "mbarrier.arrive.expect_tx":
			announced = append(announced, int(i.Arg("txCount").(ptx.Imm)))
		case "mbarrier.init":
			counts = append(counts, int(i.Arg("count").(ptx.Imm)))
		}
	}
	if diff := cmp.Diff([]int{64 * 64 * 2, 64 * 64 * 2}, announced); diff != "" {
		t.Errorf("bytes announced:\n%s", diff)
	}
	if diff := cmp.Diff([]int{1, 1, 1, 1, 4, 4, 4, 4}, counts); diff != "" {
		t.Errorf("arrivals per barrier:\n%s", diff)
	}
	for op, want := range map[string]int{
		"cp.async.bulk.tensor.3d": 2, "wgmma.mma_async.sync.aligned.m64n16k16": 128/16 + 64/16*2, "stmatrix": 1,
		"fence.mbarrier_init": 1, "wgmma.commit_group": 3, "wgmma.wait_group": 3,
	} {
		if got := count(out, op); got != want {
			t.Errorf("%d × %s, want %d", got, op, want)
		}
	}
	m := out.Manifest
	if diff := cmp.Diff([]string{"out", "kv", "q", "pages", "floats"}, names(m.Params)); diff != "" {
		t.Errorf("parameters:\n%s", diff)
	}
}

// TestViews: what a tile's views give to wgmma, in numbers (PTX manual,
// #asynchronous-warpgroup-level-matrix-shared-memory-layout-matrix-descriptor):
// a 64×576 bf16 tile with the 128-byte swizzle.
func TestViews(t *testing.T) {
	k := gen.NewKernel("k", nil)
	tile := k.SharedTile("kv", gen.Tile{DType: gen.BF16, Rows: 64, Cols: 576, Swizzle: hopper.Swizzle128})
	key, value := tile.KMajor(), tile.Columns(0, 512).Transposed()
	if key.Extent() != 64 || key.Depth() != 576 || value.Extent() != 512 || value.Depth() != 64 {
		t.Errorf("keys %d×%d, values %d×%d", key.Extent(), key.Depth(), value.Extent(), value.Depth())
	}
	q := k.SharedTile("q", gen.Tile{DType: gen.BF16, Rows: 8, Cols: 576, Swizzle: hopper.Swizzle128})
	p := k.SharedTile("p", gen.Tile{DType: gen.BF16, Rows: 8, Cols: 64, Swizzle: hopper.Swizzle128})
	s, o := k.Accumulator(8), k.Accumulator(8)
	k.Threads(128)
	k.Multiply(s, key, q.KMajor(), 0, false)
	k.CommitMultiply()
	k.MultiplyRows([]gen.Accumulator{o}, value, p.KMajor())
	k.CommitMultiply()
	k.WaitMultiply(0)
	out, err := k.Build()
	if err != nil {
		t.Fatal(err)
	}
	// Steps from one wgmma to the next, in 16-byte units: within a block of
	// the keys 2 (16 columns are 32 bytes), from block to block 512 (8 KB);
	// along the values' tokens 128 (16 rows of 128 bytes).
	var steps []int64
	for _, stmt := range out.Module.Kernels[0].Body {
		i, ok := stmt.(*ptx.Instr)
		if ok && i.Form.Root == "add" && i.Type("type") == isa.S64 {
			if imm, ok := i.Arg("b").(ptx.Imm); ok {
				steps = append(steps, int64(imm))
			}
		}
	}
	want := map[int64]bool{}
	for depth := 16; depth < 576; depth += 16 {
		want[int64(depth/64*512+depth%64/16*2)] = true // keys
		want[int64(depth/64*64+depth%64/16*2)] = true  // queries: blocks of 8 rows
	}
	for depth := 16; depth < 64; depth += 16 {
		want[int64(depth*8)] = true // values
	}
	for _, s := range steps {
		if !want[s] {
			t.Errorf("a descriptor moves by %d", s)
		}
	}
	for s := range want {
		if !slices.Contains(steps, s) {
			t.Errorf("no descriptor moves by %d", s)
		}
	}
}

// TestDiscard: one thread may fill a ring and give all back itself, however many
// readers a part has; the tiles pass through in order.
func TestDiscard(t *testing.T) {
	const pages, width = 11, 128
	for slots := 2; slots <= 5; slots++ {
		r := newRig(t, 0)
		k := r.k
		kv := k.Tensor("kv", gen.BF16, []string{"column", "token", "page"}, []int{64, 64, 1}, hopper.Swizzle128, 128)
		ring := k.Pipeline("kv", slots, gen.Tile{DType: gen.BF16, Rows: 64, Cols: width, Swizzle: hopper.Swizzle128},
			gen.Part{First: 0, Count: 1, Arrivals: 4}, gen.Part{First: 1, Count: 1, Arrivals: 4})
		k.AlignmentCheck()
		k.InitBarriers()
		k.Roles(gen.Role{Name: "load", Warps: 1, Body: func() {
			k.OneLane(func() {
				fill, arrived := ring.Producer(), ring.Consumer()
				k.For("page", 0, pages, 1, func(page gen.Value) {
					fill.Load(kv, gen.Value{}, k.Int(0), page)
					slot := arrived.Next()
					slot.Await()
					r.out.At(page).Store(0, slot.Columns(0, 64).Array(isa.U32).Load(0))
					slot.Discard()
				})
			})
		}})
		built := r.build()
		words := make([]uint32, pages*64*width/2)
		for i := range words {
			words[i] = uint32(i / (64 * width / 2))
		}
		r.bind(built.Manifest.TensorMaps[0], words, []uint64{width, 64, pages}, []uint64{2 * width, 2 * width * 64})
		if diff := cmp.Diff(each(pages, func(i int) uint32 { return uint32(i) }), r.execute(built, pages)); diff != "" {
			t.Errorf("%d slots (-want +got):\n%s", slots, diff)
		}
	}
}
