package gen

import (
	"github.com/mlagen/mlagen/ptx"
	"github.com/mlagen/mlagen/ptx/isa"
)

// SharedRows is a stage in shared memory for rows of a result on their way to
// global memory: each row lies in one piece, so that the copy engine can take
// it alone, and the next begins 16 bytes past a multiple of 128, so that the
// fragments' 8×8 matrices are stored without bank conflicts.
type SharedRows struct {
	at    Region
	dtype DType
	cols  int
	pitch int // bytes
}

// SharedRows reserves rows of cols elements, a multiple of 64.
func (k *Kernel) SharedRows(name string, dtype DType, rows, cols int) SharedRows {
	if cols%64 != 0 {
		k.errorf("rows %s have %d columns: want a multiple of 64", name, cols)
	}
	s := SharedRows{dtype: dtype, cols: cols, pitch: RowPitch(dtype, cols)}
	s.at = k.SharedArray(name, isa.B32, rows*s.pitch/4)
	return s
}

// RowPitch returns the bytes from one row of SharedRows to the next.
func RowPitch(dtype DType, cols int) int { return cols*dtype.Bytes() + 16 }

// From returns the rows from one on.
func (s SharedRows) From(row any) SharedRows {
	switch r := row.(type) {
	case int:
		s.at = s.at.At(r * s.pitch / 4)
	case Value:
		s.at = s.at.At(r.Mul(s.pitch / 4))
	default:
		s.at.k.errorf("%T is no row", row)
	}
	return s
}

// StoreFragment has a warp write its 16 rows of a 64×N fragment, packed in
// pairs, to rows 0 to 15 and the columns from firstCol on.
func (s SharedRows) StoreFragment(packed []Value, firstCol int) {
	k := s.at.k
	if n := firstCol + 4*len(packed); len(packed)%4 != 0 || n > s.cols {
		k.errorf("a fragment of %d pairs at column %d does not fit rows of %d", len(packed), firstCol, s.cols)
	}
	lane := k.Lane()
	// A thread's address is that of a row of one of four 8×8 matrices: rows 0–7
	// and 8–15 of the first 8 columns, then of the next.
	at := s.at.At(lane.And(15).Mul(s.pitch / 4).Add(lane.Shr(4).Mul(4)))
	for g := 0; g < len(packed); g += 4 {
		k.emit("stmatrix.sync.aligned.m8n8.x4.shared.b16", at.addr((firstCol+4*g)*s.dtype.Bytes()/4), operands(packed[g:g+4]))
	}
}

// BulkStore has the copy engine write the first cols elements of row to global
// memory, aligned to 16 bytes. FenceAsync and a barrier come between the row's
// writers and this; CommitBulk follows.
func (s SharedRows) BulkStore(row Value, cols int, to Pointer) {
	from := s.From(row)
	s.at.k.emit("cp.async.bulk.global.shared::cta.bulk_group", to.addr(0), from.at.addr(0), ptx.Imm(cols*s.dtype.Bytes()))
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
