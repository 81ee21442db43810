package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/mlagen/mlagen/runtime"
	"github.com/mlagen/mlagen/runtime/bench"
	"github.com/mlagen/mlagen/runtime/emu"
	"github.com/mlagen/mlagen/runtime/tune"
	"github.com/mlagen/mlagen/templates/variants"
)

// TestTunedChoicesAreRight: whatever may be chosen gives the default's result, on
// the emulator, without a hazard; to the bit where only the launch and the L2 are
// told otherwise.
func TestTunedChoicesAreRight(t *testing.T) {
	drv, err := emu.Open(emu.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := drv.Close(); err != nil {
			t.Error(err)
		}
	}()
	b, err := bench.New(bench.Config{Driver: drv, Source: variants.Source{}, PoolBytes: 60 * 64 * 576 * 2, Burst: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	}()
	for _, x := range []struct {
		shape    bench.Shape
		settings []bench.Setting
	}{
		{bench.Shape{Heads: 16, SQ: 1, Batch: 2, KV: 230}, []bench.Setting{
			{BlockH: 16}, {BlockH: 16, Splits: 1}, {BlockH: 16, Splits: 2}, {BlockH: 8, Splits: 3, Tuning: runtime.DecodeTuning{MergeBlocks: 1}},
			{BlockH: 16, Evict: "normal", Tuning: runtime.DecodeTuning{MergeBlocks: 5, Promotion: 64}}, {BlockH: 16, Tuning: runtime.DecodeTuning{Promotion: 256}},
		}},
		{bench.Shape{Heads: 16, SQ: 1, Batch: 10, KV: 300, Varlen: true}, []bench.Setting{{BlockH: 16}, {BlockH: 16, PieceCost: 1}, {BlockH: 16, PieceCost: 6}}},
		{bench.Shape{Heads: 128, SQ: 1, Batch: 1, KV: 100}, []bench.Setting{{BlockH: 64}, {BlockH: 64, Evict: "normal", Splits: 2}, {BlockH: 64, Cluster: 2, Evict: "normal"}}},
	} {
		c, err := b.NewContest(x.shape)
		if err != nil {
			t.Fatal(err)
		}
		for _, set := range x.settings {
			entry, err := c.Enter(set)
			if err != nil {
				t.Errorf("%+v: %v", set, err)
				continue
			}
			cut := x.settings[0]
			cut.Tuning, cut.Evict, cut.Cluster = set.Tuning, set.Evict, set.Cluster
			if set == cut && !c.Same(entry) {
				t.Errorf("%+v gives other bits than %+v", set, x.settings[0])
			}
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}
}

// TestTuneSource: what is tried can be built, and the default is among it.
func TestTuneSource(t *testing.T) {
	for _, heads := range []int{1, 16, 80, 128} {
		for _, sq := range []int{1, 5} {
			shape := runtime.DecodeShape{Heads: heads, SQ: sq, Latent: 512, Rope: 64, Page: 64, DType: runtime.BF16}
			blocks := variants.Source{}.RowBlocks(shape)
			if len(blocks) == 0 {
				t.Errorf("%d heads × %d: nothing to try", heads, sq)
			}
			for _, h := range blocks {
				shape.BlockH = h
				balanced, even := variants.Source{}.Estimate(shape, 128, 4096, 0, 132), variants.Source{}.Estimate(shape, 128, 4096, 1, 132)
				if !(balanced > 0 && even > 0 && even > balanced/2) {
					t.Errorf("%d heads × %d in blocks of %d: %.1f and %.1f µs", heads, sq, h, balanced, even)
				}
			}
			if _, err := (variants.Source{}).Decode(runtime.DecodeShape{Heads: heads, SQ: sq, Latent: 512, Rope: 64, Page: 64, DType: runtime.BF16, Evict: "never"}); err == nil {
				t.Error("an eviction that does not exist was built")
			}
		}
	}
}

// TestTune: defaults without a GPU, as a table, a file and JSON, and back.
func TestTune(t *testing.T) {
	dir := t.TempDir()
	file, csv, anchors := filepath.Join(dir, "c.json"), filepath.Join(dir, "c.csv"), filepath.Join(dir, "anchors.csv")
	if err := os.WriteFile(anchors, []byte("heads,s_q,batch,kv_len,causal,varlen,x_us\n8,1,4,1024,0,0,5\n8,2,16,4096,1,0,9\n8,1,3,500,0,1,7\n16,1,4,1024,0,0,5\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	code, table, stderr := mlagen("tune", "-device", "emu", "-budget", "0", "-heads", "8", "-anchors", anchors, "-o", file, "-csv", csv)
	if code != 0 || stderr != "" || !strings.Contains(table, "geometric mean of default ÷ chosen 1.0000 over 3 loads, 0 of them") {
		t.Fatalf("exit %d, stderr %q\n%s", code, stderr, table)
	}
	choices, err := tune.ReadFile(file)
	if err != nil || len(choices.Buckets) != 3 || choices.Model.Heads != 8 {
		t.Fatalf("%+v, %v", choices, err)
	}
	figures, err := os.ReadFile(csv)
	if err != nil || strings.Count(string(figures), "\n") != 5 || !strings.Contains(string(figures), "\n8,1,3,500,1,8,,8,") {
		t.Errorf("%v\n%s", err, figures)
	}
	code, loaded, stderr := mlagen("tune", "-device", "emu", "-load", file, "-sq", "1")
	if code != 0 || !strings.Contains(loaded, "3 kernels for 3 loads in ") {
		t.Errorf("exit %d, %q, stderr %q", code, loaded, stderr)
	}
	choices.Card.Name = "another"
	if err := choices.WriteFile(file); err != nil {
		t.Fatal(err)
	}
	if code, _, stderr = mlagen("tune", "-device", "emu", "-load", file, "-sq", "1"); code != 1 || !strings.Contains(stderr, "measured on another with") {
		t.Errorf("exit %d, stderr %q", code, stderr)
	}
	code, text, stderr := mlagen("tune", "-device", "emu", "-budget", "0", "-batch", "1:5,7", "-kv", "100", "-varlen", "-json")
	got, err := tune.Read(strings.NewReader(text))
	if code != 0 || err != nil || len(got.Buckets) != 5 || got.Buckets[3].Batch != 5 || !got.Buckets[0].Ragged {
		t.Errorf("exit %d, stderr %q, %v\n%s", code, stderr, err, text)
	}
}

func TestTuneMisuse(t *testing.T) {
	for args, want := range map[string]string{
		"-device emu":                 "-device emu keeps no time",
		"-heads 0 -budget 0":          "-heads was 0",
		"-budget -1s":                 "-budget was -1s",
		"-budget soon":                "soon",
		"-batch 8:4":                  "\"4\" is not a number of at least 8",
		"-batch x":                    "\"x\" is not a number",
		"-kv 1:99999999 -device emu":  "keeps no time",
		"-kv 99999999 -budget 0":      "tokens was 99999999",
		"-device x":                   "device \"x\" does not exist",
		"-device emu -budget 0 extra": "takes no arguments",
	} {
		code, stdout, stderr := mlagen(append([]string{"tune"}, strings.Fields(args)...)...)
		if code != 2 || stdout != "" || !strings.Contains(stderr, want) {
			t.Errorf("%s: exit %d, stdout %q, stderr %q; want %q", args, code, stdout, stderr, want)
		}
	}
	if code, _, stderr := mlagen("tune", "-device", "emu", "-load", filepath.Join(t.TempDir(), "absent")); code != 1 || !strings.Contains(stderr, "no such file") {
		t.Errorf("exit %d, stderr %q", code, stderr)
	}
}
