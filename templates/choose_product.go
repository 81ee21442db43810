package templates

// narrowRows are the tiles of narrow products that are worth having: the fewer
// rows, the more CTAs fit on an SM.
var narrowRows = []int{8, 16, 32, 64}

// AbsorbRows returns the row tiles (BlockM) of absorb-q or absorb-o for calls of
// up to so many tokens, 0 for any number: of the narrow ones those up to the
// first that holds them all, and a wide one where none does.
func AbsorbRows(kernel string, tokens int) []int {
	for i, rows := range narrowRows {
		if tokens > 0 && tokens <= rows {
			return narrowRows[:i+1]
		}
	}
	wide, _ := Defaults(kernel, Spec{})
	return append(append([]int{}, narrowRows...), wide.BlockM)
}
