package cases

import (
	"errors"
	"fmt"
	"math"
	"regexp"
)

// Bounds on what a case asks of the host that makes its inputs, generous beside
// what there is a use for. A case may be anybody's.
const (
	maxFile     = 1 << 20 // bytes
	maxHeads    = 1 << 14
	maxWidth    = 1 << 12
	maxPage     = 1 << 12
	maxSequence = 1 << 26 // tokens
	maxRepeat   = 1 << 10
	maxSplits   = 1 << 20
	maxRow      = 1 << 20 // elements from a token to the next
	maxPool     = 1 << 48 // bytes, most of which nobody makes
	maxElements = 1 << 30 // of all tensors that the host makes
)

// plain is a name that is a file's in any directory, and nothing to a terminal.
var plain = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9._-]{0,127}$`)

// limits reports the values beyond bounds. Within them no product overflows.
func (c *Case) limits() error {
	var errs []error
	most := func(field string, v, most int64) {
		if v > most {
			errs = append(errs, fmt.Errorf("%s is %d and must be at most %d", field, v, most))
		}
	}
	m := &c.Model
	most("model.heads", int64(m.Heads), maxHeads)
	for field, v := range map[string]int{"latent": m.Latent, "rope": m.Rope, "nope": m.Nope, "value": m.Value} {
		most("model."+field, int64(v), maxWidth)
	}
	most("page_size", int64(c.PageSize), maxPage)
	most("repeat", int64(c.Repeat), maxRepeat)
	most("splits", int64(c.Splits), maxSplits)
	most("chunk", int64(c.Chunk), maxSequence)
	most("layout.kv_row", int64(c.Layout.KVRow), maxRow)
	most("layout.kv_page", c.Layout.KVPage, maxPool)
	most("pages.pool", c.Pages.Pool, math.MaxInt32)
	most("pages.base", c.Pages.Base, math.MaxInt32)
	tokens := int64(0)
	for i, n := range c.KVLen {
		most(fmt.Sprintf("kv_len[%d]", i), int64(n), maxSequence)
		tokens += int64(min(n, maxSequence))
	}
	most("the sum of kv_len", tokens, maxSequence)
	if c.Graph != nil {
		for i, n := range c.Graph.CaptureKVLen {
			most(fmt.Sprintf("graph.capture_kv_len[%d]", i), int64(n), maxSequence)
		}
	}
	most("q_len", int64(c.QLen.All), maxSequence)
	for i, n := range c.QLen.Each {
		most(fmt.Sprintf("q_len[%d]", i), int64(n), maxSequence)
	}
	return errors.Join(errs...)
}

// Elements bounds the elements of all tensors that the host makes for a case.
func (c *Case) Elements() float64 {
	m := &c.Model
	queries, tokens, longest, pages := 0.0, 0.0, 0, float64(c.usedPages())
	for i, n := range c.KVLen {
		queries += float64(max(0, c.Queries(i)))
		tokens += float64(n)
		longest = max(longest, n)
	}
	if c.Graph != nil {
		for _, n := range c.Graph.CaptureKVLen {
			longest = max(longest, n)
		}
	}
	heads, expanded := float64(m.Heads), float64(m.Nope+m.Value)
	elements := queries*heads*float64(2*m.Record()+m.Nope+m.Rope+m.Value) + // queries and results
		pages*float64(c.PageSize)*float64(c.RowStride()) + // pages in use
		float64(len(c.KVLen))*float64(pagesOf(longest, c.PageSize)+1) // the block table
	if c.Op != "decode" {
		elements += tokens*heads*expanded + heads*expanded*float64(m.Latent) // keys and values, and the weights
	}
	return elements
}

// made reports a case of which the host would make too much. Its values are
// within limits.
func (c *Case) made() error {
	pool := max(float64(c.Pages.Pool), float64(c.Pages.Base)+float64(c.usedPages())+3)
	if bytes := pool * float64(c.PageStride()) * 2; bytes > maxPool {
		return fmt.Errorf("the pool is %.3g bytes and must be at most %d", bytes, int64(maxPool))
	}
	if elements := c.Elements(); elements > maxElements {
		return fmt.Errorf("its tensors have %.3g elements together and must have at most %d", elements, maxElements)
	}
	return nil
}
