package tune

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/mlagen/mlagen/runtime"
	"github.com/mlagen/mlagen/runtime/bench"
)

// sampleHere is sample's choices with the kernels that fakeSource makes.
func sampleHere(t *testing.T, src fakeSource) *Choices {
	t.Helper()
	c := sample()
	c.Kernels = nil
	for _, b := range c.Buckets {
		s := c.Model.shape(b.SQ, b.Choice)
		v, err := src.Decode(s)
		if err != nil {
			t.Fatal(err)
		}
		c.Kernels = append(c.Kernels, identifyVariants(s, v))
	}
	return c
}

func load(t *testing.T, d *deskDriver, src runtime.Source, c *Choices, sqs ...int) *Decode {
	t.Helper()
	decode, err := LoadDecode(d, src, c, DeepSeek(16), sqs...)
	if err != nil {
		t.Fatal(err)
	}
	return decode
}

func TestDecodeStepsAsChosen(t *testing.T) {
	desk := newDesk()
	d := load(t, desk, fakeSource{}, sampleHere(t, fakeSource{}), 1)
	if d.Ignored() != nil {
		t.Fatal(d.Ignored())
	}
	// Three choices beside the source's own, which has no kernels of its own: three
	// texts of decode, a schedule for each row block and one that cuts elsewhere, and
	// a merge for each row block.
	if desk.loads != 3+3+2 {
		t.Errorf("%d kernels are loaded", desk.loads)
	}
	for _, x := range []struct {
		load Load
		want Choice
	}{
		{Load{1, 4, 4096, false}, Choice{BlockH: 8, MergeBlocks: 132}},
		{Load{1, 128, 4096, false}, Choice{BlockH: 16, Splits: 1, Promotion: 64, Evict: "normal"}},
		{Load{1, 128, 4096, true}, Choice{BlockH: 16, PieceCost: 3}},
		{Load{1, 1000, 4096, false}, Choice{BlockH: 16}},
	} {
		step, err := d.Step(x.load)
		if err != nil || step.Choice != x.want || step.Decode().Model().BlockH != x.want.BlockH {
			t.Errorf("%v: %+v, %v; want %+v", x.load, step, err, x.want)
		}
	}
	if _, err := d.Step(Load{2, 4, 4096, false}); err == nil || !strings.Contains(err.Error(), "s_q was 2") {
		t.Errorf("got %v", err)
	}
	if err := d.Close(); err != nil || desk.loads != 0 {
		t.Errorf("%v; %d kernels are still loaded", err, desk.loads)
	}
}

// runStep runs a step of batch requests on sizes that d gives for capacity.
func runStep(t *testing.T, desk *deskDriver, d *Decode, l Load, capacity int) error {
	t.Helper()
	step, err := d.Step(l)
	if err != nil {
		t.Fatal(err)
	}
	at := func() runtime.Ptr { // nothing here is larger
		p, _ := desk.Alloc("x", 1<<32)
		return p
	}
	b, h := int64(l.Batch), int64(16)
	schedule := runtime.Buffer{Ptr: at(), Bytes: d.ScheduleBytes(capacity)}
	workspace := runtime.Buffer{Ptr: at(), Bytes: d.WorkspaceBytes(capacity)}
	kvLen := runtime.Dense(at(), runtime.S32, b)
	s, _ := desk.NewStream()
	err = step.Schedule(s, runtime.ScheduleArgs{Batch: l.Batch, Splits: 77, KVLen: kvLen, Buffer: schedule})
	return errors.Join(err, step.Run(s, runtime.DecodeArgs{
		Batch: l.Batch, Splits: 77, Q: runtime.Dense(at(), runtime.BF16, b, int64(l.SQ), h, 576), KV: runtime.Dense(at(), runtime.BF16, 9, 64, 576),
		BlockTable: runtime.Dense(at(), runtime.S32, b, 64), KVLen: kvLen, Schedule: schedule, Workspace: workspace,
		Out: runtime.Dense(at(), runtime.BF16, b, int64(l.SQ), h, 512), LSE: runtime.Dense(at(), runtime.F32, b, int64(l.SQ), h), Scale: 1,
	}))
}

// The sizes hold whatever a step chooses, and the launches are the choice's.
func TestDecodeSizesHoldForEveryStep(t *testing.T) {
	desk := newDesk()
	c := sampleHere(t, fakeSource{})
	c.Buckets[1].Choice.Splits = 64 // more workspace than balancing takes
	d := load(t, desk, fakeSource{}, c, 1)
	for _, capacity := range []int{1, 4, 127, 128, 300} {
		for batch := 1; batch <= capacity; batch = batch*3/2 + 1 {
			for _, ragged := range []bool{false, true} {
				if err := runStep(t, desk, d, Load{1, batch, 4096, ragged}, capacity); err != nil {
					t.Fatalf("capacity %d, batch %d: %v", capacity, batch, err)
				}
			}
		}
	}
	if err := runStep(t, desk, d, Load{1, 128, 4096, false}, 300); err != nil {
		t.Error(err)
	}
	if err := runStep(t, desk, d, Load{1, 128, 4096, false}, 100); err == nil {
		t.Error("128 requests ran in memory for 100")
	}
	desk.grids = nil
	if err := runStep(t, desk, d, Load{1, 4, 4096, false}, 4); err != nil || len(desk.grids) != 3 || desk.grids[2] != 132 {
		t.Errorf("grids %v, %v; the merge's was chosen to be 132", desk.grids, err)
	}
	if n := testing.AllocsPerRun(50, func() { d.Step(Load{1, 128, 4096, true}) }); n != 0 {
		t.Errorf("%v allocations to pick a step", n)
	}
}

func TestDecodeIgnoresWhatDoesNotFit(t *testing.T) {
	for want, change := range map[string]func(*deskDriver, *Choices){
		"this is \"CUDA 13010\"":             func(d *deskDriver, _ *Choices) { d.attributes.DriverVersion = 13010 },
		"with 132 SMs; this is fake with 78": func(d *deskDriver, _ *Choices) { d.attributes.SMs = 78 },
		"of \"older\"":                       func(_ *deskDriver, c *Choices) { c.Tool = "older" },
		"for the model":                      func(_ *deskDriver, c *Choices) { c.Model.Heads = 8 },
		"are others than were timed":         func(_ *deskDriver, c *Choices) { c.Kernels[1].SHA256 = strings.Repeat("0", 64) },
		"row block 24 cannot be built":       func(_ *deskDriver, c *Choices) { c.Buckets[0].Choice.BlockH = 24 },
		"ptxas: no":                          func(d *deskDriver, c *Choices) { d.refuse = "decode 1 8  " },
	} {
		desk := newDesk()
		c := sampleHere(t, fakeSource{})
		change(desk, c)
		d := load(t, desk, fakeSource{}, c, 1)
		var stale *StaleError
		if err := d.Ignored(); !errors.As(err, &stale) || !strings.Contains(err.Error(), want) {
			t.Errorf("want %q, got %v", want, err)
		}
		if step, err := d.Step(Load{1, 4, 4096, false}); err != nil || step.Choice != (Choice{BlockH: 16}) {
			t.Errorf("%s: %+v, %v; the default was due", want, step, err)
		}
		if desk.loads != 3 {
			t.Errorf("%s: %d kernels are loaded", want, desk.loads)
		}
	}
}

func TestDecodeWithoutChoices(t *testing.T) {
	desk := newDesk()
	d := load(t, desk, fakeSource{}, nil, 1, 2)
	for _, sq := range []int{1, 2} {
		if err := runStep(t, desk, d, Load{sq, 5, 100, false}, 5); err != nil || d.Ignored() != nil {
			t.Error(err, d.Ignored())
		}
	}
	if err := (Step{}).Run(nil, runtime.DecodeArgs{}); err == nil {
		t.Error("a step that nobody made ran")
	}
	if _, err := LoadDecode(desk, fakeSource{}, nil, DeepSeek(16)); err == nil {
		t.Error("loaded for no number of query tokens")
	}
}

// From a device to choices to steps, on the device's clock.
func TestOnDevice(t *testing.T) {
	desk := newDesk()
	now := func() time.Time { return time.Unix(0, int64(desk.now*20e3)) }
	c, err := OnDevice(context.Background(), desk, Config{
		Source: fakeSource{}, Model: DeepSeek(16), Envelope: fixed([]int{1, 128}, []int{1024}), Budget: 5 * time.Second, now: now,
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range c.Buckets {
		// The fewer blocks a merge has the better, and none at all is best; one
		// request has the fewest anyway.
		if b.Batch > 1 && (b.Choice.merges() && b.Choice.MergeBlocks != 66 || b.Gain < 1.5) {
			t.Errorf("%v: %v, gain %.3f, %d tried", b.Load, b.Choice, b.Gain, b.Tried)
		}
	}
	if desk.live != 0 || desk.loads != 0 {
		t.Errorf("%d allocations and %d kernels are left", desk.live, desk.loads)
	}
	d := load(t, desk, fakeSource{}, c, 1)
	if d.Ignored() != nil {
		t.Error(d.Ignored())
	}
	if step, _ := d.Step(c.Buckets[0].Load); step.Choice != c.Buckets[0].Choice {
		t.Errorf("%v runs as %v", c.Buckets[0].Load, step.Choice)
	}
}

// What cannot be loaded keeps nothing else from being loaded.
func TestLoadLeavesOutWhatFails(t *testing.T) {
	desk := newDesk()
	b, err := bench.New(bench.Config{Driver: desk, Source: fakeSource{}, PoolBytes: 1 << 24, Rows: 64})
	if err != nil {
		t.Fatal(err)
	}
	timer := &deviceTimer{bench: b, heads: 16}
	var shapes []runtime.DecodeShape
	for _, h := range []int{8, 24, 16, 64} { // 24 cannot be built
		shapes = append(shapes, DeepSeek(16).shape(1, Choice{BlockH: h}))
	}
	if err := timer.Load(shapes); err != nil {
		t.Fatal(err)
	}
	for _, s := range shapes {
		if loaded := b.Loaded(s) != nil; loaded != (s.BlockH != 24) {
			t.Errorf("row block %d: loaded %v", s.BlockH, loaded)
		}
	}
	if err := b.Close(); err != nil || desk.loads != 0 {
		t.Errorf("%v, %d kernels left", err, desk.loads)
	}
}

func TestOnDeviceRefusesOneWithoutClock(t *testing.T) {
	desk := newDesk()
	desk.still = true
	cfg := Config{Source: fakeSource{}, Model: DeepSeek(16), Envelope: fixed([]int{1}, []int{1024}), Budget: time.Second}
	if _, err := OnDevice(context.Background(), desk, cfg); err == nil || !strings.Contains(err.Error(), "fake keeps no time") {
		t.Errorf("got %v", err)
	}
	cfg.Budget = 0
	if c, err := OnDevice(context.Background(), desk, cfg); err != nil || c.Tool != "fake" || c.Buckets[0].Choice != (Choice{BlockH: 16}) {
		t.Errorf("%+v, %v", c, err)
	}
	if desk.live != 0 {
		t.Errorf("%d allocations are left", desk.live)
	}
}
