package gen

import (
	"github.com/mlagen/mlagen/ptx"
	"github.com/mlagen/mlagen/ptx/hopper"
	"github.com/mlagen/mlagen/ptx/isa"
	"github.com/mlagen/mlagen/ptx/manifest"
)

// addParam appends a kernel parameter and its manifest entry.
func (k *Kernel) addParam(name string, kind manifest.ParamKind, elem string, p *ptx.Parameter) {
	for _, q := range k.entry.Params {
		if q.Name == name {
			k.errorf("parameter %q is declared twice", name)
		}
	}
	offset := 0
	if n := len(k.man.Params); n > 0 {
		last := k.man.Params[n-1]
		offset = last.Offset + last.Size
	}
	align := p.Alignment()
	offset = (offset + align - 1) / align * align
	k.entry.Params = append(k.entry.Params, p)
	k.man.Params = append(k.man.Params, manifest.Param{
		Name: name, Kind: kind, Type: elem, Size: p.Size(), Align: align, Offset: offset,
	})
}

// Pointer declares a parameter that points to an array of elem in global memory.
func (k *Kernel) Pointer(name string, elem isa.Type) Pointer {
	k.addParam(name, manifest.PointerParam, elem.String(), &ptx.Parameter{Name: name, Type: isa.U64})
	return Pointer{k: k, name: name, elem: elem}
}

// Scalar declares a parameter passed by value. The result reads it anew at
// every use, so that it holds no register in between.
func (k *Kernel) Scalar(name string, t isa.Type) Scalar {
	k.addParam(name, manifest.ScalarParam, t.String(), &ptx.Parameter{Name: name, Type: t})
	return Scalar{k, name, t}
}

// Scalar is a by-value parameter.
type Scalar struct {
	k    *Kernel
	name string
	typ  isa.Type
}

// Read loads the parameter.
func (s Scalar) Read() Value {
	return s.k.apply(s.typ, "ld.param."+loadType(s.typ), ptx.Addr{Base: ptx.Symbol(s.name)})
}

func loadType(t isa.Type) string {
	if t.Float() && t.Bits() >= 32 {
		return t.String()
	}
	switch t.Bits() {
	case 8:
		return "b8"
	case 16:
		return "b16"
	case 32:
		return "b32"
	}
	return "b64"
}

// TensorMap is a tensor in global memory that the copy engine reads in boxes
// of a tile's width; it is described once, here, and the manifest carries the
// description to the host and to the emulator.
type TensorMap struct {
	k    *Kernel
	name string
	box  []int
}

// Tensor declares a tensor map parameter. dims names the dimensions, innermost
// first; box is the shape that one copy moves; promotion is the L2 promotion
// in bytes.
func (k *Kernel) Tensor(name string, dtype DType, dims []string, box []int, swizzle hopper.Swizzle, promotion int) TensorMap {
	if len(dims) != len(box) {
		k.errorf("tensor %q has %d dimensions and a box of %d", name, len(dims), len(box))
	}
	k.addParam(name, manifest.TensorMapParam, "b8", &ptx.Parameter{Name: name, Type: isa.B8, Align: 128, Count: 128})
	k.man.TensorMaps = append(k.man.TensorMaps, manifest.TensorMap{
		Param: name, DType: dtype.Name, Dims: dims, Box: box, Swizzle: swizzle.Bytes(), Promotion: promotion,
	})
	return TensorMap{k, name, box}
}

// address returns the tensor map's generic address.
func (t TensorMap) address() ptx.Operand {
	a := t.k.apply(isa.U64, "mov.b64", ptx.Symbol(t.name))
	return t.k.apply(isa.U64, "cvta.param.u64", a.op).op
}
