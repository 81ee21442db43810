package wgmma

import (
	"encoding/binary"
	"fmt"

	"github.com/mlagen/mlagen/ptx/hopper"
)

const (
	lanes       = hopper.WarpThreads
	matrixRows  = 8
	matrixBytes = 16 // of a row: eight 16-bit values
)

// LoadMatrix is ldmatrix.sync.aligned.m8n8.x<count>{.trans}.shared.b16: count
// (1, 2 or 4) matrices of 8×8 16-bit values into as many registers per lane.
// Lane 8m+r gives the address of row r of matrix m; read returns the 16 bytes
// there.
func LoadMatrix(count int, trans bool, addresses *[lanes]uint32, read func(addr uint32) ([]byte, error)) (regs [4][lanes]uint32, err error) {
	for m := range count {
		for row := range matrixRows {
			lane := hopper.MatrixRowLane(m, row)
			b, err := matrixRow("ldmatrix", lane, addresses[lane], read)
			if err != nil {
				return regs, err
			}
			for column := range matrixRows {
				to, half := hopper.MatrixIndex(row, column, trans)
				regs[m][to] |= uint32(binary.LittleEndian.Uint16(b[2*column:])) << (16 * half)
			}
		}
	}
	return regs, nil
}

// StoreMatrix is stmatrix.sync.aligned.m8n8.x<count>{.trans}.shared.b16, the
// inverse of LoadMatrix. at returns the 16 bytes of shared memory at an
// address, to be written.
func StoreMatrix(count int, trans bool, addresses *[lanes]uint32, regs *[4][lanes]uint32, at func(addr uint32) ([]byte, error)) error {
	for m := range count {
		for row := range matrixRows {
			lane := hopper.MatrixRowLane(m, row)
			b, err := matrixRow("stmatrix", lane, addresses[lane], at)
			if err != nil {
				return err
			}
			for column := range matrixRows {
				from, half := hopper.MatrixIndex(row, column, trans)
				binary.LittleEndian.PutUint16(b[2*column:], uint16(regs[m][from]>>(16*half)))
			}
		}
	}
	return nil
}

// MoveMatrix is movmatrix.sync.aligned.m8n8.trans.b16: the transpose of one
// matrix across the registers of a warp.
func MoveMatrix(a *[lanes]uint32) (d [lanes]uint32) {
	for lane := range lanes {
		for half := range 2 {
			row, column := hopper.MatrixAt(lane, half, false)
			from, h := hopper.MatrixIndex(column, row, false)
			d[lane] |= a[from] >> (16 * h) & 0xffff << (16 * half)
		}
	}
	return d
}

func matrixRow(name string, lane int, addr uint32, at func(uint32) ([]byte, error)) ([]byte, error) {
	if addr%matrixBytes != 0 {
		return nil, fmt.Errorf("%s: row address %#x of lane %d is not a multiple of %d", name, addr, lane, matrixBytes)
	}
	b, err := at(addr)
	if err != nil {
		return nil, fmt.Errorf("%s: lane %d: %w", name, lane, err)
	}
	if len(b) < matrixBytes {
		return nil, fmt.Errorf("%s: lane %d: %d bytes at %#x, must be %d", name, lane, len(b), addr, matrixBytes)
	}
	return b, nil
}
