package templates

import (
	"bytes"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/mlagen/mlagen/ptx"
	"github.com/mlagen/mlagen/ptx/hopper"
	"github.com/mlagen/mlagen/ptx/ptxas"
	"github.com/mlagen/mlagen/ptx/verify"
)

// What a kernel may cost: the driver's compiler takes time in proportion to
// the text, and a user who waits for an emission should not notice it.
const (
	maxText = 330_000 // bytes
	maxTime = 50 * time.Millisecond
)

type emission struct {
	kernel string
	spec   Spec
}

func (e emission) String() string {
	s, _ := Defaults(e.kernel, e.spec)
	if s.Heads == 0 { // a number like others to these
		return fmt.Sprintf("%s/value=%d,latent=%d+%d,%s%s%s", e.kernel, s.Value, s.Latent, s.Rope, s.DType, s.Partial, s.Rotate)
	}
	if s.Nope > 0 && s.Latent > 0 {
		return fmt.Sprintf("%s/heads=%d,tile=%dx%d,stages=%d,latent=%d+%d,nope=%d,value=%d,%s",
			e.kernel, s.Heads, s.BlockM, s.BlockN, s.Stages, s.Latent, s.Rope, s.Nope, s.Value, s.DType)
	}
	if s.Nope > 0 {
		return fmt.Sprintf("%s/heads=%d,%dx%d,nope=%d+%d,value=%d,stages=%d,%s", e.kernel, s.Heads, s.BlockM, s.BlockN, s.Nope, s.Rope, s.Value, s.Stages, s.DType)
	}
	return fmt.Sprintf("%s/heads=%d,sq=%d,block-h=%d,teams=%d,latent=%d+%d,%s", e.kernel, s.Heads, s.SQ, s.BlockH, s.Teams, s.Latent, s.Rope, s.DType)
}

// emissions are head counts that models have and that they do not (one, odd,
// more than a hundred), with one and more query tokens, and other row blocks and
// widths.
func emissions() []emission {
	var list []emission
	for _, kernel := range Kernels() {
		switch kernel.Name {
		case "merge-states":
			for _, s := range []Spec{{}, {Value: 64}, {Value: 256}, {Value: 512}, {DType: "fp16"}, {Partial: "f32"}, {DType: "fp16", Partial: "f32", Value: 512}} {
				list = append(list, emission{kernel.Name, s})
			}
			continue
		case "append-kv":
			for _, s := range []Spec{{}, {DType: "fp16"}, {Rotate: "half"}, {Rotate: "interleaved", DType: "fp16"}, {Rotate: "half", Latent: 128, Rope: 128}} {
				list = append(list, emission{kernel.Name, s})
			}
			continue
		case "up-project", "absorb-q", "absorb-o":
			list = append(list, productEmissions(kernel.Name)...)
			continue
		case "layer-groups", "layer-rows": // likewise
			list = append(list, emission{kernel.Name, Spec{}})
			continue
		case "stream": // the same for all
			list = append(list, emission{kernel.Name, Spec{}.WithDefaults()})
			continue
		case "expand-prefill", "expand-schedule", "extend-attend", "extend-schedule":
			for _, s := range []Spec{{Heads: 1}, {Heads: 16, DType: "fp16"}, {Heads: 130}, {Nope: 64, Value: 64}, {BlockN: 64, Stages: 3}, {BlockN: 80}, {BlockN: 96}, {BlockN: 112},
				{BlockM: 192}, {BlockM: 192, DType: "fp16", Heads: 16}, {BlockM: 192, BlockN: 80}, {BlockM: 192, BlockN: 64, Stages: 3}, {BlockM: 192, Nope: 64, Value: 64}} {
				s, _ = Defaults(kernel.Name, s)
				list = append(list, emission{kernel.Name, s})
			}
			continue
		case "decode-schedule", "decode-combine": // heads and tokens are but numbers in it
			for _, s := range []Spec{{Heads: 1, SQ: 1}, {Heads: 16, SQ: 2, DType: "fp16"}, {Heads: 130, SQ: 5}, {Heads: 40, Teams: 2}} {
				list = append(list, emission{kernel.Name, s.WithDefaults()})
			}
			continue
		}
		for _, heads := range []int{1, 6, 16, 20, 40, 64, 128, 130} {
			for _, sq := range []int{1, 2, 5} {
				list = append(list, emission{kernel.Name, Spec{Heads: heads, SQ: sq, DType: "bf16"}})
			}
		}
		for _, s := range []Spec{
			{Heads: 6, DType: "fp16"}, {Heads: 16, DType: "fp16"}, {Heads: 128, DType: "fp16"},
			// Row blocks that are chosen for little work.
			{Heads: 24, BlockH: 16}, {Heads: 40, BlockH: 64}, {Heads: 128, BlockH: 16}, {Heads: 128, BlockH: 32}, {Heads: 16, SQ: 4, BlockH: 32}, {Heads: 16, SQ: 5, BlockH: 40},
			// Two teams.
			{Heads: 8, Teams: 2}, {Heads: 16, Teams: 2}, {Heads: 24, Teams: 2, DType: "fp16"}, {Heads: 64, BlockH: 32, Teams: 2}, {Heads: 40, Teams: 2}, {Heads: 16, SQ: 5, BlockH: 40, Teams: 2},
			{Heads: 12, SQ: 2, Teams: 2, Rope: 128}, {Latent: 256, Teams: 2}, {Heads: 32, Latent: 256, Rope: 128, Stages: 3, Teams: 2}, {Heads: 8, Latent: 256, DType: "fp16", Teams: 2},
			// Widths.
			{Latent: 128}, {Latent: 256, Rope: 128, Stages: 3}, {Heads: 40, Latent: 128}, {Heads: 32, Latent: 256, Rope: 128, Stages: 3}, {Heads: 64, Latent: 128, Rope: 128}, {Heads: 64, Latent: 256},
		} {
			list = append(list, emission{kernel.Name, s.WithDefaults()})
		}
	}
	return list
}

// TestEmissions: the kernels build, quickly and small; the text is the same
// every time, and the verifier finds nothing in it.
func TestEmissions(t *testing.T) {
	for _, e := range emissions() {
		t.Run(e.String(), func(t *testing.T) {
			begin := time.Now()
			out, err := Build(e.kernel, e.spec)
			took := time.Since(begin)
			if err != nil {
				t.Fatal(err)
			}
			if len(out.PTX) > maxText {
				t.Errorf("%d bytes of PTX: want at most %d", len(out.PTX), maxText)
			}
			// The best of several: other work on the machine is not the generator's.
			for i := 0; i < 1 || i < 30 && took > maxTime; i++ {
				begin := time.Now()
				again, err := Build(e.kernel, e.spec)
				took = min(took, time.Since(begin))
				if err != nil {
					t.Fatal(err)
				}
				if !bytes.Equal(out.PTX, again.PTX) {
					t.Fatalf("built again it differs:\n%.2000s", cmp.Diff(string(out.PTX), string(again.PTX)))
				}
				if diff := cmp.Diff(out.Manifest, again.Manifest); diff != "" {
					t.Fatalf("built again its manifest differs:\n%s", diff)
				}
			}
			if took > maxTime {
				t.Errorf("it took %v: want at most %v", took, maxTime)
			}
			m, err := ptx.Parse("k.ptx", out.PTX)
			if err != nil {
				t.Fatal(err)
			}
			for _, d := range verify.Module("k.ptx", m, out.Manifest) {
				t.Error(d)
			}
		})
	}
}

// TestAssembled: ptxas takes the kernels without a stack frame, a spill or a
// warning. Of several query tokens it takes those head counts that differ in
// more than numbers.
func TestAssembled(t *testing.T) {
	assembler := ptxas.Find(t)
	for _, e := range emissions() {
		if e.kernel == "absorb-decode" && e.spec.SQ > 1 && !slices.Contains([]int{1, 16, 130}, e.spec.Heads) {
			continue
		}
		t.Run(e.String(), func(t *testing.T) {
			t.Parallel()
			out, err := Build(e.kernel, e.spec)
			if err != nil {
				t.Fatal(err)
			}
			log, err := ptxas.Assemble(assembler, out.PTX)
			if err != nil {
				t.Fatal(err)
			}
			for _, c := range ptxas.Complaints(log) {
				t.Error(c)
			}
		})
	}
}

// TestMergeBesideDecode: a CTA of the merge has room on a multiprocessor beside one of
// decode with the row blocks for which the merge's grid counts on it.
func TestMergeBesideDecode(t *testing.T) {
	assembler := ptxas.Find(t)
	for _, heads := range []int{8, 16, 32} {
		shared, registers := 0, 0
		for _, kernel := range []string{"absorb-decode", "decode-combine"} {
			out, err := Build(kernel, Spec{Heads: heads})
			if err != nil {
				t.Fatal(err)
			}
			log, err := ptxas.Assemble(assembler, out.PTX)
			if err != nil {
				t.Fatal(err)
			}
			used := usedRegisters.FindStringSubmatch(log)
			if used == nil {
				t.Fatalf("ptxas does not tell registers:\n%s", log)
			}
			perThread, _ := strconv.Atoi(used[1])
			shared += out.Manifest.Shared + hopper.SharedReserve
			registers += hopper.Pool(out.Manifest.Threads, perThread)
		}
		if shared > hopper.SharedSM || registers > hopper.RegistersSM {
			t.Errorf("%d heads: both take %d of %d bytes and %d of %d registers", heads, shared, hopper.SharedSM, registers, hopper.RegistersSM)
		}
	}
}

var usedRegisters = regexp.MustCompile(`Used (\d+) registers`)

// TestLineInfo: .loc directives lead to the templates' lines and change no
// instruction.
func TestLineInfo(t *testing.T) {
	plain, err := Build("absorb-decode", Spec{})
	if err != nil {
		t.Fatal(err)
	}
	located, err := Build("absorb-decode", Spec{LineInfo: true})
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]bool{}
	for _, f := range located.Module.Files {
		files[f] = true
	}
	if !files["templates/decode.go"] || !files["templates/softmax.go"] {
		t.Errorf("files %v: want the templates", located.Module.Files)
	}
	var body []ptx.Stmt
	locs := 0
	for _, s := range located.Module.Kernels[0].Body {
		if _, ok := s.(*ptx.Loc); ok {
			locs++
			continue
		}
		body = append(body, s)
	}
	located.Module.Files, located.Module.Kernels[0].Body = nil, body
	if locs == 0 || located.Module.String() != string(plain.PTX) {
		t.Errorf("%d .loc; without them it differs:\n%.2000s", locs, cmp.Diff(string(plain.PTX), located.Module.String()))
	}
}

// TestPresets: presets have names of their own and build.
func TestPresets(t *testing.T) {
	seen := map[string]bool{}
	for _, p := range Presets() {
		if seen[p.Name] {
			t.Errorf("%s twice", p.Name)
		}
		seen[p.Name] = true
		if full, err := Defaults(p.Kernel, p.Spec); err != nil || p.Spec != full {
			t.Errorf("%s: defaults are missing in %+v", p.Name, p.Spec)
		}
		if _, err := Build(p.Kernel, p.Spec); err != nil {
			t.Errorf("%s: %v", p.Name, err)
		}
	}
	for _, k := range Kernels() {
		if !seen[k.Name] && !seen[k.Name+"-h16"] && !seen[k.Name+"-h128"] {
			t.Errorf("%s has no preset", k.Name)
		}
	}
}
