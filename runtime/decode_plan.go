package runtime

import (
	"errors"
	"fmt"
	"math"
)

// itemBytes is the size of a schedule entry, a merge entry likewise: four s32.
const itemBytes = 16

// sectionAlign is the alignment of each part of a buffer.
const sectionAlign = 256

// plan is how the schedule and the workspace of a batch are laid out. Offsets
// and sizes are in bytes. It depends on capacity alone, never on lengths, so
// that a captured graph serves every batch of that capacity.
type plan struct {
	// schedule buffer
	partFirst, items, merges, arrivals int64
	scheduleBytes                      int64
	// workspace
	partialOut, partialState int64
	workspaceBytes           int64
}

// plan lays out the buffers for batch requests. The balanced schedule
// (splits 0) cuts the batch's tiles into parts of equal work: each part has at
// most two pieces of requests that others share, its first and its last.
// Forced splits (n) cut every request into up to n.
func (d *Decode) plan(batch, splits int) (plan, error) {
	var p plan
	if batch < 0 {
		return p, argumentError("batch", "at least 0", "was %d", batch)
	}
	if splits < 0 {
		return p, argumentError("splits", "0 for a balanced schedule, or the number of pieces per request", "was %d", splits)
	}
	rows := int64(d.model.Rows())
	if rows < 1 {
		return p, errors.New(closed)
	}
	requests, pieces, parts := int64(batch), int64(max(1, splits)), int64(d.parts)
	if requests > math.MaxInt32/rows {
		return p, argumentError("batch", fmt.Sprintf("at most %d: query rows are numbered in 31 bits", math.MaxInt32/rows), "was %d", batch)
	}
	slots, merges := 2*parts, 1+min(requests, parts)
	if splits > 0 {
		if requests > 0 && pieces > math.MaxInt32/max(rows, itemBytes)/requests {
			return p, argumentError("splits", fmt.Sprintf("at most %d for a batch of %d: partial rows are numbered in 31 bits",
				math.MaxInt32/max(rows, itemBytes)/requests, batch), "was %d", splits)
		}
		slots, merges = requests*pieces, 1+requests
	}
	items := requests*pieces + parts

	at := int64(0)
	place := func(bytes int64) (offset int64) {
		offset = at
		at += (bytes + sectionAlign - 1) / sectionAlign * sectionAlign
		return offset
	}
	p.partFirst = place(4 * (parts + 1))
	p.items = place(itemBytes * items)
	p.merges = place(itemBytes * merges)
	p.arrivals = place(4 * slots * int64(d.rowBlocks))
	p.scheduleBytes = at
	at = 0
	padded := int64(d.rowBlocks) * int64(d.model.BlockH) // rows of whole row blocks
	p.partialOut = place(int64(d.model.DType.PartialBytes()) * slots * padded * int64(d.model.Latent))
	p.partialState = place(stateBytes * slots * padded)
	p.workspaceBytes = at
	return p, nil
}

// ScheduleBytes returns the size of the schedule buffer for batch requests, 0
// when Schedule would refuse these arguments. splits 0 lets the kernel balance
// the work; n forces up to n pieces per request.
func (d *Decode) ScheduleBytes(batch, splits int) int64 {
	p, err := d.plan(batch, splits)
	if err != nil {
		return 0
	}
	return p.scheduleBytes
}

// WorkspaceBytes returns the size of the workspace for batch requests, 0 when
// Run would refuse these arguments.
func (d *Decode) WorkspaceBytes(batch, splits int) int64 {
	p, err := d.plan(batch, splits)
	if err != nil {
		return 0
	}
	return p.workspaceBytes
}

// planParts returns how many parts the work is cut into, each run by one block
// per row block, so that the parts' blocks fill the device's multiprocessors
// and come out in whole clusters.
func planParts(sms, rows, blockH, cluster int) (parts, rowBlocks int, err error) {
	rowBlocks = (rows + blockH - 1) / blockH
	parts = max(1, sms/rowBlocks)
	if cluster > 1 {
		whole := cluster / gcd(rowBlocks, cluster) // parts per whole number of clusters
		parts = max(1, parts/whole) * whole
	}
	if int64(parts)*int64(rowBlocks) > maxGridX {
		return 0, 0, fmt.Errorf("%d query rows in blocks of %d make a grid of %d blocks, must be at most %d", rows, blockH, int64(parts)*int64(rowBlocks), maxGridX)
	}
	return parts, rowBlocks, nil
}

func gcd(a, b int) int {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}

// Merging: a block's warps, each of which merges a unit alone where no request
// has more pieces than that; the partial output in such a unit, 16 bytes a lane,
// and the elements in one that a block's warps share.
const (
	mergeWarps  = 8
	unitBytes   = 16 * 32
	sharedElems = 4 * 32
)

// stateBytes is the room for what a partial row has beside its output: the LSE
// and the unit that its elements are counted in, for each of up to eight warps
// that hold elements of it.
const stateBytes = 8 * 8

// PartialBytes returns the size of an element of decode's partial outputs where
// the result is of type t: f16 in units of the row for bf16, f32 for fp16.
func (t DType) PartialBytes() int {
	if t == FP16 {
		return 4
	}
	return 2
}

// mergeBlocks returns the grid of the kernel that merges a batch whose longest
// request has so many pages, at most: the blocks that have work, within bounds that
// follow from where they may begin (golden/perf/decode.md).
//
// The step after this one starts when all of them have. Beside a CTA of decode with 8,
// 16 or 32 rows there is room for one, with 40 and 64 for none. So where hardly
// anything is to be merged, one for each multiprocessor lets the next step begin while
// this one's last CTAs still run, and takes up to 5 % off it; with wide row blocks two
// or three were measured to be best, presumably since CTAs that begin one by one read
// the pages that they share at different times. Where there is much to merge, blocks
// of few rows go round rather than wait for room. Beside 24 rows there is no room,
// since the ring takes it, and yet one is best there too.
func (d *Decode) mergeBlocks(batch, splits int, pages int64) int {
	pieces, merged := d.parts/max(1, batch), min(batch, d.parts)
	if splits > 0 {
		pieces, merged = splits, batch
	}
	if pieces <= pairPieces { // most are merged by decode
		switch {
		case d.model.BlockH <= besideBlockH:
			return d.sms
		case d.rowBlocks > d.cluster && int64(batch)*pages > int64(d.parts):
			return 3 * d.sms
		}
		return 2 * d.sms
	}
	elems := merged * d.rowBlocks * d.model.BlockH * d.model.Latent
	work := elems / sharedElems
	units := elems * d.model.DType.PartialBytes() / unitBytes
	if pieces <= mergeWarps {
		work = (units + mergeWarps - 1) / mergeWarps
	} else if pieces <= 2*mergeWarps {
		work = (units + 1) / 2
	}
	most := 4 * d.sms
	switch {
	case d.model.BlockH <= narrowBlockH && work <= 2*d.sms:
		most = d.sms
	case d.model.BlockH <= narrowBlockH:
		most = 2 * d.sms
	case d.model.BlockH <= besideBlockH:
		most = 3 * d.sms
	}
	return min(most, max(work, (d.sms+1)/2))
}

// Row blocks whose CTAs leave room for one of the merge on their multiprocessor (but for
// 24 rows), and those of which the merge's work is little.
const (
	besideBlockH = 32
	narrowBlockH = 16
)
