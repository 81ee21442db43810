package emu

import (
	"errors"
	"fmt"

	"github.com/mlagen/mlagen/ptx"
	"github.com/mlagen/mlagen/ptx/emu/tma"
	"github.com/mlagen/mlagen/ptx/isa"
)

// Bulk copies, of bytes and of tensor boxes.

var _ = register(map[string]func(*compiler, *ptx.Instr) error{
	"cp.async.bulk": buildBulk, "cp.reduce.async.bulk": buildBulkReduce, "cp.async.bulk.prefetch": buildBulkPrefetch,
	"cp.async.bulk.tensor": buildTensor, "cp.reduce.async.bulk.tensor": buildTensor,
	"cp.async.bulk.prefetch.tensor": buildTensorPrefetch,
})

// targets decodes the destination, the mbarrier and the CTA mask of a copy
// into shared memory.
type targets struct {
	dst, mbar func(w *warp, i int) (*cta, uint32)
	mask      int32 // slot, -1 = no multicast
}

func (c *compiler) targets(in *ptx.Instr) (t targets, err error) {
	sp, err := parseSpace(in.Mod("dst"))
	if err != nil {
		return t, err
	}
	if t.dst, err = c.sharedRef(sp, arg(in, "dstMem")); err != nil {
		return t, err
	}
	if t.mbar, err = c.sharedRef(spCluster, arg(in, "mbar")); err != nil {
		return t, err
	}
	t.mask = -1
	if a := arg(in, "ctaMask"); a != nil {
		t.mask, err = c.src(a, isa.U16)
	}
	if a := arg(in, "cache-policy"); a != nil && err == nil {
		_, err = c.src(a, isa.B64)
	}
	return t, err
}

// each calls f for every CTA that lane i's copy goes to: the destination's, or
// with a mask the same offsets in each CTA of the mask.
func (t targets) each(w *warp, i int, f func(b *cta, off uint32, bar *mbarrier)) {
	b, off := t.dst(w, i)
	mb, moff := t.mbar(w, i)
	if t.mask < 0 {
		if mb != b {
			w.failLane(i, RuleMbarrierInit, fmt.Sprintf("the copy writes to CTA %d and counts on an mbarrier of CTA %d", b.number, mb.number))
		}
		f(b, off, w.mbarrierAt(i, mb, moff))
		return
	}
	mask := w.r[t.mask][i]
	if mask == 0 || mask>>len(w.cl.ctas) != 0 {
		w.failLane(i, RuleBounds, fmt.Sprintf("CTA mask %#x for a cluster of %d", mask, len(w.cl.ctas)))
	}
	for rank, b := range w.cl.ctas {
		if mask>>rank&1 != 0 {
			f(b, off, w.mbarrierAt(i, b, moff))
		}
	}
}

// aligned checks a bulk copy's operands.
func (w *warp) aligned(i int, dst, src, size uint64) {
	if err := tma.CheckBulk(dst, src, size); err != nil {
		w.failLane(i, RuleMisaligned, err.Error())
	}
}

func (w *warp) inShared(i int, b *cta, off uint32, n int) {
	if off < sharedBase || int(off)+n > len(b.shared) {
		w.failLane(i, RuleBounds, b.outside(off, n))
	}
}

func buildBulk(c *compiler, in *ptx.Instr) error {
	size, err := c.src(arg(in, "size"), isa.U32)
	if err != nil {
		return err
	}
	if in.Mod("dst") == "global" {
		return buildBulkStore(c, in, size, nil)
	}
	t, err := c.targets(in)
	if err != nil {
		return err
	}
	if in.Mod("src") == "shared::cta" {
		src, err := c.sharedRef(spShared, arg(in, "srcMem"))
		if err != nil {
			return err
		}
		c.op.exec = func(w *warp, m uint32) {
			each(m, func(i int) {
				from, off := src(w, i)
				n := int(w.r[size][i])
				w.inShared(i, from, off, n)
				t.each(w, i, func(b *cta, to uint32, bar *mbarrier) {
					w.aligned(i, uint64(to), uint64(off), uint64(n))
					w.inShared(i, b, to, n)
					if w.hz != nil {
						w.hz.asyncRead(w, i, from, off, n, bar.comp, bar.phase+1)
					}
					w.load(i, bar, b, []piece{{to, n}}, func() { copy(b.shared[to:int(to)+n], from.shared[off:]) })
				})
			})
		}
		return nil
	}
	src, err := c.memAddr(arg(in, "srcMem"))
	if err != nil {
		return err
	}
	c.op.exec = func(w *warp, m uint32) {
		each(m, func(i int) {
			from, n := src.at(w, i), int(w.r[size][i])
			t.each(w, i, func(b *cta, to uint32, bar *mbarrier) {
				w.aligned(i, uint64(to), from, uint64(n))
				w.inShared(i, b, to, n)
				mem, _ := w.memory(i, false)
				at := w.access(i)
				w.checkGlobal(i, from, n)
				w.load(i, bar, b, []piece{{to, n}}, func() {
					data, err := mem(from, n)
					w.copyFault(err, at)
					copy(b.shared[to:], data)
				})
			})
		})
	}
	return nil
}

// checkGlobal reports a global range that is not inside one allocation.
func (w *warp) checkGlobal(i int, addr uint64, n int) {
	if _, wrong := w.cl.g.m.heap.locate(addr, uint64(n)); wrong != "" {
		w.failLane(i, RuleBounds, fmt.Sprintf("%d bytes: %s", n, wrong))
	}
}

// copyFault stops the run when a copy cannot read or write global memory.
func (w *warp) copyFault(err error, at access) {
	if err != nil {
		panic(fault{Hazard{Severity: Error, Rule: RuleBounds, Text: err.Error(), Kernel: w.k.def.Name, First: at.describe()}})
	}
}

func buildBulkReduce(c *compiler, in *ptx.Instr) error {
	size, err := c.src(arg(in, "size"), isa.U32)
	if err != nil {
		return err
	}
	t, op := in.Type("type"), tma.ReduceOp(in.Mod("op"))
	c.atomics = true
	return buildBulkStore(c, in, size, func(dst, src []byte) error { return tma.BulkReduce(op, t, dst, src) })
}

// buildBulkStore decodes copies and, with combine, reductions from shared to
// global memory.
func buildBulkStore(c *compiler, in *ptx.Instr, size int32, combine func(dst, src []byte) error) error {
	dst, err := c.memAddr(arg(in, "dstMem"))
	if err != nil {
		return err
	}
	src, err := c.sharedRef(spShared, arg(in, "srcMem"))
	if err != nil {
		return err
	}
	if a := arg(in, "cache-policy"); a != nil {
		if _, err := c.src(a, isa.B64); err != nil {
			return err
		}
	}
	if combine == nil {
		combine = func(dst, src []byte) error { copy(dst, src); return nil }
	}
	c.op.exec = func(w *warp, m uint32) {
		each(m, func(i int) {
			to := dst.at(w, i)
			b, off := src(w, i)
			n := int(w.r[size][i])
			w.aligned(i, to, uint64(off), uint64(n))
			w.inShared(i, b, off, n)
			w.checkGlobal(i, to, n)
			at := w.access(i)
			mem, flush := w.memory(i, true)
			buf := make([]byte, n)
			w.store(i, piece{off, n},
				func() { copy(buf, b.shared[off:]) },
				func() {
					data, err := mem(to, n)
					w.copyFault(err, at)
					w.copyFault(combine(data, buf), at)
					flush()
				})
		})
	}
	return nil
}

func buildBulkPrefetch(c *compiler, in *ptx.Instr) error {
	src, err := c.memAddr(arg(in, "srcMem"))
	if err != nil {
		return err
	}
	size, err := c.src(arg(in, "size"), isa.U32)
	if err != nil {
		return err
	}
	c.op.exec = func(w *warp, m uint32) {
		each(m, func(i int) {
			w.aligned(i, 0, src.at(w, i), w.r[size][i])
			w.checkGlobal(i, src.at(w, i), int(w.r[size][i]))
		})
	}
	return nil
}

// tensorOperand is a decoded [map, {coordinates}].
type tensorOperand struct {
	addr   int32
	coords []int32
}

func (c *compiler) tensor(in *ptx.Instr) (t tensorOperand, err error) {
	for _, a := range in.Args {
		x, ok := a.(ptx.Tensor)
		if !ok {
			continue
		}
		if t.addr, err = c.src(x.Map, isa.B64); err != nil {
			return t, err
		}
		t.coords, err = c.srcs(isa.S32, x.Coords...)
		if err == nil && len(t.coords) != dimension(in) {
			err = fmt.Errorf("%d coordinates for .%s", len(t.coords), in.Mod("dim"))
		}
		return t, err
	}
	return t, fmt.Errorf("no tensor operand")
}

// read returns the map and coordinates of lane i.
func (t tensorOperand) read(w *warp, i int) (*tma.Map, []int32) {
	addr := w.r[t.addr][i]
	if addr%64 != 0 {
		w.failLane(i, RuleMisaligned, fmt.Sprintf("tensor map at %#x, must be a multiple of 64", addr))
	}
	var raw []byte
	if inWindow(addr, paramWindow) {
		off := addr - paramWindow
		if off+128 > uint64(len(w.cl.g.params)) {
			w.failLane(i, RuleBounds, fmt.Sprintf("tensor map at offset %d of %d bytes of parameters", off, len(w.cl.g.params)))
		}
		raw = w.cl.g.params[off : off+128]
	} else {
		w.checkGlobal(i, addr, 128)
		raw = make([]byte, 128)
		_ = w.cl.g.m.heap.read(raw, addr) // checked
	}
	m := w.cl.g.tensorMap(addr, raw)
	if m.err != nil {
		w.failLane(i, RuleTensorMap, m.err.Error())
	}
	coords := make([]int32, len(t.coords))
	for k, s := range t.coords {
		coords[k] = int32(w.r[s][i])
	}
	return m.m, coords
}

// decodedMap caches a tensor map by address.
type decodedMap struct {
	raw [128]byte
	m   *tma.Map
	err error
}

func (g *grid) tensorMap(addr uint64, raw []byte) *decodedMap {
	g.mu.Lock()
	defer g.mu.Unlock()
	if d := g.maps[addr]; d != nil && string(d.raw[:]) == string(raw) {
		return d
	}
	d := &decodedMap{}
	copy(d.raw[:], raw)
	d.m, d.err = tma.Decode(raw)
	if g.maps == nil {
		g.maps = map[uint64]*decodedMap{}
	}
	g.maps[addr] = d
	return d
}

func buildTensor(c *compiler, in *ptx.Instr) error {
	t, err := c.tensor(in)
	if err != nil {
		return err
	}
	if in.Mod("dst") == "global" {
		return buildTensorStore(c, in, t)
	}
	to, err := c.targets(in)
	if err != nil {
		return err
	}
	c.op.exec = func(w *warp, m uint32) {
		each(m, func(i int) {
			tm, coords := t.read(w, i)
			to.each(w, i, func(b *cta, off uint32, bar *mbarrier) {
				w.tensorChecks(i, tm, off, len(b.shared), coords)
				mem, _ := w.memory(i, false)
				at := w.access(i)
				w.load(i, bar, b, []piece{{off, tm.BoxBytes()}}, func() {
					w.copyFault(tm.Load(b.shared, off, coords, mem), at)
				})
			})
		})
	}
	return nil
}

// tensorChecks reports operands that the copy engine refuses.
func (w *warp) tensorChecks(i int, tm *tma.Map, off uint32, limit int, coords []int32) {
	if off < sharedBase {
		w.failLane(i, RuleBounds, fmt.Sprintf("tensor copy at shared address %#x, below the first at %#x", off, sharedBase))
	}
	if err := tm.Check(off, limit, coords); err != nil {
		rule := RuleBounds
		switch {
		case errors.Is(err, tma.ErrAlign):
			rule = RuleMisaligned
		case len(coords) != len(tm.Box):
			rule = RuleTensorMap
		}
		w.failLane(i, rule, err.Error())
	}
	if !tm.PatternAligned(off) && w.hz != nil {
		w.reportLane(i, Advice, RuleMisaligned, fmt.Sprintf("box at %#x does not start on the pattern of the %v swizzle", off, tm.Swizzle))
	}
}

func buildTensorStore(c *compiler, in *ptx.Instr, t tensorOperand) error {
	src, err := c.sharedRef(spShared, arg(in, "srcMem"))
	if err != nil {
		return err
	}
	if a := arg(in, "cache-policy"); a != nil {
		if _, err := c.src(a, isa.B64); err != nil {
			return err
		}
	}
	op := tma.ReduceOp(in.Mod("op"))
	if op != "" {
		c.atomics = true
	}
	c.op.exec = func(w *warp, m uint32) {
		each(m, func(i int) {
			tm, coords := t.read(w, i)
			b, off := src(w, i)
			w.tensorChecks(i, tm, off, len(b.shared), coords)
			n := tm.BoxBytes()
			at := w.access(i)
			mem, flush := w.memory(i, true)
			// The snapshot keeps its shared address: the swizzle depends on it.
			buf := make([]byte, int(off)+n)
			w.store(i, piece{off, n},
				func() { copy(buf[off:], b.shared[off:int(off)+n]) },
				func() {
					var err error
					if op == "" {
						err = tm.Store(buf, off, coords, mem)
					} else {
						err = tm.Reduce(op, buf, off, coords, mem)
					}
					w.copyFault(err, at)
					flush()
				})
		})
	}
	return nil
}

func buildTensorPrefetch(c *compiler, in *ptx.Instr) error {
	t, err := c.tensor(in)
	if err != nil {
		return err
	}
	c.op.exec = func(w *warp, m uint32) { each(m, func(i int) { t.read(w, i) }) }
	return nil
}
