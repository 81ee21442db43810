package templates

// narrowRows are the tiles of narrow products that are worth having: the fewer
// rows, the more CTAs fit on an SM.
var narrowRows = []int{8, 16, 32, 64}

// wideRowsOf are the tiles of wide products that are worth having, by kernel.
var wideRowsOf = map[string][]int{"absorb-q": {wideRows}, "absorb-o": {wideRows, 2 * wideRows}}

// AbsorbRows returns the row tiles (BlockM) of absorb-q or absorb-o for calls of
// up to so many tokens, 0 for any number: those up to the first that holds them
// all, and all where none does.
func AbsorbRows(kernel string, tokens int) []int {
	all := append(append([]int{}, narrowRows...), wideRowsOf[kernel]...)
	for i, rows := range all {
		if tokens > 0 && tokens <= rows {
			return all[:i+1]
		}
	}
	return all
}
