package main

import (
	"errors"
	"fmt"
)

// shownDifferences is how many requests a failed verification names.
const shownDifferences = 5

// verify serves every request alone and returns how many tokens were the same,
// to the bit, as in the batch.
func (e *engine) verify(requests []request, batched *service) (tokens int, err error) {
	var differences []error
	for _, r := range requests {
		r.arrival = 0
		alone, err := e.serve([]request{r})
		if err != nil {
			return tokens, fmt.Errorf("request %d alone: %w", r.id, err)
		}
		want, got := alone.tokens[r.id], batched.tokens[r.id]
		if len(want) != r.generate || len(got) != r.generate {
			return tokens, fmt.Errorf("request %d has %d tokens, and %d alone; it wants %d", r.id, len(got), len(want), r.generate)
		}
		same := 0
		for same < len(want) && got[same] == want[same] {
			same++
		}
		tokens += same
		if same < len(want) {
			differences = append(differences, fmt.Errorf("request %d: token %d of %d is not the one that it gets alone", r.id, same, len(want)))
		}
	}
	if n := len(differences); n > 0 {
		return tokens, fmt.Errorf("%d of %d requests depend on their batch mates:\n%w", n, len(requests),
			errors.Join(differences[:min(n, shownDifferences)]...))
	}
	return tokens, nil
}
