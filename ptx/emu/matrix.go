package emu

import (
	"fmt"

	"github.com/mlagen/mlagen/ptx"
	"github.com/mlagen/mlagen/ptx/emu/wgmma"
	"github.com/mlagen/mlagen/ptx/isa"
)

// Moves of 8×8 matrices between shared memory and the registers of a warp.

var _ = register(map[string]func(*compiler, *ptx.Instr) error{
	"ldmatrix": buildLdmatrix, "stmatrix": buildStmatrix, "movmatrix": buildMovmatrix,
})

func matrixCount(in *ptx.Instr) int {
	return map[string]int{"x1": 1, "x2": 2, "x4": 4}[in.Mod("num")]
}

const matrixRowBytes = 16

// rows returns the row addresses of the first 8·count lanes and a reader of
// the bytes at the address of a lane.
func (w *warp) rows(sp space, addr memOperand, count int, f flavour) (*[lanes]uint32, [lanes][]byte) {
	for i := range 8 * count {
		target, at := w.sharedAddress(sp, spShared, addr, i)
		w.addrs[i] = at
		w.rowBuf[i] = w.bytes(target, uint64(at), matrixRowBytes, i, f)
	}
	if w.hz != nil {
		w.hz.banks(w, uint32(1<<(8*count)-1), &w.addrs, matrixRowBytes)
	}
	return &w.addrs, w.rowBuf
}

// byAddress finds a row of those that rows has returned.
func byAddress(addrs *[lanes]uint32, rows *[lanes][]byte, count int) func(addr uint32) ([]byte, error) {
	next := 0 // rows are asked for in the order of their lanes
	return func(addr uint32) ([]byte, error) {
		for next < 8*count && addrs[next] != addr {
			next++
		}
		if next == 8*count {
			return nil, fmt.Errorf("row address %#x is no lane's", addr)
		}
		next++
		return rows[next-1], nil
	}
}

func buildLdmatrix(c *compiler, in *ptx.Instr) error {
	sp, err := parseSpace(in.Mod("space"))
	if err != nil {
		return err
	}
	addr, err := c.memAddr(arg(in, "p"))
	if err != nil {
		return err
	}
	n, trans := matrixCount(in), in.Mod("trans") != ""
	var d []int32
	for _, x := range elements(arg(in, "r")) {
		s, err := c.dst(x)
		if err != nil {
			return err
		}
		d = append(d, s)
	}
	if len(d) != n {
		return fmt.Errorf("%d registers for .%s", len(d), in.Mod("num"))
	}
	c.op.exec = func(w *warp, m uint32) {
		w.warpAligned(m)
		addrs, rows := w.rows(sp, addr, n, flavour{})
		regs, err := wgmma.LoadMatrix(n, trans, addrs, byAddress(addrs, &rows, n))
		if err != nil {
			w.fail(RuleMisaligned, err.Error())
		}
		for k, s := range d {
			for i := range lanes {
				w.r[s][i] = uint64(regs[k][i])
			}
		}
	}
	return nil
}

func buildStmatrix(c *compiler, in *ptx.Instr) error {
	sp, err := parseSpace(in.Mod("space"))
	if err != nil {
		return err
	}
	addr, err := c.memAddr(arg(in, "p"))
	if err != nil {
		return err
	}
	n, trans := matrixCount(in), in.Mod("trans") != ""
	s, err := c.srcs(isa.B32, elements(arg(in, "r"))...)
	if err != nil {
		return err
	}
	if len(s) != n {
		return fmt.Errorf("%d registers for .%s", len(s), in.Mod("num"))
	}
	c.op.exec = func(w *warp, m uint32) {
		w.warpAligned(m)
		w.cl.touch()
		addrs, rows := w.rows(sp, addr, n, flavour{write: true})
		var regs [4][lanes]uint32
		for k, s := range s {
			for i := range lanes {
				regs[k][i] = uint32(w.r[s][i])
			}
		}
		if err := wgmma.StoreMatrix(n, trans, addrs, &regs, byAddress(addrs, &rows, n)); err != nil {
			w.fail(RuleMisaligned, err.Error())
		}
	}
	return nil
}

func buildMovmatrix(c *compiler, in *ptx.Instr) error {
	d, err := c.dst(in.Args[0])
	if err != nil {
		return err
	}
	a, err := c.src(in.Args[1], isa.B32)
	if err != nil {
		return err
	}
	c.op.exec = func(w *warp, m uint32) {
		w.warpAligned(m)
		var v [lanes]uint32
		for i := range v {
			v[i] = uint32(w.r[a][i])
		}
		for i, x := range wgmma.MoveMatrix(&v) {
			w.r[d][i] = uint64(x)
		}
	}
	return nil
}

// warpAligned reports a warp instruction that not all lanes execute.
func (w *warp) warpAligned(m uint32) {
	if m != fullMask {
		w.report(Error, RuleAligned, fmt.Sprintf("lanes %#x of %#x execute it, must be all 32", m, w.live))
	}
}
