package emu

import (
	"fmt"
	"sort"
	"strings"
)

// deadlock stops the run: no warp can go on and nothing is under way.
func (cl *cluster) deadlock() {
	if cl.hz != nil {
		cl.hz.stuck()
	}
	text, first := cl.waiting()
	panic(fault{Hazard{Severity: Error, Rule: RuleDeadlock, Kernel: cl.g.k.def.Name, Text: "nobody can go on: " + text, First: first, Count: 1}})
}

// livelock stops a run that spins without effect.
func (cl *cluster) livelock() {
	text, first := cl.waiting()
	panic(fault{Hazard{Severity: Error, Rule: RuleDeadlock, Kernel: cl.g.k.def.Name, Count: 1, First: first,
		Text: fmt.Sprintf("%d warp instructions without any effect on memory or barriers: %s", cl.steps-cl.effect, text)}})
}

// waiting says who waits for what, like waits together.
func (cl *cluster) waiting() (string, *Access) {
	type key struct {
		what string
		op   int
	}
	who := map[key][]string{}
	var keys []key
	var first *Access
	for _, w := range cl.warps {
		for _, s := range w.splits {
			o := &cl.g.k.code[min(s.pc, len(cl.g.k.code)-1)]
			k := key{s.wait.describe(), o.index}
			if who[k] == nil {
				keys = append(keys, k)
			}
			if first == nil {
				a := w.accessOf(o)
				a.lane = trailing(s.mask)
				first = a.describe()
			}
			name := fmt.Sprintf("CTA %d warp %d", w.cta.number, w.id)
			if s.mask != w.made {
				name += fmt.Sprintf(" lanes %#x", s.mask)
			}
			who[k] = append(who[k], name)
		}
	}
	sort.SliceStable(keys, func(i, j int) bool { return keys[i].op < keys[j].op })
	var parts []string
	for _, k := range keys {
		names := who[k]
		if len(names) > 6 {
			names = append(names[:5:5], fmt.Sprintf("%d more", len(who[k])-5))
		}
		o := &cl.g.k.code[k.op]
		parts = append(parts, fmt.Sprintf("%s %s at line %d: %s", strings.Join(names, ", "), k.what, o.in.Line, instructionText(o.in)))
	}
	return strings.Join(parts, "; "), first
}

func (r waitReason) describe() string {
	switch r.kind {
	case onMbarrier:
		if b := r.cta.mbars[r.addr]; b != nil {
			return fmt.Sprintf("waits for parity %d of the %s", r.parity, b)
		}
		return "waits for an mbarrier"
	case onBarrier:
		b := &r.cta.bars[r.id]
		return fmt.Sprintf("waits at barrier %d (%d arrived of %s)", r.id, b.arrived, threadCount(b.expected))
	case onWarp:
		return "waits at bar.warp.sync for other lanes"
	case onCluster:
		return "waits at the cluster barrier"
	case onWgmma:
		return "waits for multiplications that other warps of the warpgroup have not issued"
	case onBulk:
		return "waits for a copy group"
	case onRegisters:
		return fmt.Sprintf("waits for registers to have %d per thread (the pool has %d left)", r.id, r.cta.pool)
	}
	return "is running"
}
