package faults

import "testing"

// TestMergeCaught plants the faults of merging pieces.
func TestMergeCaught(t *testing.T) {
	// Pieces merged by the later of two, by a warp for a unit of work, and with
	// rows of which one piece has no key.
	common := []fields{
		{`"kv_len": [200, 330], "splits": 2`, 4},
		{`"kv_len": [300], "splits": 3`, 4},
	}
	testCaught(t, Merge, map[int][]problem{
		narrow: decodeProblems(t, narrow, append(common,
			fields{`"kv_len": [800], "splits": 12`, 4},            // half of a CTA
			fields{`"kv_len": [1100, 600, 600], "splits": 17`, 4}, // a CTA
			fields{`"kv_len": [2200], "splits": 34`, 4},           // half vectors, once
			fields{`"kv_len": [4200], "splits": 66`, 4},           // half vectors, in rounds
		)...),
		wide:   decodeProblems(t, wide, append(common, fields{`"kv_len": [800], "splits": 12`, 4})...),
		teamed: decodeProblems(t, teamed, common...),
		twoTokens: decodeProblems(t, twoTokens,
			fields{`"q_len": 2, "kv_len": [65], "splits": 2`, 4},
			fields{`"q_len": 2, "kv_len": [129], "splits": 3`, 4},
			fields{`"q_len": 2, "kv_len": [130], "splits": 2, "fill": {"q": "normal", "latent": "normal*1e-36", "rope": "normal"}`, 4},
		),
	})
}
