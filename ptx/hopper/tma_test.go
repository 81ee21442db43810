package hopper

import (
	"strings"
	"testing"
)

// cacheMap is the tensor map of a paged latent cache: column, row in page, page.
func cacheMap() TensorMap {
	return TensorMap{
		Address:   0x7f0000000000,
		ElemBytes: 2,
		Dims:      []uint64{576, 64, 1 << 20},
		Strides:   []uint64{1152, 73728},
		Box:       []int{64, 64, 1},
		Swizzle:   Swizzle128,
	}
}

func TestTensorMapLimits(t *testing.T) {
	if err := cacheMap().Validate(); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		change func(*TensorMap)
		want   string // "" = legal
	}{
		{func(m *TensorMap) { m.Address += 16 }, ""},
		{func(m *TensorMap) { m.Address += 8 }, "tensor map address: was 0x7f0000000008, must be a multiple of 16"},
		{func(m *TensorMap) { m.Dims[2] = 1 << 32 }, ""},
		{func(m *TensorMap) { m.Dims[2] = 1<<32 + 1 }, "tensor map dimension 2: was 4294967297, must be 1 to 4294967296"},
		{func(m *TensorMap) { m.Dims[0] = 0 }, "tensor map dimension 0: was 0"},
		{func(m *TensorMap) { m.Dims = m.Dims[:2] }, "tensor map dimensions: was 2, must be as many as the box has, 3"},
		{func(m *TensorMap) { m.Strides = m.Strides[:1] }, "tensor map strides: was 1, must be one less than the dimensions, 2"},
		{func(m *TensorMap) { m.Strides[0] = 1160 }, "tensor map stride of dimension 1: was 1160, must be a multiple of 16"},
		{func(m *TensorMap) { m.Strides[1] = 1<<40 - 16 }, ""},
		{func(m *TensorMap) { m.Strides[1] = 1 << 40 }, "tensor map stride of dimension 2: was 1099511627776"},
		{func(m *TensorMap) { m.ElementStrides = []int{1, 1} }, "tensor map element strides: was 2"},
		{func(m *TensorMap) { m.ElementStrides = []int{1, 8, 1} }, ""},
		{func(m *TensorMap) { m.ElementStrides = []int{1, 9, 1} }, "tensor map element stride 1: was 9, must be 1 to 8"},
		{func(m *TensorMap) { m.Box = nil }, "tensor map rank: was 0, must be 1 to 5"},
		{func(m *TensorMap) { m.Box = make([]int, 6) }, "tensor map rank: was 6"},
		{func(m *TensorMap) { m.Box[1] = 256 }, ""},
		{func(m *TensorMap) { m.Box[1] = 257 }, "box dimension 1: was 257, must be 1 to 256 elements"},
		{func(m *TensorMap) { m.Box[2] = 0 }, "box dimension 2: was 0"},
		{func(m *TensorMap) { m.Box[0] = 12 }, "box dimension 0: was 12 elements = 24 bytes, must be a multiple of 16 bytes"},
		{func(m *TensorMap) { m.Box[0] = 72 }, "box dimension 0: was 72 elements = 144 bytes, must be at most 128 bytes with the 128B swizzle"},
		{func(m *TensorMap) { m.Swizzle = Swizzle64 }, "must be at most 64 bytes with the 64B swizzle"},
		{func(m *TensorMap) { m.Swizzle = Swizzle32 }, "must be at most 32 bytes with the 32B swizzle"},
		{func(m *TensorMap) { m.Swizzle, m.Box[0] = SwizzleNone, 72 }, ""},
		{func(m *TensorMap) { m.Swizzle = 7 }, "tensor map swizzle: was 7"},
		{func(m *TensorMap) { m.Box = []int{64, 256, 256} }, "must be at most 232448 bytes of shared memory"},
		{func(m *TensorMap) { m.ElemBytes = 3 }, "tensor map element bytes: was 3"},
	} {
		m := cacheMap()
		c.change(&m)
		switch err := m.Validate(); {
		case c.want == "" && err != nil:
			t.Errorf("Validate(%+v) = %v, want no error", m, err)
		case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
			t.Errorf("Validate(%+v) = %v, want %q", m, err, c.want)
		}
	}
}

func TestBoxBytes(t *testing.T) {
	// Nine boxes of 64×64 bf16 are a stage of 64 tokens: 73,728 bytes.
	if got := 9 * BoxBytes([]int{64, 64, 1}, 2); got != 73728 {
		t.Errorf("nine boxes have %d bytes, want 73728", got)
	}
}
