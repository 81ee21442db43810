package bench

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
)

// PrefillAnchor is a shape that other implementations were timed on.
type PrefillAnchor struct {
	PrefillShape
	Peers     []Peer
	Sustained []Peer // after a second without pause
}

// prefillHeader begins a table of times of short bursts; NAME_us and
// NAME_tflops of each peer follow.
var prefillHeader = []string{"heads", "batch", "q_len", "kv_len", "causal"}

// The operations in tables of sustained times that are prefill: NAME-prefill-causal
// and NAME-prefill.
const (
	prefillCausalSuffix = "-prefill-causal"
	prefillSuffix       = "-prefill"
)

// ReadPrefillAnchors reads a table of anchors: comment lines that begin with #,
// a header and a line per shape. The header begins heads,batch,q_len,kv_len,causal,
// with a column NAME_us per peer, or is that of a table of sustained times (see
// ReadAnchors), of which the lines of prefill count.
func ReadPrefillAnchors(r io.Reader) ([]PrefillAnchor, error) {
	rows, err := readTable(r)
	if err != nil {
		return nil, err
	}
	begins := func(with []string) bool { return len(rows[0]) >= len(with) && slices.Equal(rows[0][:len(with)], with) }
	read := readPrefillAnchor
	switch {
	case begins(sustainedHeader):
		read = readPrefillSustained
	case !begins(prefillHeader):
		return nil, fmt.Errorf("the header is %s; it must begin with %s, or with %s",
			strings.Join(rows[0], ","), strings.Join(prefillHeader, ","), strings.Join(sustainedHeader, ","))
	}
	var anchors []PrefillAnchor
	for _, row := range rows[1:] {
		a, ok, err := read(rows[0], row)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", strings.Join(row, ","), err)
		}
		if ok {
			anchors = append(anchors, a)
		}
	}
	return MergePrefillAnchors(anchors), nil
}

// MergePrefillAnchors puts the peers of equal shapes together, in the order in
// which the shapes first appear.
func MergePrefillAnchors(anchors []PrefillAnchor) []PrefillAnchor {
	var merged []PrefillAnchor
	for _, a := range anchors {
		i := slices.IndexFunc(merged, func(m PrefillAnchor) bool { return m.PrefillShape == a.PrefillShape })
		if i < 0 {
			merged = append(merged, a)
			continue
		}
		m := &merged[i]
		m.Peers, m.Sustained = slices.Concat(m.Peers, a.Peers), slices.Concat(m.Sustained, a.Sustained)
	}
	return merged
}

func (s PrefillShape) check() error {
	if s.Heads < 1 || s.Batch < 1 || s.Q < 1 || s.KV < 1 {
		return errors.New("heads, batch, q_len and kv_len must be at least 1")
	}
	if s.Heads > maxHeads || s.Batch > maxBatch || s.Q > maxTokens || s.KV > maxTokens {
		return fmt.Errorf("heads must be at most %d, batch %d, q_len and kv_len %d", maxHeads, maxBatch, maxTokens)
	}
	return nil
}

func readPrefillAnchor(header, row []string) (a PrefillAnchor, ok bool, err error) {
	n, err := readNumbers(header[:len(prefillHeader)], row[:len(prefillHeader)])
	if err != nil {
		return a, false, err
	}
	a.PrefillShape = PrefillShape{Heads: n[0], Batch: n[1], Q: n[2], KV: n[3], Causal: n[4] != 0}
	for i := len(prefillHeader); i < len(row); i++ {
		name, us := strings.CutSuffix(header[i], "_us")
		if !us {
			continue
		}
		v, err := readTime(header[i], row[i])
		if err != nil {
			return a, false, err
		}
		a.Peers = append(a.Peers, Peer{name, v})
	}
	return a, true, a.check()
}

func readPrefillSustained(header, row []string) (a PrefillAnchor, ok bool, err error) {
	name, causal := strings.CutSuffix(row[0], prefillCausalSuffix)
	if !causal {
		if name, ok = strings.CutSuffix(row[0], prefillSuffix); !ok {
			return a, false, nil
		}
	}
	n, err := readNumbers(header[1:5], row[1:5])
	if err != nil {
		return a, false, err
	}
	a.PrefillShape = PrefillShape{Heads: n[0], Batch: n[2], Q: n[1], KV: n[3], Causal: causal}
	v, err := readTime(header[7], row[7])
	a.Sustained = []Peer{{name, v}}
	return a, err == nil, errors.Join(err, a.check())
}
