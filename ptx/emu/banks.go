package emu

// Bank conflicts of shared memory, counted and not judged.

// banks counts the cycles that an access of n bytes a lane takes beyond the
// fewest its width allows. A wide access is done in parts of 128 bytes.
func (h *hazards) banks(w *warp, m uint32, addrs *[lanes]uint32, n int) {
	group := lanes
	if n > wordBytes {
		group = max(lanes*wordBytes/n, 1)
	}
	words := max(n/wordBytes, 1)
	extra := 0
	for first := 0; first < lanes; first += group {
		var seen [32][4]uint32
		var count [32]uint8
		worst := uint8(0)
		for i := first; i < first+group; i++ {
			if m>>i&1 == 0 {
				continue
			}
			for k := range words {
				word := addrs[i]/wordBytes + uint32(k) + 1
				bank := word & 31
				c := count[bank]
				dup := false
				for j := range min(c, 4) {
					if seen[bank][j] == word {
						dup = true
						break
					}
				}
				if dup {
					continue
				}
				if c < 4 {
					seen[bank][c] = word
				}
				count[bank]++
				worst = max(worst, count[bank])
			}
		}
		if worst > 1 {
			extra += int(worst) - 1
		}
	}
	s := &w.cl.conflicts[w.at.index]
	s.times++
	s.extra += uint64(extra)
	w.cl.stats.BankConflicts += uint64(extra)
}

type conflictCount struct{ times, extra uint64 }
