package bind

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/mlagen/mlagen/ptx/manifest"
)

// place is the address of an argument and an offset to it.
func (w *cWriter) place(address, offset string) string {
	at := "a->" + cName(address) + ".address"
	if offset != "" {
		at += " + (CUdeviceptr)" + w.expr(offset)
	}
	return at
}

func (w *cWriter) exprs(list []string) string {
	var out []string
	for _, e := range list {
		out = append(out, w.expr(e))
	}
	return strings.Join(out, ", ")
}

// expr translates an expression.
func (w *cWriter) expr(text string) string {
	e, err := manifest.ParseExpr(text)
	if err != nil {
		w.err = err
		return "0"
	}
	return w.translate(e)
}

func (w *cWriter) translate(e *manifest.Expr) string {
	var args []string
	for _, a := range e.Args {
		args = append(args, w.translate(a))
	}
	functions := map[string]string{"+": "add", "-": "sub", "*": "mul", "/": "div", "ceildiv": "ceildiv", "roundup": "roundup"}
	switch e.Op {
	case "integer":
		return fmt.Sprintf("INT64_C(%d)", e.Value)
	case "name":
		name, ok := w.names[e.Name]
		if !ok {
			w.err = fmt.Errorf("launch rules use %q before it is known", e.Name)
		}
		if _, err := strconv.ParseInt(name, 10, 64); err == nil {
			return "INT64_C(" + name + ")"
		}
		return name
	case "if":
		return fmt.Sprintf("(%s != 0 ? %s : %s)", args[0], args[1], args[2])
	case "min", "max":
		out := args[0]
		for _, a := range args[1:] {
			out = fmt.Sprintf("mlagen_%s(%s, %s)", e.Op, out, a)
		}
		return out
	}
	return fmt.Sprintf("mlagen_%s(&bad, %s)", functions[e.Op], strings.Join(args, ", "))
}

func (w *cWriter) elementBytes(argument string) int {
	sizes := map[string]int{"bf16": 2, "fp16": 2, "f32": 4, "s32": 4, "s64": 8}
	for _, a := range w.l.Arguments {
		if a.Name == argument {
			return sizes[a.DType]
		}
	}
	return 0
}

var cElementTypes = map[string]string{
	"bf16": "CU_TENSOR_MAP_DATA_TYPE_BFLOAT16", "fp16": "CU_TENSOR_MAP_DATA_TYPE_FLOAT16", "f32": "CU_TENSOR_MAP_DATA_TYPE_FLOAT32",
}

func swizzleName(bytes int) string {
	if bytes == 0 {
		return "NONE"
	}
	return fmt.Sprintf("%dB", bytes)
}

func promotionName(bytes int) string {
	if bytes == 0 {
		return "NONE"
	}
	return fmt.Sprintf("L2_%dB", bytes)
}

func join(list []int) string {
	var out []string
	for _, n := range list {
		out = append(out, strconv.Itoa(n))
	}
	return strings.Join(out, ", ")
}

var cKeywords = []string{"auto", "break", "case", "char", "const", "continue", "default", "do", "double", "else", "enum", "extern", "float", "for", "goto", "if", "inline",
	"int", "long", "register", "restrict", "return", "short", "signed", "sizeof", "static", "struct", "switch", "typedef", "union", "unsigned", "void", "volatile", "while"}

// cName returns a name as C takes it.
func cName(name string) string {
	if slices.Contains(cKeywords, name) {
		return name + "_"
	}
	return name
}
