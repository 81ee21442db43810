package runtime

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/mlagen/mlagen/ptx/manifest"
)

// mergeVariant is a kernel with the parameters that the generator gives, and a
// table of the given number of states.
func mergeVariant(shape MergeShape, states int) Variant {
	v := variant("merge_states", 256, shape, "count", "s32", "rows", "s32", "heads", "s32", "accumulate", "s32",
		"out", "*b32", "lse", "*f32", "out_token", "s64", "out_head", "s64", "lse_token", "s64", "lse_head", "s64",
		"to_log2", "f32", "from_log2", "f32")
	last := v.Manifest.Params[len(v.Manifest.Params)-1]
	v.Manifest.Params = append(v.Manifest.Params, manifest.Param{
		Name: "states", Kind: manifest.TableParam, Type: "u64", Size: states * stateFields * 8, Align: 8, Offset: (last.Offset + last.Size + 7) / 8 * 8,
	})
	return v
}

// mergeRig is a loaded merge with three states of 10 tokens and 4 heads.
type mergeRig struct {
	*rig
	merge *MergeStates
	args  MergeArgs
}

func newMergeRig(t *testing.T, table int) *mergeRig {
	t.Helper()
	r := &mergeRig{rig: &rig{t: t, driver: newFake(), stream: &fakeStream{}}}
	var err error
	if r.merge, err = LoadMergeStates(r.driver, mergeVariant(MergeShape{128, BF16, BF16}, table)); err != nil {
		t.Fatal(err)
	}
	state := func() State { return State{r.tensor("out", BF16, 10, 4, 128), r.tensor("lse", F32, 10, 4)} }
	r.args = MergeArgs{States: []State{state(), state(), state()}, Out: r.tensor("out", BF16, 10, 4, 128), LSE: r.tensor("lse", F32, 10, 4)}
	return r
}

// words returns a launch's table of states.
func (r *mergeRig) words(l Launch, n int) (words []uint64) {
	p := r.merge.kernel.Manifest.Params
	at := l.Params[p[len(p)-1].Offset:]
	for i := range n {
		words = append(words, binary.LittleEndian.Uint64(at[8*i:]))
	}
	return words
}

func (r *mergeRig) scalars(l Launch) map[string]uint64 {
	k := *r.merge.kernel
	m := *k.Manifest
	m.Params = m.Params[:len(m.Params)-1]
	k.Manifest = &m
	return r.values(&k, l)
}

func TestMergeRun(t *testing.T) {
	r := newMergeRig(t, 64)
	second := &r.args.States[1]
	second.Out = r.tensor("strided", BF16, 10*4*256)
	second.Out.Shape, second.Out.Strides = []int64{10, 4, 128}, []int64{256, 2560, 1}
	second.LSE.Strides = []int64{1, 10} // of a head together
	r.args.Out = r.tensor("padded", BF16, 10*4*192)
	r.args.Out.Shape, r.args.Out.Strides = []int64{10, 4, 128}, []int64{768, 192, 1}
	if err := r.merge.Run(r.stream, r.args); err != nil {
		t.Fatal(err)
	}
	if n := len(r.stream.launches); n != 1 {
		t.Fatalf("%d launches", n)
	}
	l := r.stream.launches[0]
	if want := (Dim3{X: 2}); l.Grid != want || l.Block.X != 256 || !l.Programmatic { // 32 rows of 8 lanes per block
		t.Errorf("grid %v of %v, want %v", l.Grid, l.Block, want)
	}
	s := r.args.States
	if diff := cmp.Diff([]uint64{
		uint64(s[0].Out.Ptr), 4 * 128 * 2, 128 * 2, uint64(s[0].LSE.Ptr), 16, 4,
		uint64(s[1].Out.Ptr), 512, 5120, uint64(s[1].LSE.Ptr), 4, 40,
		uint64(s[2].Out.Ptr), 4 * 128 * 2, 128 * 2, uint64(s[2].LSE.Ptr), 16, 4,
	}, r.words(l, 18)); diff != "" {
		t.Errorf("states (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(map[string]uint64{
		"count": 3, "rows": 40, "heads": 4, "accumulate": 0, "out": uint64(r.args.Out.Ptr), "lse": uint64(r.args.LSE.Ptr),
		"out_token": 1536, "out_head": 384, "lse_token": 16, "lse_head": 4, "to_log2": float(math.Log2E), "from_log2": float(math.Ln2),
	}, r.scalars(l)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	r.args.LSEBase2, r.args.Accumulate = true, true
	if err := r.merge.Run(r.stream, r.args); err != nil {
		t.Fatal(err)
	}
	if v := r.scalars(r.stream.launches[1]); v["to_log2"] != float(1) || v["from_log2"] != float(1) || v["accumulate"] != 1 {
		t.Errorf("to base 2, accumulating: %v", v)
	}
}

// TestMergeMany: states beyond the kernel's table are merged into the result
// so far.
func TestMergeMany(t *testing.T) {
	r := newMergeRig(t, 2)
	if err := r.merge.Run(r.stream, r.args); err != nil {
		t.Fatal(err)
	}
	if n := len(r.stream.launches); n != 2 {
		t.Fatalf("%d launches, want 2", n)
	}
	for i, want := range []map[string]uint64{{"count": 2, "accumulate": 0}, {"count": 1, "accumulate": 1}} {
		got := r.scalars(r.stream.launches[i])
		for name, v := range want {
			if got[name] != v {
				t.Errorf("launch %d: %s is %d, want %d", i, name, got[name], v)
			}
		}
	}
	if got := r.words(r.stream.launches[1], 1)[0]; got != uint64(r.args.States[2].Out.Ptr) {
		t.Errorf("the second launch merges %#x, want the third state", got)
	}
}

func TestMergeNothing(t *testing.T) {
	r := newMergeRig(t, 64)
	empty := State{Dense(0, BF16, 0, 4, 128), Dense(0, F32, 0, 4)}
	if err := r.merge.Run(r.stream, MergeArgs{States: []State{empty}, Out: empty.Out, LSE: empty.LSE}); err != nil {
		t.Error(err)
	}
	if n := len(r.stream.launches); n != 0 {
		t.Errorf("%d launches without a token", n)
	}
}

func TestMergeMisuse(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*mergeRig, *MergeArgs)
		want   string
	}{
		"no state":  {func(_ *mergeRig, a *MergeArgs) { a.States = nil }, "states: there were none, must be one or more"},
		"no output": {func(_ *mergeRig, a *MergeArgs) { a.Out = Tensor{} }, "out: was not given, must be a bf16 tensor [tokens, heads, width 128]"},
		"no lse":    {func(_ *mergeRig, a *MergeArgs) { a.LSE = Tensor{} }, "lse: was not given, must be a f32 tensor [tokens 10, heads 4]"},
		"width": {func(r *mergeRig, a *MergeArgs) { a.Out = r.tensor("out", BF16, 10, 4, 64) },
			"out: shape was [10 4 64], must be [tokens, heads, width 128]"},
		"no head": {func(r *mergeRig, a *MergeArgs) { a.Out = Dense(0, BF16, 10, 0, 128) },
			"out: shape was [10 0 128], must be at least one head, and at most 1073741824 rows of token × head"},
		"too many rows": {func(r *mergeRig, a *MergeArgs) {
			a.Out.Shape, a.Out.Strides = []int64{1 << 30, 2, 128}, []int64{256, 128, 1}
			r.driver.blocks[6].Size = 1 << 60
		}, "at most 1073741824 rows"},
		"shared rows": {func(_ *mergeRig, a *MergeArgs) { a.Out.Strides = []int64{0, 128, 1} }, "out: shape was [10 4 128] with strides [0 128 1], must be strides that give"},
		"shared lse":  {func(_ *mergeRig, a *MergeArgs) { a.LSE.Strides = []int64{4, 0} }, "lse: shape was [10 4] with strides [4 0], must be strides that give"},
		"alignment":   {func(_ *mergeRig, a *MergeArgs) { a.States[1].Out.Ptr += 2 }, "state 1's out: address was"},
		"stride": {func(_ *mergeRig, a *MergeArgs) { a.States[2].Out.Strides = []int64{512, 127, 1} },
			"state 2's out: heads stride was 127 elements (254 bytes), must be a multiple of 16 bytes"},
		"dtype":       {func(_ *mergeRig, a *MergeArgs) { a.States[0].Out.DType = F32 }, `state 0's out: dtype was "f32", must be bf16`},
		"tokens":      {func(r *mergeRig, a *MergeArgs) { a.States[1].LSE = r.tensor("lse", F32, 9, 4) }, "state 1's lse: shape was [9 4], must be [tokens 10, heads 4]"},
		"host memory": {func(_ *mergeRig, a *MergeArgs) { a.States[2].LSE.Ptr = 64 }, "state 2's lse: address 0x40 was not device memory"},
		"too long": {func(r *mergeRig, a *MergeArgs) { a.States[0].LSE.Strides = []int64{400, 1} },
			"state 0's lse: it ran from"},
	} {
		r := newMergeRig(t, 64)
		c.change(r, &r.args)
		err := r.merge.Run(r.stream, r.args)
		var argument *ArgumentError
		if !errors.As(err, &argument) || !strings.HasPrefix(err.Error(), "merge states: ") || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want merge states: %s", name, err, c.want)
		}
		if len(r.stream.launches) > 0 {
			t.Errorf("%s: launched", name)
		}
	}
	r := newMergeRig(t, 64)
	if err := r.merge.Run(nil, r.args); err == nil || !strings.Contains(err.Error(), "stream: was nil") {
		t.Error(err)
	}
	if err := r.merge.Close(); err != nil || r.driver.unloaded != 1 {
		t.Errorf("close: %v, %d unloaded", err, r.driver.unloaded)
	}
	if err := r.merge.Run(r.stream, r.args); err == nil || err.Error() != "merge states: was closed, must be loaded" {
		t.Error(err)
	}
	if err := r.merge.Close(); err != nil || r.driver.unloaded != 1 {
		t.Errorf("closed twice: %v", err)
	}
}

func TestMergeAllocatesNothing(t *testing.T) {
	r := newMergeRig(t, 64)
	r.stream.forget = true
	n := testing.AllocsPerRun(100, func() {
		if err := r.merge.Run(r.stream, r.args); err != nil {
			t.Fatal(err)
		}
	})
	if n != 0 {
		t.Errorf("%v allocations per call", n)
	}
}

func TestLoadMergeRefuses(t *testing.T) {
	good := MergeShape{128, BF16, F32}
	for want, v := range map[string]Variant{
		`must be "merge_states"`:       variant("decode_combine", 256, good),
		"not a merge kernel's":         mergeVariant(MergeShape{128, BF16, FP16}, 64),
		"no room for a state":          variant("merge_states", 256, good, "count", "s32"),
		"spec of merge_states":         mergeVariant(MergeShape{}, 64),
		"parameters not set: surprise": surprised(mergeVariant(good, 64)),
	} {
		if want == "spec of merge_states" {
			v.Manifest.Spec = "128"
		}
		d := newFake()
		if _, err := LoadMergeStates(d, v); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
		if d.loads != d.unloaded {
			t.Errorf("%s: %d loaded, %d unloaded", want, d.loads, d.unloaded)
		}
	}
	if _, err := LoadMergeStates(nil, mergeVariant(good, 64)); err == nil {
		t.Error("loaded on no device")
	}
}

// surprised adds a parameter that the runtime does not know.
func surprised(v Variant) Variant {
	p := v.Manifest.Params
	last := p[len(p)-1]
	v.Manifest.Params = append(p, manifest.Param{Name: "surprise", Kind: manifest.ScalarParam, Type: "u32", Size: 4, Align: 4, Offset: last.Offset + last.Size})
	return v
}

func TestTableParam(t *testing.T) {
	k, err := Load(newFake(), mergeVariant(MergeShape{128, BF16, BF16}, 2))
	if err != nil {
		t.Fatal(err)
	}
	if err := k.NewParams().Table("states", make([]uint64, 13)).Err(); err == nil || !strings.Contains(err.Error(), `table "states" has room for 12 words, not for 13`) {
		t.Error(err)
	}
	if err := k.NewParams().Table("count", nil).Err(); err == nil || !strings.Contains(err.Error(), fmt.Sprintf("parameter %q is a scalar, not a table", "count")) {
		t.Error(err)
	}
}
