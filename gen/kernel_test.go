package gen_test

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/mlagen/mlagen/gen"
	"github.com/mlagen/mlagen/ptx"
	"github.com/mlagen/mlagen/ptx/hopper"
	"github.com/mlagen/mlagen/ptx/isa"
	"github.com/mlagen/mlagen/ptx/manifest"
)

// names of parameters.
func names(params []manifest.Param) []string {
	var list []string
	for _, p := range params {
		list = append(list, p.Name)
	}
	return list
}

// TestMistakes: each is reported at the line that makes it, in the words that
// tell what would be right.
func TestMistakes(t *testing.T) {
	tile := gen.Tile{DType: gen.BF16, Rows: 64, Cols: 128, Swizzle: hopper.Swizzle128}
	parts := func(p ...gen.Part) []gen.Part { return p }
	for _, c := range []struct {
		name, want string
		make       func(k *gen.Kernel)
	}{
		{"type", "a f32 value stands where a s32 is needed", func(k *gen.Kernel) { k.Thread().Add(k.Float(1)) }},
		{"width", "a s64 value stands where a s32 is needed", func(k *gen.Kernel) { k.Thread().Add(k.Thread().Extend()) }},
		{"no value", "string is no value", func(k *gen.Kernel) { k.Thread().Add("1") }},
		{"view", "cannot view a s32 as a f32", func(k *gen.Kernel) { k.Thread().As(isa.F32) }},
		{"constants beyond 32 bits", "does not fit", func(k *gen.Kernel) { k.Var(k.Int(1 << 20).Mul(1 << 20)) }},
		{"index", "string is no index", func(k *gen.Kernel) { k.Pointer("p", isa.S32).At("1") }},
		{"shared index", "string is no index", func(k *gen.Kernel) { k.SharedArray("a", isa.S32, 4).At("1") }},
		{"parameter twice", `parameter "p" is declared twice`, func(k *gen.Kernel) { k.Pointer("p", isa.S32); k.Scalar("p", isa.S32) }},
		{"box", `tensor "t" has 2 dimensions and a box of 1`, func(k *gen.Kernel) {
			k.Tensor("t", gen.BF16, []string{"a", "b"}, []int{64}, hopper.Swizzle128, 128)
		}},
		{"tile rows", "tile t: tile rows: was 12, must be a positive multiple of 8", func(k *gen.Kernel) {
			k.SharedTile("t", gen.Tile{DType: gen.BF16, Rows: 12, Cols: 64, Swizzle: hopper.Swizzle128})
		}},
		{"columns", "columns 32 to 96 do not fall on blocks of 64", func(k *gen.Kernel) { k.SharedTile("t", tile).Columns(32, 64) }},
		{"reuse", "a tile of 32768 bytes does not fit into one of 16384", func(k *gen.Kernel) {
			k.SharedTile("t", tile).Reuse(gen.Tile{DType: gen.BF16, Rows: 64, Cols: 256, Swizzle: hopper.Swizzle128})
		}},
		{"depths", "contraction of 128 against 64 elements", func(k *gen.Kernel) {
			s := k.SharedTile("t", tile)
			k.Multiply(k.Accumulator(64), s.KMajor(), s.Columns(0, 64).KMajor(), 0, false)
		}},
		{"accumulator", "b has 64 rows: want 16, the accumulator's columns", func(k *gen.Kernel) {
			s := k.SharedTile("t", tile)
			k.Multiply(k.Accumulator(16), s.KMajor(), s.KMajor(), 0, false)
		}},
		{"rows", "rows 64 to 128 of an operand of 64", func(k *gen.Kernel) {
			s := k.SharedTile("t", tile)
			k.Multiply(k.Accumulator(64), s.KMajor(), s.KMajor(), 64, false)
		}},
		{"fragment", "a fragment of 1 registers against a contraction of 128", func(k *gen.Kernel) {
			s := k.SharedTile("t", tile)
			k.MultiplyFragment(k.Accumulator(64), []gen.Value{k.Thread()}, s.KMajor())
		}},
		{"part twice", "pipeline kv: column block 0 is in two parts or not among the tile's 2", func(k *gen.Kernel) {
			k.Pipeline("kv", 2, tile, parts(gen.Part{First: 0, Count: 2, Arrivals: 1}, gen.Part{First: 0, Count: 1, Arrivals: 1})...)
		}},
		{"part missing", "pipeline kv: column block 1 of 2 is in no part", func(k *gen.Kernel) {
			k.Pipeline("kv", 2, tile, gen.Part{First: 0, Count: 1, Arrivals: 1})
			k.InitBarriers()
		}},
		{"part beyond", "pipeline kv: column block 2 is in two parts or not among the tile's 2", func(k *gen.Kernel) {
			k.Pipeline("kv", 2, tile, gen.Part{First: 0, Count: 3, Arrivals: 1})
			k.InitBarriers()
		}},
		{"part of nothing", "pipeline kv: a part has 0 column blocks", func(k *gen.Kernel) {
			k.Pipeline("kv", 2, tile, gen.Part{First: 0, Count: 2, Arrivals: 1}, gen.Part{First: 2, Arrivals: 1})
			k.InitBarriers()
		}},
		{"no part", "pipeline kv: column block 0 of 2 is in no part", func(k *gen.Kernel) {
			ring := k.Pipeline("kv", 2, tile)
			k.InitBarriers()
			ring.Consumer().Next()
		}},
		{"ring smaller than a tile", "pipeline kv has 1 slots: want at least 2", func(k *gen.Kernel) {
			ring := k.Pipeline("kv", 1, tile, gen.Part{First: 0, Count: 1, Arrivals: 1}, gen.Part{First: 1, Count: 1, Arrivals: 1})
			k.InitBarriers()
			ring.Consumer().Next()
		}},
		{"unlike parts wrap", "pipeline kv has 3 slots: want at least 2, and whole tiles where parts differ in size", func(k *gen.Kernel) {
			ring := k.Pipeline("kv", 3, tile, gen.Part{First: 0, Count: 1, Arrivals: 4}, gen.Part{First: 1, Count: 1, Arrivals: 2})
			k.InitBarriers()
			ring.Consumer().Next()
		}},
		{"part to release", "part 2 of a tile of 2", func(k *gen.Kernel) {
			ring := k.Pipeline("kv", 2, tile, gen.Part{First: 0, Count: 1, Arrivals: 1}, gen.Part{First: 1, Count: 1, Arrivals: 1})
			k.InitBarriers()
			ring.Consumer().Next().Release(k.Lane().Eq(0), 1, 2)
		}},
		{"blocks apart", "the tile's blocks lie apart: take its Pieces", func(k *gen.Kernel) {
			ring := k.Pipeline("kv", 3, tile, gen.Part{First: 0, Count: 1, Arrivals: 1}, gen.Part{First: 1, Count: 1, Arrivals: 1})
			k.InitBarriers()
			ring.Consumer().Next().Chunk(k.Thread(), k.Int(0)).Load(0)
		}},
		{"box bytes", "a box of tensor t has 4096 bytes: want 8192, one column block of the tile", func(k *gen.Kernel) {
			m := k.Tensor("t", gen.BF16, []string{"a", "b"}, []int{64, 32}, hopper.Swizzle128, 128)
			ring := k.Pipeline("kv", 2, tile, gen.Part{First: 0, Count: 2, Arrivals: 1})
			k.InitBarriers()
			ring.Producer().Load(m, k.EvictFirst(), k.Int(0))
		}},
		{"boxes", "2 boxes for the 3 column blocks of a tile", func(k *gen.Kernel) {
			m := k.Tensor("t", gen.BF16, []string{"a", "b"}, []int{64, 64}, hopper.Swizzle128, 128)
			ring := k.Pipeline("kv", 1, gen.Tile{DType: gen.BF16, Rows: 64, Cols: 192, Swizzle: hopper.Swizzle128}, gen.Part{Count: 3, Arrivals: 1})
			k.InitBarriers()
			ring.Producer().LoadBoxes(gen.Value{}, gen.Boxes{From: m, Count: 2, Coords: []gen.Value{k.Int(0)}})
		}},
		{"bytes of a run of boxes", "a box of tensor t has 4096 bytes: want 8192, one column block of the tile", func(k *gen.Kernel) {
			m := k.Tensor("t", gen.BF16, []string{"a", "b"}, []int{64, 32}, hopper.Swizzle128, 128)
			ring := k.Pipeline("kv", 1, tile, gen.Part{Count: 2, Arrivals: 1})
			k.InitBarriers()
			ring.Producer().LoadBoxes(gen.Value{}, gen.Boxes{From: m, Count: 2, Coords: []gen.Value{k.Int(0)}})
		}},
		{"rows apart", "the tile's blocks lie apart: take its Pieces", func(k *gen.Kernel) {
			ring := k.Pipeline("kv", 3, tile, gen.Part{First: 0, Count: 1, Arrivals: 1}, gen.Part{First: 1, Count: 1, Arrivals: 1})
			k.InitBarriers()
			ring.Consumer().Next().FromRow(k.Thread())
		}},
		{"tile by index", "the 3 slots of the ring are no whole tiles of 2", func(k *gen.Kernel) {
			ring := k.Pipeline("kv", 3, tile, gen.Part{First: 0, Count: 1, Arrivals: 1}, gen.Part{First: 1, Count: 1, Arrivals: 1})
			k.InitBarriers()
			ring.Tile(k.Thread())
		}},
		{"mailbox", "mailbox m has 0 slots of 3 words for 4 warps: want at least one of each", func(k *gen.Kernel) {
			k.Mailbox("m", 0, 3, 4)
			k.InitBarriers()
		}},
		{"message", "a message of 2 words: want 3", func(k *gen.Kernel) {
			m := k.Mailbox("m", 2, 3, 4)
			k.InitBarriers()
			m.Sender().Send(k.Int(1), k.Int(2))
		}},
		{"barriers", "more than 15 named barriers", func(k *gen.Kernel) {
			for range 16 {
				k.NamedBarrier(32)
			}
		}},
		{"late barrier", "mbarriers are declared after InitBarriers", func(k *gen.Kernel) {
			k.InitBarriers()
			k.Barrier("b", 1, 1)
		}},
		{"shared memory", "needs 262144 bytes of shared memory: the limit is 232448", func(k *gen.Kernel) { k.SharedArray("a", isa.B32, 1<<16) }},
		{"threads", "kernel k has 0 threads: want 32…1024", func(k *gen.Kernel) { k.Threads(0) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			k := gen.NewKernel("k", nil)
			k.Threads(32)
			c.make(k)
			_, err := k.Build()
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Fatalf("%v\nwant %s", err, c.want)
			}
			for _, line := range strings.Split(err.Error(), "\n") {
				if !regexp.MustCompile(`^gen/kernel_test\.go:\d+: `).MatchString(line) {
					t.Errorf("%q does not begin with the template's file and line", line)
				}
			}
		})
	}
}

// TestMistakesAreJoined: Build returns all of them, each at its own line.
func TestMistakesAreJoined(t *testing.T) {
	k := gen.NewKernel("k", nil)
	k.Threads(32)
	k.Thread().Add("x") // this line
	k.Thread().Sub(k.Float(0))
	_, err := k.Build()
	if err == nil {
		t.Fatal("it was built")
	}
	source, readErr := os.ReadFile("kernel_test.go")
	if readErr != nil {
		t.Fatal(readErr)
	}
	line := 1 + strings.Count(string(source[:strings.Index(string(source), "// this line\n")]), "\n")
	var got []string
	for _, e := range strings.Split(err.Error(), "\n") {
		got = append(got, strings.SplitN(e, ": ", 2)[0])
	}
	// A wrong operand may be noticed more than once; each time at its line.
	seen := map[string]bool{}
	for _, at := range got {
		seen[at] = true
	}
	want := map[string]bool{fmt.Sprintf("gen/kernel_test.go:%d", line): true, fmt.Sprintf("gen/kernel_test.go:%d", line+1): true}
	if diff := cmp.Diff(want, seen); diff != "" {
		t.Errorf("%v\n%s", err, diff)
	}
}

// TestOutput: what the manifest says of the text.
func TestOutput(t *testing.T) {
	build := func() *gen.Output {
		k := gen.NewKernel("k", map[string]int{"n": 3})
		k.Scalar("first", isa.U32)
		k.Tensor("map", gen.FP16, []string{"column", "row"}, []int{64, 8}, hopper.Swizzle128, 256)
		k.Pointer("out", isa.F32)
		k.Scalar("small", isa.S32)
		k.Scalar("wide", isa.S64)
		k.SharedArray("a", isa.B8, 20)
		k.SharedTile("t", gen.Tile{DType: gen.FP16, Rows: 8, Cols: 64, Swizzle: hopper.Swizzle128})
		k.Cluster(2)
		k.Roles(
			gen.Role{Name: "one", Warps: gen.Warpgroups(1), Registers: 240, Body: func() { k.SyncWarp() }},
			gen.Role{Name: "two", Warps: gen.Warpgroups(1), Registers: 24, Body: func() { k.SyncWarp() }},
			gen.Role{Name: "three", Warps: gen.Warpgroups(1), Body: func() { k.SyncWarp() }},
		)
		out, err := k.Build()
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	out := build()
	sum := sha256.Sum256(out.PTX)
	want := &manifest.Manifest{
		Schema: manifest.Schema, Kernel: "k", Spec: map[string]int{"n": 3}, PTXSHA256: hex.EncodeToString(sum[:]),
		PTXVersion: "8.0", Target: "sm_90a", MinDriver: 12000, Threads: 384, Cluster: 2, Shared: 2048, MaxNReg: 168,
		Roles: []manifest.Role{
			{Name: "one", FirstWarp: 0, Warps: 4, Registers: 240}, {Name: "two", FirstWarp: 4, Warps: 4, Registers: 24}, {Name: "three", FirstWarp: 8, Warps: 4},
		},
		Params: []manifest.Param{
			{Name: "first", Kind: manifest.ScalarParam, Type: "u32", Size: 4, Align: 4, Offset: 0},
			{Name: "map", Kind: manifest.TensorMapParam, Type: "b8", Size: 128, Align: 128, Offset: 128},
			{Name: "out", Kind: manifest.PointerParam, Type: "f32", Size: 8, Align: 8, Offset: 256},
			{Name: "small", Kind: manifest.ScalarParam, Type: "s32", Size: 4, Align: 4, Offset: 264},
			{Name: "wide", Kind: manifest.ScalarParam, Type: "s64", Size: 8, Align: 8, Offset: 272},
		},
		TensorMaps: []manifest.TensorMap{{Param: "map", DType: "fp16", Dims: []string{"column", "row"}, Box: []int{64, 8}, Swizzle: 128, Promotion: 256}},
		Tool:       "mlagen",
	}
	if diff := cmp.Diff(want, out.Manifest); diff != "" {
		t.Errorf("manifest (-want +got):\n%s", diff)
	}
	if got := out.Module.String(); got != string(out.PTX) {
		t.Error("the text is not the module's")
	}
	if again := build(); string(again.PTX) != string(out.PTX) {
		t.Error("built again it differs")
	}
	if !strings.HasPrefix(string(out.PTX), "// Code generated by mlagen; DO NOT EDIT.\n") {
		t.Errorf("it begins with %.60q", out.PTX)
	}
	for op, n := range map[string]int{"setmaxnreg.inc.sync.aligned.u32": 1, "setmaxnreg.dec.sync.aligned.u32": 1} {
		if got := count(out, op); got != n {
			t.Errorf("%d × %s, want %d", got, op, n)
		}
	}
	k := out.Module.Kernels[0]
	if k.ReqNTID != [3]int{384, 1, 1} || k.ReqNCTAPerClust != [3]int{2, 1, 1} || k.MinCTAPerSM != 1 {
		t.Errorf("directives %v, %v, %d", k.ReqNTID, k.ReqNCTAPerClust, k.MinCTAPerSM)
	}
}

// TestRoles: each warp runs its role's body and no other, and all meet again.
func TestRoles(t *testing.T) {
	for _, warps := range [][]int{{3}, {4, 1}, {1, 4, 2, 1}} {
		r := newRig(t, 0)
		k := r.k
		job := k.Var(k.Int(100))
		var roles []gen.Role
		total := 0
		for i, n := range warps {
			roles = append(roles, gen.Role{Name: fmt.Sprint(i), Warps: n, Body: func() { job.Increase(i) }})
			total += n
		}
		k.Roles(roles...)
		k.SyncCTA()
		r.mine().Store(0, job.As(isa.U32))
		out := r.build()
		if out.Manifest.Threads != 32*total {
			t.Errorf("%v: %d threads", warps, out.Manifest.Threads)
		}
		want := each(32*total, func(i int) uint32 {
			role, first := 0, 0
			for i/32 >= first+warps[role] {
				first += warps[role]
				role++
			}
			return uint32(100 + role)
		})
		if diff := cmp.Diff(want, r.execute(out, 32*total)); diff != "" {
			t.Errorf("%v (-want +got):\n%s", warps, diff)
		}
	}
}

// TestNamedBarriers: a barrier orders shared memory between the warps it is
// for; arriving does not wait.
func TestNamedBarriers(t *testing.T) {
	r := newRig(t, 0)
	k := r.k
	a := k.SharedArray("a", isa.U32, 32)
	ready, others := k.NamedBarrier(64), k.NamedBarrier(32)
	k.Roles(
		gen.Role{Name: "write", Warps: 1, Body: func() {
			a.At(k.Lane()).Store(0, k.Lane().Mul(7).As(isa.U32))
			ready.Arrive()
			others.Sync()
		}},
		gen.Role{Name: "read", Warps: 1, Body: func() {
			ready.Sync()
			r.out.At(k.Lane()).Store(0, a.At(k.Lane().Xor(1)).Load(0))
		}},
	)
	if diff := cmp.Diff(each(32, func(i int) uint32 { return uint32(i^1) * 7 }), r.run(32)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestVotes: a barrier tells its warps whether a condition held in any of their
// threads, and orders shared memory between them.
func TestVotes(t *testing.T) {
	r := newRig(t, 0)
	k := r.k
	a := k.SharedArray("a", isa.U32, 64)
	pair := k.NamedBarrier(64)
	vote := func(of gen.Value) gen.Value { return k.Select(pair.Any(of), k.Const(isa.U32, 1), k.Const(isa.U32, 0)) }
	k.Roles(
		gen.Role{Name: "voters", Warps: 2, Body: func() {
			a.At(k.Thread()).Store(0, k.Thread().As(isa.U32))
			one, none := vote(k.Thread().Eq(40)), vote(k.Thread().Gt(63))
			r.mine().Store(0, a.At(k.Thread().Xor(63)).Load(0).Add(one.Mul(100)).Add(none.Mul(1000)))
		}},
		gen.Role{Name: "bystander", Warps: 1, Body: func() { r.mine().Store(0, k.Const(isa.U32, 5)) }},
	)
	want := each(96, func(i int) uint32 {
		if i >= 64 {
			return 5
		}
		return uint32(i^63) + 100
	})
	if diff := cmp.Diff(want, r.run(96)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestLineInfo: instructions lead back to the line that made them.
func TestLineInfo(t *testing.T) {
	k := gen.NewKernel("k", nil, gen.LineInfo(true))
	k.Threads(32)
	k.SyncWarp() // here
	k.SyncCTA()
	out, err := k.Build()
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"gen/kernel_test.go"}, out.Module.Files); diff != "" {
		t.Error(diff)
	}
	source, err := os.ReadFile("kernel_test.go")
	if err != nil {
		t.Fatal(err)
	}
	line := 1 + strings.Count(string(source[:strings.Index(string(source), "// here\n")]), "\n")
	got := map[string]int{}
	at := 0
	for _, s := range out.Module.Kernels[0].Body {
		switch s := s.(type) {
		case *ptx.Loc:
			at = s.Line
		case *ptx.Instr:
			got[s.Opcode()] = at
		}
	}
	if got["bar.warp.sync"] != line || got["bar.sync"] != line+1 {
		t.Errorf("%v: want lines %d and %d", got, line, line+1)
	}
}

// TestFitCTAs: the compiler is told how many CTAs must fit an SM, and the manifest how
// many registers that leaves a thread.
func TestFitCTAs(t *testing.T) {
	for ctas, registers := range map[int]int{0: 255, 1: 255, 2: 128, 3: 80} {
		k := gen.NewKernel("fits", nil)
		k.Threads(256)
		k.FitCTAs(ctas)
		out, err := k.Build()
		if err != nil {
			t.Fatal(err)
		}
		if got := out.Module.Kernels[0].MinCTAPerSM; got != max(1, ctas) || out.Manifest.MaxNReg != registers {
			t.Errorf("%d CTAs: %d told, %d registers; want %d", ctas, got, out.Manifest.MaxNReg, registers)
		}
	}
}
