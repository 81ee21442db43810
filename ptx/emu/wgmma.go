package emu

import (
	"fmt"
	"slices"
	"strings"

	"github.com/mlagen/mlagen/ptx"
	"github.com/mlagen/mlagen/ptx/emu/num"
	"github.com/mlagen/mlagen/ptx/emu/wgmma"
	"github.com/mlagen/mlagen/ptx/isa"
)

// The asynchronous warpgroup matrix multiply. The four warps of a warpgroup
// each issue the instruction; once the last has, it may be executed, in order,
// at any time until a wait_group that covers it. When it is executed decides
// which operands it sees: those at its issue, or those at the wait.

var _ = register(map[string]func(*compiler, *ptx.Instr) error{
	"wgmma.fence": buildWgmmaFence, "wgmma.commit_group": buildWgmmaCommit,
	"wgmma.wait_group": buildWgmmaWait, "wgmma.mma_async": buildWgmma,
})

// wgroup is a warpgroup's queue of multiplications.
type wgroup struct {
	warps []*warp
	queue []*mma // not yet executed, in order
	base  int    // sequence number of queue[0]
	comp  int    // vector clock block, one component per warp
	spare []*mma // executed, for use again
}

// mma is one multiplication under way.
type mma struct {
	spec       *mmaSpec
	op         *op
	seq        int
	arrived    int // warps that have issued it
	a, b       uint64
	accumulate bool
	due        uint64

	operandA, operandB wgmma.Operand // of those in shared memory
	chunks             []uint32      // where they lie, A's before B's
	ofA                int           // how many are A's
}

// mmaSpec is a decoded wgmma.mma_async.
type mmaSpec struct {
	op    wgmma.Op
	half  bool    // f16 accumulators, two per register
	d     []int32 // accumulator slots
	aRegs []int32 // nil when A is in shared memory
	aDesc int32
	bDesc int32
	scale func(*warp) uint32
}

func buildWgmma(c *compiler, in *ptx.Instr) error {
	s := &mmaSpec{}
	var err error
	dtype := in.Type("dtype")
	s.half = dtype == isa.F16
	if s.op, err = wgmma.Parse(in.Mod("shape"), isa.F32, in.Type("atype"), in.Type("btype")); err != nil {
		return err
	}
	for _, x := range elements(arg(in, "d")) {
		slot, err := c.dst(x)
		if err != nil {
			return err
		}
		s.d = append(s.d, slot)
	}
	want := s.op.Values()
	if s.half {
		want /= 2
	}
	if len(s.d) != want {
		return fmt.Errorf("%d accumulator registers, m64n%d has %d", len(s.d), s.op.N, want)
	}
	c.op.writes = nil // the accumulators are checked by the wgmma rules
	if a := arg(in, "a"); a != nil {
		if s.aRegs, err = c.srcs(isa.B32, elements(a)...); err != nil {
			return err
		}
	} else if s.aDesc, err = c.src(arg(in, "a-desc"), isa.B64); err != nil {
		return err
	}
	if s.bDesc, err = c.src(arg(in, "b-desc"), isa.B64); err != nil {
		return err
	}
	if s.scale, err = c.predSrc(arg(in, "scale-d")); err != nil {
		return err
	}
	for _, f := range []struct {
		name string
		on   int64 // the value that sets the flag
		flag *bool
	}{{"imm-scale-a", -1, &s.op.NegateA}, {"imm-scale-b", -1, &s.op.NegateB}, {"imm-trans-a", 1, &s.op.TransA}, {"imm-trans-b", 1, &s.op.TransB}} {
		a := arg(in, f.name)
		if a == nil {
			continue
		}
		v, err := immediate(a)
		if err != nil {
			return err
		}
		off := int64(1)
		if strings.HasPrefix(f.name, "imm-trans") {
			off = 0
		}
		if v != f.on && v != off {
			return fmt.Errorf("%s is %d, must be %d or %d", f.name, v, f.on, off)
		}
		*f.flag = v == f.on
	}
	if err := s.op.Validate(); err != nil {
		return err
	}
	c.wgmma = true
	c.op.wgmma = s
	c.op.ctl = func(w *warp, sp *split, m uint32) verdict {
		w.issueWgmma(s, m)
		return next
	}
	return nil
}

// warpgroupAligned reports a warpgroup instruction that not all lanes execute
// or whose warpgroup is not four warps.
func (w *warp) warpgroupAligned(m uint32) {
	if !w.converged(m) || m != fullMask {
		w.report(Error, RuleAligned, fmt.Sprintf("lanes %#x of %#x execute it, must be all 32", m, w.live))
	}
	if len(w.group.warps) != 4 {
		w.fail(RuleAligned, fmt.Sprintf("the warpgroup has %d warps, must be 4", len(w.group.warps)))
	}
}

// issueWgmma adds w to its warpgroup's next multiplication.
func (w *warp) issueWgmma(s *mmaSpec, m uint32) {
	w.warpgroupAligned(m)
	g := w.group
	var a uint64
	sameA := true
	if s.aRegs == nil {
		a, sameA = w.uniform(s.aDesc, m)
	}
	b, sameB := w.uniform(s.bDesc, m)
	scale := s.scale(w) & m
	if !sameA || !sameB || scale != 0 && scale != m {
		w.fail(RuleWgmmaOperand, "lanes disagree on a descriptor or on scale-d")
	}
	seq := w.wgSeq
	w.wgSeq++
	if seq-g.base == len(g.queue) {
		g.queue = append(g.queue, w.newMMA(mma{spec: s, op: w.at, seq: seq, a: a, b: b, accumulate: scale != 0, due: never}))
	}
	x := g.queue[seq-g.base]
	if x.op != w.at || x.a != a || x.b != b || x.accumulate != (scale != 0) {
		w.fail(RuleWgmmaOperand, fmt.Sprintf("the warps of the warpgroup do not issue the same instruction: operands A %#x B %#x scale-d %v, another warp had A %#x B %#x scale-d %v",
			a, b, scale != 0, x.a, x.b, x.accumulate), w.accessOf(x.op))
	}
	if w.hz != nil {
		w.hz.issueWgmma(w, s, x)
	}
	x.arrived++
	if x.arrived < 4 {
		return
	}
	w.cl.stats.WgmmaFLOPs += uint64(2 * wgmma.Rows * s.op.N * s.op.K)
	if d := w.cl.delay(); d != never {
		x.due = w.cl.steps + d
		w.cl.nextDue = min(w.cl.nextDue, x.due)
	}
	if x.due <= w.cl.steps && g.queue[0] == x {
		g.execute()
	}
	w.cl.wake()
}

// newMMA returns x with its operands decoded. The hardware would misread
// malformed descriptors silently.
func (w *warp) newMMA(x mma) *mma {
	g, to := w.group, new(mma)
	if n := len(g.spare); n > 0 {
		to, g.spare = g.spare[n-1], g.spare[:n-1]
	}
	x.chunks = to.chunks[:0]
	*to = x
	var err error
	if x.spec.aRegs == nil {
		if to.operandA, err = x.spec.op.OperandA(x.a); err != nil {
			w.fail(RuleDescriptor, err.Error())
		}
		to.chunks = to.operandA.Chunks(to.chunks)
		to.ofA = len(to.chunks)
	}
	if to.operandB, err = x.spec.op.OperandB(x.b); err != nil {
		w.fail(RuleDescriptor, err.Error())
	}
	to.chunks = to.operandB.Chunks(to.chunks)
	for _, off := range to.chunks {
		if int(off)+lineBytes > len(w.cta.shared) || off < sharedBase {
			w.fail(RuleBounds, "wgmma operand: "+w.cta.outside(off, lineBytes))
		}
	}
	return to
}

// mmaScratch is what the multiplications of a cluster need for a while.
type mmaScratch struct {
	a, b []float64
	regs []uint32
	sums wgmma.Scratch
	half []vreg // f16 accumulators as f32
}

// execute performs the first multiplication of the queue, which all warps have
// issued.
func (g *wgroup) execute() {
	x := g.queue[0]
	g.queue = slices.Delete(g.queue, 0, 1)
	g.base++
	g.spare = append(g.spare, x)
	s, w := x.spec, g.warps[0]
	k := w.cl.scratch
	if k == nil {
		k = new(mmaScratch)
		w.cl.scratch = k
		k.a = make([]float64, wgmma.Rows*32)
		k.b = make([]float64, wgmma.MaxN*32)
		k.regs = make([]uint32, wgmma.ARegisters*wgmma.Threads)
	}
	if s.aRegs != nil {
		for r, slot := range s.aRegs {
			for q, w := range g.warps {
				for l, v := range w.r[slot] {
					k.regs[r*wgmma.Threads+q*lanes+l] = uint32(v)
				}
			}
		}
		s.op.RegistersA(k.a, k.regs)
	} else {
		x.operandA.GatherFrom(k.a, w.cta.shared, x.chunks[:x.ofA])
	}
	x.operandB.GatherFrom(k.b, w.cta.shared, x.chunks[x.ofA:])
	if s.half {
		g.multiplyHalf(x, k)
	} else {
		s.op.Multiply(&k.sums, func(i, q int) *vreg { return &g.warps[q].r[s.d[i]] }, k.a, k.b, x.accumulate)
	}
	w.cl.wake()
}

// multiplyHalf multiplies into f16 accumulators, two in a register.
func (g *wgroup) multiplyHalf(x *mma, k *mmaScratch) {
	s := x.spec
	if k.half == nil {
		k.half = make([]vreg, wgmma.MaxN/2*4)
	}
	wide := func(i, q int) *vreg { return &k.half[4*i+q] }
	for i, slot := range s.d {
		for q, w := range g.warps {
			lo, hi := wide(2*i, q), wide(2*i+1, q)
			for l, v := range w.r[slot] {
				lo[l], hi[l] = bits32(num.F16ToF32(uint16(v))), bits32(num.F16ToF32(uint16(v>>16)))
			}
		}
	}
	s.op.Multiply(&k.sums, wide, k.a, k.b, x.accumulate)
	for i, slot := range s.d {
		for q, w := range g.warps {
			lo, hi := wide(2*i, q), wide(2*i+1, q)
			for l := range lanes {
				w.r[slot][l] = uint64(num.PackF16(f32(hi[l]), f32(lo[l])))
			}
		}
	}
}

// wgmmaPending reports whether a multiplication could be executed now.
func (cl *cluster) wgmmaPending() bool { return cl.readyGroup(never-1) != nil }

// readyGroup returns a warpgroup whose next multiplication has been issued by
// all its warps and is due.
func (cl *cluster) readyGroup(now uint64) *wgroup {
	for _, w := range cl.warps {
		if g := w.group; w.id%4 == 0 && len(g.queue) > 0 && g.queue[0].arrived == 4 && (now == never-1 || g.queue[0].due <= now) {
			return g
		}
	}
	return nil
}

// wgmmaStep executes one multiplication that nobody has waited for yet.
func (cl *cluster) wgmmaStep() bool {
	g := cl.readyGroup(never - 1)
	if g == nil {
		return false
	}
	g.execute()
	return true
}

// wgmmaAdvance executes the multiplications that are due.
func (cl *cluster) wgmmaAdvance(now uint64) {
	if !cl.g.k.wgmma {
		return
	}
	for {
		g := cl.readyGroup(now)
		if g == nil {
			break
		}
		g.execute()
	}
	for _, w := range cl.warps {
		if g := w.group; w.id%4 == 0 && len(g.queue) > 0 && g.queue[0].arrived == 4 {
			cl.nextDue = min(cl.nextDue, g.queue[0].due)
		}
	}
}

func buildWgmmaFence(c *compiler, in *ptx.Instr) error {
	c.wgmma = true
	c.op.exec = func(w *warp, m uint32) {
		w.warpgroupAligned(m)
		if w.hz != nil {
			w.hz.wgmmaFence(w)
		}
	}
	return nil
}

func buildWgmmaCommit(c *compiler, in *ptx.Instr) error {
	c.wgmma = true
	c.op.exec = func(w *warp, m uint32) {
		w.warpgroupAligned(m)
		w.wgGroups = append(w.wgGroups, w.wgSeq)
	}
	return nil
}

func buildWgmmaWait(c *compiler, in *ptx.Instr) error {
	v, err := immediate(in.Args[0])
	if err != nil {
		return err
	}
	n := int(v)
	c.wgmma = true
	c.op.ctl = func(w *warp, s *split, m uint32) verdict {
		w.warpgroupAligned(m)
		covered := len(w.wgGroups) - n
		if covered <= 0 {
			return next
		}
		g, end := w.group, w.wgGroups[covered-1]
		for g.base < end {
			if g.queue[0].arrived < 4 {
				s.wait = waitReason{kind: onWgmma}
				return stall
			}
			g.execute()
		}
		w.wgGroups = w.wgGroups[covered:]
		w.wgDone = max(w.wgDone, end)
		return next
	}
	return nil
}
