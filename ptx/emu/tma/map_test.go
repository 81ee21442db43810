package tma

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/mlagen/mlagen/ptx/hopper"
	"github.com/mlagen/mlagen/ptx/isa"
	"github.com/mlagen/mlagen/ptx/manifest"
)

func kvMap() *Map {
	return &Map{
		DType: isa.BF16, Address: 0x7f0000001000,
		Sizes: []uint64{576, 64, 116508}, Strides: []uint64{1152, 73728},
		Box: []int{64, 64, 1}, Swizzle: hopper.Swizzle128, Promotion: 128,
	}
}

func TestEncodeDecode(t *testing.T) {
	maps := []*Map{
		kvMap(),
		{DType: isa.F32, Address: 16, Sizes: []uint64{1 << 32}, Strides: []uint64{}, Box: []int{256}, Promotion: 256},
		{DType: isa.U8, Address: 0, Sizes: []uint64{1, 2, 3, 4, 5}, Strides: []uint64{16, 32, 0, 1<<40 - 16}, Box: []int{32, 1, 2, 1, 2}, Swizzle: hopper.Swizzle32},
	}
	for _, m := range maps {
		b, err := m.Encode()
		if err != nil {
			t.Fatal(err)
		}
		got, err := Decode(b[:])
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(m, got); d != "" {
			t.Error(d)
		}
	}
}

func TestDecodeGarbage(t *testing.T) {
	good, err := kvMap().Encode()
	if err != nil {
		t.Fatal(err)
	}
	for i := range good {
		bad := good
		bad[i] ^= 0x10
		if _, err := Decode(bad[:]); !errors.Is(err, ErrNotMap) {
			t.Errorf("byte %d changed: %v", i, err)
		}
	}
	if _, err := Decode(make([]byte, 128)); !errors.Is(err, ErrNotMap) {
		t.Errorf("zeros: %v", err)
	}
	if _, err := Decode(good[:64]); !errors.Is(err, ErrNotMap) {
		t.Errorf("half: %v", err)
	}
}

func TestNew(t *testing.T) {
	spec := manifest.TensorMap{Param: "kv", DType: "bf16", Dims: []string{"column", "row", "page"}, Box: []int{64, 64, 1}, Swizzle: 128, Promotion: 128}
	got, err := New(spec, 0x7f0000001000, []uint64{576, 64, 116508}, []uint64{1152, 73728})
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(kvMap(), got); d != "" {
		t.Error(d)
	}
	if got.BoxBytes() != 8192 {
		t.Errorf("BoxBytes = %d", got.BoxBytes())
	}
	spec.DType = "fp16"
	if got, err := New(spec, 0, []uint64{576, 64, 1}, []uint64{1152, 73728}); err != nil || got.DType != isa.F16 {
		t.Errorf("fp16: %v, %v", got, err)
	}
	for _, c := range []struct {
		want string
		edit func(*manifest.TensorMap)
	}{
		{"dtype", func(m *manifest.TensorMap) { m.DType = "half" }},
		{"swizzle", func(m *manifest.TensorMap) { m.Swizzle = 16 }},
		{"box dimension 0", func(m *manifest.TensorMap) { m.Box = []int{32, 64, 1} }},
		{"promotion", func(m *manifest.TensorMap) { m.Promotion = 32 }},
		{"dtype", func(m *manifest.TensorMap) { m.DType = "bf16x2" }},
	} {
		m := spec
		c.edit(&m)
		_, err := New(m, 0, []uint64{576, 64, 1}, []uint64{1152, 73728})
		if err == nil || !strings.Contains(err.Error(), "tensor map kv") || !strings.Contains(err.Error(), c.want) {
			t.Errorf("want an error about %s, got %v", c.want, err)
		}
	}
	for name, edit := range map[string]func(*Map){
		"address": func(m *Map) { m.Address = 8 },
		"stride":  func(m *Map) { m.Strides = []uint64{1150, 73728} },
		"rank":    func(m *Map) { m.Strides = []uint64{1152} },
		"box":     func(m *Map) { m.Box[1] = 257 },
		"size":    func(m *Map) { m.Sizes[2] = 0 },
	} {
		m := kvMap()
		edit(m)
		if _, err := m.Encode(); err == nil {
			t.Errorf("a bad %s was encoded", name)
		}
	}
}
