package manifest

import (
	"fmt"
	"math"
	"slices"
)

// SMs is the quantity that the device gives.
const SMs = "sms"

var elementTypes = []string{"bf16", "fp16", "f32", "s32", "s64"}

// launchChecker walks a launch rule in the order in which it is evaluated.
type launchChecker struct {
	known     map[string]bool
	arguments map[string]*Argument
}

// define makes a name known, once.
func (c *launchChecker) define(field, name string) error {
	if !plainName(name) {
		return refuse(field, name, "a word of at most %d letters (a to z), digits and underscores that begins with a letter", maxNameBytes)
	}
	if c.known[name] || c.arguments[name] != nil {
		return refuse(field, name, "a name that nothing before it has")
	}
	return nil
}

// expr refuses an expression that does not parse or uses what is not known.
func (c *launchChecker) expr(field, text string) error {
	e, err := ParseExpr(text)
	if err != nil {
		return &FieldError{field, fmt.Sprintf("was %v", err), "an expression"}
	}
	e.Names(func(name string) {
		if err == nil && !c.known[name] {
			err = &FieldError{field, fmt.Sprintf("was %q, which uses %q", clip(text), clip(name)), "an expression of what is known before it"}
		}
	})
	return err
}

// optional is expr of one that may be left out.
func (c *launchChecker) optional(field, text string) error {
	if text == "" {
		return nil
	}
	return c.expr(field, text)
}

func (m *Manifest) validateLaunch() error {
	l := m.Launch
	c := &launchChecker{map[string]bool{SMs: true}, map[string]*Argument{}}
	if err := first(m.validateSteps(), listed("launch.constants", len(l.Constants)),
		listed("launch.arguments", len(l.Arguments)), listed("launch.quantities", len(l.Quantities))); err != nil {
		return err
	}
	for i, k := range l.Constants {
		if err := c.define(fmt.Sprintf("launch.constants[%d].name", i), k.Name); err != nil {
			return err
		}
		c.known[k.Name] = true
	}
	for i := range l.Arguments {
		if err := c.argument(fmt.Sprintf("launch.arguments[%d].", i), &l.Arguments[i]); err != nil {
			return err
		}
	}
	for i := range l.Arguments { // now that all integers are known
		if err := c.tensor(fmt.Sprintf("launch.arguments[%d].", i), &l.Arguments[i]); err != nil {
			return err
		}
	}
	for i, q := range l.Quantities {
		at := fmt.Sprintf("launch.quantities[%d].", i)
		if err := first(c.define(at+"name", q.Name), c.expr(at+"value", q.Value)); err != nil {
			return err
		}
		c.known[q.Name] = true
	}
	for i, a := range l.Arguments {
		if a.Kind == BufferArgument {
			if err := c.expr(fmt.Sprintf("launch.arguments[%d].bytes", i), a.Bytes); err != nil {
				return err
			}
		}
	}
	for _, a := range l.Arguments {
		for _, d := range a.Shape {
			c.known[a.Name+".size."+d.Name], c.known[a.Name+".stride."+d.Name] = true, true
		}
		if a.Optional {
			c.known[a.Name+".given"] = true
		}
	}
	if err := c.optional("launch.when", l.When); err != nil {
		return err
	}
	for i, g := range l.Grid {
		if err := c.expr(fmt.Sprintf("launch.grid[%d]", i), g); err != nil {
			return err
		}
	}
	return first(m.described(), c.fills(m.Params), c.sources(m.TensorMaps))
}

func (m *Manifest) validateSteps() error {
	l := m.Launch
	if err := first(named("launch.operation", l.Operation), listed("launch.steps", len(l.Steps))); err != nil {
		return err
	}
	own := false
	for i, s := range l.Steps {
		at := fmt.Sprintf("launch.steps[%d].", i)
		if err := named(at+"kernel", s.Kernel); err != nil {
			return err
		}
		if s.Once != OncePerStep && s.Once != OncePerLayer && s.Once != OncePerChunk {
			return refuse(at+"once", s.Once, "%s, %s or %s", OncePerStep, OncePerLayer, OncePerChunk)
		}
		own = own || s.Kernel == m.Kernel
	}
	if !own {
		return &FieldError{"launch.steps", fmt.Sprintf("has no %q", m.Kernel), "the launches of the operation, this kernel's among them"}
	}
	return nil
}

// argument checks what does not need the other arguments, and defines it.
func (c *launchChecker) argument(at string, a *Argument) error {
	if err := c.define(at+"name", a.Name); err != nil {
		return err
	}
	if len(a.Doc) > maxTextBytes {
		return refuse(at+"doc", a.Doc, "at most %d bytes", maxTextBytes)
	}
	if !slices.Contains([]ArgumentKind{TensorArgument, BufferArgument, IntegerArgument, RealArgument, TableArgument}, a.Kind) {
		return refuse(at+"kind", string(a.Kind), "tensor, buffer, integer, real or table")
	}
	if (a.Kind == TensorArgument) != (len(a.Shape) > 0) {
		return &FieldError{at + "shape", fmt.Sprintf("has %d dimensions", len(a.Shape)), "given for tensors and for nothing else"}
	}
	if (a.Kind == TableArgument) != (len(a.Fields) > 0) || (a.Kind == TableArgument) != (a.Rows > 0) {
		return &FieldError{at + "fields", fmt.Sprintf("has %d names, and rows was %d", len(a.Fields), a.Rows), "given for tables and for nothing else, as rows"}
	}
	if a.Optional && a.Kind != TensorArgument {
		return refuse(at+"optional", a.Optional, "given for tensors and for nothing else")
	}
	if (a.Kind == BufferArgument) != (a.Bytes != "") {
		return refuse(at+"bytes", a.Bytes, "given for buffers and for nothing else")
	}
	if a.Kind != IntegerArgument && (a.Min != "" || a.Max != "") {
		return refuse(at+"min", a.Min, "given for integers and for nothing else, as max")
	}
	switch a.Kind {
	case TensorArgument, BufferArgument:
		if a.Align < 1 || a.Align > 256 || a.Align&(a.Align-1) != 0 {
			return refuse(at+"align", a.Align, "a power of two up to 256")
		}
	case IntegerArgument:
		if err := first(c.optional(at+"min", a.Min), c.optional(at+"max", a.Max)); err != nil {
			return err
		}
		c.known[a.Name] = true
	case TableArgument:
		if err := first(listed(at+"fields", len(a.Fields)), between(at+"rows", a.Rows, 1, maxParamBytes/8)); err != nil {
			return err
		}
		for i, f := range a.Fields {
			if !plainName(f) {
				return refuse(fmt.Sprintf("%sfields[%d]", at, i), f, "a word")
			}
		}
		c.known[a.Name+".rows"] = true
	}
	c.arguments[a.Name] = a
	return nil
}

func (c *launchChecker) tensor(at string, a *Argument) error {
	if a.Kind != TensorArgument {
		return nil
	}
	if !slices.Contains(elementTypes, a.DType) {
		return refuse(at+"dtype", a.DType, "bf16, fp16, f32, s32 or s64")
	}
	if len(a.Shape) > maxTensorRank {
		return &FieldError{at + "shape", fmt.Sprintf("has %d dimensions", len(a.Shape)), fmt.Sprintf("at most %d", maxTensorRank)}
	}
	names := map[string]bool{}
	for i, d := range a.Shape {
		field := fmt.Sprintf("%sshape[%d].", at, i)
		if !plainName(d.Name) || names[d.Name] {
			return refuse(field+"name", d.Name, "a word, another in each dimension")
		}
		names[d.Name] = true
		if err := c.optional(field+"size", d.Size); err != nil {
			return err
		}
	}
	return nil
}

// place refuses an address that is not an argument's.
func (c *launchChecker) place(at, address, offset string) error {
	if a := c.arguments[address]; a == nil || a.Kind != TensorArgument && a.Kind != BufferArgument {
		return refuse(at+"address", address, "the name of an argument that is a tensor or a buffer")
	}
	return c.optional(at+"offset", offset)
}

func (c *launchChecker) fills(params []Param) error {
	for i := range params {
		p := &params[i]
		at := fmt.Sprintf("params[%d].fill", i)
		f := p.Fill
		if p.Kind == TensorMapParam {
			if f != nil {
				return &FieldError{at, "was given", "left out: tensor_maps says what fills a tensor map"}
			}
			continue
		}
		if f == nil {
			return &FieldError{at, "is missing", "given, since there are launch rules"}
		}
		at += "."
		var err error
		switch {
		case p.Kind == PointerParam:
			if f.Value != "" || f.Real != "" || f.Table != "" {
				return &FieldError{at + "address", "was not alone", "all that fills a pointer, but for offset"}
			}
			err = c.place(at, f.Address, f.Offset)
		case p.Kind == TableParam:
			a := c.arguments[f.Table]
			if f.Address != "" || f.Value != "" || f.Real != "" || a == nil || a.Kind != TableArgument {
				return refuse(at+"table", f.Table, "the name of an argument that is a table, and alone")
			}
			if n := 8 * a.Rows * len(a.Fields); n != p.Size {
				return refuse(at+"table", f.Table, "one of %d bytes, as the parameter has, not of %d", p.Size, n)
			}
		case f.Table != "" || f.Address != "" || f.Offset != "" || (f.Value == "") == (f.Real == ""):
			return &FieldError{at + "value", fmt.Sprintf("was %q and real %q", clip(f.Value), clip(f.Real)), "given, or real instead"}
		case f.Value != "":
			if p.Type[0] == 'f' || p.Type[0] == 'b' && p.Type[1] == 'f' {
				return refuse(at+"value", f.Value, "real: the parameter is %s", p.Type)
			}
			err = c.expr(at+"value", f.Value)
		default:
			if a := c.arguments[f.Real]; a == nil || a.Kind != RealArgument {
				return refuse(at+"real", f.Real, "the name of an argument that is real")
			}
			if p.Type != "f32" && p.Type != "f64" {
				return refuse(at+"real", f.Real, "value: the parameter is %s", p.Type)
			}
			if math.IsNaN(f.Factor) || math.IsInf(f.Factor, 0) {
				return refuse(at+"factor", f.Factor, "finite")
			}
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (c *launchChecker) sources(maps []TensorMap) error {
	for i := range maps {
		t := &maps[i]
		at := fmt.Sprintf("tensor_maps[%d].", i)
		if t.Source == nil {
			return &FieldError{at + "source", "is missing", "given, since there are launch rules"}
		}
		for j, s := range []*Source{t.Source, t.IfEmpty} {
			if s == nil {
				continue
			}
			field := at + []string{"source.", "if_empty."}[j]
			if len(s.Sizes) != len(t.Box) || len(s.Strides) != len(t.Box)-1 {
				return &FieldError{field + "sizes", fmt.Sprintf("has %d entries and strides %d", len(s.Sizes), len(s.Strides)),
					fmt.Sprintf("%d, as box has, and one stride less", len(t.Box))}
			}
			if err := c.place(field, s.Address, s.Offset); err != nil {
				return err
			}
			for j, e := range s.Sizes {
				if err := c.expr(fmt.Sprintf("%ssizes[%d]", field, j), e); err != nil {
					return err
				}
			}
			for j, e := range s.Strides {
				if err := c.expr(fmt.Sprintf("%sstrides[%d]", field, j), e); err != nil {
					return err
				}
			}
		}
	}
	return nil
}
