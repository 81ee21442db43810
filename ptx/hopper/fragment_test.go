package hopper

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

type element struct{ Row, Column int }

// TestFragmentFigures quotes single cells of the manual's figures.
func TestFragmentFigures(t *testing.T) {
	for _, c := range []struct {
		name      string
		at        func(thread, i int) (int, int)
		thread, i int
		want      element
	}{
		{"d", AccumulatorAt, 0, 0, element{0, 0}},
		{"d", AccumulatorAt, 0, 1, element{0, 1}},
		{"d", AccumulatorAt, 0, 2, element{8, 0}},
		{"d", AccumulatorAt, 0, 3, element{8, 1}},
		{"d", AccumulatorAt, 0, 4, element{0, 8}},
		{"d", AccumulatorAt, 3, 1, element{0, 7}},
		{"d", AccumulatorAt, 31, 0, element{7, 6}},
		{"d", AccumulatorAt, 32, 0, element{16, 0}},
		{"d", AccumulatorAt, 127, 127, element{63, 255}},
		{"a k16", A16At, 1, 0, element{0, 2}},
		{"a k16", A16At, 1, 2, element{8, 2}},
		{"a k16", A16At, 1, 5, element{0, 11}},
		{"a k16", A16At, 127, 7, element{63, 15}},
		{"a k32", A8At, 0, 3, element{0, 3}},
		{"a k32", A8At, 0, 4, element{8, 0}},
		{"a k32", A8At, 1, 0, element{0, 4}},
		{"a k32", A8At, 1, 8, element{0, 20}},
		{"a k32", A8At, 127, 15, element{63, 31}},
	} {
		row, column := c.at(c.thread, c.i)
		if diff := cmp.Diff(c.want, element{row, column}); diff != "" {
			t.Errorf("%s: thread %d, value %d: %s", c.name, c.thread, c.i, diff)
		}
	}
}

// TestFragmentLayouts compares whole fragments with the thread-value layouts
// of CUTLASS (CLayout_64xN, ALayout_64x16, ALayout_64x32), which number an
// element row + 64·column, and checks the inverses.
func TestFragmentLayouts(t *testing.T) {
	for _, c := range []struct {
		name            string
		columns, values int
		thread, value   []mode
		at, index       func(int, int) (int, int)
	}{
		{"d n8", 8, AccumulatorValues(8), []mode{{4, 128}, {8, 1}, {4, 16}}, []mode{{2, 64}, {2, 8}, {1, 512}}, AccumulatorAt, AccumulatorIndex},
		{"d n24", 24, AccumulatorValues(24), []mode{{4, 128}, {8, 1}, {4, 16}}, []mode{{2, 64}, {2, 8}, {3, 512}}, AccumulatorAt, AccumulatorIndex},
		{"d n256", 256, AccumulatorValues(256), []mode{{4, 128}, {8, 1}, {4, 16}}, []mode{{2, 64}, {2, 8}, {32, 512}}, AccumulatorAt, AccumulatorIndex},
		{"a k16", 16, A16Values, []mode{{4, 128}, {8, 1}, {4, 16}}, []mode{{2, 64}, {2, 8}, {2, 512}}, A16At, A16Index},
		{"a k32", 32, A8Values, []mode{{4, 256}, {8, 1}, {4, 16}}, []mode{{4, 64}, {2, 8}, {2, 1024}}, A8At, A8Index},
	} {
		seen := make(map[element]bool)
		for thread := range WarpgroupThreads {
			for i := range c.values {
				n := layout(thread, c.thread...) + layout(i, c.value...)
				want := element{n % 64, n / 64}
				row, column := c.at(thread, i)
				got := element{row, column}
				if got != want {
					t.Fatalf("%s: thread %d, value %d holds %v, want %v", c.name, thread, i, got, want)
				}
				if th, v := c.index(row, column); th != thread || v != i {
					t.Fatalf("%s: index of %v is thread %d, value %d; want %d, %d", c.name, got, th, v, thread, i)
				}
				seen[got] = true
			}
		}
		if len(seen) != 64*c.columns {
			t.Errorf("%s: %d elements held, want %d", c.name, len(seen), 64*c.columns)
		}
	}
}

// TestAccumulatorIsTheNextOperand: eight accumulator registers, converted, are
// the A operand of one K block.
func TestAccumulatorIsTheNextOperand(t *testing.T) {
	for thread := range WarpgroupThreads {
		for i := range 32 {
			row, column := AccumulatorAt(thread, i)
			arow, k := A16At(thread, i%8)
			if diff := cmp.Diff(element{row, column}, element{arow, 16*(i/8) + k}); diff != "" {
				t.Fatalf("thread %d, value %d: %s", thread, i, diff)
			}
		}
	}
}

func TestMatrixMoves(t *testing.T) {
	// Lane 9 of the manual's 8×8 figure holds row 2, columns 2 and 3.
	for _, c := range []struct {
		lane, half int
		trans      bool
		want       element
	}{
		{0, 0, false, element{0, 0}},
		{9, 0, false, element{2, 2}},
		{9, 1, false, element{2, 3}},
		{31, 1, false, element{7, 7}},
		{9, 0, true, element{2, 2}},
		{9, 1, true, element{3, 2}},
		{1, 0, true, element{2, 0}},
		{4, 0, true, element{0, 1}},
	} {
		row, column := MatrixAt(c.lane, c.half, c.trans)
		if diff := cmp.Diff(c.want, element{row, column}); diff != "" {
			t.Errorf("lane %d half %d trans %v: %s", c.lane, c.half, c.trans, diff)
		}
	}
	for _, trans := range []bool{false, true} {
		for lane := range 32 {
			for half := range 2 {
				row, column := MatrixAt(lane, half, trans)
				if l, h := MatrixIndex(row, column, trans); l != lane || h != half {
					t.Errorf("MatrixIndex(%d, %d, %v) = %d, %d; want %d, %d", row, column, trans, l, h, lane, half)
				}
			}
		}
	}
	for _, c := range [][3]int{{0, 0, 0}, {0, 7, 7}, {1, 0, 8}, {3, 7, 31}} {
		if got := MatrixRowLane(c[0], c[1]); got != c[2] {
			t.Errorf("MatrixRowLane(%d, %d) = %d, want %d", c[0], c[1], got, c[2])
		}
	}
}
