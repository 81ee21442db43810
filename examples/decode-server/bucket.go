package main

import (
	"bytes"
	"encoding/binary"

	"github.com/mlagen/mlagen/runtime"
)

// bucket is a step for up to so many requests: its inputs and outputs, and its
// graph. Launches depend on nothing else, so the graph is captured once and
// replayed with other requests, lengths and tables in the same memory. A place
// without a request has length 0, a table of −1 and slot −1.
type bucket struct {
	capacity int
	heads    int
	width    int           // entries of a row of the block table
	graph    runtime.Graph // nil before the first step

	// What the host writes and reads lies on the device as it does here, so that a
	// step takes one copy in and one out.
	in, out                               []byte
	query, record, slots, lengths, tables part // of in
	output, lse                           part // of out
}

// part is a stretch of a range that host and device both have.
type part struct {
	host   []byte
	offset runtime.Ptr
}

// partAlign is more than any kernel asks for.
const partAlign = 256

func newBucket(capacity, heads, width int) *bucket {
	b := &bucket{capacity: capacity, heads: heads, width: width}
	b.in = carve(
		cut{&b.query, capacity * heads * rowBytes}, cut{&b.record, capacity * rowBytes},
		cut{&b.slots, capacity * 8}, cut{&b.lengths, capacity * 4}, cut{&b.tables, capacity * width * 4})
	b.out = carve(cut{&b.output, capacity * heads * outBytes}, cut{&b.lse, capacity * heads * 4})
	return b
}

// cut is a part to be made.
type cut struct {
	to    *part
	bytes int
}

// carve makes a range of its parts.
func carve(cuts ...cut) []byte {
	total := 0
	for _, c := range cuts {
		c.to.offset = runtime.Ptr(total)
		total += (c.bytes + partAlign - 1) / partAlign * partAlign
	}
	whole := make([]byte, total)
	for _, c := range cuts {
		c.to.host = whole[c.to.offset:][:c.bytes:c.bytes]
	}
	return whole
}

// clear makes all places empty. Of an empty place nobody may read query and
// record: they are NaN.
func (b *bucket) clear() {
	for _, p := range []part{b.query, b.record, b.slots, b.tables} {
		for i := range p.host {
			p.host[i] = 0xff // NaN in bf16, −1 in integers
		}
	}
	clear(b.lengths.host)
}

// set puts a request into a place: its length, the new token included, its
// pages, and where the new token's row goes. It returns the room for query and
// row.
func (b *bucket) set(place, length int, pages []int32) (query, record []byte) {
	binary.LittleEndian.PutUint32(b.lengths.host[4*place:], uint32(length))
	for i, id := range pages {
		binary.LittleEndian.PutUint32(b.tables.host[4*(place*b.width+i):], uint32(id))
	}
	binary.LittleEndian.PutUint64(b.slots.host[8*place:], slot(pages, length-1))
	return at(b.query.host, place, b.heads*rowBytes), at(b.record.host, place, rowBytes)
}

// result returns the output of a place.
func (b *bucket) result(place int) (out, lse []byte) {
	return at(b.output.host, place, b.heads*outBytes), at(b.lse.host, place, b.heads*4)
}

// at returns the i-th stretch of so many bytes.
func at(of []byte, i, bytes int) []byte { return of[i*bytes:][:bytes] }

// slot returns where in the cache a request's token lies.
func slot(pages []int32, position int) uint64 {
	return uint64(pages[position/page])*page + uint64(position%page)
}

// isEmpty reports whether a result is that of a place without a request: zeros,
// and −∞ for each head.
func isEmpty(out, lse []byte) bool {
	const minusInfinity = "\x00\x00\x80\xff"
	return len(bytes.Trim(out, "\x00")) == 0 && string(lse) == string(bytes.Repeat([]byte(minusInfinity), len(lse)/4))
}

// isFinite reports whether no element of a result is an infinity or a NaN.
func isFinite(out, lse []byte) bool {
	const exponent = 0x7f80 // of bf16, and of the upper half of f32
	for i := 0; i < len(out); i += element {
		if binary.LittleEndian.Uint16(out[i:])&exponent == exponent {
			return false
		}
	}
	for i := 0; i < len(lse); i += 4 {
		if binary.LittleEndian.Uint16(lse[i+2:])&exponent == exponent {
			return false
		}
	}
	return true
}
