package faults

import (
	"fmt"
	"testing"

	"github.com/mlagen/mlagen/golden/cases"
	"github.com/mlagen/mlagen/runtime"
	"github.com/mlagen/mlagen/templates"
)

func (s *source) Extend(shape runtime.ExtendShape) (v runtime.ExtendVariants, err error) {
	spec := templates.Spec{Heads: shape.Heads, Nope: shape.Nope, Rope: shape.Rope, Value: shape.Value, DType: string(shape.DType)}
	up := spec
	up.Latent, up.Page = shape.Latent, shape.Page
	for _, k := range []struct {
		name string
		spec templates.Spec
		to   *runtime.Variant
	}{{"up-project", up, &v.UpProject}, {"extend-attend", spec, &v.Attend}, {"extend-schedule", spec, &v.Schedule}} {
		if *k.to, err = s.build(k.name, k.spec); err != nil {
			return v, err
		}
	}
	return v, nil
}

// extendProblems have sequences that begin and end in the same chunk, blocks of
// one sequence that see keys of a chunk and that see none, rows without a key after rows
// with some, references that are outgrown in later chunks, and tiles whose rows
// nobody wrote. The quick ones come first.
func extendProblems(t *testing.T) []problem {
	t.Helper()
	var out []problem
	for i, p := range []struct {
		fields string
		sms    int
	}{
		{`"q_len": [20, 9], "kv_len": [200, 150], "chunk": 128`, 1},
		{`"q_len": [3], "kv_len": [70]`, 1},
		{`"q_len": [9, 9], "kv_len": [60, 1], "causal": false, "fill": {"q": "normal*160"}, "tolerance": {"out": 0.3, "lse": 0.2}`, 1},
		{`"q_len": [7, 140, 1], "kv_len": [300, 4, 0], "chunk": 128`, 1},
		{`"q_len": [270, 0, 5], "kv_len": [280, 9, 131], "chunk": 128`, 2},
		{`"q_len": [9, 3], "kv_len": [150, 300], "chunk": 128, "causal": false, "layout": {"q": "split"}, "dtype": "fp16"`, 2},
		{`"q_len": [30], "kv_len": [500], "chunk": 128, "fill": {"q": "normal*6"}, "tolerance": {"out": 1e-2, "lse": 1e-2}`, 1},
	} {
		c, err := cases.Parse([]byte(fmt.Sprintf(`{"name": "faults-%d", "op": "extend", "model": {"heads": %d, "latent": 512, "rope": 64, "nope": 128, "value": 128}, %s}`, i, few, p.fields)))
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, problem{c, p.sms})
	}
	return out
}

// TestExtendCaught plants every fault of extend and prints by which rule it is
// caught.
func TestExtendCaught(t *testing.T) {
	testCaught(t, Extend, map[int][]problem{few: extendProblems(t)})
}
