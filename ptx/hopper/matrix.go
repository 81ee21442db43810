package hopper

// MatrixRowLane returns the lane whose address operand gives row (0..7) of
// matrix (0..3) to ldmatrix or stmatrix .m8n8: lanes 0–7 for the first matrix,
// 8–15 for the second, and so on. PTX manual,
// #warp-level-matrix-instructions-ldmatrix and -stmatrix.
func MatrixRowLane(matrix, row int) int { return 8*matrix + row }

// MatrixAt returns the element of an 8×8 matrix of 16-bit values in shared
// memory that a lane's register exchanges, in its low half (0) or high half
// (1); every matrix has its own register. With trans the lane holds the
// transposed element.
func MatrixAt(lane, half int, trans bool) (row, column int) {
	row, column = lane/4, 2*(lane%4)+half
	if trans {
		return column, row
	}
	return row, column
}

// MatrixIndex is the inverse of MatrixAt.
func MatrixIndex(row, column int, trans bool) (lane, half int) {
	if trans {
		row, column = column, row
	}
	return 4*row + column/2, column % 2
}
