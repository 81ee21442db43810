package bind

import (
	"bytes"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/dave/jennifer/jen"

	"github.com/mlagen/mlagen/ptx/manifest"
)

// Single is a binding of one kernel, which is launched by the rules of its
// manifest: a Go file that embeds the PTX and the manifest.
type Single struct {
	Package string
	Stem    string // names the type: absorb_decode_h16 gives AbsorbDecodeH16
	Name    string // of the kernel, for people: "absorb-decode"
	Summary string // what the kernel does, the end of a sentence that begins with its name
	// The files that are embedded, in the Go file's folder.
	PTXFile, ManifestFile string
	Manifest              *manifest.Manifest
}

// StemOf returns the stem that a Go file's name gives, absorb_decode_h16 for
// absorb_decode_h16.go and for absorb_decode_h16_mlagen.go.
func StemOf(file string) string {
	return strings.TrimSuffix(strings.TrimSuffix(filepath.Base(file), ".go"), "_mlagen")
}

// Code returns the Go file. The same binding gives the same bytes. A name that
// cannot be used is an *OptionError.
func (b *Single) Code() ([]byte, error) {
	if err := checkStem(b.Stem); err != nil {
		return nil, &OptionError{"go", b.Stem + ".go", err.(*OptionError).Reason}
	}
	if err := checkPackage(b.Package); err != nil {
		return nil, err
	}
	if b.Manifest.Launch == nil {
		return nil, &OptionError{"go", b.Name, "its manifest has no launch rules; package runtime launches it"}
	}
	f := newFile(b.Package)
	ptx, man := localName(b.Stem)+"PTX", localName(b.Stem)+"Manifest"
	f.Comment("Not to be accessed directly.")
	f.Var().Defs(
		jen.Comment("//go:embed "+b.PTXFile), jen.Id(ptx).String(),
		jen.Comment("//go:embed "+b.ManifestFile), jen.Id(man).String(),
	)
	f.Line()
	b.declare(f)
	b.loader(f, ptx, man)
	b.methods(f)
	var code bytes.Buffer
	if err := f.Render(&code); err != nil {
		return nil, fmt.Errorf("binding %s: %w", b.Stem, err)
	}
	return code.Bytes(), nil
}

func (b *Single) typeName() string { return goName(b.Stem) }

// declare writes the kernel's type and that of its arguments.
func (b *Single) declare(f *jen.File) {
	t, l := b.typeName(), b.Manifest.Launch
	comment := func(format string, args ...any) {
		for _, line := range wrap(fmt.Sprintf(format, args...)) {
			f.Comment(line)
		}
	}
	comment("%s is the kernel %s, which %s.", t, b.Name, b.Summary)
	if len(l.Steps) > 1 {
		var order []string
		for _, s := range l.Steps {
			order = append(order, fmt.Sprintf("%s (once per %s)", s.Kernel, s.Once))
		}
		comment("Operation %s launches, in this order: %s.", l.Operation, strings.Join(order, ", "))
	}
	f.Comment("It must not be used concurrently.")
	f.Type().Id(t).Struct(jen.Id("launcher").Op("*").Qual(runtimePkg, "Launcher"))
	f.Line()
	f.Comment(fmt.Sprintf("%sArgs are the arguments of a launch. Innermost strides are 1 element.", t))
	var fields []jen.Code
	for i := range l.Arguments {
		a := &l.Arguments[i]
		for _, text := range b.describe(a) {
			for _, line := range wrap(text) {
				fields = append(fields, jen.Comment(line))
			}
		}
		field := jen.Id(fieldName(a.Name))
		switch a.Kind {
		case manifest.TensorArgument:
			field.Qual(runtimePkg, "Tensor")
		case manifest.BufferArgument:
			field.Qual(runtimePkg, "Buffer")
		case manifest.IntegerArgument:
			field.Int64()
		case manifest.TableArgument:
			field.Index().Uint64()
		default:
			field.Float64()
		}
		fields = append(fields, field)
	}
	f.Type().Id(t + "Args").Struct(fields...)
	f.Line()
}

// describe says what an argument is, in lines of a comment.
func (b *Single) describe(a *manifest.Argument) []string {
	lines := []string{fieldName(a.Name) + ": " + a.Doc + "."}
	switch a.Kind {
	case manifest.TensorArgument:
		what := fmt.Sprintf("%s %s", a.DType, b.shape(a.Shape))
		if a.Dense {
			what += ", dense"
		}
		what += fmt.Sprintf(", aligned to %d bytes", a.Align)
		if !a.Dense {
			what += " as are its strides"
		}
		if a.Output {
			what += "; written"
		}
		if a.Optional {
			what += "; may be left out"
		}
		lines = append(lines, what+".")
	case manifest.TableArgument:
		lines = append(lines, fmt.Sprintf("Up to %d rows, one after the other: %s.", a.Rows, strings.Join(a.Fields, ", ")))
	case manifest.BufferArgument:
		lines = append(lines, fmt.Sprintf("%sBytes says how large; aligned to %d bytes.", fieldName(a.Name), a.Align))
	case manifest.IntegerArgument:
		if a.Min != "" && a.Max != "" {
			lines = append(lines, fmt.Sprintf("At least %s and at most %s.", b.expr(a.Min), b.expr(a.Max)))
		}
	}
	return lines
}

// shape is a tensor's shape, constants as numbers.
func (b *Single) shape(shape []manifest.Dimension) string {
	var list []string
	for _, d := range shape {
		switch size := b.expr(d.Size); size {
		case "", d.Name:
			list = append(list, d.Name)
		default:
			list = append(list, d.Name+" "+size)
		}
	}
	return "[" + strings.Join(list, ", ") + "]"
}

// wrap breaks a comment into lines.
func wrap(text string) []string {
	const width = 80
	var lines []string
	line := ""
	for word := range strings.FieldsSeq(text) {
		if line != "" && len(line)+1+len(word) > width {
			lines, line = append(lines, line), ""
		}
		if line != "" {
			line += " "
		}
		line += word
	}
	return append(lines, line)
}

// expr is an expression with constants as numbers, a number where nothing else
// is in it.
func (b *Single) expr(text string) string {
	if e, err := manifest.ParseExpr(text); err == nil {
		if v, err := e.Eval(b.constant); err == nil {
			return fmt.Sprint(v)
		}
	}
	for _, c := range b.Manifest.Launch.Constants {
		text = replaceWord(text, c.Name, fmt.Sprint(c.Value))
	}
	return text
}

func (b *Single) constant(name string) (int64, bool) {
	for _, c := range b.Manifest.Launch.Constants {
		if c.Name == name {
			return c.Value, true
		}
	}
	return 0, false
}

// replaceWord replaces a name where it is a whole word.
func replaceWord(text, word, by string) string {
	var out strings.Builder
	for text != "" {
		n := strings.IndexFunc(text, func(r rune) bool { return !wordRune(r) })
		if n < 0 {
			n = len(text)
		}
		if n > 0 {
			if text[:n] == word {
				out.WriteString(by)
			} else {
				out.WriteString(text[:n])
			}
			text = text[n:]
			continue
		}
		out.WriteByte(text[0])
		text = text[1:]
	}
	return out.String()
}

func wordRune(r rune) bool {
	return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '_' || r == '.'
}

// loader writes LoadX.
func (b *Single) loader(f *jen.File, ptx, man string) {
	t := b.typeName()
	f.Comment(fmt.Sprintf("Load%s loads the kernel. Close it when it does not run any more.", t))
	f.Func().Id("Load"+t).Params(jen.Id("drv").Qual(runtimePkg, "Driver")).Params(jen.Op("*").Id(t), jen.Error()).Block(
		jen.List(jen.Id("v"), jen.Err()).Op(":=").Qual(runtimePkg, "ParseVariant").Call(jen.Lit(b.Name), jen.Id(ptx), jen.Id(man)),
		jen.If(jen.Err().Op("!=").Nil()).Block(jen.Return(jen.Nil(), jen.Err())),
		jen.List(jen.Id("l"), jen.Err()).Op(":=").Qual(runtimePkg, "LoadLauncher").Call(jen.Id("drv"), jen.Id("v")),
		jen.If(jen.Err().Op("!=").Nil()).Block(jen.Return(jen.Nil(), jen.Err())),
		jen.Return(jen.Op("&").Id(t).Values(jen.Id("l")), jen.Nil()),
	)
	f.Line()
}

// methods writes Launch, a method for each buffer's size, Kernel and Close.
func (b *Single) methods(f *jen.File) {
	t, l := b.typeName(), b.Manifest.Launch
	receiver := jen.Id("k").Op("*").Id(t)
	groups := []struct {
		kind  manifest.ArgumentKind
		field string
		typ   *jen.Statement
	}{
		{manifest.TensorArgument, "Tensors", jen.Index().Qual(runtimePkg, "Tensor")}, {manifest.BufferArgument, "Buffers", jen.Index().Qual(runtimePkg, "Buffer")},
		{manifest.IntegerArgument, "Integers", jen.Index().Int64()}, {manifest.RealArgument, "Reals", jen.Index().Float64()},
		{manifest.TableArgument, "Tables", jen.Index().Index().Uint64()},
	}
	var values []jen.Code
	for _, g := range groups {
		if given := b.each(g.kind, func(name string) jen.Code { return jen.Id("a").Dot(fieldName(name)) }); len(given) > 0 {
			values = append(values, jen.Line().Id(g.field).Op(":").Add(g.typ).Values(given...))
		}
	}
	f.Comment("Launch launches the kernel, or nothing where there is nothing to do. A mistake\nin the arguments launches nothing.")
	f.Func().Params(receiver.Clone()).Id("Launch").Params(jen.Id("s").Qual(runtimePkg, "Stream"), jen.Id("a").Id(t+"Args")).Error().Block(
		jen.Return(jen.Id("k").Dot("launcher").Dot("Launch").Call(jen.Id("s"), jen.Qual(runtimePkg, "LaunchArguments").Values(append(values, jen.Line())...))),
	)
	f.Line()
	for _, a := range l.Arguments {
		if a.Kind != manifest.BufferArgument {
			continue
		}
		size := fieldName(a.Name) + "Bytes"
		integers, given := b.sizing()
		f.Comment(fmt.Sprintf("%s returns the least size of %s in bytes, or why the arguments cannot be.", size, fieldName(a.Name)))
		signature := f.Func().Params(receiver.Clone()).Id(size)
		if len(integers) > 0 {
			signature.Params(jen.List(integers...).Int64())
		} else {
			signature.Params()
		}
		signature.Params(jen.Int64(), jen.Error()).Block(
			jen.Return(jen.Id("k").Dot("launcher").Dot("BufferBytes").Call(append([]jen.Code{jen.Lit(a.Name)}, given...)...)))
		f.Line()
	}
	f.Comment("Kernel returns the loaded kernel, for its manifest and the compiler's warnings.")
	f.Func().Params(receiver.Clone()).Id("Kernel").Params().Op("*").Qual(runtimePkg, "Kernel").Block(jen.Return(jen.Id("k").Dot("launcher").Dot("Kernel").Call()))
	f.Line()
	f.Comment("Close unloads the kernel, which must not be running.")
	f.Func().Params(receiver.Clone()).Id("Close").Params().Error().Block(jen.Return(jen.Id("k").Dot("launcher").Dot("Close").Call()))
}

// sizing returns the integer arguments that sizes may follow from, and all that are
// given to find one: 0 for those that only fill parameters, which nothing else, no
// bound either, is told by.
func (b *Single) sizing() (from, given []jen.Code) {
	l, used := b.Manifest.Launch, map[string]bool{}
	use := func(texts ...string) {
		for _, text := range texts {
			if e, err := manifest.ParseExpr(text); text != "" && err == nil { // Validate has told of others
				e.Names(func(name string) { used[name] = true })
			}
		}
	}
	use(append([]string{l.When}, l.Grid[:]...)...)
	for _, q := range l.Quantities {
		use(q.Value)
	}
	for _, a := range l.Arguments {
		use(a.Min, a.Max, a.Bytes)
		for _, d := range a.Shape {
			use(d.Size)
		}
	}
	for _, a := range l.Arguments {
		switch {
		case a.Kind != manifest.IntegerArgument:
		case used[a.Name] || a.Min != "0":
			from = append(from, jen.Id(argumentName(a.Name)))
			given = append(given, jen.Id(argumentName(a.Name)))
		default:
			given = append(given, jen.Lit(0))
		}
	}
	return from, given
}

// each makes code of the arguments of a kind.
func (b *Single) each(kind manifest.ArgumentKind, f func(name string) jen.Code) []jen.Code {
	var list []jen.Code
	for _, a := range b.Manifest.Launch.Arguments {
		if a.Kind == kind {
			list = append(list, f(a.Name))
		}
	}
	return list
}
