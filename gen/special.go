package gen

import (
	"github.com/mlagen/mlagen/ptx"
	"github.com/mlagen/mlagen/ptx/isa"
)

// special reads a special register where it is used: copies are cheap and
// short-lived ones keep registers free.
func (k *Kernel) special(name string, t isa.Type) Value {
	return k.apply(t, "mov.u32", ptx.Special{Name: name, Type: isa.U32}).declareNatural()
}

// Thread returns the thread's index in its CTA.
func (k *Kernel) Thread() Value { return k.special("%tid.x", isa.S32) }

// Lane returns the thread's index in its warp.
func (k *Kernel) Lane() Value { return k.special("%laneid", isa.S32) }

// Warp returns the warp's index in the CTA.
func (k *Kernel) Warp() Value { return k.Thread().Shr(5) }

// Warpgroup returns the warpgroup's index in the CTA, so that ptxas knows it to be
// the same in all of a warp's lanes.
func (k *Kernel) Warpgroup() Value { return k.Warp().Broadcast(0).Shr(2) }

// Block returns the CTA's index in the grid, Blocks the grid's size.
func (k *Kernel) Block() Value { return k.special("%ctaid.x", isa.S32) }

// Blocks returns the number of CTAs in the grid.
func (k *Kernel) Blocks() Value { return k.special("%nctaid.x", isa.S32) }

// ClusterRank returns the CTA's rank in its cluster.
func (k *Kernel) ClusterRank() Value { return k.special("%cluster_ctarank", isa.S32) }
