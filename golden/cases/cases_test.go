package cases

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/mlagen/mlagen/golden/dtype"
)

func parse(t *testing.T, text string) *Case {
	t.Helper()
	c, err := Parse([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func inputs(t *testing.T, text string) *Decode {
	t.Helper()
	d, err := parse(t, text).Decode()
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func TestEveryCaseParsesAndIsNamedAsItsFile(t *testing.T) {
	files, _ := filepath.Glob("testdata/*.json")
	if len(files) < 45 {
		t.Fatalf("only %d cases", len(files))
	}
	for _, file := range files {
		c, err := Read(file)
		if err != nil {
			t.Error(err)
			continue
		}
		if c.Name+".json" != filepath.Base(file) {
			t.Errorf("%s holds the case %q", file, c.Name)
		}
		if c.Why == "" {
			t.Errorf("%s does not say why it exists", file)
		}
		build := func() error { _, err := c.Decode(); return err }
		if c.Op == "prefill" {
			build = func() error { _, err := c.Prefill(); return err }
		}
		if err := build(); err != nil {
			t.Errorf("%s: %v", file, err)
		}
	}
}

func TestDefaults(t *testing.T) {
	got := parse(t, `{"name":"x","op":"decode","kv_len":[3]}`)
	want := &Case{
		Name: "x", Op: "decode", KVLen: []int{3},
		Model: Model{16, 512, 64, 128, 128}, DType: dtype.BF16, PageSize: 64, QLen: Lengths{All: 1},
		Causal: true, LSEBase: "e", Pages: Pages{Order: "scattered", Tail: -1},
		Layout: Layout{Q: "joint", QRows: "dense", Out: "dense"},
		Fill:   Fill{Q: "normal", KV: "normal*0.25", Unused: "nan", Out: "nan", Weights: "normal*0.04"},
		Seed:   1, Repeat: 1, Tolerance: Tolerance{5e-3, 1e-3},
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	if got, want := got.SoftmaxScale(), 1/math.Sqrt(192); got != want {
		t.Errorf("scale %v, want %v", got, want)
	}
	// A nested object keeps the defaults of what it leaves out.
	if got := parse(t, `{"name":"x","op":"decode","pages":{"tail":7},"model":{"heads":2}}`); got.Pages.Order != "scattered" || got.Model.Latent != 512 {
		t.Errorf("%+v", got)
	}
}

func TestRefused(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{`{"name":"x","op":"decode","kvlen":[1]}`, "kvlen"},
		{`{"name":"x","op":"decode","pages":{"size":1}}`, "size"},
		{`{"name":"x","op":"decode"} {}`, "after"},
		{`{"op":"decode"}`, "name"},
		{`{"name":"../x","op":"decode"}`, "name"},
		{`{"name":"..","op":"decode"}`, "name"},
		{`{"name":"x","op":"decode","kv_len":[1],"page_size":0,"pages":{"pool":5}}`, "page_size is 0"},
		{`{"name":"x","op":"append","kv_len":[1,2],"q_len":[1]}`, "q_len has 1 entries and kv_len 2"},
		{`{"name":"/x","op":"decode"}`, "name"},
		{`{"name":"x/y","op":"decode"}`, "name"},
		{`{"name":"x\\y","op":"decode"}`, "name"},
		{`{"name":"x\u0000","op":"decode"}`, "name"},
		{`{"name":"x\u001b[2J","op":"decode"}`, "name"},
		{`{"name":"` + strings.Repeat("x", 200) + `","op":"decode"}`, "name"},
		{`{"name":"x","op":"decode","kv_len":[9223372036854775807]}`, "kv_len[0] is 9223372036854775807 and must be at most"},
		{`{"name":"x","op":"decode","kv_len":[67108864,67108864]}`, "the sum of kv_len"},
		{`{"name":"x","op":"decode","q_len":9223372036854775807}`, "q_len"},
		{`{"name":"x","op":"decode","repeat":9223372036854775807}`, "repeat"},
		{`{"name":"x","op":"decode","model":{"heads":9223372036854775807}}`, "model.heads"},
		{`{"name":"x","op":"decode","model":{"latent":4611686018427387904,"rope":4611686018427387904}}`, "model.latent"},
		{`{"name":"x","op":"decode","page_size":9223372036854775807}`, "page_size"},
		{`{"name":"x","op":"decode","kv_len":[1],"pages":{"pool":9223372036854775807}}`, "pages.pool"},
		{`{"name":"x","op":"decode","kv_len":[1],"pages":{"pool":2147483647},"layout":{"kv_page":70368744177664}}`, "the pool is"},
		{`{"name":"x","op":"prefill","kv_len":[1000000],"q_len":[1000000],"model":{"heads":128}}`, "elements together"},
		{`{"name":"x","op":"decode","kv_len":` + strings.Repeat("[", 100000), "depth"},
		{`{"name":"x","op":"dequeue"}`, "op"},
		{`{"name":"x","op":"decode","dtype":"fp8"}`, "dtype"},
		{`{"name":"x","op":"decode","lse_base":"10"}`, "lse_base"},
		{`{"name":"x","op":"decode","q_len":[1,2],"kv_len":[1,2]}`, "q_len"},
		{`{"name":"x","op":"decode","q_len":0}`, "q_len"},
		{`{"name":"x","op":"decode","kv_len":[-1]}`, "kv_len[0]"},
		{`{"name":"x","op":"decode","fill":{"kv":"gauss"}}`, "fill.kv"},
		{`{"name":"x","op":"decode","fill":{"rope":"const:x"}}`, "fill.rope"},
		{`{"name":"x","op":"decode","layout":{"kv_row":570}}`, "kv_row"},
		{`{"name":"x","op":"decode","layout":{"kv_page":100}}`, "kv_page"},
		{`{"name":"x","op":"decode","kv_len":[65],"pages":{"pool":3,"base":2}}`, "pages.pool"},
		{`{"name":"x","op":"decode","kv_len":[65],"graph":{"capture_kv_len":[]}}`, "capture_kv_len"},
	} {
		_, err := Parse([]byte(c.text))
		if err == nil {
			t.Errorf("accepted %s", c.text)
		} else if !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %q does not name %q", c.text, err, c.want)
		}
	}
}

func TestLengthsRoundTrip(t *testing.T) {
	for _, text := range []string{"3", "[1,2]", "[]"} {
		var l Lengths
		if err := json.Unmarshal([]byte(text), &l); err != nil {
			t.Fatal(err)
		}
		if got, _ := json.Marshal(l); string(got) != text {
			t.Errorf("%s became %s", text, got)
		}
	}
}

// The seed alone decides the inputs: dumps of other programs and recorded
// results stay comparable.
func TestInputsAreFixed(t *testing.T) {
	d := inputs(t, `{"name":"x","op":"decode","kv_len":[70,0,5],"q_len":2,"model":{"heads":2}}`)
	h := sha256.New()
	fmt.Fprint(h, d.Q, d.Table, d.Width)
	for _, p := range d.Pool.Used {
		fmt.Fprint(h, p.ID, p.Values)
	}
	const want = "356e1a75ff24c227"
	if got := fmt.Sprintf("%x", h.Sum(nil))[:16]; got != want {
		t.Errorf("the inputs changed: %s, want %s", got, want)
	}
}

func TestPageOrderChangesPlacesOnly(t *testing.T) {
	var want []float32
	for _, order := range []string{"identity", "reversed", "scattered"} {
		d := inputs(t, `{"name":"x","op":"decode","kv_len":[130,64],"pages":{"base":4,"order":"`+order+`"}}`)
		if d.Pool.Pages != 4+4+3 || d.Width != 4 {
			t.Errorf("%s: pool %d width %d", order, d.Pool.Pages, d.Width)
		}
		var ids []int32
		for b, n := range []int{3, 1} {
			row := d.Table[b*d.Width : (b+1)*d.Width]
			ids = append(ids, row[:n]...)
			for _, tail := range row[n:] {
				if tail != -1 {
					t.Errorf("%s: tail %d", order, tail)
				}
			}
		}
		sorted := slices.Clone(ids)
		slices.Sort(sorted)
		if len(slices.Compact(sorted)) != 4 || sorted[0] < 4 || sorted[len(sorted)-1] >= 11 {
			t.Errorf("%s: pages %v", order, ids)
		}
		switch order {
		case "identity":
			if d := cmp.Diff([]int32{4, 5, 6, 7}, ids); d != "" {
				t.Error(d)
			}
		case "reversed":
			if d := cmp.Diff([]int32{7, 6, 5, 4}, ids); d != "" {
				t.Error(d)
			}
		}
		row := d.Oracle().Row
		got := slices.Concat(row(0, 0), row(0, 129), row(1, 63))
		if want == nil {
			want = got
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("%s has other records: %s", order, d)
		}
	}
}

func TestScatteredDrawsFromTheWholePool(t *testing.T) {
	c := parse(t, `{"name":"x","op":"decode","kv_len":[6400],"pages":{"pool":1000000000,"base":10}}`)
	d, err := c.Decode()
	if err != nil {
		t.Fatal(err)
	}
	if len(d.Pool.Used) != 100 {
		t.Errorf("%d pages", len(d.Pool.Used))
	}
	if top := d.Pool.Used[99].ID; top < 500_000_000 {
		t.Errorf("largest page %d", top)
	}
	for i := 1; i < 100; i++ {
		if d.Pool.Used[i].ID <= d.Pool.Used[i-1].ID {
			t.Fatal("pages repeat or are not sorted")
		}
	}
}

func TestUnusedSlotsAndGaps(t *testing.T) {
	for _, unused := range []string{"nan", "inf", "zero", "const:3"} {
		d := inputs(t, `{"name":"x","op":"decode","kv_len":[65],"page_size":64,"pages":{"order":"identity","base":1},
			"layout":{"kv_row":640,"kv_page":45056},"fill":{"unused":"`+unused+`"}}`)
		background, spans, err := d.Pool.Upload()
		if err != nil {
			t.Fatal(err)
		}
		memory := make([]byte, d.Pool.Bytes())
		for i := range memory {
			memory[i] = background
		}
		for _, s := range spans {
			copy(memory[s.Offset:], s.Data)
		}
		values := d.Pool.DType.Decode(nil, memory)
		used := 0
		for at, v := range values {
			page, in := int64(at)/45056, at%45056
			slot, column := in/640, in%640
			if (page == 1 && slot < 64 || page == 2 && slot == 0) && column < 576 {
				used++
				want := d.Pool.Find(page).Values[slot*576+column]
				if v != want {
					t.Fatalf("%s: page %d slot %d column %d is %v, want %v", unused, page, slot, column, v, want)
				}
				continue
			}
			ok := map[string]bool{"nan": v != v, "inf": math.IsInf(float64(v), 1), "zero": v == 0, "const:3": v == 3}[unused]
			if !ok {
				t.Fatalf("%s: unused page %d slot %d column %d is %v", unused, page, slot, column, v)
			}
		}
		if used != 65*576 {
			t.Errorf("%d elements in use", used)
		}
	}
}

func TestContiguousPagesAreOneSpan(t *testing.T) {
	d := inputs(t, `{"name":"x","op":"decode","kv_len":[640],"pages":{"order":"reversed"}}`)
	_, spans, err := d.Pool.Upload()
	if err != nil || len(spans) != 1 || len(spans[0].Data) != 10*64*576*2 {
		t.Errorf("%d spans, %v", len(spans), err)
	}
}

func TestHugePoolHoldsItsUsedPagesOnly(t *testing.T) {
	c, err := Read("testdata/decode-pool-beyond-2-32-elements.json")
	if err != nil {
		t.Fatal(err)
	}
	d, err := c.Decode()
	if err != nil {
		t.Fatal(err)
	}
	if d.Pool.Bytes() < 8<<30 || len(d.Pool.Used) != 4 {
		t.Errorf("%d bytes, %d pages", d.Pool.Bytes(), len(d.Pool.Used))
	}
	for _, p := range d.Pool.Used {
		if p.ID*d.Pool.PageStride < 1<<32 {
			t.Errorf("page %d starts below element 2^32", p.ID)
		}
	}
	d.Pool.unused = "inf"
	if _, _, err := d.Pool.Upload(); err == nil {
		t.Error("a huge pool with fill inf was accepted")
	}
}

func TestSplitQ(t *testing.T) {
	d := inputs(t, `{"name":"x","op":"decode","kv_len":[1,1],"q_len":2,"model":{"heads":3},"fill":{"q":"ramp"}}`)
	latent, rope := d.SplitQ()
	if len(latent) != 12*512 || len(rope) != 12*64 {
		t.Fatalf("%d and %d elements", len(latent), len(rope))
	}
	if latent[512] != d.Q[576] || rope[64] != d.Q[576+512] {
		t.Error("rows are misplaced")
	}
}

func TestRamp(t *testing.T) {
	f, err := ParseFill("ramp")
	if err != nil {
		t.Fatal(err)
	}
	x := make([]float32, 510)
	f(nil, x[:100])
	f(nil, x[100:])
	if x[0] != -1 || x[254] != 0 || x[508] != 1 || x[509] != -1 {
		t.Error(x[0], x[254], x[508], x[509])
	}
}
