package tune

import "math"

// A load is served with a bucket's choice where it is near: within a factor of
// nearFactor of batch and of tokens, and of the same raggedness. Where requests
// are cut into a forced number of pieces, which suits the bucket's batch only, the
// batch must also be the bucket's or at most a sixteenth smaller. Elsewhere nothing
// was measured.
const (
	nearFactor  = 2
	forcedSlack = 16
)

// Lookup returns the choice for a load, that of the nearest bucket, and false
// where no bucket is near: there the source's default is as good a guess as any.
// Invariant choices have one for every load with a number of query tokens that
// they know: only what changes no bit follows the load. It allocates nothing.
func (c *Choices) Lookup(l Load) (Choice, bool) {
	if i := c.nearest(l); i >= 0 {
		return c.Buckets[i].Choice, true
	}
	if c.Invariant {
		for i := range c.Buckets {
			if b := &c.Buckets[i]; b.SQ == l.SQ {
				return Choice{BlockH: b.Choice.BlockH, Splits: b.Choice.Splits, Teams: b.Choice.Teams}, true
			}
		}
	}
	return Choice{}, false
}

// nearest returns the index of the bucket nearest to a load, −1 where none is.
func (c *Choices) nearest(l Load) int {
	best, least := -1, math.Inf(1)
	for i := range c.Buckets {
		b := &c.Buckets[i]
		if b.SQ != l.SQ || b.Ragged != l.Ragged || l.Batch < 1 || l.Tokens < 1 {
			continue
		}
		batch, tokens := apart(b.Batch, l.Batch), apart(b.Tokens, l.Tokens)
		if d := batch * tokens; batch <= nearFactor && tokens <= nearFactor && d < least {
			best, least = i, d
		}
	}
	if best < 0 {
		return -1
	}
	// In invariant choices pieces are the same for all, whatever suits them.
	if b := &c.Buckets[best]; !c.Invariant && b.Choice.Splits > 0 && !forcedReach(b.Batch, l.Batch) {
		return -1
	}
	return best
}

// forcedReach reports whether forced pieces chosen for a batch suit another.
func forcedReach(chosen, batch int) bool {
	return batch <= chosen && forcedSlack*(chosen-batch) <= chosen
}

// apart is how many times the larger is the smaller.
func apart(a, b int) float64 {
	if a < b {
		a, b = b, a
	}
	return float64(a) / float64(b)
}
