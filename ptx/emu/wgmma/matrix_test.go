package wgmma

import (
	"encoding/binary"
	"errors"
	"strings"
	"testing"
)

// smemOf has 16-bit value 100·matrix + 10·row + column in rows 32 bytes apart.
func smemOf() ([]byte, *[32]uint32) {
	smem := make([]byte, 1024)
	var addresses [32]uint32
	for lane := range 32 {
		matrix, row := lane/8, lane%8
		addresses[lane] = uint32(32 * lane)
		for column := range 8 {
			binary.LittleEndian.PutUint16(smem[32*lane+2*column:], uint16(100*matrix+10*row+column))
		}
	}
	return smem, &addresses
}

// TestLoadMatrix: thread l holds elements 2(l%4) and 2(l%4)+1 of row l/4, or,
// transposed, of column l/4 (manual, ldmatrix fragment layout).
func TestLoadMatrix(t *testing.T) {
	smem, addresses := smemOf()
	read := func(a uint32) ([]byte, error) { return smem[a : a+16], nil }
	for _, count := range []int{1, 2, 4} {
		for _, trans := range []bool{false, true} {
			regs, err := LoadMatrix(count, trans, addresses, read)
			if err != nil {
				t.Fatal(err)
			}
			for m := range 4 {
				for lane := range 32 {
					lo := uint32(100*m + 10*(lane/4) + 2*(lane%4))
					hi := lo + 1
					if trans {
						lo = uint32(100*m + 10*(2*(lane%4)) + lane/4)
						hi = lo + 10
					}
					want := hi<<16 | lo
					if m >= count {
						want = 0
					}
					if regs[m][lane] != want {
						t.Fatalf("x%d trans %v matrix %d lane %d: %#x, want %#x", count, trans, m, lane, regs[m][lane], want)
					}
				}
			}
			out := make([]byte, len(smem))
			at := func(a uint32) ([]byte, error) { return out[a : a+16], nil }
			if err := StoreMatrix(count, trans, addresses, &regs, at); err != nil {
				t.Fatal(err)
			}
			for i, b := range out {
				want := smem[i]
				if i >= count*256 {
					want = 0
				}
				if b != want {
					t.Fatalf("stmatrix x%d trans %v: byte %d is %d, want %d", count, trans, i, b, want)
				}
			}
		}
	}
}

func TestMoveMatrix(t *testing.T) {
	smem, addresses := smemOf()
	read := func(a uint32) ([]byte, error) { return smem[a : a+16], nil }
	plain, _ := LoadMatrix(1, false, addresses, read)
	trans, _ := LoadMatrix(1, true, addresses, read)
	if got := MoveMatrix(&plain[0]); got != trans[0] {
		t.Errorf("%x, want %x", got, trans[0])
	}
}

func TestMatrixErrors(t *testing.T) {
	var addresses [32]uint32
	fault := errors.New("fault")
	addresses[9] = 8
	ok := func(uint32) ([]byte, error) { return make([]byte, 16), nil }
	if _, err := LoadMatrix(1, false, &addresses, ok); err != nil { // lane 9 gives no row of x1
		t.Error(err)
	}
	if _, err := LoadMatrix(2, false, &addresses, ok); err == nil || !strings.Contains(err.Error(), "lane 9") {
		t.Error(err)
	}
	if err := StoreMatrix(4, true, &addresses, new([4][32]uint32), ok); err == nil || !strings.Contains(err.Error(), "multiple of 16") {
		t.Error(err)
	}
	bad := func(uint32) ([]byte, error) { return nil, fault }
	if err := StoreMatrix(1, true, &addresses, new([4][32]uint32), bad); !errors.Is(err, fault) {
		t.Error(err)
	}
	short := func(uint32) ([]byte, error) { return make([]byte, 8), nil }
	if _, err := LoadMatrix(1, false, &addresses, short); err == nil {
		t.Error("a short row was read")
	}
}
