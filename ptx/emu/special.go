package emu

import (
	"fmt"

	"github.com/mlagen/mlagen/ptx"
)

// constants of a thread's life, by special register.
var fixedSpecials = map[string]func(w *warp, lane int) uint64{
	"%laneid":  func(_ *warp, l int) uint64 { return uint64(l) },
	"%warpid":  func(w *warp, _ int) uint64 { return uint64(w.id) },
	"%nwarpid": func(*warp, int) uint64 { return 64 },
	"%smid":    func(w *warp, _ int) uint64 { return uint64(w.cta.number % w.cl.g.m.cfg.SMs) },
	"%nsmid":   func(w *warp, _ int) uint64 { return uint64(w.cl.g.m.cfg.SMs) },
	"%gridid":  func(w *warp, _ int) uint64 { return uint64(w.cl.g.number) },

	"%cluster_ctarank":   func(w *warp, _ int) uint64 { return uint64(w.cta.rank) },
	"%cluster_nctarank":  func(w *warp, _ int) uint64 { return uint64(len(w.cl.ctas)) },
	"%lanemask_eq":       func(_ *warp, l int) uint64 { return 1 << l },
	"%lanemask_le":       func(_ *warp, l int) uint64 { return 2<<l - 1 },
	"%lanemask_lt":       func(_ *warp, l int) uint64 { return 1<<l - 1 },
	"%lanemask_ge":       func(_ *warp, l int) uint64 { return uint64(fullMask << l) },
	"%lanemask_gt":       func(_ *warp, l int) uint64 { return uint64(fullMask << l << 1) },
	"%total_smem_size":   func(w *warp, _ int) uint64 { return uint64(len(w.cta.shared) - sharedBase) },
	"%dynamic_smem_size": func(w *warp, _ int) uint64 { return uint64(w.cl.g.cfg.Shared) },
}

// dims are the special registers with .x, .y and .z.
var dims = map[string]func(w *warp, lane int) [3]uint32{
	"%tid": func(w *warp, l int) [3]uint32 { return w.cl.g.cfg.Block.at(w.id*lanes + l) },
	"%ntid": func(w *warp, _ int) [3]uint32 {
		return w.cl.g.cfg.Block.triple()
	},
	"%ctaid":     func(w *warp, _ int) [3]uint32 { return w.cta.id },
	"%nctaid":    func(w *warp, _ int) [3]uint32 { return w.cl.g.cfg.Grid.triple() },
	"%clusterid": func(w *warp, _ int) [3]uint32 { return w.cl.g.shape.at(w.cl.id) },
	"%nclusterid": func(w *warp, _ int) [3]uint32 {
		return w.cl.g.shape.triple()
	},
	"%cluster_ctaid":  func(w *warp, _ int) [3]uint32 { return w.cl.g.cfg.Cluster.at(w.cta.rank) },
	"%cluster_nctaid": func(w *warp, _ int) [3]uint32 { return w.cl.g.cfg.Cluster.triple() },
}

func (d Dim) triple() [3]uint32 { return [3]uint32{uint32(d.X), uint32(d.Y), uint32(d.Z)} }

// running are the special registers that change while a thread runs. The clock
// counts the cluster's warp instructions; nothing may depend on its pace.
var running = map[string]func(w *warp) uint64{
	"%clock":          func(w *warp) uint64 { return w.cl.steps & 0xffffffff },
	"%clock_hi":       func(w *warp) uint64 { return w.cl.steps >> 32 },
	"%clock64":        func(w *warp) uint64 { return w.cl.steps },
	"%globaltimer":    func(w *warp) uint64 { return w.cl.steps },
	"%globaltimer_lo": func(w *warp) uint64 { return w.cl.steps & 0xffffffff },
	"%globaltimer_hi": func(w *warp) uint64 { return w.cl.steps >> 32 },
}

// specialSlot returns the slot that holds a special register; those that
// change are read by mov alone.
func (c *compiler) specialSlot(s ptx.Special) (int32, error) {
	if slot, ok := c.special[s.Name]; ok {
		return slot, nil
	}
	fill := fixedSpecials[s.Name]
	if n := len(s.Name); fill == nil && n > 2 && s.Name[n-2] == '.' {
		axis := int(s.Name[n-1] - 'x')
		if f := dims[s.Name[:n-2]]; f != nil && axis >= 0 && axis < 3 {
			fill = func(w *warp, l int) uint64 { return uint64(f(w, l)[axis]) }
		}
	}
	if fill == nil {
		return 0, fmt.Errorf("no semantics for special register %s here", s.Name)
	}
	slot := int32(len(c.regs))
	c.regs = append(c.regs, nil)
	c.special[s.Name] = slot
	c.specials = append(c.specials, specialSlot{slot, s.Name, fill})
	return slot, nil
}
