package runtime

import (
	"encoding/binary"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestPieces(t *testing.T) {
	drv := newFake()
	drv.attributes.SMs = 3
	d, err := LoadDecode(drv, decodeVariants(16, 1, 16))
	if err != nil {
		t.Fatal(err)
	}
	const batch = 4
	buffer := make([]byte, d.ScheduleBytes(batch, 0))
	put := func(at int64, words ...int32) {
		for i, w := range words {
			binary.LittleEndian.PutUint32(buffer[at+4*int64(i):], uint32(w))
		}
	}
	p, _ := d.plan(batch, 0)
	// Parts 0 and 2 have further items, from the capacity's fourth on; part 1 is idle.
	put(p.partFirst, 3, 5, 5, 6)
	put(p.items,
		0, 0, 2, -1, -1, 0, 0, 0, 2, 1, 4, 1,
		1, 0, 1, -1, 2, 0, 1, 0, 3, 0, 0, -1)
	got, err := d.Pieces(buffer, batch, 0)
	if err != nil {
		t.Fatal(err)
	}
	want := []Piece{{0, 0, 0, 2}, {0, 1, 0, 1}, {0, 2, 0, 1}, {2, 2, 1, 4}, {2, 3, 0, 0}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if err := CheckPieces(got, []int{2, 1, 4, 0}); err != nil {
		t.Error(err)
	}
	for _, c := range []struct {
		tiles []int
		why   string
	}{
		{[]int{3, 1, 4, 0}, "of the 3 tiles of request 0, 2 are"}, {[]int{1, 1, 4, 0}, "part 0 has tiles 0 to 2 of request 0"},
		{[]int{2, 1, 4}, "request 3 of 3"}, {[]int{2, 1, 4, 0, 0}, "request 4"}, {[]int{2, 1, 4, 1}, "part 2 has tiles 0 to 0"},
	} {
		if err := CheckPieces(got, c.tiles); err == nil || !strings.Contains(err.Error(), c.why) {
			t.Errorf("%v: %v, want %q", c.tiles, err, c.why)
		}
	}
	twice := append(got, Piece{1, 2, 1, 4})
	if err := CheckPieces(twice, []int{2, 1, 4, 0}); err == nil {
		t.Error("a tile in two pieces was accepted")
	}

	put(p.partFirst, 3, 100)
	if _, err := d.Pieces(buffer, batch, 0); err == nil || !strings.Contains(err.Error(), "item") {
		t.Error(err)
	}
	if _, err := d.Pieces(buffer[:8], batch, 0); err == nil {
		t.Error("a short buffer was accepted")
	}
}
