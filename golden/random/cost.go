package random

import (
	"slices"

	"github.com/mlagen/mlagen/golden/cases"
	"github.com/mlagen/mlagen/golden/oracle"
)

// Seconds of one core, measured: what the oracle and the inputs take.
const (
	perProduct = 0.7e-9 // multiply and add of the oracle
	perElement = 40e-9  // drawn, rounded, converted, and looked at
)

// And what the emulator takes.
const (
	perCase      = 0.1    // generated, printed and parsed
	perTileRow   = 0.5e-3 // decode: 64 keys of a query row in a block
	perTile      = 8e-3   // decode: 64 keys, whatever the rows
	perScoreTile = 25e-3  // prefill: 128 queries on 128 keys of a head
	perUpTile    = 60e-3  // the products: 128 tokens of a head
)

// cost estimates the seconds of one core that a case takes.
func cost(c *cases.Case, emulated bool) float64 {
	m := c.Model
	products, elements, seconds := 0.0, 0.0, 0.0
	up := float64(m.Heads * (m.Nope + m.Value) * m.Latent) // products of a token with the weights
	for i, n := range c.KVLen {
		q, keys := float64(c.Queries(i)), float64(n)
		pages := float64((n + c.PageSize - 1) / c.PageSize)
		pool := pages * float64(c.PageSize*m.Record())
		pairs := 0.0
		if c.Op != "upproject" && c.Op != "append" {
			for j := range c.Queries(i) {
				pairs += float64(oracle.Visible(c.Causal, n, c.Queries(i), j))
			}
		}
		pairs *= float64(m.Heads)
		expand := float64(m.Nope + m.Rope + m.Value)
		latent := float64(2*m.Latent + m.Rope)
		scoreTiles := float64(m.Heads*tiles(c.Queries(i), 128)*tiles(n, 128)) * perScoreTile
		upTiles := float64(m.Heads*tiles(n, 128)) * perUpTile
		switch c.Op {
		case "decode":
			rows := m.Heads * c.Queries(i)
			block := c.BlockH
			if block == 0 {
				if block = 64; rows <= 40 {
					block = (rows + 7) / 8 * 8
				}
			}
			blocks := float64(tiles(rows, block))
			products += pairs * latent
			elements += pool + q*float64(m.Heads*(m.Record()+2*m.Latent))
			seconds += blocks * pages * (perTile + float64(block)*perTileRow)
		case "prefill":
			products += pairs * expand
			elements += keys*float64(m.Heads*(m.Nope+m.Value)) + q*float64(m.Heads*(m.Nope+m.Rope+2*m.Value))
			seconds += scoreTiles
		case "extend", "layer":
			products += min(pairs*expand+keys*up, pairs*latent+q*up)
			elements += pool + q*float64(m.Heads*(m.Nope+m.Rope+2*m.Value))
			if absorbed := c.Op == "layer" && (c.Paths == nil && c.Queries(i) < 30 || c.Paths != nil && c.Paths[i] == "absorb"); absorbed {
				seconds += float64(m.Heads*tiles(c.Queries(i), 16)*tiles(n, 64)) * (perTile + perTileRow*16) / 3
			} else {
				seconds += scoreTiles + upTiles
			}
		case "merge":
			products += 2 * float64(c.Queries(i)*m.Heads*n) * expand
			elements += keys*float64(m.Heads*(m.Nope+m.Value)) + q*float64(m.Heads*m.Value*max(4, 2*c.Splits))
		case "append":
			elements += 4 * pool
		case "upproject":
			products += keys * up
			elements += pool + 2*keys*float64(m.Heads*(m.Nope+m.Value))
			seconds += 2 * upTiles
		}
	}
	tokens := float64(c.QueryTokens())
	weights := float64(m.Heads * (m.Nope + m.Value) * m.Latent)
	switch c.Op {
	case "absorb":
		products += tokens * up
		elements += tokens*float64(m.Heads*(2*m.Latent+2*m.Value)) + weights
		seconds += float64(m.Heads*tiles(c.QueryTokens(), 128)) * perUpTile
	case "layer":
		elements += weights
		seconds += float64(m.Heads) * perUpTile / 4
	case "extend", "upproject":
		elements += weights
	}
	runs := float64(c.Repeat + 2*len(c.Holds))
	if c.BatchInvariant {
		runs++
	}
	total := products*perProduct + elements*perElement*(1+float64(len(c.Holds))/2)
	if emulated {
		total += perCase + runs*seconds
	}
	return total
}

func tiles(n, of int) int { return (n + of - 1) / of }

// fit makes a case cheaper until it costs no more than most: the longest
// sequence becomes shorter, or the batch smaller.
func fit(c *cases.Case, most float64, emulated bool) {
	for cost(c, emulated) > most {
		longest := -1
		for i := range c.KVLen {
			if longest < 0 || weight(c, i) > weight(c, longest) {
				longest = i
			}
		}
		switch {
		case c.Op == "absorb" && c.QLen.All > 1:
			c.QLen.All /= 2
		case longest < 0:
			return // what is left is the price of the kernels
		case c.KVLen[longest] > 100 || c.Op != "decode" && weight(c, longest) > 30:
			shorten(c, longest)
		case len(c.KVLen) > 1:
			c.Drop(longest)
		case c.Repeat > 1:
			c.Repeat = 1
		case len(c.Holds) > 0:
			c.Holds = c.Holds[1:]
		case c.BatchInvariant:
			c.BatchInvariant = false
		case weight(c, longest) > 1 && c.Op != "decode":
			shorten(c, longest)
		default:
			return
		}
	}
}

func weight(c *cases.Case, i int) int { return max(c.KVLen[i], c.Queries(i)) }

// shorten halves a sequence.
func shorten(c *cases.Case, i int) {
	c.KVLen = slices.Clone(c.KVLen)
	if c.QLen.Each != nil && c.QLen.Each[i] >= c.KVLen[i]/2 {
		c.QLen.Each = slices.Clone(c.QLen.Each)
		c.QLen.Each[i] = (c.QLen.Each[i] + 1) / 2
	}
	c.KVLen[i] /= 2
	if c.QLen.Each != nil && c.Op == "append" {
		c.QLen.Each[i] = min(c.QLen.Each[i], c.KVLen[i])
	}
}
