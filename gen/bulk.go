package gen

import (
	"github.com/mlagen/mlagen/ptx"
	"github.com/mlagen/mlagen/ptx/isa"
)

// BulkStore has the copy engine write a box of the tile, the rows from row on
// of one of its column blocks, to a tensor. FenceAsync and a barrier come
// between the box's writers and this; CommitBulk, by the same thread, follows.
func (s SharedTile) BulkStore(block int, row Value, to TensorMap, coords ...Value) {
	k := s.k
	if to.box[0] != s.BlockCols() || to.box[1] > s.Rows || to.box[1]%8 != 0 || block < 0 || block >= s.Blocks() {
		k.errorf("a box of %v is no run of rows of column block %d of a tile of %d×%d", to.box, block, s.Rows, s.Cols)
	}
	var at ptx.Vec
	for _, c := range coords {
		at = append(at, c.op)
	}
	from := s.address().Add(row.Mul(s.Swizzle.Bytes()))
	op := "cp.async.bulk.tensor." + string(rune('0'+len(at))) + "d.global.shared::cta.tile.bulk_group"
	k.emit(op, ptx.Tensor{Map: to.address(), Coords: at}, ptx.Addr{Base: from.op, Offset: int64(block * s.BlockBytes())})
}

// CommitBulk closes a group of this thread's bulk stores.
func (k *Kernel) CommitBulk() { k.emit("cp.async.bulk.commit_group") }

// WaitBulkRead waits until at most so many of this thread's groups still read
// their sources, which may be written again after.
func (k *Kernel) WaitBulkRead(pending int) { k.emit("cp.async.bulk.wait_group.read", ptx.Imm(pending)) }

// WaitBulk waits until at most so many of this thread's groups are unfinished.
func (k *Kernel) WaitBulk(pending int) { k.emit("cp.async.bulk.wait_group", ptx.Imm(pending)) }

// EvictNormal returns the cache policy for data without a special role.
func (k *Kernel) EvictNormal() Value {
	return k.apply(isa.B64, "createpolicy.fractional.L2::evict_normal.b64", ptx.F32(1))
}
