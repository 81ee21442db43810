package emu

import "sort"

// Stats counts what a launch did.
type Stats struct {
	Instructions  uint64 `json:"instructions"` // lane-instructions executed
	Steps         uint64 `json:"steps"`        // warp instructions issued
	WgmmaFLOPs    uint64 `json:"wgmma_flops"`
	TMABytes      uint64 `json:"tma_bytes"`      // between global memory and shared memory by bulk copies
	GlobalBytes   uint64 `json:"global_bytes"`   // all traffic to global memory
	BankConflicts uint64 `json:"bank_conflicts"` // extra shared-memory cycles
	GridWaits     uint64 `json:"grid_waits"`     // griddepcontrol.wait executed, in warps
	GridLaunches  uint64 `json:"grid_launches"`  // griddepcontrol.launch_dependents executed, in warps
}

func (s *Stats) add(t *Stats) {
	s.WgmmaFLOPs += t.WgmmaFLOPs
	s.TMABytes += t.TMABytes
	s.GlobalBytes += t.GlobalBytes
	s.BankConflicts += t.BankConflicts
	s.GridWaits += t.GridWaits
	s.GridLaunches += t.GridLaunches
}

// Add adds the counts of t.
func (s *Stats) Add(t Stats) {
	s.Instructions += t.Instructions
	s.Steps += t.Steps
	s.add(&t)
}

// OpCount is how often one kind of instruction ran.
type OpCount struct {
	Opcode string `json:"opcode"`
	Lanes  uint64 `json:"lanes"`
}

// LineConflicts is an instruction with bank conflicts.
type LineConflicts struct {
	Line        int    `json:"line"`
	Instruction string `json:"instruction"`
	Source      string `json:"source,omitempty"`
	Executions  uint64 `json:"executions"` // by a warp
	Extra       uint64 `json:"extra"`      // cycles beyond those that its width needs
}

// Report is what a launch did and what was wrong with it.
type Report struct {
	Kernel    string          `json:"kernel"`
	Stats     Stats           `json:"stats"`
	Ops       []OpCount       `json:"ops"` // by count, descending
	Hazards   []Hazard        `json:"hazards"`
	Conflicts []LineConflicts `json:"conflicts,omitempty"` // by extra cycles, descending
}

// Errors returns the hazards that are proven.
func (r *Report) Errors() []Hazard {
	var out []Hazard
	for _, h := range r.Hazards {
		if h.Severity == Error {
			out = append(out, h)
		}
	}
	return out
}

func (g *grid) report() *Report {
	r := &Report{Kernel: g.k.def.Name, Stats: g.stats, Hazards: g.hazards()}
	byRoot := map[string]uint64{}
	for i, n := range g.counts {
		r.Stats.Instructions += n
		if n > 0 {
			byRoot[g.k.code[i].in.Form.Root] += n
		}
	}
	for root, n := range byRoot {
		r.Ops = append(r.Ops, OpCount{root, n})
	}
	sort.Slice(r.Ops, func(i, j int) bool {
		a, b := r.Ops[i], r.Ops[j]
		return a.Lanes > b.Lanes || a.Lanes == b.Lanes && a.Opcode < b.Opcode
	})
	for i, c := range g.conflicts {
		if c.extra == 0 {
			continue
		}
		a := access{op: &g.k.code[i], k: g.k}.describe()
		r.Conflicts = append(r.Conflicts, LineConflicts{a.Line, a.Instruction, a.Source, c.times, c.extra})
	}
	sort.SliceStable(r.Conflicts, func(i, j int) bool { return r.Conflicts[i].Extra > r.Conflicts[j].Extra })
	return r
}
