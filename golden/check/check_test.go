package check

import (
	"bytes"
	"errors"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/sbinet/npyio/npy"

	"github.com/mlagen/mlagen/golden/cases"
)

func testCase(t *testing.T, fields string) *cases.Case {
	t.Helper()
	c, err := cases.Parse([]byte(`{"name":"x","op":"decode","model":{"heads":2,"latent":8,"rope":8},"page_size":4,"kv_len":[9,0,4]` + fields + `}`))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestRightResultsPass(t *testing.T) {
	for _, fields := range []string{
		``, `,"dtype":"fp16"`, `,"q_len":3`, `,"causal":false`, `,"lse_base":"2"`, `,"repeat":3`,
		`,"layout":{"q":"split"}`, `,"layout":{"kv_row":24,"kv_page":128}`, `,"layout":{"out":"padded"}`,
		`,"fill":{"unused":"inf"}`, `,"fill":{"out":"const:1"}`, `,"pages":{"base":7,"order":"reversed","tail":2147480000}`,
		`,"graph":{"capture_kv_len":[1,2,3]}`, `,"batch_invariant":true,"q_len":2`, `,"seed":5,"fill":{"q":"uniform","kv":"ramp"}`,
	} {
		d := newHostDriver()
		outcome, err := fake(d, nil).runDecode(testCase(t, fields))
		if err != nil {
			t.Errorf("%s: %v", fields, err)
		}
		if outcome.Errors.Out == 0 || outcome.Errors.Out > 5e-3 {
			t.Errorf("%s: out error %v; rounding to 16 bits must show", fields, outcome.Errors.Out)
		}
		if d.freed != len(d.blocks) {
			t.Errorf("%s: %d of %d buffers freed", fields, d.freed, len(d.blocks))
		}
	}
}

func TestFaultsAreFound(t *testing.T) {
	nan := []byte{0xc0, 0x7f}
	for _, c := range []struct {
		name, fields string
		spoil        func(f *fakeDecoder, out, lse []byte)
		want         string
	}{
		{"an element not written", ``, func(_ *fakeDecoder, out, _ []byte) { out[2], out[3] = 0xff, 0xff }, "out[1] was not written"},
		{"an lse not written", ``, func(_ *fakeDecoder, _, lse []byte) { copy(lse[4:], "\xff\xff\xff\xff") }, "head 1 (sees 9 keys): lse was not written"},
		{"a NaN", ``, func(_ *fakeDecoder, out, _ []byte) { copy(out, nan) }, "out[0] is NaN"},
		{"a wrong row", ``, func(_ *fakeDecoder, out, _ []byte) { out[1] ^= 0x80 }, "out is off by"},
		{"an empty row not zero", ``, func(_ *fakeDecoder, out, _ []byte) { out[2*16+1] = 0x3f }, "out must be zero"},
		{"an lse of an empty row", ``, func(_ *fakeDecoder, _, lse []byte) { copy(lse[8:], []byte{0, 0, 0, 0}) }, "must be -Inf"},
		{"a wrong lse", ``, func(_ *fakeDecoder, _, lse []byte) { lse[2] ^= 1 }, "lse is"},
		{"the other base", `,"lse_base":"2"`, func(f *fakeDecoder, _, _ []byte) {
			f.call.in.Case.LSEBase = "e"
		}, "lse is"},
		{"a write before out", ``, func(f *fakeDecoder, _, _ []byte) { f.d.at(f.call.out.ptr-2, 1)[0] = 0 }, "1 bytes before out were written, from byte -2"},
		{"a write past lse", ``, func(f *fakeDecoder, _, _ []byte) { f.d.at(f.call.lse.ptr+24, 4)[3] = 1 }, "past lse (24 bytes) were written, from byte 27"},
		{"a write in a gap", `,"layout":{"out":"padded"}`, func(f *fakeDecoder, out, _ []byte) { out[16+5] = 0 }, "byte 5 of the gap"},
		{"runs that differ", `,"repeat":2`, func(f *fakeDecoder, out, _ []byte) {
			if f.runs == 2 {
				out[16] ^= 1
			}
		}, "run 2: out differs from that of run 1 at byte 16, request 0 (kv_len 9), query token 0, head 1"},
		{"lse that differs", `,"repeat":2`, func(f *fakeDecoder, _, lse []byte) {
			if f.runs == 2 {
				lse[0] ^= 1
			}
		}, "run 2: lse differs"},
		{"bits that depend on batch mates", `,"batch_invariant":true`, func(f *fakeDecoder, out, _ []byte) {
			if f.call.batch() == 1 && f.call.in.KVLen[0] == 4 {
				out[0] ^= 1
			}
		}, "request 2 alone has another out, from byte 0"},
		{"a changed input", ``, func(f *fakeDecoder, _, _ []byte) { f.d.at(f.call.table.ptr, 4)[0] ^= 1 }, "changed its input block_table at byte 0"},
		{"a changed cache", ``, func(f *fakeDecoder, _, _ []byte) {
			f.d.at(f.call.kv.ptr, f.call.kv.size)[f.call.in.Pool.Used[0].ID*4*16*2] ^= 1
		}, "changed its input kv"},
	} {
		d := newHostDriver()
		call := testCase(t, c.fields)
		if _, err := fake(d, c.spoil).runDecode(call); err == nil {
			t.Errorf("%s: not found", c.name)
		} else if !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %q, want %q", c.name, err, c.want)
		}
	}
}

// The lengths at capture must not decide the result.
func TestGraphReplaysWithOtherLengths(t *testing.T) {
	d := newHostDriver()
	c := testCase(t, `,"graph":{"capture_kv_len":[1,0,0]}`)
	r := fake(d, nil)
	open := r.open
	r.open = func(call *decodeCall) (decoder, error) {
		if got := d.at(call.kvLen.ptr, 1)[0]; got != 1 {
			t.Errorf("kv_len[0] is %d at capture", got)
		}
		return open(call)
	}
	if _, err := r.runDecode(c); err != nil {
		t.Error(err)
	}
}

func TestSkips(t *testing.T) {
	small := newHostDriver()
	small.attributes.MemoryBytes, small.attributes.GraphCapture = 1<<30, false
	for _, c := range []struct {
		c    *cases.Case
		o    Options
		want string
	}{
		{&cases.Case{Name: "p", Op: "fold"}, Options{}, "FAIL p: op \"fold\" is unknown"},
		{testCase(t, `,"graph":{"capture_kv_len":[1,1,1]}`), Options{}, "skip x: host does not capture graphs"},
		{testCase(t, `,"pages":{"pool":20000000}`), Options{}, "skip x: a pool of 2.6 GB does not fit into host's 1.1 GB"},
		{testCase(t, `,"q_len":2,"causal":false`), Options{}, "skip x: decode of several query tokens is causal"},
		{testCase(t, ``), Options{MaxFLOP: 100}, "skip x: 0.0 GFLOP are too many for host"},
	} {
		c.o.Driver = small
		if got := New(c.o).Case(c.c).String(); got != c.want {
			t.Errorf("%q, want %q", got, c.want)
		}
	}
}

func TestDriverErrorsFail(t *testing.T) {
	d := newHostDriver()
	r := New(Options{Driver: d})
	r.open = func(call *decodeCall) (decoder, error) {
		return &fakeDecoder{d: d, call: call, fail: errors.New("illegal address")}, nil
	}
	if _, err := r.runDecode(testCase(t, ``)); err == nil || !strings.Contains(err.Error(), "illegal address") {
		t.Error(err)
	}
}

// TestNoMemory: whichever allocation fails, its error comes through and the
// others are freed.
func TestNoMemory(t *testing.T) {
	for n := 1; ; n++ {
		d := newHostDriver()
		d.room = n
		_, err := fake(d, nil).runDecode(testCase(t, `,"graph":{"capture_kv_len":[1,2,3]}`))
		if d.freed != len(d.blocks) {
			t.Errorf("allocation %d fails: %d of %d buffers freed", n, d.freed, len(d.blocks))
		}
		if d.room > 0 {
			if err != nil || n < 8 {
				t.Errorf("%d allocations, %v", n-1, err)
			}
			return
		}
		if err == nil || !strings.Contains(err.Error(), "bytes (1 of 2 bytes free)") {
			t.Errorf("allocation %d fails: %v", n, err)
		}
	}
}

func TestFilesGoOnAfterABadFile(t *testing.T) {
	dir := t.TempDir()
	bad, good := filepath.Join(dir, "bad.json"), filepath.Join(dir, "good.json")
	if err := os.WriteFile(bad, []byte(`{"name":"bad","op":"decode","colour":1}`), 0o666); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(good, []byte(`{"name":"good","op":"merge","kv_len":[1],"graph":{"capture_kv_len":[1]}}`), 0o666); err != nil {
		t.Fatal(err)
	}
	var w bytes.Buffer
	d := newHostDriver()
	d.attributes.GraphCapture = false
	tally := New(Options{Driver: d}).Files(&w, []string{bad, good}, nil)
	if diff := cmp.Diff(Tally{Failed: 1, Skipped: 1}, tally); diff != "" {
		t.Error(diff)
	}
	lines := strings.Split(strings.TrimSpace(w.String()), "\n")
	if len(lines) != 3 || !strings.HasPrefix(lines[0], "FAIL bad.json: ") || !strings.Contains(lines[0], "colour") ||
		lines[1] != "skip good: host does not capture graphs" || lines[2] != "0 passed, 1 failed, 1 skipped" {
		t.Errorf("%q", lines)
	}
	if got := (Tally{Passed: 2}).String(); got != "2 passed, 0 failed" {
		t.Error(got)
	}
}

func TestDump(t *testing.T) {
	d := newHostDriver()
	dir := t.TempDir()
	c := testCase(t, `,"q_len":2`)
	r := fake(d, nil)
	r.Dump = dir
	if _, err := r.runDecode(c); err != nil {
		t.Fatal(err)
	}
	read := func(name string, into any) []int {
		f, err := os.Open(filepath.Join(dir, "x", name+".npy"))
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		r, err := npy.NewReader(f)
		if err != nil {
			t.Fatal(err)
		}
		if err := r.Read(into); err != nil {
			t.Fatal(err)
		}
		return r.Header.Descr.Shape
	}
	var q, kv, out, lse []float32
	var table, kvLen []int32
	got := map[string][]int{
		"q": read("q", &q), "kv": read("kv", &kv), "out": read("out", &out), "lse": read("lse", &lse),
		"block_table": read("block_table", &table), "kv_len": read("kv_len", &kvLen),
	}
	want := map[string][]int{
		"q": {3, 2, 2, 16}, "kv": {7, 4, 16}, "out": {3, 2, 2, 8}, "lse": {3, 2, 2}, "block_table": {3, 4}, "kv_len": {3},
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	in, err := c.Decode()
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(in.Q, q); d != "" {
		t.Error(d)
	}
	if d := cmp.Diff(in.Pool.Used[0].Values[:16], kv[in.Pool.Used[0].ID*64:][:16]); d != "" {
		t.Error(d)
	}
	if !math.IsInf(float64(lse[4]), -1) {
		t.Errorf("lse of the empty request is %v", lse[4])
	}
}

func TestDumpOfAnEmptyBatchKeepsItsShape(t *testing.T) {
	file := filepath.Join(t.TempDir(), "e.npy")
	if err := writeNPY(file, []int{0, 1, 16, 512}, []float32{}); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	r, err := npy.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff([]int{0, 1, 16, 512}, r.Header.Descr.Shape); d != "" {
		t.Error(d)
	}
	if err := writeNPY(file, []int{2}, []float32{1}); err == nil {
		t.Error("a shape that does not fit was accepted")
	}
}

// seededDriver is a host device that takes seeds.
type seededDriver struct {
	*hostDriver
	seeds []uint64
}

func (d *seededDriver) SetSeed(seed uint64) { d.seeds = append(d.seeds, seed) }

func TestSchedules(t *testing.T) {
	var inspected []uint64
	run := func(seeds int, spoil func(seed uint64, out, lse []byte), inspect error) (*seededDriver, Outcome) {
		d := &seededDriver{hostDriver: newHostDriver()}
		inspected = nil
		r := New(Options{Driver: d, Seed: 5, Seeds: seeds, Inspect: func(seed uint64) error {
			inspected = append(inspected, seed)
			if len(inspected) == 2 {
				return inspect
			}
			return nil
		}})
		r.open = func(call *decodeCall) (decoder, error) {
			return &fakeDecoder{d: d.hostDriver, call: call, spoil: func(_ *fakeDecoder, out, lse []byte) {
				spoil(d.seeds[len(d.seeds)-1], out, lse)
			}}, nil
		}
		return d, r.Case(testCase(t, ``))
	}
	right := func(uint64, []byte, []byte) {}

	d, o := run(3, right, nil)
	if o.Status != OK || o.Notes != "3 schedules identical" || o.Errors.Out == 0 {
		t.Errorf("%+v", o)
	}
	if diff := cmp.Diff([]uint64{5, 6, 7}, d.seeds); diff != "" || len(inspected) != 3 {
		t.Errorf("inspected %v, seeds %s", inspected, diff)
	}
	if d.freed != len(d.blocks) {
		t.Errorf("%d of %d buffers freed", d.freed, len(d.blocks))
	}
	if d, o = run(0, right, nil); o.Status != OK || o.Notes != "" || len(d.seeds) != 1 {
		t.Errorf("%+v with seeds %v", o, d.seeds)
	}
	for _, c := range []struct {
		spoil   func(seed uint64, out, lse []byte)
		inspect error
		want    string
	}{
		{func(seed uint64, out, _ []byte) {
			if seed == 6 {
				out[16] ^= 1
			}
		}, nil, "seed 6: out differs from that with seed 5 at byte 16, request 0 (kv_len 9), query token 0, head 1"},
		{func(seed uint64, _, lse []byte) {
			if seed == 6 {
				lse[0] ^= 1
			}
		}, nil, "seed 6: lse differs from that with seed 5"},
		{right, errors.New("2 hazards"), "seed 6: 2 hazards"},
	} {
		d, o := run(4, c.spoil, c.inspect)
		if o.Status != Failed || !strings.HasPrefix(o.Reason, c.want) {
			t.Errorf("%v, want %q", o, c.want)
		}
		if len(d.seeds) != 2 || len(inspected) != 2 {
			t.Errorf("%s: %d schedules were run, %d inspected", c.want, len(d.seeds), len(inspected))
		}
	}

	// A device with a schedule of its own.
	r := fake(newHostDriver(), nil)
	r.Seeds = 2
	if o := r.Case(testCase(t, ``)); o.Status != Failed || o.Reason != "host has one schedule, its own, and 2 are wanted" {
		t.Error(o)
	}
}
