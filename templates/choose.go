package templates

// ChooseBlockH returns the row block that attends so many packed rows fastest,
// for batch requests of so many tokens each on a device of so many SMs. Narrow
// blocks start and merge sooner, wide ones multiply more per tile they read.
//
// The thresholds separate what was faster on an H200 when every block was timed
// over the shapes of golden/perf/h200-decode.csv with at most 16 requests. The
// full runs give about 1.2 µs per tile with 16 rows, 1.8 with 32 and 1.9 with 64.
func ChooseBlockH(rows, batch, tokens, sms int) int {
	tiles := batch * ceilQuotient(tokens, pageTokens)
	// perCTA is the tiles that a CTA reads when blocks of h rows share the device.
	perCTA := func(h int) int {
		parts := max(1, sms/ceilQuotient(rows, h))
		return ceilQuotient(tiles, parts)
	}
	switch {
	case rows <= 16:
		return balancedBlock(rows)
	case rows <= swapBlockH:
		if perCTA(16) <= 16 {
			return 16
		}
		return balancedBlock(rows)
	case batch <= 4 && perCTA(16) <= 8:
		return 16
	case rows <= seesawBlockH && perCTA(32) <= 16, batch == 1 && perCTA(32) <= 8:
		return 32
	}
	return seesawBlockH
}

// ceilQuotient returns ⌈a/b⌉.
func ceilQuotient(a, b int) int { return (a + b - 1) / b }
