package emu

import (
	"bytes"
	"strconv"
	"strings"
	"testing"
)

func TestHeap(t *testing.T) {
	m := New(Config{})
	small, err := m.Alloc("small", 1000)
	if err != nil {
		t.Fatal(err)
	}
	huge, err := m.Alloc("huge", 1<<40)
	if err != nil {
		t.Fatal(err)
	}
	empty, err := m.Alloc("empty", 0)
	if err != nil {
		t.Fatal(err)
	}
	if huge-small < guardBytes || empty-huge < 1<<40+guardBytes {
		t.Errorf("no room between %#x, %#x and %#x", small, huge, empty)
	}
	// A write and a read across pages, far into the sparse allocation.
	data := make([]byte, 3*pageBytes)
	for i := range data {
		data[i] = byte(i * 7)
	}
	at := huge + 1<<39 + 12345
	if err := m.Write(at, data); err != nil {
		t.Fatal(err)
	}
	back := make([]byte, len(data))
	if err := m.Read(back, at); err != nil || !bytes.Equal(data, back) {
		t.Errorf("read back something else, %v", err)
	}
	if n := m.Resident(); n > 6*pageBytes {
		t.Errorf("%d bytes resident", n)
	}
	// Filling a terabyte takes no memory; a write then copies one page.
	if err := m.Fill(huge, 0xff, 1<<30); err != nil {
		t.Fatal(err)
	}
	if err := m.Write(huge+100, []byte{1}); err != nil {
		t.Fatal(err)
	}
	var b [3]byte
	if err := m.Read(b[:], huge+99); err != nil || b != [3]byte{0xff, 1, 0xff} {
		t.Errorf("% x %v", b, err)
	}
	if err := m.Read(b[:], huge+pageBytes+99); err != nil || b != [3]byte{0xff, 0xff, 0xff} {
		t.Errorf("the fill page was written: % x %v", b, err)
	}
	for name, c := range map[string]struct {
		err  error
		want string
	}{
		"end":    {m.Write(small+998, b[:]), `1 bytes past the end of "small"`},
		"before": {m.Read(b[:], huge-8), `8 bytes before "huge"`},
		"first":  {m.Read(b[:], small-1), `1 bytes before "small"`},
		"null":   {m.Read(b[:], 16), "in no allocation"},
		"empty":  {m.Write(empty, b[:1]), `past the end of "empty"`},
		"large":  {func() error { _, err := m.Alloc("x", 1<<50); return err }(), "larger than the address space"},
	} {
		if c.err == nil || !strings.Contains(c.err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, c.err, c.want)
		}
	}
	if base, size, ok := m.Locate(huge + 5); !ok || base != huge || size != 1<<40 {
		t.Error(base, size, ok)
	}
	if err := m.Free(small + 1); err == nil {
		t.Error("freed the middle of an allocation")
	}
	if err := m.Free(small); err != nil {
		t.Error(err)
	}
	if err := m.Write(small, b[:]); err == nil || !strings.Contains(err.Error(), `"small", which has been freed`) {
		t.Error(err)
	}
}

// TestUninitialisedBytes checks that initialisation is known byte by byte.
func TestUninitialisedBytes(t *testing.T) {
	for _, c := range []struct {
		written, read uint64
		bad           bool
	}{{64, 60, false}, {63, 60, true}, {61, 60, true}, {64, 56, false}, {1, 0, true}, {4, 0, false}} {
		r := newRig(t, "\tld.global.b32 %r0, [%out+"+itoa(c.read)+"];")
		out, err := r.m.Alloc("out", 128)
		if err != nil {
			t.Fatal(err)
		}
		r.out = out
		if err := r.m.Fill(out, 1, c.written); err != nil {
			t.Fatal(err)
		}
		_, rep, err := r.launch(1)
		if err != nil || (len(rep.Hazards) > 0) != c.bad {
			t.Errorf("%+v: %v %v", c, rep.Hazards, err)
		}
	}
}

func itoa(n uint64) string { return strconv.FormatUint(n, 10) }

// TestBankConflicts counts the extra cycles of one access.
func TestBankConflicts(t *testing.T) {
	for name, c := range map[string]struct {
		stride int    // bytes between lanes
		op     string // "32" or "v4"
		extra  uint64
	}{
		"rows": {4, "b32", 0}, "broadcast": {0, "b32", 0}, "every second word": {8, "b32", 1}, "one bank": {128, "b32", 31},
		"vectors": {16, "v4.b32", 0}, "vectors in one bank group": {128, "v4.b32", 28}, "bytes": {1, "b8", 0}, "padded rows": {132, "b32", 0},
	} {
		r := newRig(t, `
	mov.u32 %r1, smem;
	mad.lo.u32 %r2, %t, `+itoa(uint64(c.stride))+`, %r1;
	mov.u32 %r3, 5;
	st.shared.`+c.op+` [%r2], `+map[bool]string{true: "{%r3, %r3, %r3, %r3}", false: "%r3"}[strings.HasPrefix(c.op, "v4")]+`;`)
		r.smem = 8192
		_, rep, err := r.launch(32)
		if err != nil {
			t.Fatal(err)
		}
		if rep.Stats.BankConflicts != c.extra || (len(rep.Conflicts) == 1) != (c.extra > 0) {
			t.Errorf("%s: %d extra cycles, want %d (%+v)", name, rep.Stats.BankConflicts, c.extra, rep.Conflicts)
		}
	}
}

// TestFreeReleases: of a freed allocation only the name is kept.
func TestFreeReleases(t *testing.T) {
	r := newRig(t, "\tst.global.b32 [%mine], %t;")
	var err error
	if r.out, err = r.m.Alloc("out", 1<<20); err != nil {
		t.Fatal(err)
	}
	r.ok(32)
	a := r.m.heap.find(r.out)
	if a.pages == nil || a.grids.pages == nil {
		t.Fatal("nothing was kept of the launch's writes")
	}
	if err := r.m.Free(r.out); err != nil {
		t.Fatal(err)
	}
	if a.pages != nil || a.grids.pages != nil || r.m.Resident() != 0 {
		t.Errorf("pages %v, grids %v, %d bytes resident", a.pages != nil, a.grids.pages != nil, r.m.Resident())
	}
}
