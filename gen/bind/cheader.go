package bind

import (
	"fmt"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/mlagen/mlagen/ptx/manifest"
)

// Header is a C header of one kernel: its PTX as a string, its parameters as a
// struct, and its launch rules as functions. It needs C11, the compiler's
// overflow builtins (gcc, clang) and the driver's cuda.h, and is the only thing
// that a C program needs of mlagen.
type Header struct {
	Stem     string // prefixes every name: absorb_decode_h16
	Name     string // of the kernel, for people
	Summary  string // what the kernel does
	PTX      []byte
	Manifest *manifest.Manifest
}

// HeaderStemOf returns the stem that a header's name gives.
func HeaderStemOf(file string) string { return strings.TrimSuffix(filepath.Base(file), ".h") }

// Text returns the header. The same kernel gives the same bytes. A name that
// cannot be used is an *OptionError.
func (h *Header) Text() ([]byte, error) {
	if err := checkStem(h.Stem); err != nil {
		return nil, &OptionError{"c", h.Stem + ".h", err.(*OptionError).Reason}
	}
	if h.Manifest.Launch == nil {
		return nil, &OptionError{"c", h.Name, "its manifest has no launch rules; package runtime launches it"}
	}
	w := &cWriter{h: h, m: h.Manifest, l: h.Manifest.Launch, stem: h.Stem, upper: strings.ToUpper(h.Stem), names: map[string]string{manifest.SMs: "a->sms"}}
	w.prelude()
	w.constants()
	w.params()
	w.arguments()
	w.quantities()
	w.check()
	w.fill()
	w.launch()
	w.text()
	w.line("#endif")
	return []byte(w.b.String()), w.err
}

// cWriter writes a header.
type cWriter struct {
	h           *Header
	m           *manifest.Manifest
	l           *manifest.Launch
	stem, upper string
	names       map[string]string // of quantities, as C
	b           strings.Builder
	err         error
}

func (w *cWriter) line(format string, args ...any) { fmt.Fprintf(&w.b, format+"\n", args...) }

// comment writes a comment of several lines.
func (w *cWriter) comment(indent, format string, args ...any) {
	lines := wrap(strings.ReplaceAll(fmt.Sprintf(format, args...), "*/", "* /"))
	for i, text := range lines {
		begin, end := "   ", ""
		if i == 0 {
			begin = "/* "
		}
		if i == len(lines)-1 {
			end = " */"
		}
		w.line("%s%s%s%s", indent, begin, text, end)
	}
}

func (w *cWriter) prelude() {
	w.line("/* %s */\n", header)
	w.comment("", "%s: %s. Operation %s.", w.h.Name, w.h.Summary, w.l.Operation)
	var order []string
	for _, s := range w.l.Steps {
		order = append(order, fmt.Sprintf("%s (once per %s)", s.Kernel, s.Once))
	}
	w.comment("", "Launches, in this order: %s.", strings.Join(order, ", "))
	w.line("\n#ifndef %s_H\n#define %s_H\n\n#include <cuda.h>\n#include <stddef.h>\n#include <stdint.h>\n#include <string.h>\n", w.upper, w.upper)
	w.b.WriteString(cCommon)
}

func (w *cWriter) constants() {
	define := func(name string, format string, args ...any) {
		w.line("#define %s_%s %s", w.upper, name, fmt.Sprintf(format, args...))
	}
	define("KERNEL", "%q", w.m.Kernel)
	define("PTX_SHA256", "%q", w.m.PTXSHA256)
	define("TARGET", "%q", w.m.Target)
	define("MIN_DRIVER", "%d", w.m.MinDriver)
	define("THREADS", "%d", w.m.Threads)
	define("CLUSTER", "%d", w.m.Cluster)
	define("SHARED", "%d", w.m.Shared)
	for _, c := range w.l.Constants {
		define(strings.ToUpper(c.Name), "%d", c.Value)
		w.names[c.Name] = strconv.FormatInt(c.Value, 10)
	}
	w.line("")
}

// cTypes are the C types of scalars.
var cTypes = map[string]string{
	"u8": "uint8_t", "u16": "uint16_t", "u32": "uint32_t", "u64": "uint64_t", "s8": "int8_t", "s16": "int16_t", "s32": "int32_t", "s64": "int64_t",
	"b8": "uint8_t", "b16": "uint16_t", "b32": "uint32_t", "b64": "uint64_t", "f32": "float", "f64": "double",
}

func (w *cWriter) params() {
	w.comment("", "The kernel's parameters, as they lie in the parameter buffer.")
	w.line("typedef struct {")
	end := 0
	for _, p := range w.m.Params {
		natural := p.Size // C's alignment
		switch p.Kind {
		case manifest.TensorMapParam:
			natural = 64
		case manifest.TableParam:
			natural = 8
		}
		if p.Offset > (end+natural-1)/natural*natural {
			w.line("\tuint8_t gap_%d[%d];", end, p.Offset-end)
		}
		switch p.Kind {
		case manifest.TensorMapParam:
			w.line("\tCUtensorMap %s;", cName(p.Name))
		case manifest.PointerParam:
			w.line("\tCUdeviceptr %s; /* %s */", cName(p.Name), p.Type)
		case manifest.TableParam:
			w.line("\tuint64_t %s[%d];", cName(p.Name), p.Size/8)
		default:
			w.line("\t%s %s;", cTypes[p.Type], cName(p.Name))
		}
		end = p.Offset + p.Size
	}
	w.line("} %s_params;", w.stem)
	for _, p := range w.m.Params {
		w.line("_Static_assert(offsetof(%s_params, %s) == %d && sizeof(((%s_params *)0)->%s) == %d, %q);",
			w.stem, cName(p.Name), p.Offset, w.stem, cName(p.Name), p.Size, w.stem+" "+p.Name)
	}
	w.line("")
}

func (w *cWriter) arguments() {
	single := Single{Manifest: w.m}
	w.comment("", "What a caller gives.")
	w.line("typedef struct {\n\tint64_t sms; /* the device's multiprocessors */")
	for i := range w.l.Arguments {
		a := &w.l.Arguments[i]
		name := cName(a.Name)
		switch a.Kind {
		case manifest.TensorArgument:
			kind := ""
			if a.Dense {
				kind = ", dense"
			}
			if a.Output {
				kind += ", written"
			}
			if a.Optional {
				kind += "; all zero where it is left out"
				w.names[a.Name+".given"] = fmt.Sprintf("(a->%s.address != 0)", name)
			}
			w.comment("\t", "%s: %s %s, aligned to %d bytes%s", a.Doc, a.DType, single.shape(a.Shape), a.Align, kind)
			w.line("\tmlagen_tensor %s;", name)
			for d, dim := range a.Shape {
				w.names[a.Name+".size."+dim.Name] = fmt.Sprintf("a->%s.size[%d]", name, d)
				w.names[a.Name+".stride."+dim.Name] = fmt.Sprintf("a->%s.stride[%d]", name, d)
			}
		case manifest.BufferArgument:
			w.comment("\t", "%s: of at least %s bytes, aligned to %d", a.Doc, a.Bytes, a.Align)
			w.line("\tmlagen_buffer %s;", name)
		case manifest.IntegerArgument:
			w.comment("\t", "%s", a.Doc)
			w.line("\tint64_t %s;", name)
			w.names[a.Name] = "a->" + name
		case manifest.TableArgument:
			w.comment("\t", "%s: up to %d rows of %s", a.Doc, a.Rows, strings.Join(a.Fields, ", "))
			w.line("\tstruct {\n\t\tint64_t rows;\n\t\tuint64_t words[%d];\n\t} %s;", a.Rows*len(a.Fields), name)
			w.names[a.Name+".rows"] = fmt.Sprintf("a->%s.rows", name)
		default:
			w.comment("\t", "%s", a.Doc)
			w.line("\tdouble %s;", name)
		}
	}
	w.line("} %s_args;\n", w.stem)
}

func (w *cWriter) quantities() {
	w.comment("", "What follows from sms and the integers, sizes of buffers among it.")
	w.line("typedef struct {\n\tint64_t grid[3];\n\tint when;")
	for _, q := range w.l.Quantities {
		w.line("\tint64_t %s;", cName(q.Name))
	}
	w.line("} %s_quantities;\n", w.stem)
	w.comment("", "Computes the quantities; returns NULL, or what is wrong with the arguments.")
	w.line("static inline const char *%s_compute(const %s_args *a, %s_quantities *q) {\n\tint bad = 0;\n\t(void)a;", w.stem, w.stem, w.stem)
	w.line("\tif (a->sms < 1)\n\t\treturn \"sms must be at least 1\";")
	single := Single{Manifest: w.m}
	for _, a := range w.l.Arguments {
		if a.Kind == manifest.TableArgument {
			w.line("\tif (a->%s.rows < 0 || a->%s.rows > %d)\n\t\treturn %q;", cName(a.Name), cName(a.Name), a.Rows, fmt.Sprintf("%s must have at most %d rows", a.Name, a.Rows))
		}
		for _, bound := range []struct{ expr, op, text string }{{a.Min, "<", "least"}, {a.Max, ">", "most"}} {
			if bound.expr != "" {
				w.line("\tif (a->%s %s %s || bad)\n\t\treturn %q;", cName(a.Name), bound.op, w.expr(bound.expr),
					fmt.Sprintf("%s must be at %s %s", a.Name, bound.text, single.expr(bound.expr)))
			}
		}
	}
	for _, q := range w.l.Quantities {
		w.line("\tq->%s = %s;", cName(q.Name), w.expr(q.Value))
		w.names[q.Name] = "q->" + cName(q.Name)
	}
	when := "1"
	if w.l.When != "" {
		when = w.expr(w.l.When) + " != 0"
	}
	w.line("\tq->when = %s;", when)
	for i, g := range w.l.Grid {
		w.line("\tq->grid[%d] = %s;", i, w.expr(g))
	}
	w.line("\tif (q->when && (q->grid[0] < 1 || q->grid[0] > 2147483647 || q->grid[1] < 1 || q->grid[1] > 65535 || q->grid[2] < 1 || q->grid[2] > 65535))")
	w.line("\t\treturn \"the grid is beyond what can be launched\";")
	w.line("\treturn bad ? \"a quantity does not fit 64 bits\" : NULL;\n}\n")
}

// check writes the function that checks tensors and buffers.
func (w *cWriter) check() {
	w.comment("", "Checks tensors and buffers; returns NULL, or what is wrong with them.")
	w.line("static inline const char *%s_check(const %s_args *a, const %s_quantities *q) {\n\tint bad = 0;\n\t(void)a, (void)q;", w.stem, w.stem, w.stem)
	for _, a := range w.l.Arguments {
		name := cName(a.Name)
		switch a.Kind {
		case manifest.TensorArgument:
			given := ""
			if a.Optional {
				given = fmt.Sprintf("a->%s.address && ", name)
			}
			for d, dim := range a.Shape {
				if dim.Size != "" {
					w.line("\tif (%sa->%s.size[%d] != %s)\n\t\treturn %q;", given, name, d, w.expr(dim.Size), fmt.Sprintf("%s: size of %s must be %s", a.Name, dim.Name, dim.Size))
				} else {
					w.line("\tif (a->%s.size[%d] < 0)\n\t\treturn %q;", name, d, fmt.Sprintf("%s: size of %s must be at least 0", a.Name, dim.Name))
				}
			}
			element := 0
			must := fmt.Sprintf("%s: address and strides must be multiples of %d bytes, and the address not null", a.Name, a.Align)
			if a.Dense {
				element = w.elementBytes(a.Name)
				must = fmt.Sprintf("%s: elements must lie one after the other, at a multiple of %d bytes that is not null", a.Name, a.Align)
			}
			w.line("\tif (%s!mlagen_placed(&a->%s, %d, %d, %d))\n\t\treturn %q;", given, name, len(a.Shape), a.Align, element, must)
		case manifest.BufferArgument:
			w.line("\tif (!a->%s.address || a->%s.address %% %d)\n\t\treturn %q;", name, name, a.Align, fmt.Sprintf("%s: address must be a multiple of %d bytes", a.Name, a.Align))
			w.line("\tif (a->%s.bytes < %s)\n\t\treturn %q;", name, w.expr(a.Bytes), fmt.Sprintf("%s must have at least %s bytes", a.Name, a.Bytes))
		}
	}
	w.line("\treturn bad ? \"a size does not fit 64 bits\" : NULL;\n}\n")
}

// fill writes the function that fills the parameters.
func (w *cWriter) fill() {
	w.comment("", "Fills the parameters, tensor maps included, for the current context.")
	w.line("static inline CUresult %s_fill(const %s_args *a, const %s_quantities *q, %s_params *p) {\n\tint bad = 0;\n\tCUresult r;\n\t(void)a, (void)q, (void)r;", w.stem, w.stem, w.stem, w.stem)
	for i := range w.m.TensorMaps {
		t := &w.m.TensorMaps[i]
		w.line("\t{")
		w.line("\t\tstatic const uint32_t box[] = {%s};", join(t.Box))
		w.line("\t\tCUdeviceptr address = %s;", w.place(t.Source.Address, t.Source.Offset))
		w.line("\t\tint64_t size[5] = {%s}, stride[5] = {%s}, element = %d;", w.exprs(t.Source.Sizes), w.exprs(t.Source.Strides), w.elementBytes(t.Source.Address))
		if e := t.IfEmpty; e != nil {
			var empty []string
			for d := range t.Source.Sizes {
				empty = append(empty, fmt.Sprintf("size[%d] == 0", d))
			}
			w.line("\t\tif (%s) { /* there is none: it is read all the same, and not looked at */", strings.Join(empty, " || "))
			w.line("\t\t\taddress = %s, element = %d;", w.place(e.Address, e.Offset), w.elementBytes(e.Address))
			for d, s := range e.Sizes {
				w.line("\t\t\tsize[%d] = %s;", d, w.expr(s))
			}
			for d, s := range e.Strides {
				w.line("\t\t\tstride[%d] = %s;", d, w.expr(s))
			}
			w.line("\t\t}")
		}
		w.line("\t\tr = mlagen_encode(&p->%s, %s, %d, address, size, stride, element, box, CU_TENSOR_MAP_SWIZZLE_%s, CU_TENSOR_MAP_L2_PROMOTION_%s);",
			cName(t.Param), cElementTypes[t.DType], len(t.Box), swizzleName(t.Swizzle), promotionName(t.Promotion))
		w.line("\t\tif (r != CUDA_SUCCESS)\n\t\t\treturn r;\n\t}")
	}
	for _, p := range w.m.Params {
		f := p.Fill
		switch {
		case f == nil: // a tensor map
		case f.Address != "":
			w.line("\tp->%s = %s;", cName(p.Name), w.place(f.Address, f.Offset))
		case f.Table != "":
			w.line("\tmemcpy(p->%s, a->%s.words, sizeof p->%s);", cName(p.Name), cName(f.Table), cName(p.Name))
		case f.Value != "":
			w.line("\tp->%s = (%s)(%s);", cName(p.Name), cTypes[p.Type], w.expr(f.Value))
		case f.Factor != 0:
			w.line("\tp->%s = (%s)(a->%s * %s);", cName(p.Name), cTypes[p.Type], cName(f.Real), strconv.FormatFloat(f.Factor, 'g', -1, 64))
		default:
			w.line("\tp->%s = (%s)a->%s;", cName(p.Name), cTypes[p.Type], cName(f.Real))
		}
	}
	w.line("\treturn bad ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;\n}\n")
}

// launch writes the function that does all of it.
func (w *cWriter) launch() {
	w.comment("", "Launches the kernel, which is function f of the PTX; nothing where there is nothing to do. *why says what is wrong with the arguments where they are refused.")
	w.line("static inline CUresult %s_launch(CUfunction f, CUstream stream, const %s_args *a, const char **why) {", w.stem, w.stem)
	w.line("\t%s_quantities q;\n\t%s_params p;\n\tCUresult r;", w.stem, w.stem)
	w.line("\t*why = %s_compute(a, &q);\n\tif (*why)\n\t\treturn CUDA_ERROR_INVALID_VALUE;\n\tif (!q.when)\n\t\treturn CUDA_SUCCESS;", w.stem)
	w.line("\t*why = %s_check(a, &q);\n\tif (*why)\n\t\treturn CUDA_ERROR_INVALID_VALUE;", w.stem)
	w.line("\tr = %s_fill(a, &q, &p);\n\tif (r == CUDA_SUCCESS)", w.stem)
	w.line("\t\tr = cuFuncSetAttribute(f, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, %s_SHARED);\n\tif (r != CUDA_SUCCESS)\n\t\treturn r;", w.upper)
	var list []string
	for _, p := range w.m.Params {
		list = append(list, "&p."+cName(p.Name))
	}
	for i, text := range wrap("void *params[] = {" + strings.Join(list, ", ") + "};") {
		w.line("\t%s%s", strings.Repeat("\t", min(i, 1)), text)
	}
	w.line("\tCUlaunchAttribute attributes[2];\n\tCUlaunchConfig config = {")
	w.line("\t\t.gridDimX = (unsigned)q.grid[0], .gridDimY = (unsigned)q.grid[1], .gridDimZ = (unsigned)q.grid[2],")
	w.line("\t\t.blockDimX = %s_THREADS, .blockDimY = 1, .blockDimZ = 1, .sharedMemBytes = %s_SHARED, .hStream = stream, .attrs = attributes,\n\t};", w.upper, w.upper)
	if w.l.Programmatic {
		w.line("\tattributes[config.numAttrs].id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION;")
		w.line("\tattributes[config.numAttrs++].value.programmaticStreamSerializationAllowed = 1;")
	}
	if w.m.Cluster > 1 {
		w.line("\tattributes[config.numAttrs].id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION;")
		w.line("\tattributes[config.numAttrs].value.clusterDim.x = %s_CLUSTER;", w.upper)
		w.line("\tattributes[config.numAttrs].value.clusterDim.y = 1;\n\tattributes[config.numAttrs++].value.clusterDim.z = 1;")
	}
	w.line("\treturn cuLaunchKernelEx(&config, f, params, NULL);\n}\n")
}

// text writes the PTX.
func (w *cWriter) text() {
	w.comment("", "The PTX, for cuModuleLoadData.")
	w.line("__attribute__((unused)) static const char %s_ptx[] =", w.stem)
	for line := range strings.Lines(string(w.h.PTX)) {
		fmt.Fprintf(&w.b, "\t%s\n", cString(line))
	}
	w.line("\t;\n")
}

// cString quotes ASCII text as C does; other bytes become octal escapes.
func cString(s string) string {
	var b strings.Builder
	b.WriteByte('"')
	for _, c := range []byte(s) {
		switch {
		case c == '\n':
			b.WriteString(`\n`)
		case c == '\t':
			b.WriteString(`\t`)
		case c == '"' || c == '\\':
			b.WriteByte('\\')
			b.WriteByte(c)
		case c == '?' || c < ' ' || c > '~': // '?': no trigraphs
			fmt.Fprintf(&b, `\%03o`, c)
		default:
			b.WriteByte(c)
		}
	}
	b.WriteByte('"')
	return b.String()
}
