// Package tune finds out, by timing, how decode is run best for the loads that an
// engine serves: which row block, how requests are cut, how the merge is launched
// and how much the L2 fetches at a time. The kernels stay the same; only their selection
// changes, and nothing is chosen that was not measured to be faster than what the
// source would have taken without measuring.
package tune

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/mlagen/mlagen/runtime"
)

// Load is a decode step as far as choices depend on it.
type Load struct {
	SQ     int  `json:"s_q"`              // query tokens per request
	Batch  int  `json:"batch"`            // requests
	Tokens int  `json:"tokens"`           // of the longest request, the new ones included
	Ragged bool `json:"ragged,omitempty"` // the mean length is less than three quarters of the longest
}

// LoadOf returns the load of requests of the given lengths.
func LoadOf(sq int, lengths []int32) Load {
	l := Load{SQ: sq, Batch: len(lengths)}
	sum := 0
	for _, n := range lengths {
		l.Tokens = max(l.Tokens, int(n))
		sum += int(n)
	}
	l.Ragged = 4*sum < 3*l.Tokens*len(lengths)
	return l
}

// String names the load in messages.
func (l Load) String() string {
	ragged := ""
	if l.Ragged {
		ragged = "≤"
	}
	return fmt.Sprintf("s_q %d, %d × %s%d", l.SQ, l.Batch, ragged, l.Tokens)
}

// mean returns the mean length as far as a heuristic is asked with it.
func (l Load) mean() int {
	if l.Ragged {
		return max(1, l.Tokens/2)
	}
	return l.Tokens
}

// Limits of a load; they bound what a hostile file can ask for.
const (
	mostSQ     = 1 << 14
	mostBatch  = 1 << 20
	mostTokens = 1 << 24
	mostLoads  = 4096
)

// check names the field that cannot be.
func (l Load) check() error {
	for _, f := range []struct {
		name      string
		was, most int
	}{{"s_q", l.SQ, mostSQ}, {"batch", l.Batch, mostBatch}, {"tokens", l.Tokens, mostTokens}} {
		if f.was < 1 || f.was > f.most {
			return fmt.Errorf("%s was %d, must be 1 to %d", f.name, f.was, f.most)
		}
	}
	return nil
}

// compareLoads orders loads by query tokens, raggedness, batch and length.
func compareLoads(a, b Load) int {
	ragged := func(l Load) int {
		if l.Ragged {
			return 1
		}
		return 0
	}
	return cmp.Or(cmp.Compare(a.SQ, b.SQ), cmp.Compare(ragged(a), ragged(b)), cmp.Compare(a.Batch, b.Batch), cmp.Compare(a.Tokens, b.Tokens))
}

// Envelope is what an engine serves: every combination of the lists, and further
// loads by themselves.
type Envelope struct {
	SQ      []int
	Batches []int
	Tokens  []int
	Ragged  bool // the combinations' lengths vary
	Loads   []Load
}

// Buckets returns the envelope's loads, each once and in order.
func (e Envelope) Buckets() ([]Load, error) {
	if n := len(e.SQ) * len(e.Batches) * len(e.Tokens); n > mostLoads {
		return nil, fmt.Errorf("envelope: %d combinations, must be at most %d", n, mostLoads)
	}
	loads := slices.Clone(e.Loads)
	for _, sq := range e.SQ {
		for _, batch := range e.Batches {
			for _, tokens := range e.Tokens {
				loads = append(loads, Load{sq, batch, tokens, e.Ragged})
			}
		}
	}
	for _, l := range loads {
		if err := l.check(); err != nil {
			return nil, fmt.Errorf("envelope: %v: %w", l, err)
		}
	}
	slices.SortFunc(loads, compareLoads)
	loads = slices.Compact(loads)
	if len(loads) == 0 || len(loads) > mostLoads {
		return nil, fmt.Errorf("envelope: %d loads, must be 1 to %d: give s_q, batches and tokens", len(loads), mostLoads)
	}
	return loads, nil
}

// Doubling returns from, 2·from, 4·from … and to: the points of a range that
// choices are made for.
func Doubling(from, to int) []int {
	var points []int
	for n := max(1, from); n < to; n *= 2 {
		points = append(points, n)
	}
	return append(points, to)
}

// Model is what the kernels are generated for beside the query tokens.
type Model struct {
	Heads  int           `json:"heads"`
	Latent int           `json:"latent"`
	Rope   int           `json:"rope"`
	Page   int           `json:"page"`
	DType  runtime.DType `json:"dtype"`
}

// DeepSeek is the model with so many heads that is timed: latents of 512 with rope
// keys of 64 in pages of 64, bf16.
func DeepSeek(heads int) Model { return Model{heads, 512, 64, 64, runtime.BF16} }

// shape is what kernels for a choice are generated for.
func (m Model) shape(sq int, c Choice) runtime.DecodeShape {
	return runtime.DecodeShape{
		Heads: m.Heads, SQ: sq, Latent: m.Latent, Rope: m.Rope, Page: m.Page, DType: m.DType,
		BlockH: c.BlockH, Evict: c.Evict, Cluster: c.Cluster, Teams: c.Teams, PieceCost: c.PieceCost,
	}
}

// Card is the device that choices hold for: cards of one name with one driver are
// alike.
type Card struct {
	Name   string `json:"name"`
	SMs    int    `json:"sms"`
	Driver string `json:"driver"` // its version, as exactly as it is known
}

// CardOf describes a driver's device.
func CardOf(drv runtime.Driver) Card {
	a := drv.Attributes()
	c := Card{drv.Name(), a.SMs, fmt.Sprintf("CUDA %d", a.DriverVersion)}
	if compiler, ok := drv.(runtime.Compiler); ok {
		// CUDA's version and the library's name, which has the driver's; size and
		// date of the file, which may follow, are not the same on every machine.
		parts := strings.SplitN(compiler.Toolchain().Driver, ", ", 3)
		c.Driver = strings.Join(parts[:min(len(parts), 2)], ", ")
	}
	return c
}
