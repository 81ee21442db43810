// Package cases reads conformance cases and builds their inputs. One JSON
// file is one case: a problem, how its tensors lie in memory, what fills
// them, and what must hold. Inputs follow from the seed alone.
package cases

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"

	"github.com/mlagen/mlagen/golden/dtype"
)

// Case is one conformance case.
type Case struct {
	Name string `json:"name"`
	Why  string `json:"why"` // what it guards against
	Op   string `json:"op"`  // one of Ops

	Model    Model      `json:"model"`
	DType    dtype.Type `json:"dtype"`
	PageSize int        `json:"page_size"` // tokens
	QLen     Lengths    `json:"q_len"`     // query tokens, for all or per sequence
	KVLen    []int      `json:"kv_len"`    // tokens per sequence, the new ones included
	Causal   bool       `json:"causal"`
	Scale    float64    `json:"scale"`    // 0 = 1/sqrt(nope+rope)
	LSEBase  string     `json:"lse_base"` // "e" or "2"

	Splits         int  `json:"splits"` // 0 = the planner decides, n = force n pieces per sequence
	BatchInvariant bool `json:"batch_invariant"`
	BlockH         int  `json:"block_h"`    // decode: query rows per CTA, 0 = the source decides
	Cluster        int  `json:"cluster"`    // decode: CTAs that begin together, 0 = the source decides
	Teams          int  `json:"teams"`      // decode: warpgroups that take a row block's tiles in turn, 0 = the source decides
	PieceCost      int  `json:"piece_cost"` // decode: what a schedule counts for a piece beside its tiles, 0 = the source decides
	Chunk          int  `json:"chunk"`      // extend: tokens per expanded chunk of the prefix, 0 = planner; merge: keys per state

	Paths     []string `json:"paths"`     // layer: how each sequence is computed, "absorb" or "expand"; none = the planner decides
	Workspace int64    `json:"workspace"` // layer: the most bytes that it may take, 0 = no limit

	Partial dtype.Type `json:"partial"` // merge: type of the states' outputs, "" = dtype, or f32
	Rotate  string     `json:"rotate"`  // append: how rope keys are rotated on the way, "", "interleaved" or "half"

	Pages  Pages  `json:"pages"`
	Layout Layout `json:"layout"`
	Fill   Fill   `json:"fill"`
	Seed   uint64 `json:"seed"`

	Repeat    int       `json:"repeat"` // runs that must agree bit for bit
	Holds     []string  `json:"holds"`  // relations between runs that must hold as well, of Relations
	Graph     *Graph    `json:"graph"`
	Tolerance Tolerance `json:"tolerance"`
}

// Ops are the operations a case may name.
var Ops = []string{"decode", "prefill", "extend", "merge", "upproject", "absorb", "append", "layer"}

// Model is the attention shape.
type Model struct {
	Heads  int `json:"heads"`
	Latent int `json:"latent"`
	Rope   int `json:"rope"`
	Nope   int `json:"nope"`
	Value  int `json:"value"`
}

// Record is the number of elements that a token has in the cache.
func (m Model) Record() int { return m.Latent + m.Rope }

// Pages says which pages of the pool the sequences use.
type Pages struct {
	Pool  int64  `json:"pool"`  // pages in the pool, 0 = just enough and 3 more
	Order string `json:"order"` // "identity", "reversed" or "scattered"
	Tail  int32  `json:"tail"`  // value of block table entries past a sequence's end
	Base  int64  `json:"base"`  // lowest page id used
}

// Layout says how tensors lie in memory.
type Layout struct {
	Q      string `json:"q"`       // "joint" (one tensor) or "split" (latent and rope apart)
	QRows  string `json:"q_rows"`  // "dense", "padded": 8 elements of gap after each head, or "heads": likewise, and heads outermost
	KVRow  int    `json:"kv_row"`  // elements from a token to the next in a page, 0 = dense
	KVPage int64  `json:"kv_page"` // elements from a page to the next, 0 = dense
	Out    string `json:"out"`     // "dense", "padded": 64 elements of gap after each head, or "heads": likewise, and heads outermost
}

// Fill names what fills the tensors, in the notation of ParseFill.
type Fill struct {
	Q       string `json:"q"`
	KV      string `json:"kv"`
	Latent  string `json:"latent"` // instead of KV for the latent part
	Rope    string `json:"rope"`   // instead of KV for the rope part
	Unused  string `json:"unused"` // unused slots, unused pages, and gaps between rows and pages
	Out     string `json:"out"`    // outputs before the run
	Weights string `json:"weights"`
}

// Graph asks for a capture with other lengths than those it is replayed with.
type Graph struct {
	CaptureKVLen []int `json:"capture_kv_len"`
}

// Tolerance is how far a result may be from the reference.
type Tolerance struct {
	Out float64 `json:"out"` // worst over rows of ‖row−ref‖/‖ref‖
	LSE float64 `json:"lse"` // worst absolute difference
}

// Lengths is one length for all sequences or one per sequence; its JSON is a
// number or a list.
type Lengths struct {
	All  int
	Each []int
}

// UnmarshalJSON reads a number or a list of numbers.
func (l *Lengths) UnmarshalJSON(b []byte) error {
	*l = Lengths{}
	if bytes.HasPrefix(bytes.TrimSpace(b), []byte("[")) {
		l.Each = []int{}
		return json.Unmarshal(b, &l.Each)
	}
	return json.Unmarshal(b, &l.All)
}

// MarshalJSON writes what UnmarshalJSON reads.
func (l Lengths) MarshalJSON() ([]byte, error) {
	if l.Each != nil {
		return json.Marshal(l.Each)
	}
	return json.Marshal(l.All)
}

// Uniform returns the one length, or false when sequences differ.
func (l Lengths) Uniform() (int, bool) {
	if l.Each == nil {
		return l.All, true
	}
	for _, n := range l.Each {
		if n != l.Each[0] {
			return 0, false
		}
	}
	if len(l.Each) == 0 {
		return 1, true
	}
	return l.Each[0], true
}

// Default is the case that an empty JSON object stands for, but for the name
// and the operation, which are required.
func Default() Case {
	return Case{
		Model:     Model{Heads: 16, Latent: 512, Rope: 64, Nope: 128, Value: 128},
		DType:     dtype.BF16,
		PageSize:  64,
		QLen:      Lengths{All: 1},
		Causal:    true,
		LSEBase:   "e",
		Pages:     Pages{Order: "scattered", Tail: -1},
		Layout:    Layout{Q: "joint", QRows: "dense", Out: "dense"},
		Fill:      Fill{Q: "normal", KV: "normal*0.25", Unused: "nan", Out: "nan", Weights: "normal*0.04"},
		Seed:      1,
		Repeat:    1,
		Tolerance: Tolerance{Out: 5e-3, LSE: 1e-3},
	}
}

// Parse reads one case; unknown fields, trailing text and values that make no
// sense are errors.
func Parse(text []byte) (*Case, error) {
	c := Default()
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(&c); err != nil {
		return nil, err
	}
	if _, err := d.Token(); err != io.EOF {
		return nil, errors.New("text after the case's closing brace")
	}
	if err := c.Validate(); err != nil {
		return nil, err
	}
	return &c, nil
}

// Read parses the case in a file.
func Read(file string) (*Case, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err != nil {
		return nil, err
	}
	if len(text) > maxFile {
		return nil, fmt.Errorf("%s: it is larger than %d bytes, which no case is", file, maxFile)
	}
	c, err := Parse(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return c, nil
}

// SoftmaxScale is the scale with its default resolved.
func (c *Case) SoftmaxScale() float64 {
	if c.Scale != 0 {
		return c.Scale
	}
	return 1 / math.Sqrt(float64(c.Model.Nope+c.Model.Rope))
}

// RowStride is the number of elements from a token to the next in a page.
func (c *Case) RowStride() int {
	if c.Layout.KVRow != 0 {
		return c.Layout.KVRow
	}
	return c.Model.Record()
}

// PageStride is the number of elements from a page to the next.
func (c *Case) PageStride() int64 {
	if c.Layout.KVPage != 0 {
		return c.Layout.KVPage
	}
	return int64(c.PageSize) * int64(c.RowStride())
}
