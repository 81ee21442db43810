package gen

import (
	"github.com/mlagen/mlagen/ptx"
	"github.com/mlagen/mlagen/ptx/isa"
)

// Share makes the ring one that the n CTAs of a cluster fill together: each
// brings a share of every slot, and brings it to all of them (FillAll). A slot
// is free when the readers of all CTAs have given it back to every CTA. Before InitBarriers; SyncCluster must follow that, and must come
// again before a CTA ends, whose peers may still copy or arrive there.
func (r *Ring) Share(n int) {
	if n < 1 || n > 16 || n&(n-1) != 0 {
		r.k.errorf("a ring is shared by %d CTAs: want a power of two up to 16", n)
		n = 1
	}
	r.ctas = n
	r.empty.arrivals *= n
}

// FillAll has the copy engine bring boxes, this CTA's share, into the slot of
// every CTA that the ring is shared by, and arrives at this CTA's. The shares
// are of one size.
func (p Place) FillAll(policy Value, boxes ...Box) {
	k, n := p.r.k, p.r.ctas
	if n < 2 {
		p.Fill(policy, boxes...)
		return
	}
	full := p.r.full.at.At(p.slot)
	k.expect(full.addr(0), n*p.boxBytes(boxes))
	all := k.reg(isa.U16)
	k.emit("mov.b16", all, ptx.Imm(1<<n-1))
	for _, b := range boxes {
		coords := ptx.Vec{}
		for _, c := range b.Coords {
			coords = append(coords, c.op)
		}
		op := "cp.async.bulk.tensor." + string(rune('0'+len(coords))) + "d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster.L2::cache_hint"
		k.emit(op, p.boxAddress(b), ptx.Tensor{Map: b.Tensor.address(), Coords: coords}, full.addr(0), all, policy.op)
	}
}

// releaseAll gives the slot back to all CTAs: the threads in which speaker holds
// are a warp's first lanes, as many as CTAs, and each speaks to one.
func (p Place) releaseAll(speaker Value) {
	k := p.r.k
	k.If(speaker, func() {
		at := p.r.empty.at.At(p.slot).Peer(k.Lane())
		k.emit("mbarrier.arrive.shared::cluster.b64", ptx.Sink{}, at.addr(0))
	})
}
