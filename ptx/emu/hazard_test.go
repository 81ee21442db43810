package emu

import (
	"encoding/binary"
	"strings"
	"testing"
)

// hazardTest is a kernel with one fault.
type hazardTest struct {
	name  string
	rule  Rule
	text  string // part of the finding
	body  string
	block int // default 32
}

const (
	oneBarrier = `
	mov.u32 %r1, smem;
	setp.eq.u32 %p0, %t, 0;
	mad.lo.u32 %r2, %t, 4, %r1;
	@%p0 mbarrier.init.shared.b64 [%r1], 1;
	fence.mbarrier_init.release.cluster;
	bar.sync 0;
`
	copyIn = `
	@%p0 mbarrier.arrive.expect_tx.shared.b64 _, [%r1], 256;
	@%p0 cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r1+256], [%out+16384], 256, [%r1];
`
	awaitCopy = `
$w0:
	mbarrier.try_wait.parity.shared.b64 %p1, [%r1], 0;
	@!%p1 bra $w0;
`
	// A and B in shared memory, written and fenced; descriptors in %d3 and %d4.
	operands = `
	mov.u32 %r1, smem;
	setp.ne.u32 %p1, %t, 1000;
	setp.eq.u32 %p2, %t, 1000;
	mad.lo.u32 %r2, %t, 16, %r1;
	st.shared.v4.b32 [%r2], {0, 0, 0, 0};
	st.shared.v4.b32 [%r2+2048], {0, 0, 0, 0};
	fence.proxy.async;
	bar.sync 0;
	shr.u32 %r3, %r1, 4;
	or.b32 %r3, %r3, 0x00080000;
	mov.b64 %d3, {%r3, 0x10};
	mov.b64 %d4, {%r3, 0x10};
`
	multiply = `
	wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {%f0, %f1, %f2, %f3}, %d3, %d4, %p2, 1, 1, 0, 0;
`
	finish = `
	wgmma.commit_group.sync.aligned;
	wgmma.wait_group.sync.aligned 0;
`
)

var hazardTests = []hazardTest{
	{name: "trap", rule: RuleTrap, body: `	trap;`},
	{name: "barrier under divergence", rule: RuleAligned, text: "lanes 0xffff0000 of 0xffffffff", body: `
	setp.lt.u32 %p0, %t, 16;
	@%p0 bra $x;
	bar.sync 0;
$x:`},
	{name: "wrong member mask", rule: RuleAligned, text: "lanes 0xffff0000 of mask 0xffffffff do not execute it", body: `
	setp.lt.u32 %p0, %t, 16;
	@%p0 shfl.sync.bfly.b32 %r0, %t, 1, 31, 0xffffffff;`},
	{name: "barrier counts differ", rule: RuleBarrier, text: "is under way", block: 128, body: `
	shr.u32 %r1, %t, 5;
	setp.eq.u32 %p0, %r1, 0;
	@%p0 bar.sync 1, 96;
	@!%p0 bar.sync 1, 128;`},
	{name: "vote under divergence", rule: RuleAligned, text: "lanes 0xffff0000 of 0xffffffff", body: `
	setp.lt.u32 %p0, %t, 16;
	@%p0 bra $x;
	bar.red.or.pred %p1, 0, %p0;
$x:`},
	{name: "vote among arrivals", rule: RuleBarrier, text: "is under way", block: 128, body: `
	shr.u32 %r1, %t, 5;
	setp.eq.u32 %p0, %r1, 0;
	@%p0 bar.red.or.pred %p1, 1, 128, %p0;
	@!%p0 bar.arrive 1, 128;`},
	{name: "votes of two kinds", rule: RuleBarrier, text: "is under way", block: 64, body: `
	setp.lt.u32 %p0, %t, 32;
	@%p0 bar.red.or.pred %p1, 1, 64, %p0;
	@!%p0 bar.red.and.pred %p1, 1, 64, %p0;`},
	{name: "vote that nobody completes", rule: RuleDeadlock, text: "waits at barrier 1 (32 arrived of 64 threads)", block: 64, body: `
	setp.lt.u32 %p0, %t, 32;
	@%p0 bar.red.popc.u32 %r0, 1, 64, %p0;`},
	{name: "barrier left open", rule: RuleBarrier, text: "ends with 32 threads at barrier 3", block: 64, body: `
	setp.lt.u32 %p0, %t, 32;
	@%p0 bar.arrive 3, 64;`},
	{name: "mbarrier not initialised", rule: RuleMbarrierInit, body: `
	mov.u32 %r1, smem;
	mbarrier.arrive.shared.b64 _, [%r1];`},
	{name: "mbarrier init not ordered", rule: RuleMbarrierInit, text: "nothing to order it after the init", body: `
	mov.u32 %r1, smem;
	setp.eq.u32 %p0, %t, 0;
	@%p0 mbarrier.init.shared.b64 [%r1], 32;
	mbarrier.arrive.shared.b64 _, [%r1];`},
	{name: "mbarrier init not fenced", rule: RuleMbarrierInit, text: "no fence.mbarrier_init", body: strings.Replace(oneBarrier, "fence.mbarrier_init.release.cluster;", "", 1) + copyIn + awaitCopy},
	{name: "mbarrier initialised twice", rule: RuleMbarrierInit, text: "without mbarrier.inval", body: `
	mov.u32 %r1, smem;
	setp.eq.u32 %p0, %t, 0;
	@%p0 mbarrier.init.shared.b64 [%r1], 1;
	@%p0 mbarrier.init.shared.b64 [%r1], 1;`},
	{name: "mbarrier overwritten", rule: RuleMbarrierInit, text: "writes over a live mbarrier", body: oneBarrier + `
	@%p0 st.shared.b32 [%r1+4], 0;`},
	{name: "too many arrivals", rule: RuleMbarrierCount, text: "2 arrivals where the phase wants 1", body: oneBarrier + `
	@%p0 mbarrier.arrive.shared.b64 _, [%r1], 2;`},
	{name: "expects too few bytes", rule: RuleMbarrierTx, body: oneBarrier + `
	@%p0 cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r1+512], [%out+16384], 128, [%r1];
	@%p0 mbarrier.arrive.expect_tx.shared.b64 _, [%r1], 256;
	@%p0 cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r1+256], [%out+16384], 256, [%r1];
` + awaitCopy},
	{name: "expects too many bytes", rule: RuleDeadlock, text: "128 bytes missing", body: oneBarrier + strings.Replace(copyIn, "_, [%r1], 256", "_, [%r1], 384", 1) + awaitCopy},
	{name: "expects bytes that nobody copies", rule: RuleMbarrierTx, text: "ends with", body: oneBarrier + `
	@%p0 mbarrier.expect_tx.shared.b64 [%r1], 64;`},
	{name: "a phase two behind", rule: RuleMbarrierPhase, text: "waits for phase 0", block: 64, body: oneBarrier + `
	@%p0 mbarrier.arrive.shared.b64 _, [%r1];
	@%p0 mbarrier.arrive.shared.b64 _, [%r1];
	bar.sync 0;
	setp.lt.u32 %p3, %t, 32;
	@%p3 bra $end;
	mbarrier.test_wait.parity.shared.b64 %p1, [%r1], 0;
$end:`},
	{name: "shared memory out of bounds", rule: RuleBounds, text: "4 past the end", body: `
	mov.u32 %r1, smem;
	st.shared.b32 [%r1+20480], %t;`},
	{name: "shared null", rule: RuleBounds, text: "below the first", body: `	st.shared.b32 [8], %t;`},
	{name: "global out of bounds", rule: RuleBounds, text: `past the end of "out"`, body: `	st.global.b32 [%out+65536], %t;`},
	{name: "global before the tensor", rule: RuleBounds, text: `before "out"`, body: `	ld.global.b32 %r0, [%out-4];`},
	{name: "parameter out of bounds", rule: RuleBounds, text: "parameters", body: `	ld.param.b32 %r0, [out+8];`},
	{name: "misaligned", rule: RuleMisaligned, text: "multiple of 4", body: `	st.global.b32 [%out+2], %t;`},
	{name: "misaligned vector", rule: RuleMisaligned, text: "multiple of 16", body: `	ld.global.v4.b32 {%r0, %r1, %r2, %r3}, [%out+8];`},
	{name: "uninitialised register", rule: RuleUninitRegister, text: "%r7", body: `	add.u32 %r0, %r7, 1;`},
	{name: "register written in some lanes", rule: RuleUninitRegister, text: "%r7", body: `
	setp.lt.u32 %p0, %t, 5;
	@%p0 mov.u32 %r7, 1;
	add.u32 %r0, %r7, 1;`},
	{name: "uninitialised predicate", rule: RuleUninitRegister, text: "%p5", body: `	@%p5 mov.u32 %r0, 1;`},
	{name: "uninitialised shared memory", rule: RuleUninitShared, body: `
	mov.u32 %r1, smem;
	ld.shared.b32 %r0, [%r1];`},
	{name: "uninitialised global memory", rule: RuleUninitGlobal, text: "fresh", body: `	ld.global.b32 %r0, [%out+134217728];`},
	{name: "race between warps", rule: RuleRace, block: 64, body: `
	mov.u32 %r1, smem;
	mad.lo.u32 %r2, %t, 4, %r1;
	st.shared.b32 [%r2], %t;
	xor.b32 %r3, %t, 32;
	mad.lo.u32 %r3, %r3, 4, %r1;
	ld.shared.b32 %r0, [%r3];`},
	{name: "race between lanes", rule: RuleRace, text: "reads shared memory that another thread wrote", body: `
	mov.u32 %r1, smem;
	mad.lo.u32 %r2, %t, 4, %r1;
	st.shared.b32 [%r2], %t;
	xor.b32 %r3, %t, 1;
	mad.lo.u32 %r3, %r3, 4, %r1;
	ld.shared.b32 %r0, [%r3];`},
	{name: "race on bytes", rule: RuleRace, text: "writes shared memory that another thread wrote", block: 64, body: `
	mov.u32 %r1, smem;
	setp.eq.u32 %p0, %t, 0;
	setp.eq.u32 %p1, %t, 32;
	@%p0 st.shared.b8 [%r1+1], %t;
	@%p1 st.shared.b16 [%r1], %t;`},
	{name: "write after read", rule: RuleRace, block: 64, body: `
	mov.u32 %r1, smem;
	setp.eq.u32 %p0, %t, 0;
	@%p0 st.shared.b32 [%r1], %t;
	bar.sync 0;
	ld.shared.b32 %r0, [%r1];
	bar.warp.sync 0xffffffff;
	setp.eq.u32 %p1, %t, 40;
	@%p1 st.shared.b32 [%r1], %t;
	nanosleep.u32 10;
	ld.shared.b32 %r0, [%r1];`},
	{name: "elected arrival without warp barrier", rule: RuleRace, block: 64, body: oneBarrier + `
	setp.lt.u32 %p3, %t, 32;
	@!%p3 bra $reader;
	st.shared.b32 [%r2+64], %t;
	@%p0 mbarrier.arrive.shared.b64 _, [%r1];
	bra $end;
$reader:
` + awaitCopy + `
	ld.shared.b32 %r0, [%r2-64];
$end:`},
	{name: "store without proxy fence", rule: RuleProxy, text: "no fence.proxy.async between", body: oneBarrier + `
	st.shared.b32 [%r2+128], %t;
	bar.warp.sync 0xffffffff;
	@%p0 cp.async.bulk.global.shared::cta.bulk_group [%out], [%r1+128], 128;
	@%p0 cp.async.bulk.commit_group;
	cp.async.bulk.wait_group 0;`},
	{name: "fence but no barrier", rule: RuleRace, text: "through the async proxy", body: oneBarrier + `
	st.shared.b32 [%r2+128], %t;
	fence.proxy.async.shared::cta;
	@%p0 cp.async.bulk.global.shared::cta.bulk_group [%out], [%r1+128], 128;
	@%p0 cp.async.bulk.commit_group;
	cp.async.bulk.wait_group 0;`},
	{name: "read before the copy is waited for", rule: RuleInFlight, body: oneBarrier + copyIn + `
	ld.shared.b32 %r0, [%r2+256];
` + awaitCopy},
	{name: "refill while others read", rule: RuleRefill, block: 64, body: oneBarrier + copyIn + awaitCopy + `
	and.b32 %r5, %t, 31;
	mad.lo.u32 %r5, %r5, 4, %r1;
	ld.shared.b32 %r0, [%r5+256];` + copyIn},
	{name: "source overwritten", rule: RuleOverwrite, body: oneBarrier + copyIn + awaitCopy + `
	@%p0 cp.async.bulk.global.shared::cta.bulk_group [%out], [%r1+256], 256;
	@%p0 cp.async.bulk.commit_group;
	@%p0 st.shared.b32 [%r1+256], %t;
	cp.async.bulk.wait_group 0;`},
	{name: "no wgmma fence", rule: RuleWgmmaFence, text: "before the first", block: 128, body: operands + multiply + finish},
	{name: "accumulator written after the fence", rule: RuleWgmmaFence, text: "%f2", block: 128, body: operands + `
	wgmma.fence.sync.aligned;
	mov.f32 %f2, 0f00000000;` + multiply + finish},
	{name: "accumulator read in flight", rule: RuleWgmmaPending, text: "reads %f1, accumulator", block: 128, body: operands + `
	wgmma.fence.sync.aligned;` + multiply + `
	add.f32 %f9, %f1, %f1;` + finish},
	{name: "operand overwritten in flight", rule: RuleOverwrite, block: 128, body: operands + `
	wgmma.fence.sync.aligned;` + multiply + `
	st.shared.b32 [%r2], %t;` + finish},
	{name: "operand A register overwritten in flight", rule: RuleWgmmaPending, text: "writes %r10, operand A", block: 128, body: operands + `
	mov.b32 %r10, 0;
	wgmma.fence.sync.aligned;
	wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {%f0, %f1, %f2, %f3}, {%r10, %r10, %r10, %r10}, %d4, %p2, 1, 1, 0;
	mov.b32 %r10, 1;` + finish},
	{name: "operand not fenced", rule: RuleProxy, block: 128, body: strings.Replace(operands, "fence.proxy.async;", "", 1) + `
	wgmma.fence.sync.aligned;` + multiply + finish},
	{name: "warps disagree on a descriptor", rule: RuleWgmmaOperand, block: 128, body: operands + `
	shr.u32 %r4, %t, 5;
	mul.wide.u32 %d5, %r4, 16;
	add.u64 %d4, %d4, %d5;
	wgmma.fence.sync.aligned;` + multiply + finish},
	{name: "malformed descriptor", rule: RuleDescriptor, text: "reserved bits", block: 128, body: operands + `
	or.b64 %d4, %d4, 0x4000;
	wgmma.fence.sync.aligned;` + multiply + finish},
	{name: "not a tensor map", rule: RuleTensorMap, body: oneBarrier + `
	@%p0 cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%r1+1024], [%out, {0, 0}], [%r1];`},
	{name: "setmaxnreg beyond the pool", rule: RuleDeadlock, text: "waits for registers", block: 384, body: `
	setmaxnreg.inc.sync.aligned.u32 240;`},
	{name: "setmaxnreg the wrong way", rule: RuleRegisters, block: 384, body: `	setmaxnreg.dec.sync.aligned.u32 240;`},
	{name: "copy in flight at exit", rule: RuleLeftover, body: oneBarrier + copyIn},
	{name: "store not read at exit", rule: RuleLeftover, body: oneBarrier + copyIn + awaitCopy + `
	@%p0 cp.async.bulk.global.shared::cta.bulk_group [%out], [%r1+256], 256;
	@%p0 cp.async.bulk.commit_group;`},
	{name: "barrier that nobody completes", rule: RuleDeadlock, text: "waits at barrier 1 (32 arrived of 64 threads)", block: 64, body: `
	setp.lt.u32 %p0, %t, 32;
	@%p0 bar.sync 1, 64;`},
	{name: "spinning", rule: RuleDeadlock, text: "without any effect", body: `
	st.global.b32 [%out], 0;
$l:
	ld.relaxed.gpu.global.u32 %r0, [%out];
	setp.eq.u32 %p0, %r0, 0;
	@%p0 bra $l;`},
}

// TestHazards runs every faulty kernel with every pace of asynchronous work:
// a fault must be found whatever the timing.
func TestHazards(t *testing.T) {
	for _, c := range hazardTests {
		t.Run(c.name, func(t *testing.T) {
			for seed := range uint64(8) {
				r := newRig(t, c.body).withInput()
				r.m = New(Config{Seed: seed, MaxSteps: 10000})
				r.withInput()
				if _, err := r.m.Alloc("fresh", 1<<28); err != nil {
					t.Fatal(err)
				}
				r.smem = 20480
				if c.block > 0 {
					r.block = Dim{c.block, 1, 1}
				}
				if h := r.hazard(c.rule); !strings.Contains(h.String(), c.text) {
					t.Errorf("seed %d: %q does not say %q", seed, h, c.text)
				}
			}
		})
	}
}

// TestGridDependency launches a kernel that writes, one between, and one that
// reads what the first wrote. Without them it reads what the host wrote.
func TestGridDependency(t *testing.T) {
	write := compile(t, kernelText("\tst.global.b32 [%mine], %t;"))
	letting := compile(t, kernelText("\tgriddepcontrol.launch_dependents;\n\tst.global.b32 [%mine], %t;"))
	idle := compile(t, kernelText("\tgriddepcontrol.wait;\n\tgriddepcontrol.launch_dependents;"))
	hasty := compile(t, kernelText("\tgriddepcontrol.launch_dependents;\n\tgriddepcontrol.wait;"))
	read := compile(t, kernelText("\tld.global.b32 %r0, [%out];\n\tst.global.b32 [%mine], %r0;"))
	patient := compile(t, kernelText("\tgriddepcontrol.wait;\n\tld.global.b32 %r0, [%out];\n\tst.global.b32 [%mine], %r0;"))
	copied := oneBarrier + "\t@%p0 mbarrier.arrive.expect_tx.shared.b64 _, [%r1], 128;\n" +
		"\t@%p0 cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r1+256], [%out], 128, [%r1];\n" + awaitCopy
	stored := oneBarrier + "\tst.shared.b32 [%r2+128], %t;\n\tfence.proxy.async.shared::cta;\n\tbar.warp.sync 0xffffffff;\n" +
		"\t@%p0 cp.async.bulk.global.shared::cta.bulk_group [%out], [%r1+128], 128;\n\t@%p0 cp.async.bulk.commit_group;\n\tcp.async.bulk.wait_group 0;"
	waits := "\tgriddepcontrol.wait;\n"
	copies, patientCopies := compile(t, kernelText(copied)), compile(t, kernelText(waits+copied))
	stores, patientStores := compile(t, kernelText(stored)), compile(t, kernelText(waits+stored))
	lateCopies := compile(t, kernelText(copied+waits))
	for name, c := range map[string]struct {
		first, between, last *Program
		programmatic         bool
		bad                  bool
	}{
		"at once":                         {letting, nil, read, true, true},
		"overwrites at once":              {letting, nil, write, true, true},
		"behind one that lets none start": {write, nil, read, true, false},
		"waits":                           {letting, nil, patient, true, false},
		"not programmatic":                {letting, nil, read, false, false},
		"behind one that waits":           {letting, idle, read, true, false},
		"first of all":                    {nil, nil, read, true, false},
		"behind one that starts it early": {letting, hasty, read, true, true},
		"copies at once":                  {letting, nil, copies, true, true},
		"copies, then waits":              {letting, nil, lateCopies, true, true},
		"waits, then copies":              {letting, nil, patientCopies, true, false},
		"copies what the host wrote":      {nil, nil, copies, true, false},
		"stores a copy at once":           {letting, nil, stores, true, true},
		"waits, then stores a copy":       {letting, nil, patientStores, true, false},
	} {
		m := New(Config{})
		out, _ := m.Alloc("out", 4096)
		if err := m.Fill(out, 1, 4096); err != nil {
			t.Fatal(err)
		}
		cfg := LaunchConfig{Block: Dim{32, 1, 1}, Params: binary.LittleEndian.AppendUint64(nil, out)}
		if c.first != nil {
			if _, err := m.Launch(c.first, "k", cfg); err != nil {
				t.Fatal(err)
			}
		}
		cfg.Programmatic = true
		if c.between != nil {
			if _, err := m.Launch(c.between, "k", cfg); err != nil {
				t.Fatal(err)
			}
		}
		cfg.Programmatic = c.programmatic
		cfg.Shared = 4096
		r, err := m.Launch(c.last, "k", cfg)
		if err != nil {
			t.Fatal(err)
		}
		if found := len(r.Errors()) > 0 && r.Errors()[0].Rule == RuleGridDependency; found != c.bad {
			t.Errorf("%s: hazards %v", name, r.Hazards)
		}
	}
}

// TestReportPlaces checks that a finding names both accesses, with CTA, warp
// and lane, the PTX line and the generator's line.
func TestReportPlaces(t *testing.T) {
	text := strings.Replace(kernelText(`
	mov.u32 %r1, smem;
	setp.eq.u32 %p0, %t, 3;
	setp.eq.u32 %p1, %t, 40;
	.loc 1 17 2
	@%p0 st.shared.b32 [%r1], %t;
	.loc 1 23 2
	@%p1 st.shared.b32 [%r1], %t;`), ".extern", ".file 1 \"templates/decode.go\"\n.extern", 1)
	m := New(Config{})
	out, _ := m.Alloc("out", 4096)
	r, err := m.Launch(compile(t, text), "k", LaunchConfig{Grid: Dim{2, 1, 1}, Block: Dim{64, 1, 1}, Shared: 64, Params: binary.LittleEndian.AppendUint64(nil, out)})
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Hazards) != 1 {
		t.Fatalf("%d hazards: %v", len(r.Hazards), r.Hazards)
	}
	h := r.Hazards[0]
	first, second := h.First, h.Second
	if first.Warp > second.Warp {
		first, second = second, first
	}
	if first.Lane != 3 || first.Warp != 0 || second.Lane != 8 || second.Warp != 1 || first.CTA != second.CTA ||
		first.Source != "templates/decode.go:17" || second.Source != "templates/decode.go:23" ||
		second.Line-first.Line != 2 || !strings.Contains(first.Instruction, "st.shared.b32 [%r1], %t") || h.Count != 2 {
		t.Errorf("%+v\n%+v\n%+v", h, first, second)
	}
}
