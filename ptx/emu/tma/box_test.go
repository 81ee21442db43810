package tma

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/mlagen/mlagen/ptx/hopper"
	"github.com/mlagen/mlagen/ptx/isa"
)

// space is global memory from a base address on.
type space struct {
	base  uint64
	bytes []byte
}

func (s *space) at(addr uint64, n int) ([]byte, error) {
	if addr < s.base || addr+uint64(n) > s.base+uint64(len(s.bytes)) {
		return nil, fmt.Errorf("out of bounds: %#x + %d", addr, n)
	}
	return s.bytes[addr-s.base:][:n], nil
}

// ramp is a tensor of 16-bit values 1, 2, 3, … (0 is what fill writes).
func ramp(values int) *space {
	s := &space{base: 0x10000, bytes: make([]byte, 2*values)}
	for i := range values {
		binary.LittleEndian.PutUint16(s.bytes[2*i:], uint16(i+1))
	}
	return s
}

func values(b []byte) (v []uint16) {
	for ; len(b) > 0; b = b[2:] {
		v = append(v, binary.LittleEndian.Uint16(b))
	}
	return
}

// TestSwizzlePatterns holds the layouts against the pictures of the CUDA
// Programming Guide: which 16-byte chunk of its row lies in each place.
func TestSwizzlePatterns(t *testing.T) {
	for _, c := range []struct {
		swizzle hopper.Swizzle
		width   int // 16-bit elements per row
		chunks  [][]int
	}{
		{hopper.Swizzle32, 16, [][]int{{0, 1}, {0, 1}, {0, 1}, {0, 1}, {1, 0}, {1, 0}, {1, 0}, {1, 0}}},
		{hopper.Swizzle64, 32, [][]int{{0, 1, 2, 3}, {0, 1, 2, 3}, {1, 0, 3, 2}, {1, 0, 3, 2}, {2, 3, 0, 1}, {2, 3, 0, 1}, {3, 2, 1, 0}, {3, 2, 1, 0}}},
		{hopper.Swizzle128, 64, [][]int{
			{0, 1, 2, 3, 4, 5, 6, 7}, {1, 0, 3, 2, 5, 4, 7, 6}, {2, 3, 0, 1, 6, 7, 4, 5}, {3, 2, 1, 0, 7, 6, 5, 4},
			{4, 5, 6, 7, 0, 1, 2, 3}, {5, 4, 7, 6, 1, 0, 3, 2}, {6, 7, 4, 5, 2, 3, 0, 1}, {7, 6, 5, 4, 3, 2, 1, 0}}},
		{hopper.SwizzleNone, 64, [][]int{{0, 1, 2, 3, 4, 5, 6, 7}, {0, 1, 2, 3, 4, 5, 6, 7}}},
	} {
		g := ramp(16 * c.width)
		m := &Map{DType: isa.BF16, Address: g.base, Sizes: []uint64{uint64(c.width), 16}, Strides: []uint64{uint64(2 * c.width)}, Box: []int{c.width, 16}, Swizzle: c.swizzle}
		smem := make([]byte, 4096+m.BoxBytes())
		if err := m.Load(smem, 1024, []int32{0, 0}, g.at); err != nil {
			t.Fatal(err)
		}
		for row := range 16 {
			for place, chunk := range c.chunks[row%len(c.chunks)] {
				got := values(smem[1024+row*2*c.width+16*place:][:16])
				want := make([]uint16, 8)
				for i := range want {
					want[i] = uint16(row*c.width + 8*chunk + i + 1)
				}
				if d := cmp.Diff(want, got); d != "" {
					t.Errorf("%v row %d place %d: %s", c.swizzle, row, place, d)
				}
			}
		}
		if !bytes.Equal(smem[:1024], make([]byte, 1024)) || !bytes.Equal(smem[1024+m.BoxBytes():], make([]byte, 3072)) {
			t.Errorf("%v: bytes outside the box were written", c.swizzle)
		}
	}
}

// TestSwizzleAbsolute: the pattern follows address bits, not the box's start.
func TestSwizzleAbsolute(t *testing.T) {
	g := ramp(8 * 64)
	m := &Map{DType: isa.BF16, Address: g.base, Sizes: []uint64{64, 8}, Strides: []uint64{128}, Box: []int{64, 8}, Swizzle: hopper.Swizzle128}
	smem := make([]byte, 4096)
	if err := m.Load(smem, 1024+128, []int32{0, 0}, g.at); err != nil {
		t.Fatal(err)
	}
	if got := values(smem[1024+128+16:][:2])[0]; got != 1 { // row 0 lies in an odd 128-byte line: chunks 0 and 1 change places
		t.Errorf("chunk 1 starts with %d, want 1", got)
	}
	if m.PatternAligned(1024+128) || !m.PatternAligned(2048) {
		t.Error("PatternAligned")
	}
}

func TestZeroFillAndStore(t *testing.T) {
	// A 3 × 10 tensor with a row pitch of 48 bytes: 24 values of which 10 count.
	g := ramp(3 * 24)
	// The store's last chunk starts inside and ends six elements beyond.
	m := &Map{DType: isa.BF16, Address: g.base, Sizes: []uint64{10, 3}, Strides: []uint64{48}, Box: []int{8, 4}}
	at := func(row, column int) uint16 { return uint16(24*row + column + 1) }
	for _, c := range []struct {
		coords []int32
		want   [][]uint16
	}{
		{[]int32{0, 0}, [][]uint16{
			{at(0, 0), at(0, 1), at(0, 2), at(0, 3), at(0, 4), at(0, 5), at(0, 6), at(0, 7)},
			{at(1, 0), at(1, 1), at(1, 2), at(1, 3), at(1, 4), at(1, 5), at(1, 6), at(1, 7)},
			{at(2, 0), at(2, 1), at(2, 2), at(2, 3), at(2, 4), at(2, 5), at(2, 6), at(2, 7)}, make([]uint16, 8)}},
		{[]int32{8, -2}, [][]uint16{make([]uint16, 8), make([]uint16, 8), {at(0, 8), at(0, 9), 0, 0, 0, 0, 0, 0}, {at(1, 8), at(1, 9), 0, 0, 0, 0, 0, 0}}},
		{[]int32{-8, 0}, [][]uint16{make([]uint16, 8), make([]uint16, 8), make([]uint16, 8), make([]uint16, 8)}},
		{[]int32{8, 2}, [][]uint16{{at(2, 8), at(2, 9), 0, 0, 0, 0, 0, 0}, make([]uint16, 8), make([]uint16, 8), make([]uint16, 8)}},
		{[]int32{16, 0}, [][]uint16{make([]uint16, 8), make([]uint16, 8), make([]uint16, 8), make([]uint16, 8)}},
		{[]int32{math.MinInt32, math.MaxInt32}, [][]uint16{make([]uint16, 8), make([]uint16, 8), make([]uint16, 8), make([]uint16, 8)}},
	} {
		smem := bytes.Repeat([]byte{0xee}, 128)
		if err := m.Load(smem, 0, c.coords, g.at); err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(slices.Concat(c.want...), values(smem[:64])); d != "" {
			t.Errorf("load at %v: %s", c.coords, d)
		}

		// Store other values: the 16-byte chunks that start inside change.
		for i := range smem {
			smem[i] = 0xff
		}
		out := &space{g.base, slices.Clone(g.bytes)}
		err := m.Store(smem, 0, c.coords, out.at)
		if slices.Min(c.coords) < 0 {
			if err == nil || !strings.Contains(err.Error(), "negative") {
				t.Errorf("store at %v: %v", c.coords, err)
			}
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		want := values(slices.Clone(g.bytes))
		for row := range 3 {
			for column := range 16 {
				x, y := column-int(c.coords[0]), row-int(c.coords[1])
				if x >= 0 && x < 8 && y >= 0 && y < 4 {
					want[24*row+column] = 0xffff
				}
			}
		}
		if d := cmp.Diff(want, values(out.bytes)); d != "" {
			t.Errorf("store at %v: %s", c.coords, d)
		}
	}
}

func TestReduce(t *testing.T) {
	le := binary.LittleEndian
	bf := func(v ...uint16) (b []byte) {
		for _, x := range v {
			b = le.AppendUint16(b, x)
		}
		return
	}
	w := func(v ...uint32) (b []byte) {
		for _, x := range v {
			b = le.AppendUint32(b, x)
		}
		return
	}
	d := func(v ...uint64) (b []byte) {
		for _, x := range v {
			b = le.AppendUint64(b, x)
		}
		return
	}
	f := math.Float32bits
	for _, c := range []struct {
		op             ReduceOp
		t              isa.Type
		dst, src, want []byte
	}{
		{"add", isa.F32, w(f(1), f(2), 1, 0x7fc00000), w(f(0.5), f(-2), 1, 0), w(f(1.5), 0, 0, 0x7fffffff)},
		{"add", isa.BF16, bf(0x3f80, 0x0001), bf(0x3f80, 0x0001), bf(0x4000, 0x0002)},
		{"add", isa.F16, bf(0x3c00, 0x7bff), bf(0x3c00, 0x7bff), bf(0x4000, 0x7c00)},
		{"max", isa.BF16, bf(0x3f80, 0xbf80), bf(0x4000, 0xc000), bf(0x4000, 0xbf80)},
		{"min", isa.F16, bf(0x3c00), bf(0xbc00), bf(0xbc00)},
		{"add", isa.S32, w(1, 0xffffffff), w(2, 1), w(3, 0)},
		{"min", isa.S32, w(1, 5), w(0xffffffff, 7), w(0xffffffff, 5)},
		{"min", isa.U32, w(1), w(0xffffffff), w(1)},
		{"max", isa.U64, d(1, 1<<63), d(2, 3), d(2, 1<<63)},
		{"max", isa.S64, d(1, 1<<63), d(2, 3), d(2, 3)},
		{"and", isa.B32, w(0xff00), w(0x0ff0), w(0x0f00)},
		{"xor", isa.B64, d(0xff00), d(0x0ff0), d(0xf0f0)},
		{"inc", isa.U32, w(3, 9, 0), w(9, 9, 0), w(4, 0, 0)},
		{"dec", isa.U32, w(3, 0, 10), w(9, 9, 9), w(2, 9, 9)},
		{"add", isa.F64, d(math.Float64bits(1)), d(math.Float64bits(2)), d(math.Float64bits(3))},
	} {
		dst := slices.Clone(c.dst)
		if err := BulkReduce(c.op, c.t, dst, c.src); err != nil {
			t.Errorf("%s %v: %v", c.op, c.t, err)
		} else if !bytes.Equal(dst, c.want) {
			t.Errorf("%s.%v = % x, want % x", c.op, c.t, dst, c.want)
		}
	}
	for _, c := range []struct {
		op ReduceOp
		t  isa.Type
	}{{"max", isa.F32}, {"and", isa.F16}, {"add", isa.B32}, {"inc", isa.S32}, {"mul", isa.U32}, {"add", isa.E4M3}, {"min", isa.F64}} {
		if err := BulkReduce(c.op, c.t, nil, nil); err == nil {
			t.Errorf("%s.%v was accepted", c.op, c.t)
		}
	}
	if err := BulkReduce("add", isa.U32, make([]byte, 4), make([]byte, 8)); err == nil {
		t.Error("different lengths were accepted")
	}

	g := &space{0, w(1, 2, 3, 4, 5, 6, 7, 8, 9)}
	m := &Map{DType: isa.U32, Sizes: []uint64{8}, Box: []int{8}}
	smem := make([]byte, 128)
	copy(smem, w(10, 20, 30, 40, 50, 60, 70, 80))
	if err := m.Reduce("add", smem, 0, []int32{4}, g.at); err != nil {
		t.Fatal(err)
	}
	if want := w(1, 2, 3, 4, 15, 26, 37, 48, 9); !bytes.Equal(g.bytes, want) {
		t.Errorf("tensor reduction: % x, want % x", g.bytes, want)
	}
	m.Sizes[0] = 6
	if err := m.Reduce("add", smem, 0, []int32{4}, g.at); err == nil || !strings.Contains(err.Error(), "not emulated") {
		t.Errorf("tensor reduction over a part of a chunk: %v", err)
	}
}

func TestChecks(t *testing.T) {
	m := kvMap()
	for want, check := range map[string]error{
		"coordinates": m.Check(1024, 1<<17, []int32{0, 0}),
		"multiple":    m.Check(1024+64, 1<<17, []int32{0, 0, 0}),
		"leaves":      m.Check(1024, 9215, []int32{0, 0, 0}),
		"innermost":   m.Check(1024, 1<<17, []int32{-5, 0, 0}),
		"negative":    m.CheckStore(1024, 1<<17, []int32{0, -1, 0}),
		"source":      CheckBulk(16, 8, 16),
		"destination": CheckBulk(4, 16, 16),
		"size":        CheckBulk(16, 16, 20),
	} {
		if check == nil || !strings.Contains(check.Error(), want) {
			t.Errorf("want an error about %s, got %v", want, check)
		}
	}
	if err := errors.Join(m.Check(1024, 9216, []int32{-8, -1, -1}), m.CheckStore(1024, 9216, []int32{8, 1, 1}), CheckBulk(16, 32, 0)); err != nil {
		t.Error(err)
	}
	fault := errors.New("fault")
	bad := func(uint64, int) ([]byte, error) { return nil, fault }
	smem := make([]byte, 16384)
	if err := m.Load(smem, 1024, []int32{0, 0, 0}, bad); !errors.Is(err, fault) {
		t.Error(err)
	}
	if err := m.Store(smem, 1024, []int32{0, 0, 0}, bad); !errors.Is(err, fault) {
		t.Error(err)
	}
	if err := m.Load(smem, 1024, []int32{576, 0, 0}, bad); err != nil { // wholly outside: no access
		t.Error(err)
	}
}

// FuzzBox compares loads and stores with an element-by-element model.
func FuzzBox(f *testing.F) {
	for seed := range uint64(40) {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, seed uint64) {
		rng := rand.New(rand.NewPCG(seed, 1))
		rank := 1 + rng.IntN(5)
		m := &Map{DType: []isa.Type{isa.U8, isa.BF16, isa.F32, isa.U64}[rng.IntN(4)], Address: 0x4000}
		elem := m.ElemBytes()
		m.Swizzle = hopper.Swizzle(rng.IntN(4))
		inner := 16 * (1 + rng.IntN(4))
		if m.Swizzle != hopper.SwizzleNone {
			inner = m.Swizzle.Bytes()
		}
		coords := make([]int32, rank)
		pitch := uint64(0)
		for d := range rank {
			box := inner / elem
			if d > 0 {
				box = 1 + rng.IntN(4)
			}
			m.Box = append(m.Box, box)
			m.Sizes = append(m.Sizes, uint64(1+rng.IntN(2*box)))
			coords[d] = int32(rng.IntN(3*box) - box)
			if d == 0 {
				coords[d] = coords[d] * int32(elem) / 16 * 16 / int32(elem)
			}
			if d == 0 {
				pitch = (m.Sizes[0]*uint64(elem)+15)/16*16 + uint64(16*rng.IntN(3))
			} else {
				m.Strides = append(m.Strides, pitch)
				pitch *= m.Sizes[d]
			}
		}
		g := &space{0x4000, make([]byte, pitch)}
		for i := range g.bytes {
			g.bytes[i] = byte(1 + rng.IntN(255))
		}
		encoded, err := m.Encode()
		if err != nil {
			t.Fatal(err)
		}
		if m, err = Decode(encoded[:]); err != nil {
			t.Fatal(err)
		}
		shared := uint32(128 * rng.IntN(16))
		smem := bytes.Repeat([]byte{0xee}, int(shared)+m.BoxBytes()+64)
		want := slices.Clone(smem)
		back := slices.Clone(g.bytes)
		n := m.BoxBytes() / elem
		for e := range n {
			at, outside, rest := uint64(0), false, e
			written := true
			for d := range rank {
				c := int64(coords[d]) + int64(rest%m.Box[d])
				rest /= m.Box[d]
				outside = outside || c < 0 || c >= int64(m.Sizes[d])
				written = written && c >= 0
				if d == 0 {
					at += uint64(c) * uint64(elem)
					c = c * int64(elem) / 16 * 16 / int64(elem) // stores go by chunk
				} else {
					at += uint64(c) * m.Strides[d-1]
				}
				written = written && c < int64(m.Sizes[d])
			}
			place := int(shared) + e*elem
			bits := [4]int{0, 1, 2, 3}[m.Swizzle]
			place ^= (place >> 7 & (1<<bits - 1)) << 4
			for i := range elem {
				want[place+i] = 0
				if !outside {
					want[place+i] = g.bytes[at+uint64(i)]
				}
				if written {
					back[at+uint64(i)] = ^want[place+i]
				}
			}
		}
		if err := m.Load(smem, shared, coords, g.at); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(smem, want) {
			t.Fatalf("load of %+v at %v into %#x: % x, want % x", m, coords, shared, smem[shared:], want[shared:])
		}
		for i := range smem {
			smem[i] = ^smem[i]
		}
		err = m.Store(smem, shared, coords, g.at)
		if slices.Min(coords) < 0 {
			if err == nil {
				t.Fatalf("store at %v", coords)
			}
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(g.bytes, back) {
			t.Fatalf("store of %+v at %v from %#x", m, coords, shared)
		}
	})
}

func BenchmarkLoad64x64(b *testing.B) {
	g := &space{0x7f0000001000, make([]byte, 73728)}
	m := kvMap()
	smem := make([]byte, 9216)
	b.SetBytes(int64(m.BoxBytes()))
	for range b.N {
		if err := m.Load(smem, 1024, []int32{64, 0, 0}, g.at); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkDecode(b *testing.B) {
	e, _ := kvMap().Encode()
	for range b.N {
		if _, err := Decode(e[:]); err != nil {
			b.Fatal(err)
		}
	}
}
