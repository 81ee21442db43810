package hopper

// WarpgroupThreads is the number of threads that execute a wgmma together.
const WarpgroupThreads = 128

// fragmentRow is the row that a thread of the warpgroup holds first in every
// 64-row fragment: 16 rows per warp, four lanes per row. The second one is
// eight below.
func fragmentRow(thread int) int { return thread/32*16 + thread%32/4 }

// threadOfRow returns the thread that holds row in lane quad position quad
// (0..3), and whether it is the second of its two rows (1) or the first (0).
func threadOfRow(row, quad int) (thread, second int) {
	return row/16*32 + row%8*4 + quad, row / 8 % 2
}

// AccumulatorValues returns how many f32 registers of a 64×n accumulator each
// thread holds.
func AccumulatorValues(n int) int { return n / 2 }

// AccumulatorAt returns the element of a 64×n f32 accumulator (operand d of
// wgmma.mma_async m64nNk*) that register i (0..n/2−1) of a thread (0..127 in
// the warpgroup) holds. PTX manual, #wgmma-64n16-d.
func AccumulatorAt(thread, i int) (row, column int) {
	return fragmentRow(thread) + 8*(i>>1&1), 8*(i>>2) + 2*(thread%4) + i&1
}

// AccumulatorIndex is the inverse of AccumulatorAt.
func AccumulatorIndex(row, column int) (thread, i int) {
	thread, second := threadOfRow(row, column%8/2)
	return thread, column/8*4 + second*2 + column%2
}

// A16Values is the number of 16-bit values of a 64×16 register operand A that
// each thread holds, in four 32-bit registers: register r has values 2r (low
// half) and 2r+1.
const A16Values = 8

// A16At returns the element of a 64×16 operand A of 16-bit values that value i
// (0..7) of a thread holds. It is AccumulatorAt on 16 columns: values 8j…8j+7
// of an accumulator are, converted, the operand of K block j.
// PTX manual, #wgmma-64n16-a.
func A16At(thread, i int) (row, k int) {
	return fragmentRow(thread) + 8*(i>>1&1), 8*(i>>2) + 2*(thread%4) + i&1
}

// A16Index is the inverse of A16At.
func A16Index(row, k int) (thread, i int) { return AccumulatorIndex(row, k) }

// A8Values is the number of 8-bit values of a 64×32 register operand A that
// each thread holds, in four 32-bit registers, lowest byte first.
const A8Values = 16

// A8At returns the element of a 64×32 operand A of 8-bit values that value i
// (0..15) of a thread holds: four consecutive k per register, so it is not the
// accumulator's layout. PTX manual, #wgmma-64n32-a.
func A8At(thread, i int) (row, k int) {
	return fragmentRow(thread) + 8*(i>>2&1), 16*(i>>3) + 4*(thread%4) + i&3
}

// A8Index is the inverse of A8At.
func A8Index(row, k int) (thread, i int) {
	thread, second := threadOfRow(row, k%16/4)
	return thread, k/16*8 + second*4 + k%4
}
