//go:build cuda

package cuda

import (
	"encoding/binary"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/mlagen/mlagen/ptx/manifest"
	"github.com/mlagen/mlagen/runtime"
)

func TestTensorMap(t *testing.T) {
	d := open(t)
	s := newStream(t, d)
	k := load(t, d, boxText, boxManifest())
	// 72 columns used of 80, four rows: the box of 32 × 4 from column 32, row 2
	// has two rows inside and two outside, which are filled with zero.
	const columns, pitch, rows = 72, 80, 4
	tensor, out := alloc(t, d, pitch*2*rows), alloc(t, d, 256)
	var data []byte
	for i := range pitch * rows {
		data = binary.LittleEndian.AppendUint16(data, uint16(i+1))
	}
	try(t, d.Upload(tensor, data))
	m, err := k.EncodeTensorMap("map", tensor, []uint64{columns, rows}, []uint64{pitch * 2})
	try(t, err)
	try(t, k.Launch(s, runtime.Dim3{X: 1}, k.NewParams().TensorMap("map", &m).Pointer("out", out), false), s.Synchronize())
	want := make([]byte, 256)
	copy(want, data[2*(2*pitch+32):][:64])
	copy(want[64:], data[2*(3*pitch+32):][:64])
	if diff := cmp.Diff(want, download(t, d, out, 256)); diff != "" {
		t.Errorf("box (-want +got):\n%s", diff)
	}

	_, err = k.EncodeTensorMap("map", tensor+8, []uint64{columns, rows}, []uint64{pitch * 2})
	wantError(t, err, `tensor map "map" (bf16, address`, "cuTensorMapEncodeTiled", "CUDA_ERROR_INVALID_VALUE")
	_, err = k.EncodeTensorMap("map", tensor, []uint64{columns, rows}, []uint64{pitch*2 + 2})
	wantError(t, err, "strides [162] bytes", "CUDA_ERROR_INVALID_VALUE")
	_, err = k.EncodeTensorMap("map", tensor, []uint64{columns}, nil)
	wantError(t, err, "a box of rank 2 with 1 sizes and 0 strides")
	for what, broken := range map[string]manifest.TensorMap{
		"element type f8":  {DType: "f8", Box: []int{32}},
		"swizzle 16":       {DType: "bf16", Box: []int{32}, Swizzle: 16},
		"L2 promotion 512": {DType: "bf16", Box: []int{32}, Promotion: 512},
	} {
		_, err := d.EncodeTensorMap(runtime.TensorMap{TensorMap: broken, Address: tensor, Sizes: []uint64{64}})
		wantError(t, err, "unknown "+what)
	}
}

// TestTensorMapOfPages describes a paged cache whose pages do not follow each
// other in steps of whole rows, as engines that interleave layers have it.
func TestTensorMapOfPages(t *testing.T) {
	d := open(t)
	p := alloc(t, d, 4096)
	static := manifest.TensorMap{Param: "kv", DType: "bf16", Box: []int{64, 64, 1}, Swizzle: 128, Promotion: 128}
	for _, strides := range [][]uint64{{1152, 73728}, {1152, 73728 + 16}, {1280, 64 * 1280}, {73728, 1152}, {1152, 1<<40 - 16}} {
		if _, err := d.EncodeTensorMap(runtime.TensorMap{TensorMap: static, Address: p, Sizes: []uint64{576, 64, 1 << 31}, Strides: strides}); err != nil {
			t.Error(err)
		}
	}
	_, err := d.EncodeTensorMap(runtime.TensorMap{TensorMap: static, Address: p, Sizes: []uint64{576, 64, 1}, Strides: []uint64{1152, 1 << 40}})
	wantError(t, err, "CUDA_ERROR_INVALID_VALUE")
}
