package templates

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/mlagen/mlagen/ptx/emu"
	"github.com/mlagen/mlagen/ptx/manifest"
)

// scheduled is a schedule as the decode and combine kernels read it: each
// part's items in order, the requests that combine merges with the pieces that
// it is to expect, and the arrival counts of pairs.
type scheduled struct {
	spec     Spec
	parts    [][]piece
	merges   []merge
	longest  int
	arrivals []int // [slot][row block]
}

// piece is an item. Slot is −1 where it is its whole request.
type piece struct {
	Request, Begin, End, Slot int
	Paired, Second            bool
}

type merge struct{ Request, First, Count int }

// capacities are what a host reserves: items, slots of partial results, and
// merges (the count's entry included).
func capacities(batch, parts, splits int) (items, slots, merges int) {
	if splits == 0 {
		return batch + parts, 2 * parts, 1 + min(batch, parts)
	}
	return batch*splits + parts, batch * splits, 1 + batch
}

// launcher runs the schedule kernel on the emulator.
type launcher struct {
	program *emu.Program
	man     *manifest.Manifest
	spec    Spec
}

func newLauncher(t *testing.T, spec Spec) launcher {
	t.Helper()
	return newLauncherResident(t, spec, residentRequests)
}

// newLauncherResident is for a kernel that keeps so many requests in shared
// memory.
func newLauncherResident(t *testing.T, spec Spec, requests int) launcher {
	t.Helper()
	spec = spec.WithDefaults()
	out, err := scheduleResident(spec, requests)
	if err != nil {
		t.Fatal(err)
	}
	p, err := emu.Compile(out.Module)
	if err != nil {
		t.Fatal(err)
	}
	return launcher{p, out.Manifest, spec}
}

// untouched is what the kernel finds in the buffers that it writes.
const untouched = -0x55555556

// written are the words that the kernel writes.
type written struct{ First, Items, Merges, Arrivals []int }

// newWritten makes buffers of exactly the capacities, untouched.
func newWritten(spec Spec, batch, parts, splits int) written {
	items, slots, merges := capacities(batch, parts, splits)
	buffer := func(words int) []int { return slices.Repeat([]int{untouched}, words) }
	return written{buffer(parts + 1), buffer(itemWords * items), buffer(mergeWords * merges), buffer(slots * spec.RowBlocks())}
}

// run runs the kernel. The emulator faults on what lies beyond the buffers.
func (l launcher) run(kvLen []int, parts, splits int, hazards bool) (w written, err error) {
	m := emu.New(emu.Config{NoHazards: !hazards})
	w = newWritten(l.spec, len(kvLen), parts, splits)
	values := map[string]uint64{"batch": uint64(len(kvLen)), "parts": uint64(parts), "splits": uint64(splits)}
	lists := map[string][]int{"kv_len": kvLen, "part_first": w.First, "items": w.Items, "merges": w.Merges, "arrivals": w.Arrivals}
	for name, list := range lists {
		if values[name], err = m.Alloc(name, uint64(4*len(list))); err != nil {
			return w, err
		}
		var b []byte
		for _, v := range list {
			b = binary.LittleEndian.AppendUint32(b, uint32(v))
		}
		if err := m.Write(values[name], b); err != nil {
			return w, err
		}
	}
	last := l.man.Params[len(l.man.Params)-1]
	params := make([]byte, last.Offset+last.Size)
	for _, p := range l.man.Params {
		v, ok := values[p.Name]
		if !ok {
			return w, fmt.Errorf("no value for parameter %q", p.Name)
		}
		var b [8]byte
		binary.LittleEndian.PutUint64(b[:], v)
		copy(params[p.Offset:p.Offset+p.Size], b[:])
	}
	report, err := m.Launch(l.program, l.man.Kernel, emu.LaunchConfig{
		Grid: emu.Dim{X: 1}, Block: emu.Dim{X: l.man.Threads}, Shared: l.man.Shared, Params: params,
	})
	if err != nil {
		return w, err
	}
	if bad := report.Errors(); len(bad) > 0 {
		return w, fmt.Errorf("%d hazards, the first: %v", len(bad), bad[0])
	}
	for name, list := range lists {
		b := make([]byte, 4*len(list))
		if err := m.Read(b, values[name]); err != nil {
			return w, err
		}
		for i := range list {
			list[i] = int(int32(binary.LittleEndian.Uint32(b[4*i:])))
		}
	}
	return w, nil
}

// schedule runs the kernel and reads its schedule.
func (l launcher) schedule(kvLen []int, parts, splits int, hazards bool) (scheduled, error) {
	w, err := l.run(slices.Clone(kvLen), parts, splits, hazards)
	if err != nil {
		return scheduled{}, err
	}
	return w.read(l.spec, parts)
}

// read reads the schedule as decode and combine do.
func (w written) read(spec Spec, parts int) (scheduled, error) {
	s := scheduled{spec: spec, longest: w.Merges[1], arrivals: w.Arrivals}
	item := func(i int) (piece, error) {
		if i < 0 || i >= len(w.Items)/itemWords {
			return piece{}, fmt.Errorf("item %d of %d", i, len(w.Items)/itemWords)
		}
		v := w.Items[itemWords*i:]
		it := piece{Request: v[0], Begin: v[1], End: v[2], Slot: v[3]}
		if it.Slot != whole {
			it.Paired, it.Second = it.Slot&pairedBit != 0, it.Slot&secondBit != 0
			it.Slot &^= pairedBit | secondBit
		}
		return it, nil
	}
	for p := range parts {
		var mine []piece
		it, err := item(p)
		if err != nil {
			return s, err
		}
		if it.Request != idle {
			mine = append(mine, it)
		} else if w.First[p] != w.First[p+1] {
			return s, fmt.Errorf("part %d is idle and has the further items %d…%d", p, w.First[p], w.First[p+1])
		}
		for i := w.First[p]; i < w.First[p+1]; i++ {
			if it, err = item(i); err != nil {
				return s, err
			}
			mine = append(mine, it)
		}
		s.parts = append(s.parts, mine)
	}
	if n, room := w.Merges[0], len(w.Merges)/mergeWords-1; n < 0 || n > room {
		return s, fmt.Errorf("%d merges: there is room for %d", n, room)
	}
	for i := 1; i <= w.Merges[0]; i++ {
		v := w.Merges[mergeWords*i:]
		s.merges = append(s.merges, merge{v[0], v[1], v[2]})
	}
	return s, nil
}

// check says what is wrong with a schedule.
func (s scheduled) check(kvLen []int, parts, splits int) error {
	tiles := make([]int, len(kvLen))
	for r, n := range kvLen {
		tiles[r] = (max(n, 0) + 63) / 64
	}
	pieces := make([][]piece, len(kvLen))
	for p, list := range s.parts {
		for _, it := range list {
			if it.Request < 0 || it.Request >= len(kvLen) {
				return fmt.Errorf("part %d has request %d of %d", p, it.Request, len(kvLen))
			}
			pieces[it.Request] = append(pieces[it.Request], it)
		}
	}

	// Every tile of every request once; requests without a tile have one piece,
	// which writes their empty rows.
	_, slots, _ := capacities(len(kvLen), parts, splits)
	owner := make([]int, slots)
	var merges []merge
	longest := 0
	for r, list := range pieces {
		slices.SortFunc(list, func(a, b piece) int { return a.Begin - b.Begin })
		at := 0
		for i, it := range list {
			if it.Begin != at || it.End < it.Begin || it.End == it.Begin && tiles[r] > 0 {
				return fmt.Errorf("request %d of %d tiles has the pieces %v", r, tiles[r], list)
			}
			at = it.End
			if one := len(list) == 1; one != (it.Slot == whole) {
				return fmt.Errorf("request %d has %d pieces and one with slot %d", r, len(list), it.Slot)
			} else if one {
				continue
			}
			switch {
			case it.Paired != (len(list) == 2) || it.Second != (it.Paired && i == 1):
				return fmt.Errorf("request %d has %d pieces marked %+v", r, len(list), list)
			case it.Slot < 0 || it.Slot >= slots:
				return fmt.Errorf("request %d has slot %d of %d", r, it.Slot, slots)
			case owner[it.Slot] != 0:
				return fmt.Errorf("requests %d and %d share slot %d", owner[it.Slot]-1, r, it.Slot)
			case it.Slot != list[0].Slot+i:
				return fmt.Errorf("request %d: slots are not consecutive in %v", r, list)
			}
			owner[it.Slot] = r + 1
		}
		if at != tiles[r] || len(list) == 0 {
			return fmt.Errorf("request %d of %d tiles has the pieces %v", r, tiles[r], list)
		}
		switch {
		case len(list) == 2: // they merge themselves
			blocks := len(s.arrivals) / slots
			for b, n := range s.arrivals[list[0].Slot*blocks:][:blocks] {
				if n != 0 {
					return fmt.Errorf("request %d: the pair begins with %d arrivals in row block %d", r, n, b)
				}
			}
		case len(list) > 2:
			merges = append(merges, merge{r, list[0].Slot, len(list)})
		}
		if len(list) > 1 {
			longest = max(longest, len(list))
		}
	}
	if splits > 0 {
		longest = splits // that there may be: how combine merges a request depends on no other
	}
	if s.longest != longest && (s.longest != 1 || !s.wholeRequests(pieces)) {
		return fmt.Errorf("merges are said to have up to %d pieces: want %d", s.longest, longest)
	}
	got := slices.Clone(s.merges)
	slices.SortFunc(got, func(a, b merge) int { return a.Request - b.Request })
	if diff := cmp.Diff(merges, got); diff != "" {
		return fmt.Errorf("merges (-want +got):\n%s", diff)
	}
	if splits > 0 {
		return s.checkForced(tiles, pieces, splits)
	}
	return s.checkBalance(tiles, parts)
}

// wholeRequests reports whether every request is one piece.
func (s scheduled) wholeRequests(pieces [][]piece) bool {
	return !slices.ContainsFunc(pieces, func(list []piece) bool { return len(list) > 1 })
}

// checkForced: every request has the pieces asked for, as even as they can be,
// and so has every part.
func (s scheduled) checkForced(tiles []int, pieces [][]piece, splits int) error {
	all := 0
	for r, list := range pieces {
		if want := max(1, min(splits, tiles[r])); len(list) != want {
			return fmt.Errorf("request %d of %d tiles has %d pieces: want %d", r, tiles[r], len(list), want)
		}
		all += len(list)
		for _, it := range list {
			if n := it.End - it.Begin; n < tiles[r]/len(list) || n > (tiles[r]+len(list)-1)/len(list) {
				return fmt.Errorf("request %d of %d tiles has uneven pieces %v", r, tiles[r], list)
			}
		}
	}
	for p, list := range s.parts {
		if n := len(s.parts); len(list) < all/n || len(list) > (all+n-1)/n {
			return fmt.Errorf("part %d has %d of %d pieces, the parts are %d", p, len(list), all, n)
		}
	}
	return nil
}

// checkBalance: no part costs much more than its share. The slack is what the
// aligned schedule may cost more, a piece's cost for going on with a request
// that another part began, and cuts moved by a shortest piece at both ends.
// Whole requests are dealt out only where that keeps within two pieces' cost.
func (s scheduled) checkBalance(tiles []int, parts int) error {
	batch, pieceCost := len(tiles), s.spec.pieceCost()
	sum := 0
	for _, n := range tiles {
		sum += n
	}
	share := (sum + batch*pieceCost + parts - 1) / parts
	limit := share + share/16 + 1 + pieceCost + 2*minPiece
	for p, list := range s.parts {
		cost := 0
		for _, it := range list {
			cost += it.End - it.Begin + pieceCost
		}
		if cost > limit {
			return fmt.Errorf("part %d costs %d tiles; its share is %d, the limit %d: %v", p, cost, share, limit, list)
		}
	}
	return nil
}

// lengths are request lengths of one character.
func lengths(r *rand.Rand, batch int) []int {
	kind, top := r.IntN(6), 1<<(5+r.IntN(12))
	list := make([]int, batch)
	for i := range list {
		switch kind {
		case 0: // equal
			list[i] = top
		case 1: // even
			list[i] = r.IntN(top)
		case 2: // many are empty
			list[i] = max(0, r.IntN(2*top)-top)
		case 3: // few are long
			list[i] = r.IntN(100)
			if r.IntN(20) == 0 {
				list[i] = r.IntN(8 * top)
			}
		case 4: // edges of tiles
			list[i] = 64*r.IntN(top/64+1) + r.IntN(3) - 1
		case 5: // all empty
		}
	}
	return list
}

// TestSchedule runs the kernel on the emulator over batches of every size and
// character.
func TestSchedule(t *testing.T) {
	launchers := []launcher{newLauncher(t, Spec{}), newLauncher(t, Spec{Heads: 128})}
	r := rand.New(rand.NewPCG(1, 2))
	for run := range 400 {
		batch, parts, splits := 1+r.IntN(40), 1+r.IntN(132), 0
		switch run % 8 {
		case 0:
			batch = 1 + r.IntN(300)
		case 1:
			batch, parts = 1+r.IntN(4), 132
		case 2:
			parts = 1 + r.IntN(4)
		case 3, 4:
			splits = 1 + r.IntN(20)
		case 5:
			if run%40 == 5 {
				batch = 1 + r.IntN(3000)
			}
		}
		kvLen := lengths(r, batch)
		s, err := launchers[r.IntN(2)].schedule(kvLen, parts, splits, run%10 == 0)
		if err == nil {
			err = s.check(kvLen, parts, splits)
		}
		if err != nil {
			t.Errorf("run %d, batch %d, %d parts, %d splits: %.1000v\nlengths %.400v", run, batch, parts, splits, err, fmt.Sprint(kvLen))
		}
	}
}

// TestScheduleOfNothing: without a request every part is idle.
func TestScheduleOfNothing(t *testing.T) {
	l := newLauncher(t, Spec{})
	for _, splits := range []int{0, 3} {
		s, err := l.schedule(nil, 5, splits, true)
		if err != nil {
			t.Errorf("%d splits: %v", splits, err)
			continue
		}
		if err := s.check(nil, 5, splits); err != nil || len(slices.Concat(s.parts...)) != 0 {
			t.Errorf("%d splits: %v, %v", splits, s.parts, err)
		}
	}
}

// TestScheduleWholeRequests: where there are more requests than parts and no
// cut would shorten the longest part, none is cut, and where one would, some are.
func TestScheduleWholeRequests(t *testing.T) {
	equal := func(n, tokens int) []int { return slices.Repeat([]int{tokens}, n) }
	for name, c := range map[string]struct {
		kvLen []int
		parts int
		whole bool
	}{
		"two each":        {equal(20, 4096), 10, true},
		"almost equal":    {append(equal(19, 4096), 4096-192), 10, true},
		"two, some three": {equal(21, 4096), 10, false},
		"a long one":      {append(equal(19, 640), 64*500), 10, false},
		"one each":        {equal(10, 4096), 10, true}, // aligned
		"half the parts":  {equal(5, 4096), 10, false},
		"only short ones": {equal(39, 64), 10, true},
	} {
		for _, spec := range []Spec{{}, {Heads: 128}} {
			l := newLauncher(t, spec)
			s, err := l.schedule(c.kvLen, c.parts, 0, true)
			if err == nil {
				err = s.check(c.kvLen, c.parts, 0)
			}
			if err != nil {
				t.Errorf("%s: %v", name, err)
				continue
			}
			cut := slices.ContainsFunc(slices.Concat(s.parts...), func(it piece) bool { return it.Slot != whole })
			if cut == c.whole {
				t.Errorf("%s, %d rows: requests are cut: %v, want %v: %v", name, l.spec.Rows(), cut, !c.whole, s.parts)
			}
		}
	}
}

// TestScheduleFaults: check finds each way in which a schedule can be wrong.
func TestScheduleFaults(t *testing.T) {
	kvLen := []int{64 * 50, 64 * 2, 0, 64 * 20}
	good := func() scheduled {
		return scheduled{
			spec: Spec{}.WithDefaults(),
			parts: [][]piece{
				{{0, 0, 17, 0, false, false}}, {{0, 17, 34, 1, false, false}}, {{0, 34, 50, 2, false, false}},
				{{1, 0, 2, whole, false, false}, {2, 0, 0, whole, false, false}, {3, 0, 10, 4, true, false}},
				{{3, 10, 20, 5, true, true}},
			},
			merges:   []merge{{0, 0, 3}},
			longest:  3,
			arrivals: []int{7, 7, 7, 7, 7, 7, 7, 7, 0, 0, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7},
		}
	}
	if err := good().check(kvLen, 5, 0); err != nil {
		t.Fatal(err)
	}
	for name, fault := range map[string]func(*scheduled){
		"tile left out":        func(s *scheduled) { s.parts[1][0].Begin++ },
		"tile twice":           func(s *scheduled) { s.parts[1][0].End++ },
		"end left out":         func(s *scheduled) { s.parts[2][0].End-- },
		"piece twice":          func(s *scheduled) { s.parts[3][1] = s.parts[3][0] },
		"empty one left out":   func(s *scheduled) { s.parts[3] = slices.Delete(s.parts[3], 1, 2) },
		"whole with a slot":    func(s *scheduled) { s.parts[3][0].Slot = 7 },
		"piece without a slot": func(s *scheduled) { s.parts[0][0].Slot = -1 },
		"slot twice":           func(s *scheduled) { s.parts[1][0].Slot = 0 },
		"slot skipped":         func(s *scheduled) { s.parts[2][0].Slot = 3 },
		"slot too large":       func(s *scheduled) { s.parts[2][0].Slot = 10 },
		"pair not marked":      func(s *scheduled) { s.parts[3][2].Paired = false },
		"pair's second":        func(s *scheduled) { s.parts[4][0].Second = false },
		"three pieces marked":  func(s *scheduled) { s.parts[0][0].Paired = true },
		"arrivals":             func(s *scheduled) { s.arrivals[9] = 1 },
		"longest":              func(s *scheduled) { s.longest = 2 },
		"no merge":             func(s *scheduled) { s.merges = nil },
		"merge of too few":     func(s *scheduled) { s.merges[0].Count = 2 },
		"merge of a whole":     func(s *scheduled) { s.merges = append(s.merges, merge{1, 7, 1}) },
		"request unknown":      func(s *scheduled) { s.parts[3][0].Request = 4 },
		"unbalanced": func(s *scheduled) {
			s.parts[3][0].Begin, s.parts[3][0].End = 0, 2
			s.parts[3][1], s.parts[4] = piece{3, 0, 20, whole, false, false}, []piece{s.parts[3][1]}
			s.parts[3] = s.parts[3][:2]
			s.parts[0], s.parts[3] = append(s.parts[0], s.parts[3]...), nil
		},
	} {
		s := good()
		fault(&s)
		if s.check(kvLen, 5, 0) == nil {
			t.Errorf("%s: nothing was found", name)
		}
	}
}
