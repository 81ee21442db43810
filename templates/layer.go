package templates

import (
	"math/bits"

	"github.com/mlagen/mlagen/gen"
	"github.com/mlagen/mlagen/ptx/isa"
)

const (
	layerThreads = 256
	layerWarps   = layerThreads / 32
	// groupRuns is how many runs of groups a launch describes: 4 KB of
	// parameters, which every driver passes, hold so many.
	groupRuns = 40
)

// groupFields are the fields of a run of groups.
var groupFields = []string{"at", "request", "each", "row", "step", "size", "after", "to", "copied", "hidden"}

// layerDefaults fills what the layer's kernels use, and drops the rest.
func layerDefaults(s Spec) Spec {
	return Spec{Page: Spec{Page: s.Page}.WithDefaults().Page, LineInfo: s.LineInfo}
}

func validateLayer(s Spec) error {
	if s.Page != pageTokens {
		return &SpecError{"page", s.Page, "the cache has pages of 64 tokens", pageTokens}
	}
	return nil
}

// queryGroups writes what attention kernels read about groups of query tokens: a
// request's new tokens, or some of them, that one call takes as a sequence of
// its own. A group sees its request's tokens up to its own last one.
//
// Groups come in runs: for requests one after the other with equally many new
// tokens, equally many groups each, of one size. What a run is travels in the
// launch's parameters, since the host knows it; only lengths come from memory.
// One warp does a group.
type queryGroups struct {
	k           *gen.Kernel
	s           Spec
	runs        gen.Table
	runCount    gen.Scalar
	kvLen       gen.Pointer
	table       gen.Pointer
	tableStride gen.Scalar // elements
	lengths     gen.Pointer
	rows        gen.Pointer
	tables      gen.Pointer
	width       gen.Scalar // of tables
}

// groupRun is a run's fields.
type groupRun struct{ r gen.TableRow }

// at is the number of the run's first group.
func (r groupRun) at() gen.Value { return r.int("at") }

func (r groupRun) int(field string) gen.Value { return r.r.Int(field).Truncate() }

func layerGroups(s Spec) (*gen.Output, error) {
	k := gen.NewKernel("layer_groups", s, s.options())
	k.Threads(layerThreads)
	g := queryGroups{k: k, s: s}
	g.runs = k.Table("runs", groupRuns, groupFields...)
	g.runCount = k.Scalar("run_count", isa.S32)
	first, end := k.Scalar("first", isa.S32), k.Scalar("end", isa.S32)
	g.kvLen, g.table, g.tableStride = k.Pointer("kv_len", isa.S32), k.Pointer("block_table", isa.S32), k.Scalar("block_table_stride", isa.S64)
	g.lengths, g.rows, g.tables = k.Pointer("lengths", isa.S32), k.Pointer("rows", isa.S32), k.Pointer("tables", isa.S32)
	g.width = k.Scalar("width", isa.S32)
	k.WaitForPreviousGrid()
	warp := k.Block().Mul(layerWarps).Add(k.Warp().Broadcast(0))
	k.For("group", first.Read().Add(warp), end.Read(), k.Blocks().Mul(layerWarps), g.write)
	// No AllowNextGrid: attention reads lengths and tables before it waits.
	return k.Build()
}

// write writes group i.
func (g queryGroups) write(i gen.Value) {
	k := g.k
	run := g.find(i)
	nth := i.Sub(run.at())
	each, size := run.int("each"), run.int("size")
	later := nth.Div(each) // requests after the run's first
	inRequest := nth.Sub(later.Mul(each)).Mul(size)
	request := run.int("request").Add(later)

	length := k.Var(k.Int(-1)) // a sequence that is left out
	k.If(run.int("hidden").Eq(0), func() {
		after := run.int("after").Sub(inRequest) // new tokens that follow the group
		length.Set(g.kvLen.At(request).Load(0).Max(0).Sub(after).Max(0))
	})
	k.If(k.Lane().Eq(0), func() { g.lengths.At(i).Store(0, length) })

	row := run.int("row").Add(later.Mul(run.int("step"))).Add(inRequest)
	to := g.rows.At(run.int("to")).At(nth.Mul(size))
	k.For("token", k.Lane(), size, 32, func(t gen.Value) { to.At(t).Store(0, row.Add(t)) })

	k.If(run.int("copied").Ne(0), func() {
		pages := length.Add(g.s.Page - 1).Shr(bits.TrailingZeros(uint(g.s.Page)))
		k.TrapIf(pages.Gt(g.width.Read()))
		from := g.table.At(request.Extend().Mul(g.tableStride.Read()))
		copied := g.tables.At(i.Extend().Mul(g.width.Read().Extend()))
		k.For("page", k.Lane(), pages, 32, func(p gen.Value) { copied.At(p).Store(0, from.At(p).Load(0)) })
	})
}

// find returns the run of group i.
func (g queryGroups) find(i gen.Value) groupRun {
	k := g.k
	run := func(n gen.Value) groupRun { return groupRun{g.runs.Row(n)} }
	return run(lastAtMost(k, k.Int(0), g.runCount.Read(), func(n gen.Value) gen.Value { return run(n).at().Le(i) }))
}

// layerRows copies rows of token × head between a tensor and the order in
// which groups are computed: row t of one is row rows[t] of the other. One warp
// copies the row of a head, 16 bytes per lane at a time.
func layerRows(s Spec) (*gen.Output, error) {
	k := gen.NewKernel("layer_rows", s, s.options())
	k.Threads(layerThreads)
	index := k.Pointer("rows", isa.S32)
	type tensor struct {
		base        gen.Pointer
		token, head gen.Scalar // strides in bytes
	}
	declare := func(name string) tensor {
		return tensor{k.Pointer(name, isa.B32), k.Scalar(name+"_token", isa.S64), k.Scalar(name+"_head", isa.S64)}
	}
	from, to := declare("from"), declare("to")
	at := func(t tensor, token, head gen.Value) gen.Pointer {
		return t.base.Bytes(token.Extend().Mul(t.token.Read())).Bytes(head.Extend().Mul(t.head.Read()))
	}
	scatter := k.Scalar("scatter", isa.S32) // the index is of where rows go, not of where they come from
	tokens, heads, vectors := k.Scalar("tokens", isa.S32), k.Scalar("heads", isa.S32), k.Scalar("vectors", isa.S32)
	k.AllowNextGrid()
	k.WaitForPreviousGrid()
	warp := k.Block().Mul(layerWarps).Add(k.Warp().Broadcast(0))
	k.For("row", warp, tokens.Read().Mul(heads.Read()), k.Blocks().Mul(layerWarps), func(row gen.Value) {
		token := row.Div(heads.Read())
		head := row.Sub(token.Mul(heads.Read()))
		listed := index.At(token).Load(0)
		scattered := scatter.Read().Ne(0)
		source := at(from, k.Select(scattered, token, listed), head)
		target := at(to, k.Select(scattered, listed, token), head)
		k.For("vector", k.Lane(), vectors.Read(), 32, func(v gen.Value) {
			target.At(v.Mul(vectorWords)).StoreVector(0, source.At(v.Mul(vectorWords)).LoadVector(0, vectorWords)...)
		})
	})
	return k.Build()
}
