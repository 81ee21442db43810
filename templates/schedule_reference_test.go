package templates

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// reference is the scheduler in serial Go: it says, to the word, what the
// kernel is to write.
type reference struct {
	spec          Spec
	tiles         []int
	parts, splits int
	out           written
	merges        int
	reader        []int // item of a part without pieces
}

// span is some of a request's tiles.
type span struct{ request, begin, end int }

func newReference(spec Spec, kvLen []int, parts, splits int) *reference {
	r := &reference{spec: spec, parts: parts, splits: splits, out: newWritten(spec, len(kvLen), parts, splits), reader: []int{idle, 0, 0, whole}}
	for _, n := range kvLen {
		r.tiles = append(r.tiles, ceilQuotient(max(n, 0), spec.BlockN))
	}
	return r
}

func (r *reference) schedule() written {
	n := r.splits
	if n == 0 && r.wholeRequests() {
		n = 1
	}
	longest := n
	if n > 0 {
		r.deal(n)
	} else {
		longest = r.cut()
	}
	r.out.Merges[0], r.out.Merges[1] = r.merges, longest
	return r.out
}

func (r *reference) sum() (sum, most int) {
	for _, t := range r.tiles {
		sum, most = sum+t, max(most, t)
	}
	return sum, most
}

// even is a part's share of the line.
func (r *reference) even() int {
	sum, _ := r.sum()
	return ceilQuotient(sum+len(r.tiles)*r.spec.pieceCost(), r.parts)
}

func (r *reference) wholeRequests() bool {
	_, most := r.sum()
	cost := ceilQuotient(len(r.tiles), r.parts) * (most + r.spec.pieceCost())
	return len(r.tiles) > r.parts && cost <= r.even()+2*r.spec.pieceCost()
}

// deal cuts requests into n pieces.
func (r *reference) deal(n int) {
	var all []span
	slot := map[span]int{}
	count := make([]int, len(r.tiles))
	for i, t := range r.tiles {
		count[i] = max(1, min(n, t))
		for j := range count[i] {
			s := span{i, t * j / count[i], t * (j + 1) / count[i]}
			slot[s] = len(all)
			all = append(all, s)
		}
	}
	lists := make([][]span, r.parts)
	for p := range lists {
		begin, end := p*len(all)/r.parts, (p+1)*len(all)/r.parts
		if len(all) < r.parts {
			begin, end = min(p, len(all)), min(p+1, len(all))
		}
		lists[p] = all[begin:end]
	}
	r.write(lists, count, func(_ int, s span) int { return slot[s] })
}

// cut cuts where parts end, and returns the longest merge.
func (r *reference) cut() int {
	lists, length := r.aligned()
	if _, ahead := r.spec.readAhead(); ahead && length >= leastAhead {
		r.reader = []int{idle, len(lists), length, whole}
	}
	if lists == nil {
		lists = r.balanced()
	}
	count := make([]int, len(r.tiles))
	before := map[int]int{} // requests cut before a cut one
	for _, list := range lists {
		for _, s := range list {
			count[s.request]++
		}
	}
	longest, cuts := 0, 0
	for i, n := range count {
		if n > 1 {
			before[i] = cuts
			cuts++
			longest = max(longest, n)
		}
	}
	r.write(lists, count, func(part int, s span) int { return part + before[s.request] })
	return longest
}

// aligned gives every part one piece, of at most so many tiles, or none; nil where
// that is dear.
func (r *reference) aligned() (lists [][]span, length int) {
	if len(r.tiles) > r.parts {
		return nil, 0
	}
	sum, most := r.sum()
	length = max(ceilQuotient(sum, r.parts), r.spec.minAligned())
	pieces := func() (n int) {
		for _, t := range r.tiles {
			n += max(1, ceilQuotient(t, length))
		}
		return n
	}
	for length < most && pieces() > r.parts {
		length++
	}
	if length > r.even()+r.even()/16+1 {
		return nil, 0
	}
	lists = make([][]span, 0, r.parts)
	for i, t := range r.tiles {
		n := max(1, ceilQuotient(t, length))
		for j := range n {
			lists = append(lists, []span{{i, t * j / n, t * (j + 1) / n}})
		}
	}
	return lists, length
}

// isAligned reports whether aligned has pieces.
func (r *reference) isAligned() bool {
	lists, _ := r.aligned()
	return lists != nil
}

// balanced cuts the line evenly.
func (r *reference) balanced() [][]span {
	type boundary struct{ request, tile int }
	var boundaries []boundary
	for p := range r.parts + 1 {
		b := boundary{len(r.tiles), 0}
		at := p * r.even()
		for i, t := range r.tiles {
			if at < t+r.spec.pieceCost() && p < r.parts {
				b = boundary{i, max(0, at-r.spec.pieceCost())}
				if b.tile < minPiece {
					b.tile = 0
				}
				if b.tile > 0 && t-b.tile < minPiece {
					b = boundary{i + 1, 0}
				}
				break
			}
			at -= t + r.spec.pieceCost()
		}
		boundaries = append(boundaries, b)
	}
	lists := make([][]span, r.parts)
	for p := range lists {
		at, end := boundaries[p], boundaries[p+1]
		for ; at.request < end.request; at = (boundary{at.request + 1, 0}) {
			lists[p] = append(lists[p], span{at.request, at.tile, r.tiles[at.request]})
		}
		if at.tile < end.tile {
			lists[p] = append(lists[p], span{at.request, at.tile, end.tile})
		}
	}
	return lists
}

// write writes the parts' pieces and the merges. slotOf is asked for pieces
// of requests that are cut.
func (r *reference) write(lists [][]span, count []int, slotOf func(part int, s span) int) {
	further := r.parts
	for len(lists) < r.parts {
		lists = append(lists, nil)
	}
	for p, list := range lists {
		r.out.First[p] = further
		if len(list) == 0 {
			copy(r.out.Items[itemWords*p:], r.reader)
		}
		for i, s := range list {
			at := p
			if i > 0 {
				at = further
				further++
			}
			destination := whole
			if n := count[s.request]; n > 1 {
				destination = slotOf(p, s)
				if s.begin == 0 {
					r.claim(s.request, destination, n)
				}
				if n == 2 {
					destination |= pairedBit
				}
				if n == 2 && s.begin > 0 {
					destination |= secondBit
				}
			}
			copy(r.out.Items[itemWords*at:], []int{s.request, s.begin, s.end, destination})
		}
	}
	r.out.First[r.parts] = further
}

// claim prepares the merge of a request in n pieces.
func (r *reference) claim(request, slot, n int) {
	if n == 2 {
		blocks := r.spec.RowBlocks()
		clear(r.out.Arrivals[slot*blocks:][:blocks])
		return
	}
	r.merges++
	copy(r.out.Merges[mergeWords*r.merges:], []int{request, slot, n, 0})
}

// TestScheduleWords: the kernel writes what the serial scheduler does and
// touches no other word, with the lengths in shared memory and, for batches
// beyond its room, in global memory.
func TestScheduleWords(t *testing.T) {
	const room = scanThreads
	specs := []Spec{{}, {Heads: 128}, {Heads: 32}}
	var near, far []launcher
	for _, s := range specs {
		near, far = append(near, newLauncher(t, s)), append(far, newLauncherResident(t, s, room))
	}
	r := rand.New(rand.NewPCG(3, 4))
	ways := map[string]int{}
	for run := range 300 {
		batch, parts, splits := 1+r.IntN(150), 1+r.IntN(132), 0
		switch run % 10 {
		case 0:
			batch, parts = 100+r.IntN(33), 132
		case 1:
			batch = r.IntN(5)
		case 2:
			batch = r.IntN(3000)
		case 3:
			batch, parts = r.IntN(1025), 1+r.IntN(maxParts)
		case 4:
			batch, splits = r.IntN(2200), 1+r.IntN(3)
		case 5:
			splits, parts = 1+r.IntN(200), 1+r.IntN(maxParts)
		case 6:
			batch = room - 1 + r.IntN(3)
		case 7:
			if run == 7 {
				batch = 9000 // more than one round of loads
			}
		}
		kvLen := lengths(r, batch)
		if batch > 0 && r.IntN(8) == 0 {
			kvLen[r.IntN(batch)] = r.IntN(1 << 21) // one is much longer
		}
		w := r.IntN(len(specs))
		kernels := []launcher{near[w]}
		if batch > room {
			kernels = append(kernels, far[w])
		}
		ref := newReference(near[w].spec, kvLen, parts, splits)
		want := ref.schedule()
		for i, l := range kernels {
			got, err := l.run(append([]int(nil), kvLen...), parts, splits, run%6 == 0)
			if err != nil {
				t.Errorf("run %d, kernel %d: %v", run, i, err)
			} else if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("run %d, kernel %d, batch %d, %d parts, %d splits (-want +got): %.2000s\nlengths %.400v", run, i, batch, parts, splits, diff, fmt.Sprint(kvLen))
			}
		}
		switch {
		case splits > 1:
			ways["pieces"] += len(kernels)
		case splits == 1 || ref.wholeRequests():
			ways[fmt.Sprint("whole ", len(kernels))]++
		case ref.isAligned():
			ways["aligned"]++
		default:
			ways[fmt.Sprint("line ", len(kernels))]++
		}
	}
	// The inputs are such that every way is taken often.
	for _, way := range []string{"pieces", "whole 1", "whole 2", "aligned", "line 1", "line 2"} {
		if ways[way] < 5 {
			t.Errorf("%s: %d runs (%v)", way, ways[way], ways)
		}
	}
	t.Log(ways)
}
