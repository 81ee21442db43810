package variants

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/mlagen/mlagen/runtime"
	"github.com/mlagen/mlagen/templates"
)

// paperDriver is an H200 on paper: it loads anything and keeps no memory.
type paperDriver struct{ runtime.Driver }

func (paperDriver) Name() string { return "paper" }
func (paperDriver) Attributes() runtime.Attributes {
	return runtime.Attributes{SMs: 132, SharedPerBlock: 232448, ComputeMajor: 9, DriverVersion: 13000, Clusters: true}
}
func (paperDriver) Load([]byte) (runtime.Module, error)                        { return paperModule{}, nil }
func (paperDriver) EncodeTensorMap(runtime.TensorMap) (m [128]byte, err error) { return m, nil }

type paperModule struct{ runtime.Module }

func (paperModule) Function(string) (runtime.Function, error) { return paperFunction{}, nil }
func (paperModule) Log() string                               { return "" }
func (paperModule) CompileSeconds() float64                   { return 0 }
func (paperModule) Unload() error                             { return nil }

type paperFunction struct{}

func (paperFunction) Attributes() (runtime.FunctionAttributes, error) {
	return runtime.FunctionAttributes{Registers: 128}, nil
}
func (paperFunction) SetDynamicShared(int) error { return nil }

// Every parameter that the templates declare is one that the runtime fills.
func TestTheRuntimeTakesTheTemplatesKernels(t *testing.T) {
	for _, s := range []runtime.DecodeShape{
		{Heads: 1, SQ: 1}, {Heads: 16, SQ: 1}, {Heads: 16, SQ: 5}, {Heads: 20, SQ: 1}, {Heads: 130, SQ: 1}, {Heads: 128, SQ: 4},
		{Heads: 16, SQ: 1, DType: runtime.FP16},
	} {
		s.Latent, s.Rope, s.Page = 512, 64, 64
		if s.DType == "" {
			s.DType = runtime.BF16
		}
		v, err := Source{}.Decode(s)
		if err != nil {
			t.Errorf("%+v: %v", s, err)
			continue
		}
		d, err := runtime.LoadDecode(paperDriver{}, v)
		if err != nil {
			t.Errorf("%+v: %v", s, err)
			continue
		}
		if m := d.Model(); m.Heads != s.Heads || m.SQ != s.SQ || m.DType != s.DType || m.Out != s.DType {
			t.Errorf("%+v: model %+v", s, m)
		}
		if d.ScheduleBytes(128, 0) == 0 || d.WorkspaceBytes(128, 0) == 0 {
			t.Errorf("%+v: no buffers", s)
		}
	}
	stream, err := Build("stream", templates.Spec{})
	if err != nil {
		t.Fatal(err)
	}
	k, err := runtime.Load(paperDriver{}, stream)
	if err != nil {
		t.Fatal(err)
	}
	kv, err := k.EncodeTensorMap("kv", 0, []uint64{576, 64, 1}, []uint64{1152, 73728})
	if err != nil {
		t.Fatal(err)
	}
	if err := k.NewParams().TensorMap("kv", &kv).Pointer("pages", 0).Int("count", 1).Pointer("sink", 0).Err(); err != nil {
		t.Error(err)
	}
}

func TestTheSourceRefusesWhatCannotBeBuilt(t *testing.T) {
	_, err := Source{Tune: templates.Spec{BlockH: 56}}.Decode(runtime.DecodeShape{Heads: 16, SQ: 1, Latent: 512, Rope: 64, Page: 64, DType: runtime.BF16})
	if err == nil || !strings.Contains(err.Error(), "block-h 56") {
		t.Error(err)
	}
}

func TestRowBlocks(t *testing.T) {
	for _, c := range []struct {
		heads, sq int
		want      []int
	}{
		{1, 1, []int{8}}, {8, 1, []int{8}}, {16, 1, []int{8, 16}}, {16, 2, []int{8, 16, 24, 32}}, {20, 2, []int{8, 16, 24, 32, 40, 64}},
		{64, 1, []int{8, 16, 24, 32, 40, 64}}, {128, 1, []int{8, 16, 24, 32, 40, 64}}, {128, 4, []int{32, 40, 64}},
	} {
		if d := cmp.Diff(c.want, Source{}.RowBlocks(runtime.DecodeShape{Heads: c.heads, SQ: c.sq, Latent: 512, Rope: 64})); d != "" {
			t.Errorf("%d heads, %d tokens: %s", c.heads, c.sq, d)
		}
	}
}
