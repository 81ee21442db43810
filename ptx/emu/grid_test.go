package emu

import (
	"encoding/binary"
	"strings"
	"testing"
)

// message has CTA 0's threads write out[1…64], and CTA 1's read them once CTA
// 0 has signalled at out[0]. The parts in capitals are the variations.
const message = `
	mov.u32 %r1, %ctaid.x;
	setp.eq.u32 %p0, %t, 0;
	setp.eq.u32 %p1, %r1, 0;
	@!%p1 bra $reader;
	st.global.b32 [%mine+256], %t;
	BARRIER
	WFENCE
	@%p0 SIGNAL
	bra $end;
$reader:
	@!%p0 bra $go;
$wait:
	POLL
	setp.eq.u32 %p2, %r3, 0;
	@%p2 bra $wait;
	RFENCE
$go:
	bar.sync 0;
	ld.global.b32 %r4, [%mine+256];
	st.global.b32 [%mine+1024], %r4;
$end:`

func TestGlobalOrder(t *testing.T) {
	const (
		barrier = "bar.sync 0;"
		release = "red.release.gpu.global.add.u32 [%out], 1;"
		acquire = "ld.acquire.gpu.global.u32 %r3, [%out];"
		relaxed = "red.relaxed.gpu.global.add.u32 [%out], 1;"
		poll    = "ld.relaxed.gpu.global.u32 %r3, [%out];"
		fence   = "fence.acq_rel.gpu;"
	)
	for name, c := range map[string]struct {
		barrier, wfence, signal, poll, rfence string
		race                                  bool
	}{
		"release and acquire":      {barrier, "", release, acquire, "", false},
		"store release":            {barrier, "", "st.release.gpu.global.u32 [%out], 1;", acquire, "", false},
		"atomic acquire":           {barrier, "", "atom.acq_rel.gpu.global.exch.b32 %r9, [%out], 1;", "atom.acquire.gpu.global.or.b32 %r3, [%out], 0;", "", false},
		"fences":                   {barrier, fence, relaxed, poll, fence, false},
		"membars":                  {barrier, "membar.gl;", "red.global.add.u32 [%out], 1;", "ld.volatile.global.u32 %r3, [%out];", "membar.gl;", false},
		"fence and acquire":        {barrier, "fence.sc.sys;", relaxed, acquire, "", false},
		"no barrier":               {"", "", release, acquire, "", true},
		"relaxed signal":           {barrier, "", relaxed, acquire, "", true},
		"relaxed poll":             {barrier, "", release, poll, "", true},
		"fence before the barrier": {"", fence + "\n\tbar.sync 0;", relaxed, acquire, "", true},
		"narrow fence":             {barrier, "fence.acq_rel.cta;", relaxed, acquire, "", true},
		"narrow release":           {barrier, "", strings.Replace(release, "gpu", "cta", 1), acquire, "", true},
		"weak poll":                {barrier, "", release, "ld.global.u32 %r3, [%out];\n\tnanosleep.u32 1;", "", true},
	} {
		text := strings.NewReplacer("BARRIER", c.barrier, "WFENCE", c.wfence, "SIGNAL", c.signal, "POLL", c.poll, "RFENCE", c.rfence).Replace(message)
		for seed := range uint64(4) {
			m := New(Config{Seed: seed})
			out, err := m.Alloc("out", 4096)
			if err != nil {
				t.Fatal(err)
			}
			if err := m.Fill(out, 0, 4); err != nil {
				t.Fatal(err)
			}
			r, err := m.Launch(compile(t, kernelText(text)), "k", LaunchConfig{Grid: Dim{2, 1, 1}, Block: Dim{64, 1, 1}, Params: binary.LittleEndian.AppendUint64(nil, out)})
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			found := false
			for _, h := range r.Errors() {
				found = found || h.Rule == RuleGlobalRace && h.First.CTA == 0 && h.Second.CTA == 1
			}
			if found != c.race || !found && len(r.Hazards) > 0 {
				t.Errorf("%s, seed %d: %v", name, seed, r.Hazards)
			}
		}
	}
}

// TestGlobalRaceInCTA has warps of one CTA exchange values through global
// memory, with and without a barrier.
func TestGlobalRaceInCTA(t *testing.T) {
	for _, barrier := range []string{"bar.sync 0;", "bar.warp.sync 0xffffffff;"} {
		r := newRig(t, `
	st.global.b32 [%mine], %t;
	`+barrier+`
	xor.b32 %r1, %t, 32;
	mul.wide.u32 %d1, %r1, 4;
	add.u64 %d1, %d1, %out;
	ld.global.b32 %r0, [%d1];`).withInput()
		r.block = Dim{64, 1, 1}
		_, rep, err := r.launch(64)
		if err != nil {
			t.Fatal(err)
		}
		if bad := len(rep.Errors()) > 0; bad == strings.HasPrefix(barrier, "bar.sync") {
			t.Errorf("%s %v", barrier, rep.Hazards)
		}
	}
}
