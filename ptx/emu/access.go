package emu

import (
	"fmt"

	"github.com/mlagen/mlagen/ptx"
	"github.com/mlagen/mlagen/ptx/isa"
)

// Windows of the generic address space. Global addresses are generic
// addresses as they are.
const (
	sharedWindow = 0x0100_0000_0000
	paramWindow  = 0x0200_0000_0000
	localWindow  = 0x0300_0000_0000
	windowBytes  = 1 << 32
)

func inWindow(addr, base uint64) bool { return addr >= base && addr-base < windowBytes }

// space is where an instruction's address points, as its modifiers say.
type space uint8

const (
	generic space = iota
	spGlobal
	spShared  // shared memory of the executing CTA
	spCluster // shared memory of any CTA of the cluster
	spParam
	spLocal
)

func parseSpace(name string) (space, error) {
	switch name {
	case "":
		return generic, nil
	case "global":
		return spGlobal, nil
	case "shared", "shared::cta":
		return spShared, nil
	case "shared::cluster":
		return spCluster, nil
	case "param":
		return spParam, nil
	case "local":
		return spLocal, nil
	}
	return 0, unsupported("space", name)
}

// memOperand is a decoded [base+offset].
type memOperand struct {
	base int32
	off  uint64
}

// memAddr decodes a memory operand.
func (c *compiler) memAddr(a ptx.Operand) (memOperand, error) {
	m, ok := a.(ptx.Addr)
	if !ok {
		return memOperand{}, fmt.Errorf("operand %T must be an address", a)
	}
	if m.Base == nil {
		return memOperand{c.constant(uint64(m.Offset)), 0}, nil
	}
	s, err := c.src(m.Base, isa.B64)
	return memOperand{s, uint64(m.Offset)}, err
}

// at returns the address that lane i computes.
func (o memOperand) at(w *warp, i int) uint64 { return w.r[o.base][i] + o.off }

// flavour says how an access is to be watched.
type flavour struct {
	write  bool
	atomic bool // a strong access: two of them do not race
}

// bytes returns the n bytes at addr, as lane i sees them. n is a power of two
// or a vector's size, to which the address must be aligned.
func (w *warp) bytes(sp space, addr uint64, n, i int, f flavour) []byte {
	if addr&uint64(n-1) != 0 {
		w.failLane(i, RuleMisaligned, fmt.Sprintf("address %#x, must be a multiple of %d", addr, n))
	}
	switch sp {
	case spShared, spCluster:
		return w.sharedBytes(sp, uint32(addr), n, i, f)
	case spGlobal:
		return w.globalBytes(addr, n, i, f)
	case spParam:
		return w.paramBytes(addr, n, i, f)
	case spLocal:
		return w.localBytes(addr, n, i, f)
	}
	switch {
	case addr >= heapBase:
		return w.globalBytes(addr, n, i, f)
	case inWindow(addr, sharedWindow):
		return w.sharedBytes(spCluster, uint32(addr-sharedWindow), n, i, f)
	case inWindow(addr, paramWindow):
		return w.paramBytes(addr, n, i, f)
	case inWindow(addr, localWindow):
		return w.localBytes(addr-localWindow, n, i, f)
	}
	w.failLane(i, RuleBounds, fmt.Sprintf("generic address %#x is in no state space", addr))
	return nil
}

// sharedAddress returns lane i's address in shared memory and the space that it
// is in: generic addresses must lie in the shared window, and mean within it
// what window says.
func (w *warp) sharedAddress(sp, window space, addr memOperand, i int) (space, uint32) {
	at := addr.at(w, i)
	if sp != generic {
		return sp, uint32(at)
	}
	if !inWindow(at, sharedWindow) {
		w.failLane(i, RuleBounds, fmt.Sprintf("generic address %#x is not in shared memory", at))
	}
	return window, uint32(at - sharedWindow)
}

// sharedTarget returns the CTA and offset that a shared address means.
func (w *warp) sharedTarget(sp space, addr uint32, i int) (*cta, uint32) {
	rank := addr >> rankShift
	if rank == 0 {
		return w.cta, addr
	}
	if sp == spShared {
		if int(rank)-1 == w.cta.rank {
			return w.cta, addr & (1<<rankShift - 1)
		}
		w.failLane(i, RuleBounds, fmt.Sprintf("shared::cta address %#x is outside the CTA's shared memory", addr))
	}
	if int(rank) > len(w.cl.ctas) {
		w.failLane(i, RuleBounds, fmt.Sprintf("shared::cluster address %#x names CTA %d of a cluster of %d", addr, rank-1, len(w.cl.ctas)))
	}
	return w.cl.ctas[rank-1], addr & (1<<rankShift - 1)
}

func (w *warp) sharedBytes(sp space, addr uint32, n, i int, f flavour) []byte {
	b, off := w.cta, addr
	if addr>>rankShift != 0 {
		b, off = w.sharedTarget(sp, addr, i)
	}
	if off < sharedBase || int(off)+n > len(b.shared) {
		w.failLane(i, RuleBounds, b.outside(off, n))
	}
	if b.live == 0 && b != w.cta {
		w.failLane(i, RuleClusterLife, fmt.Sprintf("touches shared memory of CTA %d, which has ended", b.number))
	}
	if w.hz != nil {
		w.hz.shared(w, i, b, off, n, f)
	}
	return b.shared[off : off+uint32(n) : off+uint32(n)]
}

// outside describes n bytes at shared address off, out of bounds.
func (b *cta) outside(off uint32, n int) string {
	k := b.cl.g.k
	if int(off) < sharedBase {
		return fmt.Sprintf("%d bytes at shared address %#x, below the first at %#x", n, off, sharedBase)
	}
	return fmt.Sprintf("%d bytes at shared address %#x, %d past the end of shared memory (%d static, %d dynamic from %#x)",
		n, off, int(off)+n-len(b.shared), k.static-sharedBase, b.cl.g.cfg.Shared, k.dynBase())
}

func (w *warp) globalBytes(addr uint64, n, i int, f flavour) []byte {
	a := w.lastAlloc
	if a == nil || addr < a.base || addr+uint64(n) > a.end() {
		var wrong string
		a, wrong = w.cl.g.m.heap.locate(addr, uint64(n))
		if a == nil {
			w.failLane(i, RuleBounds, fmt.Sprintf("%d bytes: %s", n, wrong))
		}
		w.lastAlloc = a
	}
	if w.hz != nil {
		w.hz.global(w, i, a, addr, n, f)
	}
	if w.cl.hz == nil {
		w.cl.stats.GlobalBytes += uint64(n)
	}
	if f.write {
		return a.poke(addr-a.base, uint64(n))
	}
	b, ok := a.peek(addr-a.base, uint64(n))
	if !ok && w.hz != nil {
		w.reportLane(i, Error, RuleUninitGlobal, fmt.Sprintf("%d bytes at %s+%#x were never written", n, a.name, addr-a.base))
	}
	return b
}

func (w *warp) paramBytes(addr uint64, n, i int, f flavour) []byte {
	off := addr - paramWindow
	p := w.cl.g.params
	if off > uint64(len(p)) || off+uint64(n) > uint64(len(p)) {
		w.failLane(i, RuleBounds, fmt.Sprintf("%d bytes at offset %d of the %d bytes of parameters", n, int64(off), len(p)))
	}
	if f.write {
		w.failLane(i, RuleBounds, "write to a kernel parameter")
	}
	return p[off : off+uint64(n)]
}

func (w *warp) localBytes(addr uint64, n, i int, f flavour) []byte {
	if addr+uint64(n) > uint64(w.k.local) {
		w.failLane(i, RuleBounds, fmt.Sprintf("%d bytes at local address %#x of %d bytes", n, addr, w.k.local))
	}
	if w.local[i] == nil {
		w.local[i] = make([]byte, w.k.local)
	}
	return w.local[i][addr : addr+uint64(n)]
}
