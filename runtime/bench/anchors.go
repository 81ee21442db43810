package bench

import (
	"bytes"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode"
)

// Anchor is a shape that other implementations were timed on.
type Anchor struct {
	Shape
	Peers     []Peer
	Sustained []Peer // after a second without pause
}

// Peer is another implementation's time.
type Peer struct {
	Name         string
	Microseconds float64
}

// Best returns the fastest peer.
func (a Anchor) Best() Peer { return fastest(a.Peers) }

// BestSustained returns the peer that is fastest without pause.
func (a Anchor) BestSustained() Peer { return fastest(a.Sustained) }

func fastest(peers []Peer) Peer {
	best := Peer{Microseconds: math.Inf(1)}
	for _, p := range peers {
		if p.Microseconds < best.Microseconds {
			best = p
		}
	}
	return best
}

// The headers of tables of anchors begin with these.
var (
	burstHeader     = []string{"heads", "s_q", "batch", "kv_len", "causal", "varlen"}
	sustainedHeader = []string{"what", "heads", "s_q", "batch", "kv_len", "burst_us", "burst_tflops", "sustained_us"}
)

// decodePeers are the decode kernels in tables of sustained times, which hold
// other operations too.
var decodePeers = []string{"flashmla", "fa3mla"}

// ReadAnchors reads a table of anchors: comment lines that begin with #, a
// header and a line per shape. The header is either
// heads,s_q,batch,kv_len,causal,varlen followed by one column NAME_us per peer,
// for times of short bursts, or begins
// what,heads,s_q,batch,kv_len,burst_us,burst_tflops,sustained_us, for times
// without pause, of which the lines of decode kernels count.
func ReadAnchors(r io.Reader) ([]Anchor, error) {
	rows, err := readTable(r)
	if err != nil {
		return nil, err
	}
	begins := func(with []string) bool { return len(rows[0]) >= len(with) && slices.Equal(rows[0][:len(with)], with) }
	read := readAnchor
	switch {
	case begins(sustainedHeader):
		read = readSustained
		rows = slices.DeleteFunc(rows, func(row []string) bool {
			return row[0] != sustainedHeader[0] && !slices.Contains(decodePeers, row[0])
		})
	case !begins(burstHeader) || len(rows[0]) == len(burstHeader):
		return nil, fmt.Errorf("the header is %s; it must begin with %s and name a peer, or with %s",
			strings.Join(rows[0], ","), strings.Join(burstHeader, ","), strings.Join(sustainedHeader, ","))
	}
	var anchors []Anchor
	for _, row := range rows[1:] {
		a, err := read(rows[0], row)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", strings.Join(row, ","), err)
		}
		anchors = append(anchors, a)
	}
	return MergeAnchors(anchors), nil
}

// maxTable bounds a table of anchors in bytes: it may be anybody's.
const maxTable = 1 << 20

// readTable reads a header and rows, all of which have as many columns.
func readTable(r io.Reader) ([][]string, error) {
	text, err := io.ReadAll(io.LimitReader(r, maxTable+1))
	if err != nil {
		return nil, err
	}
	if len(text) > maxTable {
		return nil, fmt.Errorf("it is larger than %d bytes, which no table of anchors is", maxTable)
	}
	c := csv.NewReader(bytes.NewReader(text))
	c.Comment = '#'
	rows, err := c.ReadAll()
	if err != nil {
		return nil, err
	}
	if len(rows) == 0 {
		return nil, errors.New("no header")
	}
	if rows[0][0] == burstHeader[0] && slices.Contains(rows[0], "us") {
		return nil, errors.New("its column us is in tables that mlagen bench writes; one of anchors has others' times, in columns NAME_us")
	}
	for _, row := range rows {
		for _, cell := range row { // some are printed
			if strings.ContainsFunc(cell, func(c rune) bool { return !unicode.IsPrint(c) }) {
				return nil, fmt.Errorf("%.200q has a character that cannot be printed", cell)
			}
		}
	}
	return rows, nil
}

// MergeAnchors puts the peers of equal shapes together, in the order in which
// the shapes first appear.
func MergeAnchors(anchors []Anchor) []Anchor {
	var merged []Anchor
	at := map[Shape]int{}
	for _, a := range anchors {
		i, ok := at[a.Shape]
		if !ok {
			at[a.Shape] = len(merged)
			a.Peers, a.Sustained = slices.Clip(a.Peers), slices.Clip(a.Sustained) // the caller's are left alone
			merged = append(merged, a)
			continue
		}
		m := &merged[i]
		m.Peers = append(m.Peers, a.Peers...)
		m.Sustained = append(m.Sustained, a.Sustained...)
	}
	return merged
}

// readNumbers reads whole numbers of at least 0.
func readNumbers(header, row []string) ([]int, error) {
	n := make([]int, len(row))
	for i := range row {
		v, err := strconv.Atoi(row[i])
		if err != nil || v < 0 {
			return nil, fmt.Errorf("%s is %q and must be a number", header[i], row[i])
		}
		n[i] = v
	}
	return n, nil
}

func readTime(header, text string) (float64, error) {
	v, err := strconv.ParseFloat(text, 64)
	if err != nil || !(v > 0) || math.IsInf(v, 0) {
		return 0, fmt.Errorf("%s is %q and must be a time", header, text)
	}
	return v, nil
}

func (s Shape) check() error {
	if s.Heads < 1 || s.SQ < 1 || s.Batch < 1 || s.KV < 1 {
		return errors.New("heads, s_q, batch and kv_len must be at least 1")
	}
	if s.Heads > maxHeads || s.SQ > maxTokens || s.Batch > maxBatch || s.KV > maxTokens {
		return fmt.Errorf("heads must be at most %d, batch %d, s_q and kv_len %d", maxHeads, maxBatch, maxTokens)
	}
	return nil
}

// Bounds on shapes, within which no product overflows.
const (
	maxHeads  = 1 << 14
	maxBatch  = 1 << 20
	maxTokens = 1 << 28
)

func readAnchor(header, row []string) (Anchor, error) {
	fixed := len(burstHeader)
	n, err := readNumbers(header[:fixed], row[:fixed])
	if err != nil {
		return Anchor{}, err
	}
	a := Anchor{Shape: Shape{Heads: n[0], SQ: n[1], Batch: n[2], KV: n[3], Varlen: n[5] != 0}}
	if err := a.check(); err != nil {
		return a, err
	}
	if (n[4] != 0) != (a.SQ > 1) {
		return a, errors.New("decode of several query tokens is causal")
	}
	for i := fixed; i < len(row); i++ {
		v, err := readTime(header[i], row[i])
		if err != nil {
			return a, err
		}
		a.Peers = append(a.Peers, Peer{strings.TrimSuffix(header[i], "_us"), v})
	}
	return a, nil
}

func readSustained(header, row []string) (Anchor, error) {
	n, err := readNumbers(header[1:5], row[1:5])
	if err != nil {
		return Anchor{}, err
	}
	a := Anchor{Shape: Shape{Heads: n[0], SQ: n[1], Batch: n[2], KV: n[3]}}
	if err := a.check(); err != nil {
		return a, err
	}
	v, err := readTime(header[7], row[7])
	a.Sustained = []Peer{{row[0], v}}
	return a, err
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
