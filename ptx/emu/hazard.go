package emu

import (
	"fmt"
	"slices"
	"strings"

	"github.com/mlagen/mlagen/ptx"
)

// Severity tells a proven fault from a doubt.
type Severity uint8

// Severities.
const (
	Error  Severity = iota // proven: the run is wrong, or right by luck
	Advice                 // worth a look; may be intended
)

// String names the severity.
func (s Severity) String() string { return [...]string{"error", "advice"}[s] }

// Rule names what was broken.
type Rule string

// The rules.
const (
	RuleAligned        Rule = "aligned-divergence"      // an .aligned or .sync instruction without all its lanes
	RuleBarrier        Rule = "barrier-mismatch"        // named or cluster barrier with wrong counts or order
	RuleMbarrierInit   Rule = "mbarrier-init"           // used before init or before its init is visible, or re-initialised while live
	RuleMbarrierCount  Rule = "mbarrier-count"          // more arrivals than the phase wants
	RuleMbarrierTx     Rule = "mbarrier-transaction"    // bytes expected and bytes copied differ
	RuleMbarrierPhase  Rule = "mbarrier-phase"          // a wait for a phase that is two behind
	RuleBounds         Rule = "out-of-bounds"           // in any state space
	RuleMisaligned     Rule = "misaligned"              // access, descriptor or tile
	RuleUninitRegister Rule = "uninitialised-register"  // read before written
	RuleUninitShared   Rule = "uninitialised-shared"    // read before written
	RuleUninitGlobal   Rule = "uninitialised-global"    // read before written
	RuleRace           Rule = "shared-race"             // unordered accesses by two threads
	RuleGlobalRace     Rule = "global-race"             // unordered accesses by two threads of a grid
	RuleProxy          Rule = "missing-proxy-fence"     // a generic write meets the async proxy without fence.proxy.async
	RuleInFlight       Rule = "read-in-flight"          // data read before the copy that brings it is known to be complete
	RuleRefill         Rule = "stage-refill"            // an asynchronous copy over data still in use
	RuleOverwrite      Rule = "async-source-overwrite"  // a write over the source of a copy or wgmma still under way
	RuleWgmmaFence     Rule = "missing-wgmma-fence"     // registers touched since the last wgmma.fence
	RuleWgmmaPending   Rule = "wgmma-register-in-use"   // accumulator or A register touched before wait_group
	RuleWgmmaOperand   Rule = "wgmma-divergence"        // the warps or lanes of a warpgroup disagree
	RuleDescriptor     Rule = "wgmma-descriptor"        // malformed or misaligned matrix descriptor
	RuleTensorMap      Rule = "tensor-map"              // malformed tensor map, or wrong rank
	RuleRegisters      Rule = "setmaxnreg"              // register count beyond the pool or in the wrong direction
	RuleLeftover       Rule = "copy-in-flight-at-exit"  // shared memory in use by a copy when its CTA ends
	RuleClusterLife    Rule = "cluster-lifetime"        // shared memory of a CTA that may not have started or may have ended
	RuleGridDependency Rule = "missing-grid-dependency" // the previous grid's data read before griddepcontrol.wait
	RuleDeadlock       Rule = "deadlock"                // nobody can go on
	RuleTrap           Rule = "trap"                    // the kernel's own
)

// Access is one side of a hazard.
type Access struct {
	Instruction string `json:"instruction"`      // as PTX text, without operands' comments
	Line        int    `json:"line,omitempty"`   // in the PTX text
	Source      string `json:"source,omitempty"` // file:line of the generator, from .loc
	Comment     string `json:"comment,omitempty"`
	CTA         int    `json:"cta"`
	Warp        int    `json:"warp"`
	Lane        int    `json:"lane"`
	Async       bool   `json:"async,omitempty"` // done by a copy or wgmma that this instruction issued
}

// String describes the access in one line.
func (a *Access) String() string {
	var b strings.Builder
	if a.Line > 0 {
		fmt.Fprintf(&b, "line %d: ", a.Line)
	}
	b.WriteString(a.Instruction)
	if a.Async {
		b.WriteString(" (asynchronously)")
	}
	fmt.Fprintf(&b, ", CTA %d warp %d lane %d", a.CTA, a.Warp, a.Lane)
	if a.Source != "" {
		fmt.Fprintf(&b, ", from %s", a.Source)
	}
	return b.String()
}

// Hazard is one finding. First is the earlier access where there are two.
type Hazard struct {
	Severity Severity `json:"severity"`
	Rule     Rule     `json:"rule"`
	Text     string   `json:"text"`
	Kernel   string   `json:"kernel"`
	First    *Access  `json:"first,omitempty"`
	Second   *Access  `json:"second,omitempty"`
	Count    int      `json:"count"` // times it was found between these two instructions
}

// String is the hazard on one line or, with two accesses, three.
func (h Hazard) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %s: %s", h.Severity, h.Rule, h.Text)
	if h.Count > 1 {
		fmt.Fprintf(&b, " (%d times)", h.Count)
	}
	for _, a := range []*Access{h.First, h.Second} {
		if a != nil {
			fmt.Fprintf(&b, "\n\t%s", a)
		}
	}
	return b.String()
}

// access is an Access not yet described.
type access struct {
	op    *op
	k     *kernel
	cta   int
	warp  int
	lane  int
	async bool
}

func (a access) describe() *Access {
	if a.op == nil {
		return nil
	}
	out := &Access{Instruction: instructionText(a.op.in), Line: a.op.in.Line, Comment: a.op.in.Comment,
		CTA: a.cta, Warp: a.warp, Lane: a.lane, Async: a.async}
	if l := a.op.loc; l != nil && l.File >= 1 && l.File <= len(a.k.mod.Files) {
		out.Source = fmt.Sprintf("%s:%d", a.k.mod.Files[l.File-1], l.Line)
	}
	return out
}

// instructionText prints an instruction as PTX does.
func instructionText(in *ptx.Instr) string {
	if len(in.Form.Slots) == 0 && in.Form.Grammar == "" { // the implicit ret
		return in.Form.Root
	}
	text := strings.TrimSpace(in.String())
	if i := strings.Index(text, "//"); i > 0 {
		text = strings.TrimSpace(text[:i])
	}
	const limit = 160
	if len(text) > limit {
		text = text[:limit/2] + " … " + text[len(text)-limit/2:]
	}
	return text
}

// access is what lane i of w is doing.
func (w *warp) access(i int) access {
	return access{op: w.at, k: w.k, cta: w.cta.number, warp: w.id, lane: i}
}

// accessOf is what w did at instruction o.
func (w *warp) accessOf(o *op) access {
	return access{op: o, k: w.k, cta: w.cta.number, warp: w.id}
}

// report notes a hazard of the instruction w executes; earlier accesses come first.
func (w *warp) report(s Severity, r Rule, text string, earlier ...access) {
	i := 0
	if w.cur != nil {
		i = trailing(w.cur.mask) & 31
	}
	w.reportLane(i, s, r, text, earlier...)
}

func (w *warp) reportLane(i int, s Severity, r Rule, text string, earlier ...access) {
	if w.hz != nil {
		w.hz.found.note(w.k, s, r, text, w.access(i), earlier...)
	}
}

// fail stops the run: the instruction has no defined effect.
func (w *warp) fail(r Rule, text string, earlier ...access) {
	i := 0
	if w.cur != nil {
		i = trailing(w.cur.mask) & 31
	}
	w.failLane(i, r, text, earlier...)
}

func (w *warp) failLane(i int, r Rule, text string, earlier ...access) {
	h := Hazard{Severity: Error, Rule: r, Text: text, Kernel: w.k.def.Name, First: w.access(i).describe(), Count: 1}
	if len(earlier) > 0 {
		h.First, h.Second = earlier[0].describe(), h.First
	}
	panic(fault{h})
}

// findings collects hazards, one per rule and pair of instructions.
type findings struct {
	list  []*Hazard
	byKey map[findingKey]*Hazard
}

type findingKey struct {
	rule          Rule
	severity      Severity
	first, second int
}

func newFindings() *findings { return &findings{byKey: map[findingKey]*Hazard{}} }

// newKey returns the key of a finding. The accesses of a race have no order.
func newKey(r Rule, s Severity, first, second int) findingKey {
	if r == RuleRace && first > second {
		first, second = second, first
	}
	return findingKey{r, s, first, second}
}

func opIndex(a access) int {
	if a.op == nil {
		return -1
	}
	return a.op.index
}

func (f *findings) note(k *kernel, s Severity, r Rule, text string, now access, earlier ...access) {
	first := -1
	if len(earlier) > 0 {
		first = opIndex(earlier[0])
	}
	key := newKey(r, s, first, opIndex(now))
	if h := f.byKey[key]; h != nil {
		h.Count++
		return
	}
	h := &Hazard{Severity: s, Rule: r, Text: text, Kernel: k.def.Name, First: now.describe(), Count: 1}
	if len(earlier) > 0 {
		h.First, h.Second = earlier[0].describe(), h.First
	}
	f.byKey[key] = h
	f.list = append(f.list, h)
}

func lineOf(a *Access) int {
	if a == nil {
		return -1
	}
	return a.Line
}

func (f *findings) add(h Hazard) {
	key := newKey(h.Rule, h.Severity, -2-lineOf(h.First), -2-lineOf(h.Second))
	if old := f.byKey[key]; old != nil {
		old.Count += max(h.Count, 1)
		return
	}
	h.Count = max(h.Count, 1)
	f.byKey[key] = &h
	f.list = append(f.list, &h)
}

func (f *findings) merge(from *findings) {
	for _, h := range from.list {
		f.add(*h)
	}
}

// sorted returns the hazards, errors first, by place.
func (f *findings) sorted() []Hazard {
	out := make([]Hazard, 0, len(f.list))
	for _, h := range f.list {
		out = append(out, *h)
	}
	slices.SortStableFunc(out, func(a, b Hazard) int {
		if a.Severity != b.Severity {
			return int(a.Severity) - int(b.Severity)
		}
		if d := lineOf(a.First) - lineOf(b.First); d != 0 {
			return d
		}
		if d := lineOf(a.Second) - lineOf(b.Second); d != 0 {
			return d
		}
		return strings.Compare(string(a.Rule), string(b.Rule))
	})
	return out
}
