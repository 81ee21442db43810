package verify

import (
	"slices"
	"strings"

	"github.com/mlagen/mlagen/ptx"
	"github.com/mlagen/mlagen/ptx/hopper"
	"github.com/mlagen/mlagen/ptx/manifest"
)

// elementBytes are the sizes of the manifest's element types.
var elementBytes = map[string]int{
	"bf16": 2, "fp16": 2, "f16": 2, "f32": 4, "e4m3": 1, "e5m2": 1, "u8": 1, "u16": 2, "u32": 4, "s32": 4, "u64": 8, "s64": 8, "f64": 8,
}

// tensorMaps checks the manifest's tensor maps against the machine's limits,
// and the instructions that use them against their rank.
func (c *kernelChecker) tensorMaps() {
	if c.man == nil {
		return
	}
	for i := range c.man.TensorMaps {
		c.tensorMap(&c.man.TensorMaps[i])
	}
	for _, i := range c.g.instrs {
		tm := c.mapOf(i)
		if tm == nil {
			continue
		}
		if dim := i.Mod("dim"); dim != "" && len(tm.Box) != int(dim[0]-'0') {
			c.report(i, "tensor-map", "a copy of %s dimensions from %s, which has %d", strings.TrimSuffix(dim, "d"), tm.Param, len(tm.Box))
		}
	}
}

func (c *kernelChecker) tensorMap(tm *manifest.TensorMap) {
	bad := func(format string, args ...any) {
		c.report(nil, "tensor-map", "tensor map "+tm.Param+": "+format, args...)
	}
	k := slices.IndexFunc(c.k.Params, func(p *ptx.Parameter) bool { return p.Name == tm.Param })
	if k < 0 {
		bad("no such parameter")
	} else if p := c.k.Params[k]; p.Size() != hopper.TensorMapBytes || p.Alignment() < hopper.TensorMapAlign {
		bad("the parameter has %d bytes aligned to %d; it needs %d aligned to %d", p.Size(), p.Alignment(), hopper.TensorMapBytes, hopper.TensorMapAlign)
	}
	bytes, ok := elementBytes[tm.DType]
	if !ok {
		bad("unknown element type %q", tm.DType)
		return
	}
	swizzle, err := hopper.SwizzleOf(tm.Swizzle)
	if err != nil {
		bad("%v", err)
		return
	}
	if err := hopper.CheckBox(tm.Box, bytes, swizzle); err != nil {
		bad("%v", err)
	}
	if len(tm.Dims) != len(tm.Box) {
		bad("%d dimensions, but a box of %d", len(tm.Dims), len(tm.Box))
	}
	switch tm.Promotion {
	case 0, 64, 128, 256:
	default:
		bad("L2 promotion of %d bytes; 0, 64, 128 or 256 are possible", tm.Promotion)
	}
}

// boxBytes returns the bytes of tm's box, 0 when unknown.
func boxBytes(tm *manifest.TensorMap) int {
	n := elementBytes[tm.DType]
	if n == 0 || len(tm.Box) == 0 {
		return 0
	}
	return hopper.BoxBytes(tm.Box, n)
}

// mapOf returns the tensor map that i's tensor operand refers to, nil when
// there is none or it cannot be told.
func (c *kernelChecker) mapOf(i *ptx.Instr) *manifest.TensorMap {
	if c.man == nil {
		return nil
	}
	for _, a := range i.Args {
		t, ok := a.(ptx.Tensor)
		if !ok {
			continue
		}
		name := c.param(t.Map, 8)
		for k := range c.man.TensorMaps {
			if name != "" && c.man.TensorMaps[k].Param == name {
				return &c.man.TensorMaps[k]
			}
		}
	}
	return nil
}

// param returns the parameter whose address o holds, "" when that cannot be
// told from single definitions.
func (c *kernelChecker) param(o ptx.Operand, depth int) string {
	switch o := o.(type) {
	case ptx.Symbol:
		return string(o)
	case *ptx.Reg:
		d := c.g.defs[o]
		if depth == 0 || len(d) != 1 || d[0].Guard.P != nil {
			return ""
		}
		switch d[0].Form.Root {
		case "mov", "cvta":
			return c.param(d[0].Args[len(d[0].Args)-1], depth-1)
		}
	}
	return ""
}
