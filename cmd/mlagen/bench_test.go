package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/mlagen/mlagen/templates"
)

func TestBenchShapes(t *testing.T) {
	file := filepath.Join(t.TempDir(), "anchors.csv")
	const table = "heads,s_q,batch,kv_len,causal,varlen,a_us\n16,1,1,4096,0,0,16.2\n16,1,128,8192,0,1,164.6\n128,2,1,4096,1,0,21.4\n"
	if err := os.WriteFile(file, []byte(table), 0o666); err != nil {
		t.Fatal(err)
	}
	sustained := filepath.Join(t.TempDir(), "sustained.csv")
	const without = "what,heads,s_q,batch,kv_len,burst_us,burst_tflops,sustained_us,sustained_tflops\nflashmla,128,2,1,4096,20,500,25.5,400\nflashmla,8,2,1,64,9,1,9,1\n"
	if err := os.WriteFile(sustained, []byte(without), 0o666); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		f    benchFlags
		want []string
	}{
		{benchFlags{op: "decode", replays: 1}, []string{
			"heads 16, s_q 1, batch 1, kv 4096", "heads 16, s_q 1, batch 16, kv 4096", "heads 16, s_q 1, batch 128, kv 4096"}},
		{benchFlags{op: "decode", replays: 1, heads: numbers{1, 2}, batch: numbers{3}, kv: numbers{64, 65}, varlen: true}, []string{
			"heads 1, s_q 1, batch 3, kv 64 varlen", "heads 1, s_q 1, batch 3, kv 65 varlen", "heads 2, s_q 1, batch 3, kv 64 varlen", "heads 2, s_q 1, batch 3, kv 65 varlen"}},
		{benchFlags{op: "decode", replays: 1, anchors: file}, []string{
			"heads 16, s_q 1, batch 1, kv 4096", "heads 16, s_q 1, batch 128, kv 8192 varlen", "heads 128, s_q 2, batch 1, kv 4096"}},
		{benchFlags{op: "decode", replays: 1, anchors: file, heads: numbers{16}, kv: numbers{4096}}, []string{"heads 16, s_q 1, batch 1, kv 4096"}},
		{benchFlags{op: "decode", replays: 1, anchors: file, varlen: true}, []string{"heads 16, s_q 1, batch 128, kv 8192 varlen"}},
		{benchFlags{op: "schedule", replays: 1, kv: numbers{77}}, []string{
			"heads 16, s_q 1, batch 128, kv 77", "heads 16, s_q 1, batch 8192, kv 77", "heads 16, s_q 1, batch 20000, kv 77"}},
		{benchFlags{op: "decode", replays: 1, anchors: file + "," + sustained, sq: numbers{2}}, []string{"heads 128, s_q 2, batch 1, kv 4096", "heads 8, s_q 2, batch 1, kv 64"}},
	} {
		shapes, err := c.f.shapes()
		if err != nil {
			t.Error(err)
		}
		var got []string
		for _, s := range shapes {
			got = append(got, s.String())
		}
		if d := cmp.Diff(c.want, got); d != "" {
			t.Error(d)
		}
	}
	for _, f := range []benchFlags{
		{op: "prefill", replays: 1}, {op: "decode"}, {op: "decode", replays: 1, sustained: -1},
		{op: "decode", replays: 1, anchors: file, heads: numbers{7}}, {op: "decode", replays: 1, anchors: file + "x"},
		{op: "decode", replays: 1, variant: "some"}, {op: "decode", replays: 1, variant: "all", tune: templates.Spec{BlockH: 16}},
		{op: "decode", replays: 1, invariant: -2}, {op: "decode", replays: 1, invariant: 2, splits: 3},
		{op: "schedule", replays: 1, sustained: 1}, {op: "schedule", replays: 1, anchors: file}, {op: "stream", replays: 1, variant: "all"}, {op: "schedule", replays: 1, invariant: 4},
	} {
		if _, err := f.shapes(); err == nil {
			t.Errorf("%+v was accepted", f)
		}
	}
}

func TestNumbers(t *testing.T) {
	var n numbers
	if err := n.Set("16, 128"); err != nil || n.String() != "16,128" {
		t.Error(n, err)
	}
	for _, bad := range []string{"", "x", "0", "1,,2", "-1"} {
		if err := n.Set(bad); err == nil {
			t.Errorf("%q was accepted", bad)
		}
	}
}

// TestBenchUnusedFlags: a flag that has no say in an operation is refused, and
// every operation and flag of that table exists.
func TestBenchUnusedFlags(t *testing.T) {
	for op, names := range unusedFlags {
		for _, name := range names {
			args := []string{"bench", "-op", op, "-" + name, "1"}
			if slices.Contains([]string{"varlen", "noncausal", "cautious"}, name) {
				args = args[:4]
			}
			if code, _, stderr := mlagen(args...); code != 2 || !strings.Contains(stderr, "-"+name+" has no say in -op "+op) {
				t.Errorf("%q: code %d, %s", args, code, stderr)
			}
		}
	}
}

// TestBenchKeepsTime: a device without a clock is refused before anything is made.
func TestBenchKeepsTime(t *testing.T) {
	for _, op := range []string{"decode", "schedule", "stream", "prefill", "extend", "absorb"} {
		code, _, stderr := mlagen("bench", "-op", op, "-device", "emu")
		if code != 2 || !strings.Contains(stderr, "-device emu keeps no time") {
			t.Errorf("%s: code %d, %s", op, code, stderr)
		}
	}
}
