package vectors

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/mlagen/mlagen/ptx/emu/wgmma"
)

// The rows of the matrices lie 32 bytes apart, in the order of the lanes that
// name them; 1024 bytes of the region are filled before and dumped after.
const (
	matrixPitch = 32
	matrixWords = 256
)

func matrixFamily() family {
	f := family{name: "matrix"}
	var kernels []*kernel
	image := &buffer{name: "image", data: ramp(4 * matrixWords)}
	blank := &buffer{name: "image", data: bytes.Repeat([]byte{untouched}, 4*matrixWords)}
	for _, count := range []int{1, 2, 4} {
		for _, trans := range []bool{false, true} {
			suffix := fmt.Sprintf("_x%d", count)
			if trans {
				suffix += "_trans"
			}
			kernels = append(kernels, matrixKernel("ldmatrix", count, trans), matrixKernel("stmatrix", count, trans))

			regs := &buffer{name: "registers", data: bytes.Repeat([]byte{untouched}, 4*4*32), elem: 4}
			f.experiments = append(f.experiments, experiment{name: "ldmatrix" + suffix, entry: "ldmatrix" + suffix, threads: 32, blocks: 1, params: []any{image, regs}, check: func(got []byte) error {
				addresses := matrixAddresses()
				want, err := wgmma.LoadMatrix(count, trans, &addresses, shared(image.data))
				if err != nil {
					return err
				}
				return sameBytes("registers", got, registerBytes(want, count, regs.data))
			}})

			source := &buffer{name: "registers", data: ramp(4 * 4 * 32)}
			out := &buffer{name: "out", data: make([]byte, 4*matrixWords), elem: 2}
			f.experiments = append(f.experiments, experiment{name: "stmatrix" + suffix, entry: "stmatrix" + suffix, threads: 32, blocks: 1, params: []any{blank, source, out}, check: func(got []byte) error {
				addresses, regs := matrixAddresses(), registersOf(source.data)
				want := slices.Clone(blank.data)
				if err := wgmma.StoreMatrix(count, trans, &addresses, &regs, shared(want)); err != nil {
					return err
				}
				return sameBytes("shared memory", got, want)
			}})
		}
	}
	kernels = append(kernels, moveMatrixKernel())
	regs := &buffer{name: "registers", data: ramp(4 * 32), elem: 4}
	f.experiments = append(f.experiments, experiment{name: "movmatrix", entry: "movmatrix", threads: 32, blocks: 1, params: []any{regs}, check: func(got []byte) error {
		var a [32]uint32
		for lane := range a {
			a[lane] = binary.LittleEndian.Uint32(regs.data[4*lane:])
		}
		var want []byte
		for _, r := range wgmma.MoveMatrix(&a) {
			want = binary.LittleEndian.AppendUint32(want, r)
		}
		return sameBytes("registers", got, want)
	}})
	f.ptx = module(kernels...)
	return f
}

func matrixAddresses() (a [32]uint32) {
	for lane := range a {
		a[lane] = uint32(matrixPitch * lane)
	}
	return
}

func shared(b []byte) func(uint32) ([]byte, error) {
	return func(addr uint32) ([]byte, error) { return b[addr : addr+16], nil }
}

// registersOf reads register r of lane l at word 32r + l.
func registersOf(b []byte) (regs [4][32]uint32) {
	for r := range regs {
		for lane := range regs[r] {
			regs[r][lane] = binary.LittleEndian.Uint32(b[4*(32*r+lane):])
		}
	}
	return
}

// registerBytes is the inverse for the first count registers; the others stay
// as they were before.
func registerBytes(regs [4][32]uint32, count int, before []byte) []byte {
	b := slices.Clone(before)
	for r := range count {
		for lane, v := range regs[r] {
			binary.LittleEndian.PutUint32(b[4*(32*r+lane):], v)
		}
	}
	return b
}

func matrixKernel(name string, count int, trans bool) *kernel {
	k := &kernel{name: fmt.Sprintf("%s_x%d", name, count)}
	opcode := fmt.Sprintf("%s.sync.aligned.m8n8.x%d", name, count)
	if trans {
		k.name += "_trans"
		opcode += ".trans"
	}
	opcode += ".shared.b16"
	list := map[int]string{1: "{%r40}", 2: "{%r40, %r41}", 4: "{%r40, %r41, %r42, %r43}"}[count]
	k.params = []string{".param .u64 image", ".param .u64 registers"}
	if name == "stmatrix" {
		k.params = append(k.params, ".param .u64 out")
	}
	k.prologue()
	k.load("u64", "%rd0", "image")
	k.load("u64", "%rd1", "registers")
	k.line("mov.u32 %%r32, %d;", matrixWords)
	k.fill(32, "%rd0", "%r32")
	k.line("shl.b32 %%r10, %s, 2;", tid)
	k.addressInto("%rd7", "%rd1")
	k.line("shl.b32 %%r30, %s, 5;", tid)
	k.line("add.u32 %%r30, %s, %%r30;", region)
	if name == "ldmatrix" {
		k.line("%s %s, [%%r30];", opcode, list)
		for i := range count {
			k.line("st.global.u32 [%%rd7+%d], %%r%d;", 128*i, 40+i)
		}
		return k
	}
	k.load("u64", "%rd2", "out")
	for i := range count {
		k.line("ld.global.u32 %%r%d, [%%rd7+%d];", 40+i, 128*i)
	}
	k.line("%s [%%r30], %s;", opcode, list)
	k.dump(32, "%rd2", "%r32")
	return k
}

func moveMatrixKernel() *kernel {
	k := &kernel{name: "movmatrix", params: []string{".param .u64 registers"}}
	k.prologue()
	k.load("u64", "%rd1", "registers")
	k.line("shl.b32 %%r10, %s, 2;", tid)
	k.addressInto("%rd7", "%rd1")
	k.line("ld.global.u32 %%r40, [%%rd7];")
	k.line("movmatrix.sync.aligned.m8n8.trans.b16 %%r41, %%r40;")
	k.line("st.global.u32 [%%rd7], %%r41;")
	return k
}
