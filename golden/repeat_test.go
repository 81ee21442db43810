package golden_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/mlagen/mlagen/golden/cases"
	"github.com/mlagen/mlagen/golden/check"
	"github.com/mlagen/mlagen/runtime"
	"github.com/mlagen/mlagen/runtime/emu"
	"github.com/mlagen/mlagen/templates"
)

// source makes the runtime's kernels from the templates.
type source struct{}

// Decode implements runtime.Source.
func (source) Decode(shape runtime.DecodeShape) (v runtime.DecodeVariants, err error) {
	for name, to := range map[string]*runtime.Variant{"absorb-decode": &v.Decode, "decode-schedule": &v.Schedule, "decode-combine": &v.Combine} {
		out, err := templates.Build(name, templates.Spec{
			Heads: shape.Heads, SQ: shape.SQ, Latent: shape.Latent, Rope: shape.Rope, Page: shape.Page, DType: string(shape.DType),
		})
		if err != nil {
			return v, err
		}
		*to = runtime.Variant{Name: name, PTX: out.PTX, Manifest: out.Manifest}
	}
	return v, nil
}

// TestBitsDoNotDependOnTime: whichever copy lands first, whichever warp and
// whichever CTA goes first, decode gives the same bits. The lengths make
// requests that are whole, cut in two and cut in more; one run in two starts
// CTAs out of order.
func TestBitsDoNotDependOnTime(t *testing.T) {
	for _, c := range []struct {
		heads, sq, sms int
		kvLen          string
	}{
		{16, 1, 8, "[900, 40, 0, 700]"},
		{16, 1, 5, "[640, 640, 640]"},
		{8, 2, 3, "[500, 500]"},
		{128, 1, 10, "[500, 500, 100]"},
		{16, 5, 6, "[500, 300]"},
	} {
		t.Run(fmt.Sprintf("heads=%d,sq=%d,kv=%s", c.heads, c.sq, c.kvLen), func(t *testing.T) {
			spec, err := cases.Parse([]byte(fmt.Sprintf(
				`{"name": "repeat", "why": "bits", "op": "decode", "model": {"heads": %d, "latent": 512, "rope": 64, "nope": 128, "value": 128}, "q_len": %d, "kv_len": %s}`,
				c.heads, c.sq, c.kvLen)))
			if err != nil {
				t.Fatal(err)
			}
			var first [2][]byte
			for seed := range uint64(4) {
				driver, err := emu.Open(emu.Options{SMs: c.sms, Seed: seed})
				if err != nil {
					t.Fatal(err)
				}
				dump := t.TempDir()
				r := check.New(check.Options{Driver: driver, Source: source{}, Dump: dump, Hazards: true})
				if outcome := r.Case(spec); outcome.Status != check.OK {
					t.Fatalf("seed %d: %v", seed, outcome)
				}
				for i, name := range []string{"out.npy", "lse.npy"} {
					bits, err := os.ReadFile(filepath.Join(dump, "repeat", name))
					if err != nil {
						t.Fatal(err)
					}
					if first[i] == nil {
						first[i] = bits
					} else if !bytes.Equal(first[i], bits) {
						t.Errorf("seed %d: %s has other bits than with seed 0", seed, name)
					}
				}
				if err := r.Close(); err != nil {
					t.Error(err)
				}
			}
		})
	}
}
