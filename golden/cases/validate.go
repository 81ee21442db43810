package cases

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/mlagen/mlagen/golden/dtype"
)

// Validate reports every value that makes no sense.
func (c *Case) Validate() error {
	var errs []error
	need := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	oneOf := func(field, value string, choices ...string) {
		need(slices.Contains(choices, value), "%s is %q and must be one of %s", field, value, strings.Join(choices, ", "))
	}

	if err := c.limits(); err != nil { // what follows reckons with them
		return err
	}
	need(plain.MatchString(c.Name), "name is %.200q and must be a plain file name: letters, digits, '.', '_' and '-'", c.Name)
	oneOf("op", c.Op, Ops...)
	oneOf("dtype", string(c.DType), string(dtype.BF16), string(dtype.FP16))
	oneOf("lse_base", c.LSEBase, "e", "2")
	oneOf("pages.order", c.Pages.Order, "identity", "reversed", "scattered")
	oneOf("layout.q", c.Layout.Q, "joint", "split")
	oneOf("layout.q_rows", c.Layout.QRows, "dense", "padded", "heads")
	oneOf("layout.out", c.Layout.Out, "dense", "padded", "heads")
	rows := slices.Contains([]string{"decode", "prefill", "extend", "layer"}, c.Op)
	need(rows || c.Layout.QRows == "dense" && c.Layout.Out != "heads", "layout.q_rows and layout.out %q are for decode, prefill, extend and layer", "heads")
	for i, relation := range c.Holds {
		oneOf(fmt.Sprintf("holds[%d]", i), relation, Relations[c.Op]...)
		need(c.Op != "decode" || relation != SplitMerged || c.QLen.All == 1, "holds %s is for decodes of one query token: of several, none but the last sees all keys of the first part", relation)
	}
	oneOf("partial", string(c.Partial), "", string(c.DType), string(dtype.F32))
	oneOf("rotate", c.Rotate, "", "interleaved", "half")
	m := c.Model
	need(m.Heads >= 1, "model.heads is %d and must be at least 1", m.Heads)
	need(m.Latent >= 1 && m.Rope >= 0 && m.Nope >= 1 && m.Value >= 1, "model %+v has a width below its least", m)
	need(c.PageSize >= 1, "page_size is %d and must be at least 1", c.PageSize)
	need(c.Repeat >= 1, "repeat is %d and must be at least 1", c.Repeat)
	need(c.Splits >= 0, "splits is %d and must not be negative", c.Splits)
	for _, f := range []struct {
		field string
		v     int
	}{{"block_h", c.BlockH}, {"cluster", c.Cluster}, {"teams", c.Teams}, {"piece_cost", c.PieceCost}} {
		need(f.v >= 0 && (f.v == 0 || c.Op == "decode"), "%s is %d and must be 0 but for a decode, and not negative", f.field, f.v)
	}
	need(c.Chunk >= 0, "chunk is %d and must not be negative", c.Chunk)
	need(c.Tolerance.Out >= 0 && c.Tolerance.LSE >= 0, "tolerance must not be negative")

	for i, n := range c.KVLen {
		need(n >= 0, "kv_len[%d] is %d and must not be negative", i, n)
	}
	if c.QLen.Each != nil && len(c.QLen.Each) != len(c.KVLen) {
		need(false, "q_len has %d entries and kv_len %d", len(c.QLen.Each), len(c.KVLen))
		return errors.Join(errs...)
	}
	if c.Op == "decode" {
		n, uniform := c.QLen.Uniform()
		need(uniform && n >= 1, "q_len must be the same for all sequences of a decode, at least 1")
	}
	if c.Op == "append" {
		for i, n := range c.KVLen {
			need(c.Queries(i) >= 0 && c.Queries(i) <= n, "q_len of sequence %d is %d and must be 0 to its kv_len, %d", i, c.Queries(i), n)
		}
		need(c.Rotate == "" || m.Rope%2 == 0, "model.rope is %d and must be even to be rotated", m.Rope)
	}
	need(c.Workspace >= 0, "workspace is %d and must not be negative", c.Workspace)
	need(len(c.Paths) == 0 || len(c.Paths) == len(c.KVLen), "paths has %d entries and kv_len %d", len(c.Paths), len(c.KVLen))
	for i, path := range c.Paths {
		oneOf(fmt.Sprintf("paths[%d]", i), path, "absorb", "expand")
	}
	need(c.Op != "layer" || c.Causal, "causal must be true for a layer")
	need(c.QLen.All >= 0, "q_len is %d and must not be negative", c.QLen.All)
	for i, n := range c.QLen.Each {
		need(n >= 0, "q_len of sequence %d is %d and must not be negative", i, n)
	}
	if c.Graph != nil {
		need(len(c.Graph.CaptureKVLen) == len(c.KVLen), "graph.capture_kv_len has %d entries and kv_len %d", len(c.Graph.CaptureKVLen), len(c.KVLen))
		for i, n := range c.Graph.CaptureKVLen {
			need(n >= 0, "graph.capture_kv_len[%d] is %d and must not be negative", i, n)
		}
	}

	need(c.Layout.KVRow == 0 || c.Layout.KVRow >= m.Record(), "layout.kv_row is %d and must be 0 or at least %d", c.Layout.KVRow, m.Record())
	least := int64(c.PageSize) * int64(c.RowStride())
	need(c.Layout.KVPage == 0 || c.Layout.KVPage >= least, "layout.kv_page is %d and must be 0 or at least %d", c.Layout.KVPage, least)
	need(c.Pages.Pool >= 0 && c.Pages.Base >= 0, "pages.pool and pages.base must not be negative")
	if c.Pages.Pool > 0 && c.PageSize > 0 {
		room, used := c.Pages.Pool-c.Pages.Base, int64(c.usedPages())
		need(room >= used, "pages.pool %d from base %d leaves %d pages and the sequences need %d", c.Pages.Pool, c.Pages.Base, room, used)
	}

	for _, f := range []struct{ field, text string }{
		{"q", c.Fill.Q}, {"kv", c.Fill.KV}, {"unused", c.Fill.Unused}, {"out", c.Fill.Out}, {"weights", c.Fill.Weights},
		{"latent", c.Fill.latent()}, {"rope", c.Fill.rope()},
	} {
		if _, err := ParseFill(f.text); err != nil {
			errs = append(errs, fmt.Errorf("fill.%s: %w", f.field, err))
		}
	}
	if len(errs) == 0 {
		return c.made()
	}
	return errors.Join(errs...)
}

// usedPages is the number of pages that the sequences occupy.
func (c *Case) usedPages() int {
	n := 0
	for _, k := range c.KVLen {
		n += pagesOf(k, c.PageSize)
	}
	return n
}

func pagesOf(tokens, pageSize int) int { return (tokens + pageSize - 1) / pageSize }

func (f Fill) latent() string {
	if f.Latent != "" {
		return f.Latent
	}
	return f.KV
}

func (f Fill) rope() string {
	if f.Rope != "" {
		return f.Rope
	}
	return f.KV
}
