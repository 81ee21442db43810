package golden_test

import (
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/mlagen/mlagen/golden/cases"
	"github.com/mlagen/mlagen/golden/check"
	"github.com/mlagen/mlagen/runtime"
	"github.com/mlagen/mlagen/runtime/emu"
	"github.com/mlagen/mlagen/templates"
)

var seeds = flag.Int("seeds", 4, "schedules under which every kernel runs on the emulator")

// source makes the runtime's kernels from the templates.
type source struct {
	tune templates.Spec // what is not the template's default
}

// Decode implements runtime.Source.
func (s source) Decode(shape runtime.DecodeShape) (v runtime.DecodeVariants, err error) {
	spec := s.tune
	spec.Heads, spec.SQ, spec.Latent, spec.Rope, spec.Page = shape.Heads, shape.SQ, shape.Latent, shape.Rope, shape.Page
	spec.DType, spec.LineInfo = string(shape.DType), true
	if spec.BlockH == 0 {
		spec.BlockH = shape.BlockH
	}
	if shape.Teams > 0 {
		spec.Teams = shape.Teams
	}
	for name, to := range map[string]*runtime.Variant{"absorb-decode": &v.Decode, "decode-schedule": &v.Schedule, "decode-combine": &v.Combine} {
		var err error
		if *to, err = buildVariant(name, spec); err != nil {
			return v, err
		}
	}
	return v, nil
}

// findings returns what the device has found since the last call, doubts
// included: a kernel that is right must not even raise doubts.
func findings(d *emu.Driver) error {
	var errs []error
	for _, r := range d.Reports() {
		for _, h := range r.Hazards {
			errs = append(errs, fmt.Errorf("%s: %v", r.Kernel, h))
		}
	}
	return errors.Join(errs...)
}

// scheduleCount is how many schedules a test tries.
func scheduleCount() int {
	if testing.Short() {
		return min(*seeds, 2)
	}
	return *seeds
}

// TestDecodeUnderManySchedules: whichever copy lands first, whichever warp and
// whichever CTA goes first, decode is right, gives the same bits, and no
// observer finds or doubts anything. The lengths make requests that are whole,
// cut in two (merged by the later piece), and cut in more (merged by the
// combine kernel); one seed in two starts CTAs out of order. Where splits are
// forced, each request has the same bits alone as among the others.
func TestDecodeUnderManySchedules(t *testing.T) {
	for _, c := range []struct {
		heads, sq, blockH, sms, splits int
		latent, rope, stages, cluster  int
		teams                          int
		dtype, kvLen                   string
	}{
		{heads: 16, sms: 8, kvLen: "[900, 40, 0, 700]"},
		{heads: 16, sms: 5, kvLen: "[640, 640, 640]"},
		{heads: 16, sms: 4, kvLen: "[300, 65]", splits: 3},
		{heads: 16, sms: 12, kvLen: "[1500]"},
		{heads: 16, sms: 2, kvLen: "[64, 63, 1, 129, 0, 128]"},
		{heads: 16, blockH: 8, sms: 6, kvLen: "[400, 200]"},
		{heads: 8, sms: 8, kvLen: "[450, 100]", dtype: "fp16"},
		{heads: 5, sms: 4, kvLen: "[450, 100]"},
		{heads: 24, sms: 8, kvLen: "[450, 100]"},
		{heads: 32, sms: 8, kvLen: "[450, 100]"},
		{heads: 40, blockH: 32, sms: 8, kvLen: "[450, 100]"},
		{heads: 40, sms: 5, kvLen: "[640, 40, 0, 65]", dtype: "fp16"},
		{heads: 32, sms: 2, kvLen: "[64, 63, 1, 129, 0, 128, 257]"},
		{heads: 40, sms: 4, kvLen: "[300, 65]", splits: 3},
		{heads: 40, sms: 4, kvLen: "[190, 700]", splits: 11},
		{heads: 48, sms: 5, kvLen: "[640, 40, 0, 65]", dtype: "fp16"},
		{heads: 16, sq: 5, blockH: 40, sms: 6, kvLen: "[500, 300]"},
		{heads: 16, sq: 2, sms: 5, kvLen: "[450, 100]", dtype: "fp16"},
		{heads: 8, sq: 2, sms: 3, kvLen: "[500, 500]"},
		{heads: 16, sq: 3, blockH: 24, sms: 6, kvLen: "[300, 2]"},
		{heads: 64, sms: 8, kvLen: "[450, 100, 64]"},
		{heads: 64, sms: 3, kvLen: "[300]", splits: 4},
		{heads: 128, sms: 10, kvLen: "[500, 500, 100]"},
		{heads: 128, sms: 26, kvLen: "[1200]", dtype: "fp16"},
		{heads: 128, cluster: 2, sms: 6, kvLen: "[450, 0, 65]"},
		{heads: 16, sq: 5, sms: 6, kvLen: "[500, 300]"},
		{heads: 16, latent: 256, rope: 64, stages: 4, sms: 3, kvLen: "[900, 40]"},
		{heads: 40, sms: 6, kvLen: "[500, 300]"},
		// Two teams: items of odd and even numbers of tiles and of one, several in a
		// part, whole, cut in two and in more.
		{heads: 16, teams: 2, sms: 8, kvLen: "[900, 40, 0, 700]"},
		{heads: 16, teams: 2, sms: 2, kvLen: "[64, 63, 1, 129, 0, 128, 257]"},
		{heads: 16, teams: 2, sms: 1, kvLen: "[1500, 0, 1100]"},
		{heads: 8, teams: 2, sms: 4, kvLen: "[450, 300]", splits: 3, dtype: "fp16"},
		{heads: 24, teams: 2, sms: 5, kvLen: "[640, 40, 0, 65]"},
		{heads: 64, blockH: 32, teams: 2, sms: 6, kvLen: "[900, 65]"},
		{heads: 40, teams: 2, sms: 4, kvLen: "[190, 700]", splits: 11},
		{heads: 16, sq: 5, blockH: 40, teams: 2, sms: 6, kvLen: "[500, 300, 3]"},
		{heads: 16, latent: 256, rope: 64, teams: 2, stages: 4, sms: 3, kvLen: "[900, 40]"},
		{heads: 8, latent: 256, rope: 128, teams: 2, sms: 3, kvLen: "[500, 300]"},
		// A request of few pieces beside one of so many that combine would merge
		// a CTA at a time.
		{heads: 16, sms: 4, kvLen: "[190, 800, 64, 0]", splits: 1},
		{heads: 16, sms: 4, kvLen: "[190, 800, 64, 0]", splits: 3},
		{heads: 16, sms: 4, kvLen: "[190, 800, 64, 0]", splits: 11},
		{heads: 64, sms: 4, kvLen: "[190, 700]", splits: 11},
		// Other widths: tiles in one part, in two, and in three of which the last is
		// the rope key alone.
		{heads: 16, latent: 128, rope: 64, sms: 5, kvLen: "[500, 300]"},
		{heads: 16, latent: 256, rope: 64, sms: 5, kvLen: "[500, 300]"},
		{heads: 16, latent: 128, rope: 128, sms: 5, kvLen: "[500, 300]"},
		{heads: 16, latent: 512, rope: 128, sms: 5, kvLen: "[500, 300]"},
		{heads: 40, latent: 128, rope: 64, sms: 5, kvLen: "[500, 300]"},
		{heads: 24, latent: 256, rope: 128, stages: 3, sms: 5, kvLen: "[500, 300]"},
		{heads: 32, latent: 128, rope: 128, stages: 4, sms: 2, kvLen: "[900, 40]"},
		{heads: 64, latent: 128, rope: 64, sms: 5, kvLen: "[500, 300]"},
		{heads: 64, latent: 256, rope: 128, sms: 5, kvLen: "[500, 300]"},
	} {
		c.sq = max(c.sq, 1)
		if c.latent == 0 {
			c.latent, c.rope = 512, 64
		}
		if c.dtype == "" {
			c.dtype = "bf16"
		}
		t.Run(fmt.Sprintf("heads=%d,sq=%d,block-h=%d,cluster=%d,teams=%d,latent=%d+%d,%s,sms=%d,splits=%d,kv=%s", c.heads, c.sq, c.blockH, c.cluster, c.teams, c.latent, c.rope, c.dtype, c.sms, c.splits, c.kvLen), func(t *testing.T) {
			spec, err := cases.Parse([]byte(fmt.Sprintf(
				`{"name": "schedules", "why": "bits", "op": "decode", "model": {"heads": %d, "latent": %d, "rope": %d, "nope": 128, "value": 128},
				"dtype": %q, "q_len": %d, "splits": %d, "batch_invariant": %v, "kv_len": %s}`, c.heads, c.latent, c.rope, c.dtype, c.sq, c.splits, c.splits > 0, c.kvLen)))
			if err != nil {
				t.Fatal(err)
			}
			driver, err := emu.Open(emu.Options{Programs: programs, SMs: c.sms})
			if err != nil {
				t.Fatal(err)
			}
			r := check.New(check.Options{
				Driver: driver, Source: source{templates.Spec{BlockH: c.blockH, Stages: c.stages, Cluster: c.cluster, Teams: c.teams}}, Hazards: true, Seeds: scheduleCount(),
				Inspect: func(uint64) error { return findings(driver) },
			})
			if outcome := r.Case(spec); outcome.Status != check.OK {
				t.Error(outcome)
			}
			if err := r.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestStreamUnderManySchedules: the bandwidth kernel reads each page once,
// without a finding.
func TestStreamUnderManySchedules(t *testing.T) {
	const pageBytes, pool, visits, sms = 64 * 576 * 2, 12, 50, 4
	driver, err := emu.Open(emu.Options{Programs: programs, SMs: sms})
	if err != nil {
		t.Fatal(err)
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	out, err := templates.Build("stream", templates.Spec{LineInfo: true})
	must(err)
	k, err := runtime.Load(driver, runtime.Variant{Name: "stream", PTX: out.PTX, Manifest: out.Manifest})
	must(err)
	kv, err := driver.Alloc("kv", pool*pageBytes)
	must(err)
	must(driver.Fill(kv, 1, pool*pageBytes))
	pages, err := driver.Alloc("pages", 4*visits)
	must(err)
	order := make([]byte, 4*visits)
	random := rand.New(rand.NewPCG(1, 2))
	for i := range visits {
		order[4*i] = byte(random.IntN(pool))
	}
	must(driver.Upload(pages, order))
	sink, err := driver.Alloc("sink", 4*sms)
	must(err)
	m, err := k.EncodeTensorMap("kv", kv, []uint64{576, 64, pool}, []uint64{576 * 2, pageBytes})
	must(err)
	s, err := driver.NewStream()
	must(err)
	for seed := range scheduleCount() {
		driver.SetSeed(uint64(seed))
		before := driver.Total().TMABytes
		p := k.NewParams().TensorMap("kv", &m).Pointer("pages", pages).Int("count", visits).Pointer("sink", sink)
		must(k.Launch(s, runtime.Dim3{X: sms}, p, false))
		if err := findings(driver); err != nil {
			t.Errorf("seed %d: %v", seed, err)
		}
		if read := driver.Total().TMABytes - before; read != visits*pageBytes {
			t.Errorf("seed %d: %d bytes read, want %d", seed, read, visits*pageBytes)
		}
	}
}
