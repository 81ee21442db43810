package gen

import (
	"fmt"

	"github.com/mlagen/mlagen/ptx"
	"github.com/mlagen/mlagen/ptx/isa"
)

// AccumulatorRows is the height of an accumulator: wgmma's M.
const AccumulatorRows = 64

// Accumulator is a 64×N f32 matrix spread over a warpgroup's registers, N/2 in
// each thread, as wgmma's D fragment is.
type Accumulator struct {
	k *Kernel
	N int
	R []*Var
}

// Accumulator declares a 64×n accumulator, its contents undefined.
func (k *Kernel) Accumulator(n int) Accumulator {
	a := Accumulator{k: k, N: n}
	for range n / 2 {
		a.R = append(a.R, &Var{Value{k, k.reg(isa.F32), isa.F32}})
	}
	return a
}

// Zero sets every element to 0.
func (a Accumulator) Zero() {
	for _, r := range a.R {
		r.Set(0.0)
	}
}

// Element i of a thread lies in row RowOf(thread) + RowStep(i), column
// ColumnOf(thread) + ColumnStep(i) of the fragment (PTX manual,
// #wgmma-64n16-d).

// RowStep returns 0 or 8.
func (a Accumulator) RowStep(i int) int { return i >> 1 & 1 * 8 }

// ColumnStep returns the constant part of element i's column.
func (a Accumulator) ColumnStep(i int) int { return i>>2*8 + i&1 }

// FragmentRow returns the row of a thread's element 0 in a 64-row fragment.
func (k *Kernel) FragmentRow() Value {
	return k.Thread().And(127).Shr(5).Mul(16).Add(k.Lane().Shr(2))
}

// FragmentColumn returns the column of a thread's element 0.
func (k *Kernel) FragmentColumn() Value { return k.Lane().And(3).Mul(2) }

// Multiply issues acc (+)= a·b, where a has 64 rows from row on and b as many
// as the accumulator has columns; with keep, acc is added to. Parts of a
// pipeline's tile are awaited as they are reached, and the contraction runs in
// the order of their arrival. The result may be read after CommitMultiply and
// WaitMultiply.
func (k *Kernel) Multiply(acc Accumulator, a, b View, row int, keep bool) {
	switch {
	case a.Depth() != b.Depth():
		k.errorf("contraction of %d against %d elements", a.Depth(), b.Depth())
		return
	case row+64 > a.Extent():
		k.errorf("rows %d to %d of an operand of %d", row, row+64, a.Extent())
		return
	}
	k.checkOperand(acc, b)
	da, db := a.descriptors(), b.descriptors()
	first, rest := k.predicate(keep), k.predicate(true)
	add := first
	k.contraction(a, b, func(depth int) {
		k.mma(acc, a.tile.DType, ptx.Vec{a.at(da, row, depth)}, a.major(), b, db, depth, add)
		add = rest
	})
}

// MultiplyRows issues accs[i] += a·b for consecutive blocks of 64 rows of a,
// in the order of the contraction.
func (k *Kernel) MultiplyRows(accs []Accumulator, a, b View) { k.MultiplyAll(accs, a, b, true) }

// MultiplyAll is MultiplyRows that, without keep, begins anew.
func (k *Kernel) MultiplyAll(accs []Accumulator, a, b View, keep bool) {
	switch {
	case a.Depth() != b.Depth():
		k.errorf("contraction of %d against %d elements", a.Depth(), b.Depth())
		return
	case len(accs)*AccumulatorRows > a.Extent():
		k.errorf("%d accumulators of 64 rows for an operand of %d", len(accs), a.Extent())
		return
	}
	k.checkOperand(accs[0], b)
	da, db := a.descriptors(), b.descriptors()
	add := k.predicate(keep)
	rest := add
	if !keep {
		rest = k.predicate(true)
	}
	k.contraction(a, b, func(depth int) {
		for i, acc := range accs {
			k.mma(acc, a.tile.DType, ptx.Vec{a.at(da, i*64, depth)}, a.major(), b, db, depth, add)
		}
		add = rest
	})
}

// MultiplyFragment issues acc += a·b with a in registers: packed pairs of a
// 64×depth fragment, in the order in which a fragment of f32 is packed (see
// Accumulator), which is wgmma's order for operand A.
func (k *Kernel) MultiplyFragment(acc Accumulator, a []Value, b View) {
	k.checkOperand(acc, b)
	if len(a)*4 != b.Depth() {
		k.errorf("a fragment of %d registers against a contraction of %d", len(a), b.Depth())
		return
	}
	db := b.descriptors()
	add := k.predicate(true)
	k.FenceMultiply()
	for depth := 0; depth < b.Depth(); depth += 16 {
		k.mma(acc, b.tile.DType, ptx.Vec{operands(a[depth/4 : depth/4+4])}, nil, b, db, depth, add)
	}
}

func (k *Kernel) checkOperand(acc Accumulator, b View) {
	if b.Extent() != acc.N {
		k.errorf("b has %d rows: want %d, the accumulator's columns", b.Extent(), acc.N)
	}
}

// contraction runs step for every 16 elements of the contraction, fenced and
// in the order in which the operands arrive.
func (k *Kernel) contraction(a, b View, step func(depth int)) {
	var slot *Slot
	span := a.Depth()
	for _, v := range []View{a, b} {
		if v.tile.pipe != nil && !v.view.MNMajor {
			slot, span = v.tile.pipe, v.tile.BlockCols()
		}
	}
	run := func(from, to int) {
		k.FenceMultiply() // also after a wait: a loop lies between
		for depth := from; depth < to; depth += 16 {
			step(depth)
		}
	}
	if slot == nil {
		run(0, a.Depth())
		return
	}
	for i, part := range slot.p.parts {
		slot.await(i)
		run(part.First*span, (part.First+part.Count)*span)
	}
}

// major returns the operand's transpose immediate.
func (v View) major() ptx.Vec { return ptx.Vec{ptx.Imm(bit(v.view.MNMajor))} }

// predicate returns a constant predicate; ptxas folds it away.
func (k *Kernel) predicate(on bool) *ptx.Reg {
	p := k.reg(isa.Pred)
	k.emit("setp.ne.b32", p, k.Int(bit(on)).register(), ptx.Imm(0))
	return p
}

// mma issues one wgmma over 16 elements of the contraction; the accumulator is
// added to where add holds. major is a's transpose immediate, nil for registers.
func (k *Kernel) mma(acc Accumulator, t DType, a, major ptx.Vec, b View, db descriptors, depth int, add *ptx.Reg) {
	d := make(ptx.Vec, len(acc.R))
	for i, r := range acc.R {
		d[i] = r.op
	}
	args := append(append(ptx.Vec{d}, a...), b.at(db, 0, depth), add, ptx.Imm(1), ptx.Imm(1))
	args = append(append(args, major...), ptx.Imm(bit(b.view.MNMajor)))
	k.emit(fmt.Sprintf("wgmma.mma_async.sync.aligned.m64n%dk16.f32.%s.%s", acc.N, t.mma, t.mma), args...)
}

func bit(b bool) int {
	if b {
		return 1
	}
	return 0
}

// FenceMultiply orders this warpgroup's register accesses before the multiplies
// that follow.
func (k *Kernel) FenceMultiply() { k.emit("wgmma.fence.sync.aligned") }

// CommitMultiply closes a group of multiplies.
func (k *Kernel) CommitMultiply() { k.emit("wgmma.commit_group.sync.aligned") }

// WaitMultiply waits until at most pending groups are unfinished.
func (k *Kernel) WaitMultiply(pending int) { k.emit("wgmma.wait_group.sync.aligned", ptx.Imm(pending)) }

// StoreTransposed writes packed 16-bit pairs of a 64×N fragment into the tile
// as its transpose: fragment row r, column c becomes element (c, r) of the tile.
// packed holds one register per element pair, in the fragment's order; firstRow
// is the tile column that fragment row 0 goes to, a multiple of 8, an int or a
// Value.
func (t SharedTile) StoreTransposed(packed []Value, firstRow any) {
	k := t.k
	first := k.value(firstRow, isa.S32)
	lane := k.Lane()
	warp := k.Thread().And(127).Shr(5)
	// Each 8-column group of the fragment is two 8×8 matrices, rows 0–7 and
	// 8–15 of the warp's slice; lanes 0–15 give the addresses of their
	// transposed rows.
	row := lane.And(7)
	chunk := warp.Mul(2).Add(lane.Shr(3).And(1)).Add(first.Shr(3))
	for g := 0; g < len(packed)/2; {
		n := 1
		if g+1 < len(packed)/2 {
			n = 2
		}
		at := row
		if n == 2 {
			at = lane.Shr(4).Mul(8).Add(row)
		}
		r := t.Chunk(at.Add(g*8), chunk)
		k.emit(fmt.Sprintf("stmatrix.sync.aligned.m8n8.x%d.trans.shared.b16", 2*n), r.addr(0), operands(packed[2*g:2*g+2*n]))
		g += n
	}
}

// StoreRows writes packed 16-bit pairs of a 64×N fragment into the tile:
// fragment row r, column c becomes element (r, firstCol + c). firstCol is a
// multiple of 8, an int or a Value.
func (t SharedTile) StoreRows(packed []Value, firstCol any) {
	k := t.k
	t.storeSlice(packed, k.value(firstCol, isa.S32), k.Lane(), k.Thread().And(127).Shr(5).Mul(16))
}

// StoreSlice has a warp write its 16 rows of a fragment, packed in pairs, into
// the tile's rows from firstRow on, a multiple of 8, and its columns from
// firstCol on.
func (t SharedTile) StoreSlice(packed []Value, firstRow Value, firstCol int) {
	t.storeSlice(packed, t.k.Int(firstCol), t.k.Lane(), firstRow)
}

func (t SharedTile) storeSlice(packed []Value, firstCol, lane, firstRow Value) {
	k := t.k
	row := firstRow.Add(lane.And(15))
	// Two 8-column groups of the fragment are four 8x8 matrices: rows 0-7 and
	// 8-15 of the warp's slice, twice.
	for g := 0; g < len(packed)/2; g += 2 {
		r := t.Chunk(row, lane.Shr(4).Add(firstCol.Shr(3).Add(g)))
		k.emit("stmatrix.sync.aligned.m8n8.x4.shared.b16", r.addr(0), operands(packed[2*g:2*g+4]))
	}
}
