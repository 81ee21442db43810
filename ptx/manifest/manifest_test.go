package manifest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// goldens are the manifests of all presets, by file.
func goldens(t testing.TB) map[string][]byte {
	t.Helper()
	files, err := filepath.Glob("../../golden/ptx/*.json")
	if err != nil || len(files) == 0 {
		t.Fatalf("%d golden manifests, %v", len(files), err)
	}
	texts := map[string][]byte{}
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		texts[strings.TrimSuffix(filepath.Base(f), ".json")] = text
	}
	return texts
}

func schema(t *testing.T) *jsonschema.Schema {
	t.Helper()
	c := jsonschema.NewCompiler()
	c.DefaultDraft(jsonschema.Draft2020)
	s, err := c.Compile("schema.json")
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func valid(s *jsonschema.Schema, text []byte) error {
	v, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		return err
	}
	return s.Validate(v)
}

// TestGoldens: what the generator writes is what schema.json and Parse take,
// and the types know every field of it.
func TestGoldens(t *testing.T) {
	s := schema(t)
	for name, text := range goldens(t) {
		if err := valid(s, text); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		m, err := Parse(text)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		again, err := m.Text()
		if err != nil {
			t.Fatal(err)
		}
		var was, is any
		if err := errors.Join(json.Unmarshal(text, &was), json.Unmarshal(again, &is)); err != nil {
			t.Fatal(err)
		}
		if fmt.Sprint(was) != fmt.Sprint(is) { // a spec's fields are sorted when they are written again
			t.Errorf("%s: read and written again it differs", name)
		}
		if _, err := m.Rules(); err != nil { // every kernel has them
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestRefuses: a field that cannot be right is named. Where shape is set, the
// JSON Schema sees it too.
func TestRefuses(t *testing.T) {
	s := schema(t)
	all := goldens(t)
	for _, c := range []struct {
		shape bool
		path  string // of the field to change, in absorb-decode-h16.json
		value any    // nil removes it
		want  string
	}{
		{true, "schema", 1, "schema was 1, must be 2: generate the kernel again"},
		{true, "schema", nil, "schema is missing"},
		{true, "schema", "2", "schema"},
		{true, "kernel", "a b", `kernel was "a b", must be an identifier`},
		{true, "kernel", strings.Repeat("k", 65), "kernel was"},
		{true, "surprise", 1, `unknown field "surprise"`},
		{true, "tuning_key", strings.Repeat("x", 401), "tuning_key was"},
		{true, "tool", strings.Repeat("x", 65), "tool was"},
		{true, "ptx_sha256", "abc", `ptx_sha256 was "abc", must be 64 hexadecimal digits`},
		{true, "ptx_sha256", nil, "ptx_sha256 is missing"},
		{true, "ptx_version", "eight", "ptx_version was"},
		{true, "target", "sm_90a;", "target was"},
		{true, "min_driver", -1, "min_driver was -1, must be 0 to 1048576"},
		{true, "threads", 0, "threads was 0, must be 1 to 1024"},
		{true, "threads", 1.5, "threads"},
		{true, "cluster", 17, "cluster was 17, must be 1 to 16"},
		{true, "shared", 1 << 40, "shared was 1099511627776"},
		{true, "max_registers", 256, "max_registers was 256"},
		{true, "roles.0.name", "", "roles[0].name"},
		{false, "roles.1.first_warp", 3, "roles[1].first_warp was 3, must be 4 to 5"},
		{false, "roles.1.warps", 2, "roles[1].warps was 2, must be 1 to 1"},
		{true, "roles.1.registers", -8, "roles[1].registers"},
		{true, "params.1.name", "q latent", "params[1].name"},
		{false, "params.1.name", "kv", `params[1].name was "kv", must be another`},
		{true, "params.1.kind", "handle", "params[1].kind"},
		{true, "params.1.type", "bf8", "params[1].type"},
		{false, "params.1.size", 4, "params[1].size was 4, must be 8, as a pointer has"},
		{false, "params.2.size", 3, "params[2].size was 3, must be 1, 2, 4 or 8"},
		{true, "params.2.align", 3, "params[2].align was 3, must be a power of two"},
		{false, "params.2.offset", 132, "params[2].offset was 132, must be a multiple of 8, at least 136"},
		{true, "params.2.offset", math.MaxInt64, "params[2].offset"},
		{false, "params.0.name", "cache", `tensor_maps[0].param was "kv"`},
		{true, "tensor_maps.0.dtype", "f64", "tensor_maps[0].dtype"},
		{true, "tensor_maps.0.box", []int{}, "tensor_maps[0].box has 0 dimensions"},
		{true, "tensor_maps.0.box.0", 257, "tensor_maps[0].box[0] was 257, must be 1 to 256"},
		{false, "tensor_maps.0.dims", []string{"column"}, "tensor_maps[0].dims has 1 names, must be 3"},
		{true, "tensor_maps.0.swizzle", 16, "tensor_maps[0].swizzle"},
		{true, "tensor_maps.0.promotion", 32, "tensor_maps[0].promotion"},
		{false, "tensor_maps", nil, `params[0].name was "kv", must be described in tensor_maps`},
		{false, "tensor_maps.0.source", nil, "tensor_maps[0].source is missing"},
		{false, "tensor_maps.0.source.address", "cache", `tensor_maps[0].source.address was "cache"`},
		{false, "tensor_maps.0.source.strides.0", "kv.stride.row", `tensor_maps[0].source.strides[0] was "kv.stride.row", which uses "kv.stride.row"`},
		{false, "tensor_maps.0.source.sizes", []string{"1"}, "tensor_maps[0].source.sizes has 1 entries"},
		{true, "launch.operation", "", "launch.operation"},
		{false, "launch.steps.1.kernel", "other", `launch.steps has no "absorb_decode"`},
		{true, "launch.steps.0.once", "twice", "launch.steps[0].once"},
		{true, "launch.constants.0.name", "Heads", "launch.constants[0].name"},
		{false, "launch.constants.0.name", "sms", `launch.constants[0].name was "sms", must be a name that nothing before it has`},
		{true, "launch.arguments.0.kind", "list", "launch.arguments[0].kind"},
		{true, "launch.arguments.0.doc", strings.Repeat("x", 401), "launch.arguments[0].doc"},
		{false, "launch.arguments.0.max", "parts", `launch.arguments[0].max was "parts", which uses "parts"`},
		{false, "launch.arguments.0.name", "requests", "launch.arguments[1].max"},
		{false, "launch.arguments.1.name", "batch", `launch.arguments[1].name was "batch"`},
		{true, "launch.arguments.2.shape", nil, "launch.arguments[2].shape has 0 dimensions"},
		{true, "launch.arguments.2.dtype", "u8", "launch.arguments[2].dtype"},
		{true, "launch.arguments.2.align", 12, "launch.arguments[2].align"},
		{false, "launch.arguments.2.shape.1.name", "batch", "launch.arguments[2].shape[1].name"},
		{false, "launch.arguments.2.shape.1.size", "tokens", "launch.arguments[2].shape[1].size"},
		{false, "launch.quantities.0.value", "pieces", `launch.quantities[0].value was "pieces", which uses "pieces"`},
		{false, "launch.quantities.0.value", "block_table.size.page", `launch.quantities[0].value was "block_table.size.page", which uses "block_table.size.page"`},
		{true, "launch.quantities.0.value", "1 % 2", "launch.quantities[0].value was"},
		{false, "launch.quantities.1.name", "batch", "launch.quantities[1].name"},
		{false, "launch.when", "requests", "launch.when"},
		{false, "launch.grid.0", "parts *", "launch.grid[0]"},
		{true, "launch.grid.1", "", "launch.grid[1]"},
		{false, "params.1.fill", nil, "params[1].fill is missing"},
		{true, "params.1.fill.value", "1", "params[1].fill.address was not alone"},
		{false, "params.1.fill.address", "scale", "params[1].fill.address"},
		{false, "params.1.fill.offset", "unknown", "params[1].fill.offset"},
		{false, "params.2.fill.value", "unknown", "params[2].fill.value"},
		{true, "params.2.fill", map[string]any{}, "params[2].fill.value"},
		{false, "params.2.fill", map[string]any{"real": "scale"}, `params[2].fill.real was "scale", must be value: the parameter is s64`},
		{false, "params.24.fill", map[string]any{"value": "1"}, `params[24].fill.value was "1", must be real: the parameter is f32`},
		{false, "params.24.fill.real", "batch", "params[24].fill.real"},
		{true, "params.0.fill", map[string]any{"kind": "x"}, "unknown field"},
		{true, "launch.arguments.2.fields", []string{"x"}, "launch.arguments[2].fields has 1 names"},
		{false, "launch.arguments.0.optional", true, "launch.arguments[0].optional was true, must be given for tensors"},
		{false, "launch.grid.0", "q_latent.given", "launch.grid[0]"},
		{false, "params.1.fill", map[string]any{"table": "batch"}, "params[1].fill.address was not alone"},
		{false, "params.2.fill", map[string]any{"table": "batch"}, "params[2].fill.value"},
	} {
		var m any
		if err := json.Unmarshal(all["absorb-decode-h16"], &m); err != nil {
			t.Fatal(err)
		}
		change(t, m, strings.Split(c.path, "."), c.value)
		text, err := json.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := Parse(text); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s = %v: %v, want %s", c.path, c.value, err, c.want)
		} else if len(err.Error()) > 600 {
			t.Errorf("%s: an error of %d bytes", c.path, len(err.Error()))
		}
		if err := valid(s, text); (err != nil) != c.shape {
			t.Errorf("%s = %v: the JSON Schema says %v", c.path, c.value, err)
		}
	}
}

// change sets a field of parsed JSON, or removes it.
func change(t *testing.T, v any, path []string, value any) {
	t.Helper()
	last := len(path) == 1
	switch x := v.(type) {
	case map[string]any:
		switch {
		case !last:
			change(t, x[path[0]], path[1:], value)
		case value == nil:
			delete(x, path[0])
		default:
			x[path[0]] = value
		}
	case []any:
		var i int
		if _, err := fmt.Sscan(path[0], &i); err != nil || i >= len(x) {
			t.Fatalf("%s: no such entry", path[0])
		}
		if last {
			x[i] = value
		} else {
			change(t, x[i], path[1:], value)
		}
	default:
		t.Fatalf("%v: no such field", path)
	}
}

func TestParseBounds(t *testing.T) {
	long := append(bytes.Repeat([]byte(" "), MaxBytes), '{', '}')
	for want, text := range map[string][]byte{
		"must be at most 1048576":   long,
		"unexpected end":            nil,
		"invalid character":         []byte("{} x"),
		"schema is missing":         []byte("{}"),
		"launch.quantities has 257": with(t, func(m *Manifest) { m.Launch.Quantities = make([]Quantity, 257) }),
		"params has 300":            with(t, func(m *Manifest) { m.Params = make([]Param, 300) }),
		"launch.arguments has 300":  with(t, func(m *Manifest) { m.Launch.Arguments = make([]Argument, 300) }),
		"exceeded max depth":        []byte(`{"schema":2,"spec":` + strings.Repeat("[", 20000) + strings.Repeat("]", 20000) + "}"),
		"launch.quantities[0].value w": with(t, func(m *Manifest) {
			m.Launch.Quantities[0].Value = strings.Repeat("min(", 60) + "1" + strings.Repeat(")", 60)
		}),
	} {
		if _, err := Parse(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}

// with is the text of a changed golden manifest.
func with(t testing.TB, f func(*Manifest)) []byte {
	t.Helper()
	m, err := Parse(goldens(t)["absorb-decode-h16"])
	if err != nil {
		t.Fatal(err)
	}
	f(m)
	text, err := m.Text()
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// small has every kind of thing that a manifest may have, in few bytes.
const small = `{"schema":2,"kernel":"k","ptx_sha256":"0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef","ptx_version":"8.0","target":"sm_90a",` +
	`"min_driver":12000,"threads":64,"cluster":1,"shared":8,"max_registers":255,"roles":[{"name":"r","first_warp":0,"warps":2}],"params":[` +
	`{"name":"m","kind":"tensor_map","type":"b8","size":128,"align":128,"offset":0},` +
	`{"name":"p","kind":"pointer","type":"f32","size":8,"align":8,"offset":128,"fill":{"address":"w","offset":"a * 2"}},` +
	`{"name":"n","kind":"scalar","type":"s32","size":4,"align":4,"offset":136,"fill":{"value":"q"}},` +
	`{"name":"f","kind":"scalar","type":"f32","size":4,"align":4,"offset":140,"fill":{"real":"x","factor":2}},` +
	`{"name":"rows","kind":"table","type":"u64","size":32,"align":8,"offset":144,"fill":{"table":"l"}}],` +
	`"tensor_maps":[{"param":"m","dtype":"bf16","dims":["c","r"],"box":[64,8],"swizzle":128,"promotion":128,` +
	`"source":{"address":"t","sizes":["64","t.size.r"],"strides":["t.stride.r"]}}],` +
	`"launch":{"operation":"o","steps":[{"kernel":"k","once":"step"}],"constants":[{"name":"c","value":4}],"arguments":[` +
	`{"name":"a","kind":"integer","doc":"","min":"0","max":"sms / c"},{"name":"t","kind":"tensor","doc":"","dtype":"bf16","shape":[{"name":"r"},{"name":"c","size":"64"}],"align":16},` +
	`{"name":"l","kind":"table","doc":"","fields":["p","s"],"rows":2},{"name":"o","kind":"tensor","doc":"","dtype":"f32","shape":[{"name":"r","size":"a"}],"align":4,"dense":true,"optional":true},` +
	`{"name":"w","kind":"buffer","doc":"","align":16,"bytes":"roundup(q, 16)"},{"name":"x","kind":"real","doc":""}],` +
	`"quantities":[{"name":"q","value":"if(a, ceildiv(a, 3), min(1, max(2, a))) + l.rows"}],"when":"a","grid":["q + o.given","1","1"],"programmatic":true},"tool":"t"}`

func TestSmall(t *testing.T) {
	m, err := Parse([]byte(small))
	if err != nil {
		t.Fatal(err)
	}
	if err := valid(schema(t), []byte(small)); err != nil || m.Launch == nil {
		t.Error(err)
	}
}

// FuzzParse: whatever a manifest says, reading it and evaluating its rules ends
// soon, in a value or an error.
func FuzzParse(f *testing.F) {
	f.Add([]byte(small))
	f.Fuzz(func(t *testing.T, text []byte) {
		m, err := Parse(text)
		if err != nil {
			if len(err.Error()) > 2000 {
				t.Errorf("an error of %d bytes", len(err.Error()))
			}
			return
		}
		again, err := m.Text()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := Parse(again); err != nil && len(again) <= MaxBytes {
			t.Fatalf("written again: %v", err)
		}
		if m.Launch == nil {
			return
		}
		r, err := m.Rules()
		if err != nil {
			t.Fatal(err)
		}
		r.Begin(132)
		for i, a := range m.Launch.Arguments {
			switch a.Kind {
			case IntegerArgument:
				_ = r.Integer(i, 3)
			case TableArgument:
				_ = r.Table(i, 1)
			}
		}
		for i, a := range m.Launch.Arguments {
			for d := range a.Shape {
				_ = r.Tensor(i, d, 3, 16)
			}
		}
		if r.Finish() == nil {
			m.eachExpr(func(text string) { _, _ = r.Eval(text) })
		}
	})
}
