package tune

import (
	"context"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/mlagen/mlagen/runtime/cache"
)

func TestAtLoadTunesOnce(t *testing.T) {
	desk := newDesk()
	dir := t.TempDir()
	store := cache.New(dir, 0)
	cfg := Config{
		Source: fakeSource{}, Model: DeepSeek(16), Envelope: fixed([]int{4}, []int{1024}), Budget: 200 * time.Millisecond,
		now: func() time.Time { return time.Unix(0, int64(desk.now*20e3)) },
	}
	load := func(want bool, change func(*Config)) *Choices {
		t.Helper()
		own := cfg
		if change != nil {
			change(&own)
		}
		c, kept, err := AtLoad(context.Background(), desk, own, store)
		if err != nil || kept != want {
			t.Fatalf("kept %v, %v", kept, err)
		}
		return c
	}
	first := load(false, nil)
	if diff := cmp.Diff(first, load(true, nil)); diff != "" {
		t.Errorf("what was kept is another (-tuned +kept):\n%s", diff)
	}
	load(true, func(c *Config) { c.Budget = 100 * time.Millisecond })
	load(false, func(c *Config) { c.Budget = 300 * time.Millisecond }) // replaces it
	load(true, func(c *Config) { c.Budget = 300 * time.Millisecond })
	load(false, func(c *Config) { c.Source = fakeSource{"another generator"} })
	load(false, func(c *Config) { c.Model = DeepSeek(8) })
	load(false, func(c *Config) { c.Envelope = fixed([]int{5}, []int{1024}) })
	load(false, func(c *Config) { c.Invariant = true })
	desk.attributes.DriverVersion++
	load(false, nil)
	desk.attributes.DriverVersion--

	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	interrupted := cfg
	interrupted.Envelope = fixed([]int{6}, []int{1024})
	for range 2 {
		if c, kept, err := AtLoad(ctx, desk, interrupted, store); err != nil || kept || !c.Interrupted {
			t.Errorf("interrupted: kept %v, %v", kept, err)
		}
	}

	// Damage is repaired.
	damaged := 0
	err := filepath.WalkDir(dir, func(name string, d fs.DirEntry, err error) error {
		if err == nil && strings.HasPrefix(d.Name(), "choices-") {
			damaged++
			err = os.WriteFile(name, []byte("{}"), 0o600)
		}
		return err
	})
	if err != nil || damaged == 0 {
		t.Fatalf("%d entries, %v", damaged, err)
	}
	load(false, nil)
	load(true, nil)
	store = nil
	load(false, nil)
}
