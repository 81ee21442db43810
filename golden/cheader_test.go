package golden_test

import (
	"encoding/hex"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/mlagen/mlagen/gen/bind"
	"github.com/mlagen/mlagen/ptx/manifest"
	"github.com/mlagen/mlagen/runtime"
	"github.com/mlagen/mlagen/templates"
)

// cDriver is a driver library for the C program that tells on standard output
// what it is asked for. A function's handle is a table of its parameters' sizes
// and offsets.
const cDriver = `
CUresult CUDAAPI cuTensorMapEncodeTiled(CUtensorMap *map, CUtensorMapDataType type, cuuint32_t rank, void *address, const cuuint64_t *sizes, const cuuint64_t *strides,
	const cuuint32_t *box, const cuuint32_t *steps, CUtensorMapInterleave interleave, CUtensorMapSwizzle swizzle, CUtensorMapL2promotion promotion, CUtensorMapFloatOOBfill fill) {
	printf("map type %d at %llu sizes", (int)type, (unsigned long long)address);
	for (cuuint32_t i = 0; i < rank; i++) printf(" %llu", (unsigned long long)sizes[i]);
	printf(" strides");
	for (cuuint32_t i = 0; i + 1 < rank; i++) printf(" %llu", (unsigned long long)strides[i]);
	printf(" box");
	for (cuuint32_t i = 0; i < rank; i++) printf(" %u", box[i] * steps[i]);
	printf(" swizzle %d promotion %d other %d %d\n", (int)swizzle, (int)promotion, (int)interleave, (int)fill);
	memset(map, 0x11, sizeof *map);
	return CUDA_SUCCESS;
}

CUresult CUDAAPI cuFuncSetAttribute(CUfunction f, CUfunction_attribute a, int value) {
	(void)f;
	if (a != CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES) return CUDA_ERROR_INVALID_VALUE;
	printf("shared %d\n", value);
	return CUDA_SUCCESS;
}

CUresult CUDAAPI cuLaunchKernelEx(const CUlaunchConfig *c, CUfunction f, void **params, void **extra) {
	const int *table = (const int *)f; /* count, then size and offset of each */
	int at = 0, programmatic = 0;
	(void)extra;
	for (unsigned i = 0; i < c->numAttrs; i++)
		if (c->attrs[i].id == CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION) programmatic = c->attrs[i].value.programmaticStreamSerializationAllowed;
	printf("launch %u %u %u threads %u shared %u programmatic %d params ", c->gridDimX, c->gridDimY, c->gridDimZ, c->blockDimX, c->sharedMemBytes, programmatic);
	for (int i = 0; i < table[0]; i++) {
		for (; at < table[2 * i + 2]; at++) printf("00");
		for (int j = 0; j < table[2 * i + 1]; j++, at++) printf("%02x", ((unsigned char *)params[i])[j]);
	}
	printf("\n");
	return CUDA_SUCCESS;
}
`

// telling is a notebook that tells of tensor maps in the words of cDriver.
type telling struct {
	notebook
	maps []string
}

func (d *telling) EncodeTensorMap(t runtime.TensorMap) (out [128]byte, err error) {
	types := map[string]int{"fp16": 6, "f32": 7, "bf16": 9} // CUtensorMapDataType
	words := func(list any) string { return strings.Trim(fmt.Sprint(list), "[]") }
	swizzles, promotions := []int{0, 32, 64, 128}, []int{0, 64, 128, 256}
	d.maps = append(d.maps, fmt.Sprintf("map type %d at %d sizes %s strides %s box %s swizzle %d promotion %d other 0 0",
		types[t.DType], t.Address, words(t.Sizes), words(t.Strides), words(t.Box), slices.Index(swizzles, t.Swizzle), slices.Index(promotions, t.Promotion)))
	for i := range out {
		out[i] = 0x11
	}
	return out, nil
}

// tell returns what the launches since the last call are in the words of cDriver.
func (d *telling) tell() string {
	var b strings.Builder
	for _, m := range d.maps {
		fmt.Fprintln(&b, m)
	}
	d.maps = nil
	for _, n := range d.take() {
		fmt.Fprintf(&b, "shared %d\nlaunch %d %d %d threads %d shared %d programmatic 1 params %s\n", n.Shared, n.Grid.X, n.Grid.Y, n.Grid.Z, n.Block.X, n.Shared, hex.EncodeToString(n.Params))
	}
	return b.String()
}

// cCompiler returns the compiler and the folder of the driver's header, or skips
// where one is missing.
func cCompiler(t *testing.T) (gcc, include string) {
	t.Helper()
	include, err := filepath.Abs("../.tools/include13")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(include, "cuda.h")); err != nil {
		t.Skip("no .tools/include13/cuda.h: make tools fetches it")
	}
	if gcc, err = exec.LookPath("gcc"); err != nil {
		t.Skip("no gcc")
	}
	return gcc, include
}

// TestCHeader: C programs launch by the headers what Go launches by the
// manifests, to the byte.
func TestCHeader(t *testing.T) {
	gcc, include := cCompiler(t)
	dir := t.TempDir()
	random := rand.New(rand.NewPCG(5, 6))
	d := &telling{notebook: notebook{sms: 132}}
	stream, _ := d.NewStream()
	var program, body, want strings.Builder
	program.WriteString("#include <stdio.h>\n#include <string.h>\n")
	for _, kernels := range []struct {
		names []string
		spec  templates.Spec
	}{
		{[]string{"decode-schedule", "absorb-decode", "decode-combine"}, templates.Spec{}},
		{[]string{"decode-schedule", "absorb-decode", "decode-combine"}, templates.Spec{Heads: 20, SQ: 3, DType: "fp16"}},
		{[]string{"expand-schedule", "expand-prefill"}, templates.Spec{Heads: 16}},
		{[]string{"absorb-q"}, templates.Spec{BlockM: 8}},
		{[]string{"up-project"}, templates.Spec{}},
		{[]string{"append-kv"}, templates.Spec{Rotate: "half"}},
		{[]string{"merge-states"}, templates.Spec{}},
	} {
		var variants []runtime.Variant
		var stems []string
		for _, name := range kernels.names {
			v := kernelVariant(t, name, kernels.spec)
			stem := strings.ReplaceAll(name, "-", "_") + fmt.Sprintf("_%d", kernels.spec.SQ)
			text, err := (&bind.Header{Stem: stem, Name: name, Summary: "tested", PTX: v.PTX, Manifest: v.Manifest}).Text()
			must(t, err)
			must(t, os.WriteFile(filepath.Join(dir, stem+".h"), text, 0o666))
			fmt.Fprintf(&program, "#include %q\n", stem+".h")
			variants, stems = append(variants, v), append(stems, stem)
		}
		rules := loadLaunched(t, d, variants...)
		for i, k := range rules.list {
			fmt.Fprintf(&body, "static const int table_%s[] = {%d", stems[i], len(k.Kernel().Manifest.Params))
			for _, p := range k.Kernel().Manifest.Params {
				fmt.Fprintf(&body, ", %d, %d", p.Size, p.Offset)
			}
			body.WriteString("};\n")
		}
		for range 8 {
			c := randomCall(t, rules, random)
			for i := range rules.list {
				rules.launch(i, stream, c)
				want.WriteString(d.tell())
				m := rules.list[i].Kernel().Manifest
				fmt.Fprintf(&body, "static void case_%d(void) {\n\tconst char *why;\n\t%s_args a = {%s};\n", strings.Count(body.String(), "static void case_"), stems[i], cArguments(m, c, 132))
				fmt.Fprintf(&body, "\tif (%s_launch((CUfunction)table_%s, 0, &a, &why) != CUDA_SUCCESS) printf(\"refused: %%s\\n\", why);\n}\n", stems[i], stems[i])
			}
		}
	}
	fmt.Fprintf(&body, "int main(void) {\n")
	for i := range strings.Count(body.String(), "static void case_") {
		fmt.Fprintf(&body, "\tcase_%d();\n", i)
	}
	// What is refused is told.
	body.WriteString("\tconst char *why;\n\tabsorb_decode_0_args a = {.sms = 132, .batch = -1};\n")
	body.WriteString("\tCUresult r = absorb_decode_0_launch((CUfunction)table_absorb_decode_0, 0, &a, &why);\n\tprintf(\"%d: %s\\n\", r, why);\n")
	body.WriteString("\ta.batch = 2;\n\tr = absorb_decode_0_launch((CUfunction)table_absorb_decode_0, 0, &a, &why);\n\tprintf(\"%d: %s\\n\", r, why);\n")
	want.WriteString("1: batch must be at least 0\n1: q_latent: size of batch must be batch\n")
	// At the edge of what can be numbered: (1073741823/16 − 1 − sequences) · 128 − 1 query tokens.
	for _, tokens := range []int{7935, 7936} {
		fmt.Fprintf(&body, "\t{\n\t\texpand_schedule_0_quantities q;\n\t\texpand_schedule_0_args b = {.sms = 1, .sequences = 67108800, .query_tokens = %d};\n", tokens)
		fmt.Fprintf(&body, "\t\twhy = expand_schedule_0_compute(&b, &q);\n\t\tprintf(\"%%d %%d\\n\", why == NULL, (int)(why ? -1 : q.most_blocks));\n\t}\n")
	}
	body.WriteString("\treturn 0;\n}\n")
	want.WriteString("1 67108862\n0 -1\n")
	source, binary := filepath.Join(dir, "program.c"), filepath.Join(dir, "program")
	must(t, os.WriteFile(source, []byte(program.String()+cDriver+body.String()), 0o666))
	if out, err := exec.Command(gcc, "-std=c11", "-O0", "-Wall", "-Wextra", "-Werror", "-I"+include, "-o", binary, source).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	got, err := exec.Command(binary).Output()
	must(t, err)
	if diff := cmp.Diff(strings.Split(want.String(), "\n"), strings.Split(string(got), "\n")); diff != "" {
		t.Errorf("C launches otherwise:\n%.6000s", diff)
	}
}

// randomCall makes arguments for the kernels by what their manifests say.
func randomCall(t *testing.T, rules launched, random *rand.Rand) *call {
	t.Helper()
	m := &memory{random: random}
	c := &call{map[string]runtime.Tensor{}, map[string]runtime.Buffer{}, map[string]int64{}, map[string]float64{"scale": random.Float64() + 0.01, "lse_factor": math.Ln2, "to_log2": math.Log2E, "from_log2": math.Ln2}, map[string][]uint64{}}
	for i, l := range rules.list {
		launch := l.Kernel().Manifest.Launch
		r, err := l.Kernel().Manifest.Rules()
		must(t, err)
		r.Begin(132)
		for j, a := range launch.Arguments {
			if a.Kind != manifest.IntegerArgument {
				continue
			}
			if _, ok := c.integers[a.Name]; !ok {
				c.integers[a.Name] = random.Int64N(1 << random.IntN(12))
				if a.Max == "1" {
					c.integers[a.Name] = random.Int64N(2)
				}
				if a.Min == "1" {
					c.integers[a.Name]++
				}
			}
			must(t, r.Integer(j, c.integers[a.Name]))
		}
		for _, a := range launch.Arguments {
			switch a.Kind {
			case manifest.TableArgument:
				for range (1 + random.IntN(a.Rows)) * len(a.Fields) {
					c.tables[a.Name] = append(c.tables[a.Name], random.Uint64())
				}
			case manifest.TensorArgument:
				var shape []int64
				for _, d := range a.Shape {
					n := 1 + random.Int64N(9)
					if d.Size != "" {
						n, err = r.Eval(d.Size)
						must(t, err)
					}
					shape = append(shape, n)
				}
				if _, ok := c.tensors[a.Name]; ok {
					continue
				}
				if a.Dense || a.Align < 16 {
					c.tensors[a.Name] = m.dense(runtime.DType(a.DType), shape...)
				} else {
					c.tensors[a.Name] = m.rows(runtime.DType(a.DType), shape...)
				}
			case manifest.BufferArgument:
				if _, ok := c.buffers[a.Name]; !ok {
					c.buffers[a.Name] = m.buffer(rules.bytes(i, a.Name, c.integers))
				}
			}
		}
	}
	for _, l := range rules.list {
		for _, a := range l.Kernel().Manifest.Launch.Arguments {
			if a.Optional && random.IntN(3) == 0 {
				c.tensors[a.Name] = runtime.Tensor{}
			}
		}
	}
	return c
}

// cArguments are a call's arguments as a C initialiser.
func cArguments(m *manifest.Manifest, c *call, sms int) string {
	list := []string{fmt.Sprintf(".sms = %d", sms)}
	for _, a := range m.Launch.Arguments {
		switch a.Kind {
		case manifest.TensorArgument:
			t := c.tensors[a.Name]
			size, stride := make([]string, len(t.Shape)), make([]string, len(t.Shape))
			dense := int64(1)
			for i := len(t.Shape) - 1; i >= 0; i-- {
				n := dense
				if t.Strides != nil {
					n = t.Strides[i]
				}
				if t.Shape[i] <= 1 {
					n = 0
				}
				size[i], stride[i] = fmt.Sprint(t.Shape[i]), fmt.Sprint(n*t.DType.Bytes())
				dense *= t.Shape[i]
			}
			if len(t.Shape) == 0 { // left out
				continue
			}
			list = append(list, fmt.Sprintf(".%s = {%dull, {%s}, {%s}}", a.Name, t.Ptr, strings.Join(size, ", "), strings.Join(stride, ", ")))
		case manifest.BufferArgument:
			list = append(list, fmt.Sprintf(".%s = {%dull, %d}", a.Name, c.buffers[a.Name].Ptr, c.buffers[a.Name].Bytes))
		case manifest.IntegerArgument:
			list = append(list, fmt.Sprintf(".%s = %d", a.Name, c.integers[a.Name]))
		case manifest.TableArgument:
			words := make([]string, a.Rows*len(a.Fields)) // what is not given is 0
			for i := range words {
				words[i] = "0"
			}
			for i, v := range c.tables[a.Name] {
				words[i] = fmt.Sprintf("%dull", v)
			}
			list = append(list, fmt.Sprintf(".%s = {%d, {%s}}", a.Name, len(c.tables[a.Name])/len(a.Fields), strings.Join(words, ", ")))
		default:
			list = append(list, fmt.Sprintf(".%s = %s", a.Name, fmt.Sprintf("%.17g", c.reals[a.Name])))
		}
	}
	return strings.Join(list, ", ")
}
