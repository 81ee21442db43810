package runtime

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"slices"
)

// Piece is a run of a request's tiles (pages) that one part of the device
// attends to.
type Piece struct {
	Part, Request int
	Begin, End    int // tiles, End excluded
}

// Pieces reads the schedule in buffer, the contents of the device buffer that
// Schedule(batch, splits) filled: the pieces of every part, in the order in
// which it takes them. It is for tests and tools; Run reads the schedule on the
// device.
func (d *Decode) Pieces(buffer []byte, batch, splits int) ([]Piece, error) {
	p, err := d.plan(batch, splits)
	if err != nil {
		return nil, err
	}
	if int64(len(buffer)) < p.scheduleBytes {
		return nil, argumentError("schedule buffer", fmt.Sprintf("at least %d", p.scheduleBytes), "size was %d bytes", len(buffer))
	}
	word := func(section int64, i int) int {
		return int(int32(binary.LittleEndian.Uint32(buffer[section+4*int64(i):])))
	}
	capacity := int((p.merges - p.items) / itemBytes)
	var pieces []Piece
	take := func(part, i int) error {
		if i < 0 || i >= capacity {
			return fmt.Errorf("schedule: part %d has item %d of %d", part, i, capacity)
		}
		if request := word(p.items, 4*i); request >= 0 { // else the part is idle
			pieces = append(pieces, Piece{part, request, word(p.items, 4*i+1), word(p.items, 4*i+2)})
		}
		return nil
	}
	for part := range d.parts {
		if err := take(part, part); err != nil { // the first lies at the part's own number
			return nil, err
		}
		for i := word(p.partFirst, part); i < word(p.partFirst, part+1); i++ {
			if err := take(part, i); err != nil {
				return nil, err
			}
		}
	}
	return pieces, nil
}

// CheckPieces says what is wrong with the pieces of requests of so many tiles:
// every tile must be in one of them, and a request without tiles in an empty
// one.
func CheckPieces(pieces []Piece, tiles []int) error {
	sorted := slices.Clone(pieces)
	slices.SortStableFunc(sorted, func(a, b Piece) int {
		return cmp.Or(cmp.Compare(a.Request, b.Request), cmp.Compare(a.Begin, b.Begin))
	})
	rest := sorted
	for r, n := range tiles {
		at, count := 0, 0
		for ; count < len(rest) && rest[count].Request <= r; count++ {
			p := rest[count]
			if p.Request < 0 || p.Begin != at || p.End < at || p.End > n || p.Begin == p.End && n > 0 {
				return fmt.Errorf("schedule: part %d has tiles %d to %d of request %d, which has %d tiles; tile %d of request %d was due",
					p.Part, p.Begin, p.End, p.Request, n, at, r)
			}
			at = p.End
		}
		if at != n || count == 0 {
			return fmt.Errorf("schedule: of the %d tiles of request %d, %d are in the %d pieces", n, r, at, count)
		}
		rest = rest[count:]
	}
	if len(rest) > 0 {
		return fmt.Errorf("schedule: part %d has request %d of %d", rest[0].Part, rest[0].Request, len(tiles))
	}
	return nil
}
