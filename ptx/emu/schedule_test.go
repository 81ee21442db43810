package emu

import (
	"encoding/binary"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestGridBarrier has CTAs that wait for each other through global memory:
// they must all become resident.
func TestGridBarrier(t *testing.T) {
	p := compile(t, kernelText(`
	mov.u32 %r1, %ctaid.x;
	setp.eq.u32 %p0, %t, 0;
	@%p0 atom.release.gpu.global.add.u32 %r2, [%out], 1;
$wait:
	ld.acquire.gpu.global.u32 %r3, [%out];
	setp.lt.u32 %p1, %r3, 40;
	@%p1 bra $wait;
	mul.wide.u32 %d1, %r1, 4;
	add.u64 %d1, %d1, %out;
	@%p0 st.global.u32 [%d1+4], %r3;`))
	for seed := range uint64(4) {
		m := New(Config{Seed: seed, Workers: 2})
		out, _ := m.Alloc("out", 4096)
		if err := m.Fill(out, 0, 4096); err != nil {
			t.Fatal(err)
		}
		r, err := m.Launch(p, "k", LaunchConfig{Grid: Dim{40, 1, 1}, Block: Dim{64, 1, 1}, Params: binary.LittleEndian.AppendUint64(nil, out)})
		if err != nil {
			t.Fatal(err)
		}
		if len(r.Hazards) > 0 {
			t.Error(r.Hazards)
		}
		var b [164]byte
		if err := m.Read(b[:], out); err != nil {
			t.Fatal(err)
		}
		for i := range 41 {
			if v := binary.LittleEndian.Uint32(b[4*i:]); v != 40 {
				t.Fatalf("seed %d word %d: %d", seed, i, v)
			}
		}
	}
}

// TestPollsForCopies waits for a copy by test_wait alone, which never blocks:
// the copy must land although somebody can always run.
func TestPollsForCopies(t *testing.T) {
	withSeeds(t, polls, nil, func(w []uint32) {
		want(t, w[:32], func(i int) uint32 { return uint32(4096 + i) })
	})
}

var polls = body("polls", oneBarrier+copyIn+`
$poll:
	mbarrier.test_wait.parity.shared.b64 %p1, [%r1], 0;
	@!%p1 bra $poll;
	ld.shared.b32 %r0, [%r2+256];`)

// TestDeterminism runs a racy kernel twice with each seed, on one and on two
// host threads: reports and memory must be equal.
func TestDeterminism(t *testing.T) {
	p := compile(t, kernelText(`
	mov.u32 %r1, smem;
	mov.u32 %r2, %ctaid.x;
	xor.b32 %r3, %t, 63;
	mad.lo.u32 %r4, %t, 4, %r1;
	mad.lo.u32 %r5, %r3, 4, %r1;
	st.shared.b32 [%r4], %t;
	ld.shared.b32 %r6, [%r5];
	mad.lo.u32 %r7, %r2, 64, %t;
	mad.wide.u32 %mine, %r7, 4, %out;
	st.global.b32 [%mine], %r6;`))
	run := func(seed uint64, workers int) (*Report, string) {
		m := New(Config{Seed: seed, Workers: workers})
		out, _ := m.Alloc("out", 4*64*20)
		r, err := m.Launch(p, "k", LaunchConfig{Grid: Dim{20, 1, 1}, Block: Dim{64, 1, 1}, Shared: 1024, Params: binary.LittleEndian.AppendUint64(nil, out)})
		if err != nil {
			t.Fatal(err)
		}
		b := make([]byte, 4*64*20)
		if err := m.Read(b, out); err != nil {
			t.Fatal(err)
		}
		return r, string(b)
	}
	different := false
	first, firstBytes := run(0, 1)
	for seed := range uint64(6) {
		r1, b1 := run(seed, 1)
		r2, b2 := run(seed, 2)
		if d := cmp.Diff(r1, r2); d != "" || b1 != b2 {
			t.Errorf("seed %d: one and two workers differ: %s", seed, d)
		}
		different = different || b1 != firstBytes
	}
	if len(first.Errors()) == 0 || !different {
		t.Error("the race shows neither as a hazard nor between seeds")
	}
}

// TestFirstFault checks that the lowest CTA that fails is the one reported.
func TestFirstFault(t *testing.T) {
	p := compile(t, kernelText(`
	mov.u32 %r1, %ctaid.x;
	setp.ge.u32 %p0, %r1, 7;
	@%p0 trap;`))
	for range 20 {
		m := New(Config{Workers: 4})
		r, err := m.Launch(p, "k", LaunchConfig{Grid: Dim{40, 1, 1}, Params: make([]byte, 8)})
		if err == nil || len(r.Hazards) != 1 || r.Hazards[0].First.CTA != 7 {
			t.Fatalf("%v %v", r.Hazards, err)
		}
	}
}

func TestLaunchChecks(t *testing.T) {
	p := compile(t, header+`.visible .entry k(.param .u64 x) .reqntid 64, 1, 1 { ret; }
.visible .entry c() .reqnctapercluster 2, 1, 1 { ret; }`)
	m := New(Config{})
	ok := LaunchConfig{Grid: Dim{4, 1, 1}, Block: Dim{64, 1, 1}, Params: make([]byte, 8)}
	for name, change := range map[string]func(c *LaunchConfig) string{
		"none":     func(*LaunchConfig) string { return "k" },
		"kernel":   func(*LaunchConfig) string { return "q" },
		"block":    func(c *LaunchConfig) string { c.Block.X = 32; return "k" },
		"big":      func(c *LaunchConfig) string { c.Block.X = 2048; return "k" },
		"shared":   func(c *LaunchConfig) string { c.Shared = 232449; return "k" },
		"params":   func(c *LaunchConfig) string { c.Params = nil; return "k" },
		"grid":     func(c *LaunchConfig) string { c.Grid.Y = 65536; return "k" },
		"cluster":  func(c *LaunchConfig) string { c.Cluster.X = 3; return "k" },
		"required": func(c *LaunchConfig) string { c.Cluster.X = 4; return "c" },
		"clusters": func(c *LaunchConfig) string { c.Grid.X = 3; return "c" },
	} {
		cfg := ok
		kernel := change(&cfg)
		_, err := m.Launch(p, kernel, cfg)
		if (err == nil) != (name == "none") {
			t.Errorf("%s: %v", name, err)
		}
	}
}
