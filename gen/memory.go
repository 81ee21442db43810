package gen

import (
	"fmt"

	"github.com/mlagen/mlagen/ptx"
	"github.com/mlagen/mlagen/ptx/hopper"
	"github.com/mlagen/mlagen/ptx/isa"
)

// Pointer addresses an array in global memory.
type Pointer struct {
	k    *Kernel
	name string // of the parameter, until it is read
	base Value  // the address, when name is empty
	elem isa.Type
}

// Read loads the pointer from its parameter, once for several accesses.
func (p Pointer) Read() Pointer {
	if p.name == "" {
		return p
	}
	raw := p.k.apply(isa.U64, "ld.param.b64", ptx.Addr{Base: ptx.Symbol(p.name)})
	p.base, p.name = p.k.apply(isa.U64, "cvta.to.global.u64", raw.op), ""
	return p
}

// At returns the pointer advanced by index elements; a 32-bit index is
// widened, so products never wrap.
func (p Pointer) At(index any) Pointer {
	switch i := index.(type) {
	case int:
		return p.Bytes(p.k.Const(isa.S64, float64(i*p.elem.Bytes())))
	case *Var:
		return p.At(i.Value)
	case Value:
		if i.typ.Bits() == 32 {
			return p.Bytes(i.MulWide(p.elem.Bytes()))
		}
		return p.Bytes(i.Mul(p.elem.Bytes()))
	}
	p.k.errorf("%T is no index", index)
	return p
}

// Stride returns the pointer advanced by index rows of so many elements.
func (p Pointer) Stride(index Value, elements int) Pointer {
	if c, ok := index.imm(); ok {
		return p.At(int(c) * elements)
	}
	return p.Bytes(index.MulWide(elements * p.elem.Bytes()))
}

// Bytes returns the pointer advanced by a 64-bit number of bytes.
func (p Pointer) Bytes(n Value) Pointer {
	p = p.Read()
	p.base = p.base.As(isa.S64).Add(n.As(isa.S64)).As(isa.U64)
	return p
}

func (p Pointer) addr(index int) ptx.Addr {
	return ptx.Addr{Base: p.Read().base.op, Offset: int64(index * p.elem.Bytes())}
}

// Settle has the address computed where it stands. ptxas would move that to where
// the address is used, behind a wait that it could pass in the time of. never is a
// condition that does not hold, which ptxas cannot know: an instruction under it
// uses the address.
func (p Pointer) Settle(never Value) Pointer {
	p = p.Read()
	p.k.emitIf(guard(never, false), "prefetch.global.L2", p.addr(0))
	return p
}

// Load reads one element, Offset elements on.
func (p Pointer) Load(offset int) Value {
	return p.k.apply(registerType(p.elem), "ld.global."+loadType(p.elem), p.addr(offset))
}

// LoadVector reads n consecutive elements in one access, aligned to its size.
func (p Pointer) LoadVector(offset, n int) []Value {
	d, v := p.k.vector(p.elem, n)
	p.k.emit(fmt.Sprintf("ld.global.v%d.%s", n, loadType(p.elem)), d, p.addr(offset))
	return v
}

// LoadVectorIf reads like LoadVector where valid holds and gives zeros elsewhere.
func (p Pointer) LoadVectorIf(valid Value, offset, n int) []Value {
	d, v := p.k.vector(p.elem, n)
	for i := range v {
		p.k.emit("mov."+moveType(p.elem), d[i], p.k.Const(v[i].typ, 0).op)
	}
	p.k.emitIf(guard(valid, false), fmt.Sprintf("ld.global.v%d.%s", n, loadType(p.elem)), d, p.addr(offset))
	return v
}

// LoadIf reads one element where valid holds and gives otherwise elsewhere.
func (p Pointer) LoadIf(valid Value, offset int, otherwise Value) Value {
	v := p.k.Var(otherwise)
	p.k.emitIf(guard(valid, false), "ld.global."+loadType(p.elem), v.op, p.addr(offset))
	return v.Value
}

// Store writes one element.
func (p Pointer) Store(offset int, x any) {
	v := p.k.value(x, registerType(p.elem))
	p.k.emit("st.global."+loadType(p.elem), p.addr(offset), v.register())
}

// StoreVector writes consecutive elements in one access.
func (p Pointer) StoreVector(offset int, values ...Value) {
	p.k.emit(fmt.Sprintf("st.global.v%d.%s", len(values), loadType(p.elem)), p.addr(offset), operands(values))
}

// registerType is the type a loaded element has in a register.
func registerType(t isa.Type) isa.Type {
	switch t {
	case isa.U8, isa.S8, isa.B8:
		return isa.U16
	}
	return t
}

func (k *Kernel) vector(elem isa.Type, n int) (ptx.Vec, []Value) {
	d, v := make(ptx.Vec, n), make([]Value, n)
	for i := range d {
		r := k.reg(registerType(elem))
		d[i], v[i] = r, Value{k, r, registerType(elem)}
	}
	return d, v
}

func operands(values []Value) ptx.Vec {
	v := make(ptx.Vec, len(values))
	for i, x := range values {
		v[i] = x.register()
	}
	return v
}

// sharedSymbol is the one dynamic shared memory array.
const sharedSymbol = "smem"

// sharedBase returns where shared memory begins.
func (k *Kernel) sharedBase() Value {
	if k.pinned.op != nil {
		return k.pinned
	}
	return k.apply(isa.S32, "mov.u32", ptx.Symbol(sharedSymbol))
}

// PinShared keeps the address of shared memory in a register from here on, where
// all code that follows must have passed. Otherwise every use computes it anew,
// which takes a special register and its latency, also in a loop that waits for
// barriers: ptxas knows no reason not to. Run by whole warps.
func (k *Kernel) PinShared() { k.pinned = k.sharedBase().Broadcast(0) }

// sharedLayout hands out dynamic shared memory.
type sharedLayout struct{ used int }

// Region is a place in the CTA's shared memory: an array of elem.
type Region struct {
	k      *Kernel
	elem   isa.Type
	offset int
	index  Value // extra offset in bytes, when set
	space  string
}

// alloc reserves bytes of shared memory.
func (k *Kernel) alloc(bytes, align int) int {
	at := (k.shared.used + align - 1) / align * align
	k.shared.used = at + bytes
	return at
}

// LimitCTAs lets at most n CTAs be on an SM at a time, those of neighbouring
// launches included: the kernel asks for more shared memory than it uses. Call
// it when everything has been reserved.
func (k *Kernel) LimitCTAs(n int) {
	least := (hopper.SharedSM/(n+1) - hopper.SharedReserve) / sharedUnit * sharedUnit
	k.shared.used = max(k.shared.used, least+sharedUnit)
}

// sharedUnit is what shared memory is handed out in, in bytes.
const sharedUnit = 128

// SharedArray reserves count elements of shared memory.
func (k *Kernel) SharedArray(name string, elem isa.Type, count int) Region {
	r := Region{k: k, elem: elem, offset: k.alloc(count*elem.Bytes(), 16), space: "shared"}
	k.Comment("shared: %s at %d, %d x %s", name, r.offset, count, elem)
	return r
}

// At returns the region from the element that index names on.
func (r Region) At(index any) Region {
	switch i := index.(type) {
	case int:
		r.offset += i * r.elem.Bytes()
	case *Var:
		return r.At(i.Value)
	case Value:
		b := i.Mul(r.elem.Bytes())
		if r.index.op != nil {
			b = r.index.Add(b)
		}
		r.index = b.As(isa.S32)
	default:
		r.k.errorf("%T is no index", index)
	}
	return r
}

// Peer returns the same region in another CTA of the cluster.
func (r Region) Peer(rank Value) Region {
	a := r.Address()
	r.index = r.k.apply(isa.S32, "mapa.shared::cluster.u32", a.register(), rank.op)
	r.offset, r.space = 0, "shared::cluster"
	return r
}

// Address returns the region's address in the shared window as a value.
func (r Region) Address() Value {
	if r.space == "shared::cluster" {
		return r.index.Add(r.offset)
	}
	a := r.k.sharedBase().Add(r.offset)
	if r.index.op != nil {
		a = a.Add(r.index)
	}
	return a
}

func (r Region) addr(i int) ptx.Addr {
	off := int64(r.offset + i*r.elem.Bytes())
	if r.space == "shared::cluster" {
		return ptx.Addr{Base: r.index.op, Offset: off}
	}
	if r.index.op == nil && r.k.pinned.op == nil {
		return ptx.Addr{Base: ptx.Symbol(sharedSymbol), Offset: off}
	}
	if r.index.op == nil {
		return ptx.Addr{Base: r.k.pinned.op, Offset: off}
	}
	base := r.k.sharedBase().Add(r.index)
	return ptx.Addr{Base: base.op, Offset: off}
}

// CopyAsync has 16 bytes copied from global memory to the region, or zeros
// where valid, if it is given, does not hold; WaitCopies waits for it.
func (r Region) CopyAsync(from Pointer, valid Value) {
	k := r.k
	if valid.op == nil {
		k.emit("cp.async.cg.shared.global", r.addr(0), from.addr(0), ptx.Imm(16))
		return
	}
	bytes := k.Select(valid, k.Int(16), k.Int(0))
	k.emit("cp.async.cg.shared.global", r.addr(0), from.addr(0), ptx.Imm(16), bytes.op)
}

// WaitCopies waits until this thread's CopyAsync have arrived.
func (k *Kernel) WaitCopies() { k.emit("cp.async.wait_all") }

// Load reads element offset of the region.
func (r Region) Load(offset int) Value {
	return r.k.apply(registerType(r.elem), "ld."+r.space+"."+loadType(r.elem), r.addr(offset))
}

// LoadVector reads n consecutive elements in one access.
func (r Region) LoadVector(offset, n int) []Value {
	d, v := r.k.vector(r.elem, n)
	r.k.emit(fmt.Sprintf("ld.%s.v%d.%s", r.space, n, loadType(r.elem)), d, r.addr(offset))
	return v
}

// Store writes element offset of the region.
func (r Region) Store(offset int, x any) {
	v := r.k.value(x, registerType(r.elem))
	r.k.emit("st."+r.space+"."+loadType(r.elem), r.addr(offset), v.register())
}

// StoreVector writes consecutive elements in one access.
func (r Region) StoreVector(offset int, values ...Value) {
	r.k.emit(fmt.Sprintf("st.%s.v%d.%s", r.space, len(values), loadType(r.elem)), r.addr(offset), operands(values))
}
