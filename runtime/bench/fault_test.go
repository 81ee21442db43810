package bench

import (
	"errors"
	"flag"
	"testing"

	"github.com/mlagen/mlagen/runtime/faulty"
)

var faultStep = flag.Int("fault-step", 401, "of the faults of a measurement every so many are tried; 1 = all")

// TestFaults: whichever call fails, a measurement says so and gives everything
// back, and the next one on the same device is right.
func TestFaults(t *testing.T) {
	for name, measure := range map[string]func(*Bench) error{
		"decode": func(b *Bench) error {
			_, err := b.Decode(Shape{Heads: fakeHeads, SQ: fakeSQ, Batch: 1, KV: 1})
			return err
		},
		"schedule": func(b *Bench) error {
			_, err := b.Schedule(Shape{Heads: fakeHeads, SQ: fakeSQ, Batch: 1, KV: 1}, Setting{})
			return err
		},
		"bandwidth": func(b *Bench) error { _, err := b.Bandwidth(); return err },
		"prefill": func(b *Bench) error {
			_, err := b.Prefill(PrefillShape{Heads: fakeHeads, Batch: 1, Q: 1, KV: 1, Causal: true})
			return err
		},
	} {
		host := newHostDriver()
		d := faulty.New(host)
		use := func() (err error) {
			host.blocks = nil
			b, err := New(Config{Driver: d.Device(), Source: fakeSource{}, Stream: fakeVariant("stream", streamParams, 8), Reference: fakeReference, Replays: 1, PoolBytes: 2 * pageBytes})
			if err != nil {
				return err
			}
			return errors.Join(measure(b), b.Close())
		}
		n, err := d.Faults(faulty.Sweep{Step: *faultStep, Again: 5}, use, func(err error) error { return err })
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		t.Logf("%s: %d faults", name, n)
	}
}
