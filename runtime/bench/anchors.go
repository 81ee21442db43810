package bench

import (
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
)

// Anchor is a shape that other implementations were timed on.
type Anchor struct {
	Shape
	Peers []Peer
}

// Peer is another implementation's time.
type Peer struct {
	Name         string
	Microseconds float64
}

// Best returns the fastest peer.
func (a Anchor) Best() Peer {
	best := Peer{Microseconds: math.Inf(1)}
	for _, p := range a.Peers {
		if p.Microseconds < best.Microseconds {
			best = p
		}
	}
	return best
}

// ReadAnchors reads a table of anchors: comment lines that begin with #, a
// header heads,s_q,batch,kv_len,causal,varlen followed by one column NAME_us
// per peer, and a line per shape.
func ReadAnchors(r io.Reader) ([]Anchor, error) {
	c := csv.NewReader(r)
	c.Comment = '#'
	rows, err := c.ReadAll()
	if err != nil {
		return nil, err
	}
	if len(rows) == 0 {
		return nil, errors.New("no header")
	}
	shape := []string{"heads", "s_q", "batch", "kv_len", "causal", "varlen"}
	header := rows[0]
	if len(header) <= len(shape) || !slices.Equal(header[:len(shape)], shape) {
		return nil, fmt.Errorf("the header is %s and must begin with %s and name a peer", strings.Join(header, ","), strings.Join(shape, ","))
	}
	var anchors []Anchor
	for _, row := range rows[1:] {
		a, err := readAnchor(header, row, len(shape))
		if err != nil {
			return nil, fmt.Errorf("%s: %w", strings.Join(row, ","), err)
		}
		anchors = append(anchors, a)
	}
	return anchors, nil
}

func readAnchor(header, row []string, fixed int) (Anchor, error) {
	var n [6]int
	for i := range fixed {
		v, err := strconv.Atoi(row[i])
		if err != nil || v < 0 {
			return Anchor{}, fmt.Errorf("%s is %q and must be a number", header[i], row[i])
		}
		n[i] = v
	}
	a := Anchor{Shape: Shape{Heads: n[0], SQ: n[1], Batch: n[2], KV: n[3], Varlen: n[5] != 0}}
	if a.Heads < 1 || a.SQ < 1 || a.Batch < 1 || a.KV < 1 {
		return a, errors.New("heads, s_q, batch and kv_len must be at least 1")
	}
	if (n[4] != 0) != (a.SQ > 1) {
		return a, errors.New("decode of several query tokens is causal")
	}
	for i := fixed; i < len(row); i++ {
		v, err := strconv.ParseFloat(row[i], 64)
		if err != nil || v <= 0 {
			return a, fmt.Errorf("%s is %q and must be a time", header[i], row[i])
		}
		a.Peers = append(a.Peers, Peer{strings.TrimSuffix(header[i], "_us"), v})
	}
	return a, nil
}

// Group is a set of shapes whose ratios are averaged together.
type Group struct {
	Name string
	Has  func(Shape) bool
}

// Groups are those that the project reports.
var Groups = []Group{
	{"all", func(Shape) bool { return true }},
	{"batch ≤ 4, tokens ≥ 4096", func(s Shape) bool { return s.Batch <= 4 && s.KV >= 4096 && !s.Varlen }},
	{"batch 16", func(s Shape) bool { return s.Batch == 16 && !s.Varlen }},
	{"16 heads × s_q 5", func(s Shape) bool { return s.Heads == 16 && s.SQ == 5 }},
	{"varlen", func(s Shape) bool { return s.Varlen }},
}

// GeometricMean returns the geometric mean, NaN of nothing.
func GeometricMean(x []float64) float64 {
	sum := 0.0
	for _, v := range x {
		sum += math.Log(v)
	}
	return math.Exp(sum / float64(len(x)))
}
