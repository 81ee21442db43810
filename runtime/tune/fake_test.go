package tune

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/mlagen/mlagen/ptx/manifest"
	"github.com/mlagen/mlagen/runtime"
	"github.com/mlagen/mlagen/runtime/bench"
)

// fakeSource has row blocks of 8, 16 and 64 and takes 16 for every load.
type fakeSource struct{ text string }

func (fakeSource) RowBlocks(runtime.DecodeShape) []int                 { return []int{8, 16, 64} }
func (fakeSource) BlockH(_ runtime.DecodeShape, _, _, _ int) int       { return 16 }
func (fakeSource) Splits(_ runtime.DecodeShape, batch, _, sms int) int { return max(1, sms/batch) }

func (f fakeSource) Decode(s runtime.DecodeShape) (v runtime.DecodeVariants, err error) {
	if s.BlockH == 0 {
		s.BlockH = 16
	}
	if s.BlockH != 8 && s.BlockH != 16 && s.BlockH != 64 {
		return v, fmt.Errorf("row block %d cannot be built", s.BlockH)
	}
	return decodeVariants(s, f.text), nil
}

// script is the time of a burst's call by load and choice, in microseconds.
type script func(Load, Choice) float64

// world is a device whose time passes when it is used.
type world struct {
	script
	noise   float64 // of a time, relative
	random  *rand.Rand
	time    time.Time
	loading time.Duration // of kernels side by side
	whole   time.Duration // of a whole program, those with row blocks of 64; 0 = there are none
	burst   time.Duration
	fail    func(bursts int) error // of the device
	wrong   func(Choice) bool      // gives another result
	unbuilt func(Choice) bool      // cannot be loaded
	after   func(bursts int)

	loads   []runtime.DecodeShape
	calls   []loadCall
	entered []entered
	bursts  int
	open    int
}

// loadCall is a call of Load.
type loadCall struct {
	apart, whole []runtime.DecodeShape
	bursts       int // before it
}

// entered is a choice that entered a contest.
type entered struct {
	Load
	Choice
}

func newWorld(s script) *world {
	return &world{script: s, random: rand.New(rand.NewPCG(1, 2)), time: time.Unix(1e9, 0), loading: 100 * time.Millisecond, burst: time.Millisecond}
}

func (w *world) now() time.Time { return w.time }

func (w *world) Whole(shapes []runtime.DecodeShape) []bool {
	whole := make([]bool, len(shapes))
	for i, s := range shapes {
		whole[i] = w.whole > 0 && s.BlockH == 64 && !slices.ContainsFunc(w.loads, func(l runtime.DecodeShape) bool {
			l.PieceCost = s.PieceCost // which is the schedule's
			return l == s
		})
	}
	return whole
}

func (w *world) Load(shapes []runtime.DecodeShape) error {
	call := loadCall{bursts: w.bursts}
	for i, is := range w.Whole(shapes) {
		if is {
			call.whole = append(call.whole, shapes[i])
		} else {
			call.apart = append(call.apart, shapes[i])
		}
	}
	w.time = w.time.Add(max(w.loading, time.Duration(len(call.whole))*w.whole))
	w.calls = append(w.calls, call)
	w.loads = append(w.loads, shapes...)
	return nil
}

func (w *world) Contest(l Load) (Contest, error) {
	w.open++
	w.time = w.time.Add(2 * time.Millisecond)
	return &fakeContest{w: w, load: l}, nil
}

type fakeContest struct {
	w       *world
	load    Load
	entries []Choice
	closed  bool
}

func (c *fakeContest) Enter(choice Choice) (int, error) {
	c.w.time = c.w.time.Add(2 * time.Millisecond)
	switch {
	case c.w.unbuilt != nil && c.w.unbuilt(choice):
		return 0, fmt.Errorf("here: %w", &bench.LoadError{Err: errors.New("no such kernel")})
	case c.w.wrong != nil && c.w.wrong(choice):
		return 0, fmt.Errorf("here: %w", &bench.WrongError{Text: "another result"})
	}
	c.entries = append(c.entries, choice)
	c.w.entered = append(c.w.entered, entered{c.load, choice})
	return len(c.entries) - 1, nil
}

func (c *fakeContest) Burst(entry int) (float64, error) {
	w := c.w
	w.bursts++
	w.time = w.time.Add(w.burst)
	if w.after != nil {
		w.after(w.bursts)
	}
	if w.fail != nil {
		if err := w.fail(w.bursts); err != nil {
			return 0, err
		}
	}
	return w.script(c.load, c.entries[entry]) * (1 + w.noise*w.random.NormFloat64()), nil
}

func (c *fakeContest) Close() error {
	if c.closed {
		return errors.New("closed twice")
	}
	c.closed = true
	c.w.open--
	return nil
}

// config tunes 16 heads on w.
func (w *world) config(e Envelope, budget time.Duration) Config {
	return Config{Source: fakeSource{}, Timer: w, Card: Card{"fake", 132, "CUDA 13000"}, Model: DeepSeek(16), Tool: "fake", Envelope: e, Budget: budget, now: w.now}
}

func (w *world) run(e Envelope, budget time.Duration) (*Choices, error) {
	return Run(context.Background(), w.config(e, budget))
}

// decodeVariants are kernels that a runtime loads and launches.
func decodeVariants(s runtime.DecodeShape, text string) runtime.DecodeVariants {
	make := func(kernel, own string, params ...string) runtime.Variant {
		m := &manifest.Manifest{
			Schema: manifest.Schema, Kernel: kernel, Threads: 128, Cluster: 1, Tool: "fake", PTXVersion: "8.0", Target: "sm_90a", MinDriver: 12000,
			Spec: runtime.DecodeModel{Heads: s.Heads, SQ: s.SQ, Latent: s.Latent, Rope: s.Rope, Page: s.Page, BlockH: s.BlockH, BlockN: 64, DType: s.DType},
		}
		for i, name := range params {
			p := manifest.Param{Name: name, Kind: manifest.PointerParam, Type: "b16", Size: 8, Align: 8, Offset: 128 * i}
			switch name {
			case "kv":
				p.Kind, p.Size, p.Align = manifest.TensorMapParam, 128, 64
				m.TensorMaps = []manifest.TensorMap{{Param: name, DType: "bf16", Dims: []string{"c", "r", "p"}, Box: []int{64, 64, 1}}}
			case "batch", "splits":
				p.Kind, p.Type = manifest.ScalarParam, "u64"
			}
			m.Params = append(m.Params, p)
		}
		v := runtime.Variant{Name: kernel, PTX: []byte(own), Manifest: m}
		m.PTXSHA256 = sumOf(v.PTX)
		return v
	}
	return runtime.DecodeVariants{
		Decode:   make("absorb_decode", fmt.Sprintf("decode %d %d %s %s", s.SQ, s.BlockH, s.Evict, text), "kv", "q_latent", "out"),
		Schedule: make("decode_schedule", fmt.Sprintf("schedule %d", s.PieceCost), "kv_len", "batch", "splits"),
		Combine:  make("decode_combine", "combine", "out"),
	}
}
