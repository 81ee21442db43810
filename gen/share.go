package gen

import (
	"github.com/mlagen/mlagen/ptx"
	"github.com/mlagen/mlagen/ptx/isa"
)

// Share makes the ring one that the n CTAs of a cluster fill together: each
// brings a share of every slot, and brings it to all of them (FillAll). A slot
// is free when the readers of all CTAs have given it back to every CTA. Before
// InitBarriers; SyncCluster must follow that, and must come again before a CTA ends,
// whose peers may still copy or arrive there.
func (r *Ring) Share(n int) {
	r.ctas = r.k.sharers(n)
	r.empty.arrivals *= r.ctas
}

func (k *Kernel) sharers(n int) int {
	if n < 1 || n > 16 || n&(n-1) != 0 {
		k.errorf("a ring is shared by %d CTAs: want a power of two up to 16", n)
		return 1
	}
	return n
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
	for _, b := range boxes {
		k.copyBoxTo(n, p.boxAddress(b), b.Tensor.address(), b.Coords, full.addr(0), policy)
	}
}

// copyBoxTo issues a copy to the same place in each of a cluster's n CTAs, whose
// mbarrier there counts the bytes.
func (k *Kernel) copyBoxTo(n int, dst ptx.Addr, desc ptx.Operand, at []Value, bar ptx.Addr, policy Value) {
	all := k.reg(isa.U16)
	k.emit("mov.b16", all, ptx.Imm(1<<n-1))
	coords := ptx.Vec{}
	for _, c := range at {
		coords = append(coords, c.op)
	}
	op := "cp.async.bulk.tensor." + string(rune('0'+len(coords))) + "d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster"
	if policy.op == nil {
		k.emit(op, dst, ptx.Tensor{Map: desc, Coords: coords}, bar, all)
		return
	}
	k.emit(op+".L2::cache_hint", dst, ptx.Tensor{Map: desc, Coords: coords}, bar, all, policy.op)
}

// arrive counts on an mbarrier, or on the same one in each of a cluster's n
// CTAs: then the threads are a warp's first n lanes, and each speaks to one.
func (k *Kernel) arrive(n int, at Region) {
	if n < 2 {
		k.emit("mbarrier.arrive.shared.b64", ptx.Sink{}, at.addr(0))
		return
	}
	k.emit("mbarrier.arrive.shared::cluster.b64", ptx.Sink{}, at.Peer(k.Lane()).addr(0))
}
