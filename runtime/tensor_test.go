package runtime

import (
	"math"
	"testing"
)

func TestOverlaps(t *testing.T) {
	for _, test := range []struct {
		shape, strides []int64
		want           bool
	}{
		{[]int64{2, 3, 4}, nil, false},
		{[]int64{2, 3, 4}, []int64{12, 4, 1}, false},
		{[]int64{2, 3, 4}, []int64{4, 8, 1}, false}, // transposed
		{[]int64{2, 3, 4}, []int64{100, 4, 1}, false},
		{[]int64{2, 3, 4}, []int64{11, 4, 1}, true}, // the second block begins on the first's last element
		{[]int64{2, 3, 4}, []int64{12, 3, 1}, true},
		{[]int64{2, 3, 4}, []int64{0, 4, 1}, true},
		{[]int64{1, 3, 4}, []int64{0, 4, 1}, false}, // one block has no neighbour
		{[]int64{4}, []int64{0}, true},
	} {
		x := Tensor{DType: BF16, Shape: test.shape, Strides: test.strides}
		if got := x.overlaps(); got != test.want {
			t.Errorf("shape %v, strides %v: %v", test.shape, test.strides, got)
		}
	}
}

func TestSpan(t *testing.T) {
	for _, test := range []struct {
		shape, strides []int64
		want           int64 // −1 = too large
	}{
		{[]int64{2, 3, 4}, nil, 48},
		{[]int64{2, 3, 4}, []int64{100, 10, 1}, 248},
		{[]int64{2, 1, 4}, []int64{100, -5, 1}, 208},
		{[]int64{2, 0, 4}, []int64{100, 10, 1}, 0},
		{[]int64{}, nil, 2},
		{[]int64{1 << 31, 64, 576}, nil, 1 << 31 * 64 * 576 * 2},
		{[]int64{1 << 40, 1 << 40}, nil, -1},
		{[]int64{3, 1}, []int64{math.MaxInt64, 1}, -1},
		{[]int64{2, 2}, []int64{math.MaxInt64, math.MaxInt64}, -1},
		{[]int64{2}, []int64{1 << 61}, 1<<62 + 2},
		{[]int64{2}, []int64{1 << 62}, -1},
	} {
		x := Tensor{DType: BF16, Shape: test.shape, Strides: test.strides}
		got, ok := x.span()
		if !ok {
			got = -1
		}
		if got != test.want {
			t.Errorf("shape %v, strides %v: %d bytes, want %d", test.shape, test.strides, got, test.want)
		}
	}
}

func TestEmptyTensorNeedsNoAddress(t *testing.T) {
	x := expectation{name: "x", dtype: S32, rank: 2, axes: [4]axis{{"a", 3}, {"b", -1}}}
	empty := Dense(0, S32, 3, 0)
	if err := x.check(&empty); err != nil {
		t.Error(err)
	}
}
