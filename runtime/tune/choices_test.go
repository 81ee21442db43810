package tune

import (
	"crypto/sha256"
	"encoding/hex"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func sumOf(text []byte) string { s := sha256.Sum256(text); return hex.EncodeToString(s[:]) }

func mustText(t testing.TB, c *Choices) string {
	t.Helper()
	text, err := c.Text()
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// sample is choices for three batches.
func sample() *Choices {
	def := Choice{BlockH: 16}
	return &Choices{
		Schema: Schema, Tool: "fake", Card: Card{"fake", 132, "CUDA 13000"}, Model: DeepSeek(16),
		Kernels: []Kernels{{1, 16, "", 0, 0, 0, strings.Repeat("ab", 32)}},
		Buckets: []Bucket{
			{Load: Load{1, 4, 4096, false}, Default: def, Choice: Choice{BlockH: 8, MergeBlocks: 132}, DefaultUS: 10, ChosenUS: 9, Gain: 1.11, Rounds: 12, Tried: 9},
			{Load: Load{1, 128, 4096, false}, Default: def, Choice: Choice{BlockH: 16, Splits: 1, Promotion: 64, Evict: "normal"}, DefaultUS: 145, ChosenUS: 143, Gain: 1.014, Rounds: 12, Tried: 9},
			{Load: Load{1, 128, 4096, true}, Default: def, Choice: Choice{BlockH: 16, PieceCost: 3}, DefaultUS: 80, ChosenUS: 78, Gain: 1.025, Rounds: 12, Tried: 9},
		},
		Budget: 5, Spent: 4.9,
	}
}

func TestChoicesRoundTrip(t *testing.T) {
	c := sample()
	name := filepath.Join(t.TempDir(), "choices.json")
	for range 2 { // over an old one, too
		if err := c.WriteFile(name); err != nil {
			t.Fatal(err)
		}
	}
	got, err := ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(c, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if left, _ := os.ReadDir(filepath.Dir(name)); len(left) != 1 {
		t.Errorf("files beside: %v", left)
	}
}

// What tuning writes can be read.
func TestTunedChoicesAreReadable(t *testing.T) {
	w := newWorld(func(_ Load, c Choice) float64 { return 100 - float64(c.MergeBlocks)/100 + float64(c.Splits%3) })
	w.noise = 0.002
	c, err := w.run(wide, time.Second)
	if err != nil {
		t.Fatal(err)
	}
	got, err := Read(strings.NewReader(mustText(t, c)))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(c, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestReadNamesTheField(t *testing.T) {
	for want, change := range map[string]func(*Choices){
		"schema was 2":                      func(c *Choices) { c.Schema = 2 },
		"model.heads was 0":                 func(c *Choices) { c.Model.Heads = 0 },
		"model.dtype was":                   func(c *Choices) { c.Model.DType = "f128" },
		"card.sms was -1":                   func(c *Choices) { c.Card.SMs = -1 },
		"card.name had 300 bytes":           func(c *Choices) { c.Card.Name = strings.Repeat("x", 300) },
		"budget_s was -1":                   func(c *Choices) { c.Budget = -1 },
		"kernels[0] was":                    func(c *Choices) { c.Kernels[0].SHA256 = "ab" },
		"buckets[1].batch was 0":            func(c *Choices) { c.Buckets[1].Batch = 0 },
		"buckets[1].tokens was 16777217":    func(c *Choices) { c.Buckets[1].Tokens = 1<<24 + 1 },
		"buckets[0].s_q was 2000":           func(c *Choices) { c.Buckets[0].SQ = 2000 },
		"buckets[1].s_q: s_q 1, 4":          func(c *Choices) { c.Buckets[1].Load = c.Buckets[0].Load },
		"buckets[2].choice.block_h was 0":   func(c *Choices) { c.Buckets[2].Choice.BlockH = 0 },
		"buckets[2].default.block_h was -8": func(c *Choices) { c.Buckets[2].Default.BlockH = -8 },
		"choice.splits was 10000":           func(c *Choices) { c.Buckets[1].Choice.Splits = 10000 },
		"choice.promotion was 100":          func(c *Choices) { c.Buckets[1].Choice.Promotion = 100 },
		"choice.evict was \"never\"":        func(c *Choices) { c.Buckets[1].Choice.Evict = "never" },
		"choice.merge_blocks was -1":        func(c *Choices) { c.Buckets[1].Choice.MergeBlocks = -1 },
		"choice.piece_cost was 17":          func(c *Choices) { c.Buckets[1].Choice.PieceCost = 17 },
		"gain was 0.5":                      func(c *Choices) { c.Buckets[1].Gain = 0.5 },
		"rounds -1":                         func(c *Choices) { c.Buckets[1].Rounds = -1 },
		"invariant choices":                 func(c *Choices) { c.Invariant = true },
		"must be 1 and 0 to":                func(c *Choices) { c.Buckets = nil },
	} {
		c := sample()
		change(c)
		if _, err := Read(strings.NewReader(mustText(t, c))); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("want %q, got %v", want, err)
		}
	}
	good := mustText(t, sample())
	for want, text := range map[string]string{
		"unknown field":    strings.Replace(good, `"tool"`, `"tools"`, 1),
		"follows":          good + good,
		"cannot unmarshal": strings.Replace(good, `"batch": 4,`, `"batch": 4.5,`, 1),
		"unexpected EOF":   good[:len(good)/2],
		"more than":        good + strings.Repeat(" ", maxFile),
		"EOF":              "",
	} {
		if _, err := Read(strings.NewReader(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("want %q, got %v", want, err)
		}
	}
	if _, err := ReadFile(filepath.Join(t.TempDir(), "absent")); err == nil {
		t.Error("an absent file was read")
	}
}

func TestFits(t *testing.T) {
	c := sample()
	if err := c.Fits(c.Card, c.Model, c.Tool); err != nil {
		t.Error(err)
	}
	for want, err := range map[string]error{
		"this is other with 132":      c.Fits(Card{"other", 132, "CUDA 13000"}, c.Model, c.Tool),
		"this is fake with 114":       c.Fits(Card{"fake", 114, "CUDA 13000"}, c.Model, c.Tool),
		"driver \"CUDA 13000\"; this": c.Fits(Card{"fake", 132, "CUDA 13010"}, c.Model, c.Tool),
		"these are of \"newer\"":      c.Fits(c.Card, c.Model, "newer"),
		"they are for the model":      c.Fits(c.Card, DeepSeek(128), c.Tool),
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("want %q, got %v", want, err)
		}
	}
}

func TestLookup(t *testing.T) {
	c := sample()
	for _, x := range []struct {
		load Load
		want Choice
		ok   bool
	}{
		{Load{1, 4, 4096, false}, c.Buckets[0].Choice, true},
		{Load{1, 6, 3000, false}, c.Buckets[0].Choice, true},
		{Load{1, 9, 4096, false}, Choice{}, false},  // too large a batch
		{Load{1, 4, 10000, false}, Choice{}, false}, // too long
		{Load{2, 4, 4096, false}, Choice{}, false},  // other query tokens
		{Load{1, 4, 4096, true}, Choice{}, false},   // ragged
		{Load{1, 128, 4096, false}, c.Buckets[1].Choice, true},
		{Load{1, 121, 5000, false}, c.Buckets[1].Choice, true},
		{Load{1, 119, 4096, false}, Choice{}, false}, // forced pieces suit their batch alone
		{Load{1, 129, 4096, false}, Choice{}, false},
		{Load{1, 100, 4096, true}, c.Buckets[2].Choice, true},
		{Load{1, 0, 0, false}, Choice{}, false},
	} {
		if got, ok := c.Lookup(x.load); got != x.want || ok != x.ok {
			t.Errorf("%v: %v, %v; want %v, %v", x.load, got, ok, x.want, x.ok)
		}
	}
	if n := testing.AllocsPerRun(100, func() { c.Lookup(Load{1, 100, 4096, true}) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func TestLoadOf(t *testing.T) {
	for _, x := range []struct {
		lengths []int32
		want    Load
	}{
		{[]int32{100, 100}, Load{1, 2, 100, false}}, {[]int32{100, 50}, Load{1, 2, 100, false}}, {[]int32{100, 49}, Load{1, 2, 100, true}}, {nil, Load{SQ: 1}},
	} {
		if got := LoadOf(1, x.lengths); got != x.want {
			t.Errorf("%v: %v, want %v", x.lengths, got, x.want)
		}
	}
}

func TestDoubling(t *testing.T) {
	if diff := cmp.Diff([]int{3, 6, 12, 20}, Doubling(3, 20)); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]int{8}, Doubling(8, 8)); diff != "" {
		t.Error(diff)
	}
}

// Whatever is read can be looked up, written and read again.
func FuzzRead(f *testing.F) {
	f.Add(mustText(f, sample()))
	f.Add(strings.Replace(mustText(f, sample()), `"gain": 1.11`, `"gain": -1e999`, 1))
	f.Add(`{"schema":1,"buckets":[{"s_q":1,"batch":99999999999999999999}]}`)
	f.Add("null")
	f.Fuzz(func(t *testing.T, text string) {
		c, err := Read(strings.NewReader(text))
		if err != nil {
			return
		}
		again, err := Read(strings.NewReader(mustText(t, c)))
		if err != nil {
			t.Fatalf("what was read cannot be read again: %v", err)
		}
		if diff := cmp.Diff(c, again); diff != "" {
			t.Errorf("(-first +again):\n%s", diff)
		}
		for _, b := range c.Buckets {
			if got, ok := c.Lookup(b.Load); !ok || got.check() != nil {
				t.Errorf("%v: %v, %v", b.Load, got, ok)
			}
		}
	})
}
