package vectors

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/mlagen/mlagen/ptx/emu/tma"
	"github.com/mlagen/mlagen/ptx/manifest"
)

// Marks in memory that no experiment's data contains.
const untouched = 0xee

func tmaFamily() family {
	var kernels []*kernel
	for rank := 1; rank <= 5; rank++ {
		kernels = append(kernels, tmaLoadKernel(rank))
	}
	for _, op := range []string{"", "add", "min", "max"} {
		kernels = append(kernels, tmaStoreKernel(op))
	}
	probes := tmaLoads(loadProbes())
	for i := range probes {
		probes[i].probe = true
	}
	return family{"tma", module(kernels...), slices.Concat(tmaLoads(loadBoxes()), tmaStores(), probes)}
}

func coordinates(rank int) (params []string, list string) {
	var names []string
	for i := range rank {
		params = append(params, fmt.Sprintf(".param .u32 c%d", i))
		names = append(names, fmt.Sprintf("%%r%d", 20+i))
	}
	return params, "{" + strings.Join(names, ", ") + "}"
}

// tmaLoadKernel copies a box to offset in the region and dumps the region's
// first words; after them it says whether the barrier saw all bytes of the box.
func tmaLoadKernel(rank int) *kernel {
	coords, list := coordinates(rank)
	k := &kernel{name: fmt.Sprintf("tma_load_%dd", rank)}
	k.params = slices.Concat([]string{".param .align 64 .b8 map[128]"}, coords,
		[]string{".param .u32 offset", ".param .u32 bytes", ".param .u32 words", ".param .u64 image", ".param .u64 out"})
	k.prologue()
	for i := range rank {
		k.load("u32", fmt.Sprintf("%%r%d", 20+i), fmt.Sprintf("c%d", i))
	}
	k.load("u32", "%r30", "offset")
	k.load("u32", "%r31", "bytes")
	k.load("u32", "%r32", "words")
	k.load("u64", "%rd0", "image")
	k.load("u64", "%rd1", "out")
	k.line("mov.b64 %%rd2, map;")
	k.line("cvta.param.u64 %%rd2, %%rd2;")
	k.line("setp.eq.u32 %%p0, %s, 0;", tid)
	k.line("@%%p0 mbarrier.init.shared.b64 [%s], 1;", barrier)
	k.line("fence.mbarrier_init.release.cluster;")
	k.fill(128, "%rd0", "%r32")
	k.line("@!%%p0 bra wait;")
	k.line("add.u32 %%r30, %s, %%r30;", region)
	k.line("mbarrier.arrive.expect_tx.shared.b64 _, [%s], %%r31;", barrier)
	k.line("cp.async.bulk.tensor.%dd.shared::cluster.global.mbarrier::complete_tx::bytes [%%r30], [%%rd2, %s], [%s];", rank, list, barrier)
	k.label("wait")
	// A bounded wait: a device that counts other bytes shall say so, not hang.
	k.line("mov.u32 %%r40, 0;")
	k.label("again")
	k.line("mbarrier.try_wait.parity.shared.b64 %%p1, [%s], 0;", barrier)
	k.line("@%%p1 bra done;")
	k.line("add.u32 %%r40, %%r40, 1;")
	k.line("setp.lt.u32 %%p2, %%r40, 5000;")
	k.line("@%%p2 bra again;")
	k.label("done")
	k.dump(128, "%rd1", "%r32")
	k.line("@!%%p0 bra end;")
	k.line("selp.u32 %%r41, 1, 0, %%p1;")
	k.line("shl.b32 %%r10, %%r32, 2;")
	k.addressInto("%rd20", "%rd1")
	k.line("st.global.u32 [%%rd20], %%r41;")
	k.label("end")
	return k
}

// tmaStoreKernel fills the region from an image and stores a box from offset,
// or reduces it into the tensor.
func tmaStoreKernel(op string) *kernel {
	coords, list := coordinates(2)
	k := &kernel{name: "tma_store"}
	opcode := "cp.async.bulk.tensor.2d.global.shared::cta.bulk_group"
	if op != "" {
		k.name = "tma_reduce_" + op
		opcode = fmt.Sprintf("cp.reduce.async.bulk.tensor.2d.global.shared::cta.%s.bulk_group", op)
	}
	k.params = slices.Concat([]string{".param .align 64 .b8 map[128]"}, coords,
		[]string{".param .u32 offset", ".param .u32 words", ".param .u64 image"})
	k.prologue()
	k.load("u32", "%r20", "c0")
	k.load("u32", "%r21", "c1")
	k.load("u32", "%r30", "offset")
	k.load("u32", "%r32", "words")
	k.load("u64", "%rd0", "image")
	k.line("mov.b64 %%rd2, map;")
	k.line("cvta.param.u64 %%rd2, %%rd2;")
	k.fill(128, "%rd0", "%r32")
	k.line("setp.ne.u32 %%p0, %s, 0;", tid)
	k.line("@%%p0 bra end;")
	k.line("add.u32 %%r30, %s, %%r30;", region)
	k.line("%s [%%rd2, %s], [%%r30];", opcode, list)
	k.line("cp.async.bulk.commit_group;")
	k.line("cp.async.bulk.wait_group 0;")
	k.label("end")
	return k
}

// box is a copy experiment's geometry.
type box struct {
	name           string
	dtype          string
	sizes, strides []uint64
	box            []int
	swizzle        int
	coords         []int32
	offset         uint32
}

func (b box) elem() int {
	return map[string]int{"u8": 1, "bf16": 2, "fp16": 2, "f32": 4, "s32": 4}[b.dtype]
}

func (b box) bytes() int {
	n := b.elem()
	for _, d := range b.box {
		n *= d
	}
	return n
}

// tensorBytes is the memory from the tensor's start to its end.
func (b box) tensorBytes() int {
	end := b.sizes[0] * uint64(b.elem())
	for d, s := range b.strides {
		end += (b.sizes[d+1] - 1) * s
	}
	return int(end+15) &^ 15
}

// encoded returns the emulator's map of the box over a tensor at address 0.
func (b box) encoded() (*tma.Map, error) {
	return tma.New(manifest.TensorMap{Param: b.name, DType: b.dtype, Box: b.box, Swizzle: b.swizzle}, 0, b.sizes, b.strides)
}

// rowBytes is the width of the boxes tried with a swizzle: its own, and 64
// bytes without one.
func rowBytes(swizzle int) int {
	if swizzle == 0 {
		return 64
	}
	return swizzle
}

// loadBoxes keeps to what the hardware takes: a shared address that is a
// multiple of 128, rows of a multiple of 16 bytes, and an innermost coordinate
// that is one too. The manual does not say the last, but a copy at another one
// is an illegal instruction; the probe load_odd shows it. Tensors may end, and
// strides may be, anywhere that 16-byte strides allow.
func loadBoxes() (list []box) {
	for _, s := range []int{128, 64, 32, 0} {
		w := rowBytes(s) / 2 // 16-bit elements per row
		inner := uint64(256)
		add := func(name string, sizes, strides []uint64, coords []int32, rows int, offset uint32) {
			list = append(list, box{fmt.Sprintf("load_%s_sw%d", name, s), "bf16", sizes, strides, []int{w, rows}, s, coords, offset})
		}
		add("plain", []uint64{inner, 64}, []uint64{512}, []int32{int32(w), 8}, 16, 0)
		add("shifted", []uint64{inner, 64}, []uint64{512}, []int32{int32(w), 8}, 16, 128)       // off the pattern
		add("shifted2", []uint64{inner, 64}, []uint64{512}, []int32{int32(w), 8}, 16, 1024+384) // the same
		add("between", []uint64{inner, 64}, []uint64{512}, []int32{24, 1}, 16, 1024)            // off the box's own grid
		add("pitch", []uint64{100, 40}, []uint64{208}, []int32{8, 0}, 16, 0)                    // rows off 128 bytes
		add("below", []uint64{100, 40}, []uint64{208}, []int32{-8, -3}, 16, 0)
		add("beyond", []uint64{100, 40}, []uint64{208}, []int32{88, 35}, 16, 0)
		add("outside", []uint64{100, 40}, []uint64{208}, []int32{104, 0}, 8, 0)
	}
	return append(list,
		box{"load_kv", "bf16", []uint64{576, 64, 3}, []uint64{1152, 73728}, []int{64, 64, 1}, 128, []int32{128, 0, 2}, 1024},
		box{"load_1d", "bf16", []uint64{203}, nil, []int{64}, 0, []int32{168}, 0},
		box{"load_3d", "bf16", []uint64{72, 10, 5}, []uint64{144, 1584}, []int{64, 5, 3}, 128, []int32{16, 8, 3}, 0},
		box{"load_4d", "bf16", []uint64{40, 5, 4, 3}, []uint64{96, 576, 2304}, []int{32, 3, 2, 2}, 64, []int32{-8, 1, 3, 1}, 0},
		box{"load_5d", "bf16", []uint64{24, 3, 3, 3, 3}, []uint64{48, 192, 576, 1728}, []int{16, 2, 2, 2, 2}, 32, []int32{16, -1, 2, 0, 2}, 0},
		box{"load_f32", "f32", []uint64{50, 20}, []uint64{208}, []int{32, 16}, 128, []int32{-4, 8}, 0},
		box{"load_s32", "s32", []uint64{50, 20}, []uint64{208}, []int{16, 8}, 64, []int32{40, -2}, 0},
		// cuda.h wants each stride to be a multiple of the one before; the driver takes others.
		box{"load_strides", "bf16", []uint64{72, 10, 5}, []uint64{144, 1600}, []int{64, 5, 3}, 128, []int32{16, 8, 3}, 0},
		box{"load_far", "bf16", []uint64{100, 40}, []uint64{208}, []int{64, 8}, 128, []int32{math.MinInt32, math.MaxInt32}, 0},
	)
}

// loadProbes are copies at innermost coordinates off 16 bytes, which an H200
// takes for illegal instructions.
func loadProbes() []box {
	return []box{
		{"load_odd", "bf16", []uint64{256, 64}, []uint64{512}, []int{64, 16}, 128, []int32{3, 1}, 1024},
		{"load_odd_below", "bf16", []uint64{100, 40}, []uint64{208}, []int{32, 16}, 0, []int32{-5, -3}, 0},
	}
}

func tmaLoads(boxes []box) (list []experiment) {
	for _, b := range boxes {
		words := (int(b.offset) + b.bytes() + 512) / 4
		image := &buffer{name: "image", data: bytes.Repeat([]byte{untouched}, 4*words)}
		out := &buffer{name: "out", data: bytes.Repeat([]byte{untouched}, 4*words+4), elem: 2}
		source := &buffer{name: "source", data: ramp(b.tensorBytes())}
		params := []any{tensor{source, b.dtype, b.sizes, b.strides, b.box, b.swizzle}}
		for _, c := range b.coords {
			params = append(params, c)
		}
		params = append(params, b.offset, uint32(b.bytes()), uint32(words), image, out)
		list = append(list, experiment{name: b.name, entry: fmt.Sprintf("tma_load_%dd", len(b.box)), threads: 128, blocks: 1, params: params, check: func(got []byte) error {
			if len(got) != 4*words+4 {
				return fmt.Errorf("%d bytes, must be %d", len(got), 4*words+4)
			}
			m, err := b.encoded()
			if err != nil {
				return err
			}
			want := slices.Clone(image.data)
			if err := m.Load(want, b.offset, b.coords, memory(source.data)); err != nil {
				return refuses(err)
			}
			if complete := binary.LittleEndian.Uint32(got[4*words:]); complete != 1 {
				return fmt.Errorf("the barrier did not see the %d bytes of the box (flag %d)", b.bytes(), complete)
			}
			return sameBytes("shared memory", got[:4*words], want)
		}})
	}
	return
}

// refuses is the error of a unit that takes a copy for illegal, when hardware
// made something of it.
func refuses(err error) error { return fmt.Errorf("recorded, but the unit refuses it: %w", err) }

// tmaStores are stores inside and across the far edges of a tensor, and two
// kinds of probes. Below the near edges an H200 took stores for illegal
// instructions, and reductions too; those are here at coordinates that should
// be legal, but without a record yet.
func tmaStores() (list []experiment) {
	type store struct {
		box
		op    string
		probe bool
	}
	var stores []store
	for _, s := range []int{0, 32, 64, 128} {
		for name, coords := range map[string][]int32{"inside": {8, 4}, "below": {-8, -3}, "beyond": {88, 35}} {
			stores = append(stores, store{box{fmt.Sprintf("store_%s_sw%d", name, s), "bf16", []uint64{100, 40}, []uint64{208}, []int{rowBytes(s) / 2, 8}, s, coords, 1024}, "", name == "below"})
		}
	}
	for _, op := range []string{"add", "min", "max"} {
		for _, dtype := range []string{"bf16", "fp16", "s32", "f32"} {
			if dtype == "f32" && op != "add" {
				continue
			}
			b := box{fmt.Sprintf("reduce_%s_%s", op, dtype), dtype, []uint64{24, 12}, []uint64{112}, nil, 64, nil, 0}
			b.box, b.coords = []int{64 / b.elem(), 8}, []int32{int32(16 / b.elem()), 7}
			stores = append(stores, store{b, op, true})
		}
	}
	slices.SortFunc(stores, func(a, b store) int { return strings.Compare(a.name, b.name) })
	for i, s := range stores {
		rng := rand.New(rand.NewPCG(7, uint64(i))) // the place in the list makes the inputs
		words := (int(s.offset) + s.bytes()) / 4
		image := &buffer{name: "image", data: values(rng, s.dtype, 4*words)}
		target := &buffer{name: "target", data: values(rng, s.dtype, s.tensorBytes()), elem: s.elem()}
		entry := "tma_store"
		if s.op != "" {
			entry = "tma_reduce_" + s.op
		}
		params := []any{tensor{target, s.dtype, s.sizes, s.strides, s.box.box, s.swizzle}, s.coords[0], s.coords[1], s.offset, uint32(words), image}
		list = append(list, experiment{name: s.name, entry: entry, threads: 128, blocks: 1, params: params, probe: s.probe, check: func(got []byte) error {
			m, err := s.encoded()
			if err != nil {
				return err
			}
			want := slices.Clone(target.data)
			if s.op == "" {
				err = m.Store(image.data, s.offset, s.coords, memory(want))
			} else {
				err = m.Reduce(tma.ReduceOp(s.op), image.data, s.offset, s.coords, memory(want))
			}
			if err != nil {
				return refuses(err)
			}
			return sameBytes("tensor", got, want)
		}})
	}
	return
}

// memory is global memory that starts at address 0.
func memory(b []byte) tma.Memory {
	return func(addr uint64, n int) ([]byte, error) {
		if addr+uint64(n) > uint64(len(b)) {
			return nil, fmt.Errorf("address %#x + %d is outside %d bytes", addr, n, len(b))
		}
		return b[addr:][:n], nil
	}
}

// ramp has 16-bit values 1, 2, 3, …, none of them zero or the untouched mark.
func ramp(size int) []byte {
	b := make([]byte, size)
	for i := 0; i+2 <= size; i += 2 {
		binary.LittleEndian.PutUint16(b[i:], uint16(1+i/2%0xe000))
	}
	return b
}

// values returns random elements: floating-point ones between −4 and 4 with
// some special ones, integers of all bits.
func values(rng *rand.Rand, dtype string, size int) []byte {
	var b []byte
	for len(b) < size {
		x := float32(rng.NormFloat64())
		switch rng.IntN(16) {
		case 0:
			x = 0
		case 1:
			x *= 0x1p-14 // subnormal in fp16
		case 2:
			x *= 0x1p-126 // subnormal in bf16 and f32
		}
		switch dtype {
		case "bf16":
			b = binary.LittleEndian.AppendUint16(b, bf16(x))
		case "fp16":
			b = binary.LittleEndian.AppendUint16(b, fp16(x))
		case "f32":
			b = binary.LittleEndian.AppendUint32(b, math.Float32bits(x))
		default:
			b = binary.LittleEndian.AppendUint32(b, rng.Uint32())
		}
	}
	return b[:size]
}

// sameBytes reports the first difference.
func sameBytes(what string, got, want []byte) error {
	if len(got) != len(want) {
		return fmt.Errorf("%s: %d bytes, must be %d", what, len(got), len(want))
	}
	for i := range got {
		if got[i] != want[i] {
			n := min(i+16, len(got))
			return fmt.Errorf("%s at byte %d: recorded % x, computed % x", what, i, got[i:n], want[i:n])
		}
	}
	return nil
}
