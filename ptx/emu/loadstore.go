package emu

import (
	"encoding/binary"
	"github.com/mlagen/mlagen/ptx"
)

var _ = register(map[string]func(*compiler, *ptx.Instr) error{
	"ld": buildLoad, "ld.global.nc": buildLoad, "st": buildStore,
})

func loadUint(b []byte) uint64 {
	le := binary.LittleEndian
	switch len(b) {
	case 1:
		return uint64(b[0])
	case 2:
		return uint64(le.Uint16(b))
	case 4:
		return uint64(le.Uint32(b))
	}
	return le.Uint64(b)
}

func storeUint(b []byte, v uint64) {
	le := binary.LittleEndian
	switch len(b) {
	case 1:
		b[0] = byte(v)
	case 2:
		le.PutUint16(b, uint16(v))
	case 4:
		le.PutUint32(b, uint32(v))
	default:
		le.PutUint64(b, v)
	}
}

// strength is the memory order of a strong access.
type strength struct {
	acquire, release bool
	scope            string
}

// orderOf returns the order that an instruction's modifiers give; atomics
// without any are relaxed and of gpu scope.
func orderOf(in *ptx.Instr) strength {
	sem := in.Mod("sem")
	return strength{
		acquire: sem == "acquire" || sem == "acq_rel",
		release: sem == "release" || sem == "acq_rel",
		scope:   in.Mod("scope"),
	}
}

// accessKind decodes the parts that loads and stores share.
func (c *compiler) accessKind(in *ptx.Instr) (sp space, f flavour, err error) {
	name := in.Mod("space")
	if in.Form.Root == "ld.global.nc" || in.Mod("global") != "" {
		name = "global"
	}
	sp, err = parseSpace(name)
	f.atomic = in.Mod("sem") != "" || in.Mod("volatile") != ""
	if f.atomic && sp != spShared {
		c.atomics = true // may wait for another CTA
	}
	return sp, f, err
}

func buildLoad(c *compiler, in *ptx.Instr) error {
	t := in.Type("type")
	sp, f, err := c.accessKind(in)
	if err != nil {
		return err
	}
	addr, err := c.memAddr(in.Args[1])
	if err != nil {
		return err
	}
	dst := elements(in.Args[0])
	size := t.Bytes()
	n := size * len(dst)
	d := make([]int32, len(dst))
	masks := make([]uint64, len(dst))
	for k, a := range dst {
		if d[k], err = c.dst(a); err != nil {
			return err
		}
		masks[k] = widthMask(dstBits(a, t.Bits()))
	}
	x := extend(t)
	strong, order := f.atomic, orderOf(in)
	watch := sp == spShared || sp == spCluster
	load := func(w *warp, m uint32) {
		var addrs *[lanes]uint32
		if watch && w.hz != nil {
			addrs = &w.addrs
		}
		for y := m; y != 0; y &= y - 1 {
			i := trailing(y) & 31
			at := addr.at(w, i)
			if sp == spShared || sp == spCluster {
				at = uint64(uint32(at))
			}
			b := w.bytes(sp, at, n, i, f)
			if addrs != nil {
				addrs[i] = uint32(at)
			}
			if len(d) == 1 {
				w.r[d[0]][i] = x(loadUint(b)) & masks[0]
				continue
			}
			for k, s := range d {
				w.r[s][i] = x(loadUint(b[k*size:(k+1)*size])) & masks[k]
			}
		}
		if addrs != nil {
			w.hz.banks(w, m, addrs, n)
		}
	}
	if strong {
		// A poll: let others run, so that what it waits for can happen.
		c.op.ctl = func(w *warp, s *split, m uint32) verdict {
			load(w, m)
			if w.hz != nil {
				w.hz.acquireAt(w, m, sp, addr, order)
			}
			return yield
		}
		return nil
	}
	c.op.exec = load
	return nil
}

func buildStore(c *compiler, in *ptx.Instr) error {
	t := in.Type("type")
	sp, f, err := c.accessKind(in)
	if err != nil {
		return err
	}
	f.write = true
	addr, err := c.memAddr(in.Args[0])
	if err != nil {
		return err
	}
	src := elements(in.Args[1])
	size := t.Bytes()
	n := size * len(src)
	s, err := c.srcs(t, src...)
	if err != nil {
		return err
	}
	release, order := f.atomic, orderOf(in)
	watch := sp == spShared || sp == spCluster
	c.op.exec = func(w *warp, m uint32) {
		w.cl.touch()
		if release && w.hz != nil {
			w.hz.releaseAt(w, m, sp, addr, order)
		}
		var addrs *[lanes]uint32
		if watch && w.hz != nil {
			addrs = &w.addrs
		}
		for y := m; y != 0; y &= y - 1 {
			i := trailing(y) & 31
			at := addr.at(w, i)
			if watch {
				at = uint64(uint32(at))
			}
			b := w.bytes(sp, at, n, i, f)
			if addrs != nil {
				addrs[i] = uint32(at)
			}
			for k, s := range s {
				storeUint(b[k*size:(k+1)*size], w.r[s][i])
			}
		}
		if addrs != nil {
			w.hz.banks(w, m, addrs, n)
		}
	}
	return nil
}
