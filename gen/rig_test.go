package gen_test

import (
	"encoding/binary"
	"strings"
	"testing"

	"github.com/mlagen/mlagen/gen"
	"github.com/mlagen/mlagen/ptx"
	"github.com/mlagen/mlagen/ptx/emu"
	"github.com/mlagen/mlagen/ptx/emu/tma"
	"github.com/mlagen/mlagen/ptx/isa"
	"github.com/mlagen/mlagen/ptx/manifest"
	"github.com/mlagen/mlagen/ptx/verify"
)

// rig runs a kernel on the emulator: what a noun of the language means is what
// its instructions do.
type rig struct {
	t       *testing.T
	k       *gen.Kernel
	out     gen.Pointer // u32 words, the kernel's first parameter
	machine *emu.Machine
	values  map[string]uint64    // of further parameters
	maps    map[string][128]byte // of tensors
	grid    int
}

// newRig starts a kernel of the given number of threads, 0 when roles say it.
func newRig(t *testing.T, threads int) *rig {
	t.Helper()
	k := gen.NewKernel("k", nil)
	if threads > 0 {
		k.Threads(threads)
	}
	return &rig{t: t, k: k, out: k.Pointer("out", isa.U32), machine: emu.New(emu.Config{}), values: map[string]uint64{}, maps: map[string][128]byte{}, grid: 1}
}

// array declares a pointer parameter to an array with the given words.
func (r *rig) array(name string, elem isa.Type, words ...uint32) gen.Pointer {
	r.t.Helper()
	r.values[name] = r.upload(name, words)
	return r.k.Pointer(name, elem)
}

func (r *rig) upload(name string, words []uint32) uint64 {
	r.t.Helper()
	p, err := r.machine.Alloc(name, uint64(4*len(words)))
	if err != nil {
		r.t.Fatal(err)
	}
	var b []byte
	for _, w := range words {
		b = binary.LittleEndian.AppendUint32(b, w)
	}
	if err := r.machine.Write(p, b); err != nil {
		r.t.Fatal(err)
	}
	return p
}

// bind gives a tensor declared with gen.Tensor its place: rows of width 16-bit
// elements.
func (r *rig) bind(m manifest.TensorMap, words []uint32, sizes, strides []uint64) {
	r.t.Helper()
	r.values[m.Param] = r.upload(m.Param, words)
	tm, err := tma.New(m, r.values[m.Param], sizes, strides)
	if err != nil {
		r.t.Fatal(err)
	}
	if r.maps[m.Param], err = tm.Encode(); err != nil {
		r.t.Fatal(err)
	}
}

// build finishes the kernel, which must be one that the verifier and the
// parser take.
func (r *rig) build() *gen.Output {
	r.t.Helper()
	out, err := r.k.Build()
	if err != nil {
		r.t.Fatal(err)
	}
	if _, err := ptx.Parse("k.ptx", out.PTX); err != nil {
		r.t.Fatal(err)
	}
	for _, d := range verify.Module("k.ptx", out.Module, out.Manifest) {
		r.t.Errorf("%v\n\t%s", d, strings.Split(string(out.PTX), "\n")[d.Line-1])
	}
	return out
}

// run executes the kernel and returns the first n words of its output. Any
// hazard fails the test.
func (r *rig) run(n int) []uint32 {
	r.t.Helper()
	return r.execute(r.build(), n)
}

func (r *rig) execute(out *gen.Output, n int) []uint32 {
	r.t.Helper()
	words, hazards := r.observe(out, n)
	for _, h := range hazards {
		r.t.Errorf("%v", h)
	}
	return words
}

// observe executes the kernel and returns its hazards too.
func (r *rig) observe(out *gen.Output, n int) ([]uint32, []emu.Hazard) {
	r.t.Helper()
	p, err := emu.Compile(out.Module)
	if err != nil {
		r.t.Fatal(err)
	}
	if r.values["out"], err = r.machine.Alloc("out", uint64(4*n)); err != nil {
		r.t.Fatal(err)
	}
	r.values["floats"] = r.values["out"]
	man := out.Manifest
	last := man.Params[len(man.Params)-1]
	params := make([]byte, last.Offset+last.Size)
	for _, p := range man.Params {
		if m, ok := r.maps[p.Name]; ok {
			copy(params[p.Offset:], m[:])
			continue
		}
		var b [8]byte
		binary.LittleEndian.PutUint64(b[:], r.values[p.Name])
		copy(params[p.Offset:p.Offset+p.Size], b[:])
	}
	report, err := r.machine.Launch(p, man.Kernel, emu.LaunchConfig{
		Grid: emu.Dim{X: r.grid}, Block: emu.Dim{X: man.Threads}, Cluster: emu.Dim{X: man.Cluster}, Shared: man.Shared, Params: params,
	})
	if err != nil {
		r.t.Fatalf("%v\n%s", err, out.PTX)
	}
	return r.bound("out", n), report.Errors()
}

// bound returns the first n words of the memory that a parameter leads to.
func (r *rig) bound(name string, n int) []uint32 {
	r.t.Helper()
	b := make([]byte, 4*n)
	if err := r.machine.Read(b, r.values[name]); err != nil {
		r.t.Fatal(err)
	}
	words := make([]uint32, n)
	for i := range words {
		words[i] = binary.LittleEndian.Uint32(b[4*i:])
	}
	return words
}

// each makes a word per thread.
func each(n int, f func(i int) uint32) []uint32 {
	words := make([]uint32, n)
	for i := range words {
		words[i] = f(i)
	}
	return words
}

// mine is the thread's word of the output.
func (r *rig) mine() gen.Pointer { return r.out.At(r.k.Thread()) }

// instructions returns the opcodes of a built kernel's body, one per line.
func instructions(out *gen.Output) []string {
	var list []string
	for _, s := range out.Module.Kernels[0].Body {
		if i, ok := s.(*ptx.Instr); ok {
			list = append(list, i.Opcode())
		}
	}
	return list
}

// count returns how many instructions have the opcode prefix.
func count(out *gen.Output, prefix string) int {
	n := 0
	for _, op := range instructions(out) {
		if strings.HasPrefix(op, prefix) {
			n++
		}
	}
	return n
}
