package main

import (
	"fmt"
	"io"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"

	"github.com/mlagen/mlagen/runtime/bench"
	"github.com/mlagen/mlagen/runtime/tune"
)

// printTuned writes what was chosen.
func printTuned(w io.Writer, c *tune.Choices, opened time.Duration) error {
	t := newTable("heads", "s_q", "batch", "kv", "default", "µs", "chosen", "µs", "gain", "rounds", "tried")
	left := []table.ColumnConfig{}
	for i := range 11 {
		align := text.AlignRight
		if i == 4 || i == 6 {
			align = text.AlignLeft
		}
		left = append(left, table.ColumnConfig{Number: i + 1, Align: align, AlignHeader: align})
	}
	t.SetColumnConfigs(left)
	better, untimed := 0, 0
	for _, b := range c.Buckets {
		row := shapeCells(bench.Shape{Heads: c.Model.Heads, SQ: b.SQ, Batch: b.Batch, KV: b.Tokens, Varlen: b.Ragged})
		chosen, gain, rounds := "as the default", "", ""
		switch {
		case b.DefaultUS == 0:
			untimed++
			chosen = "not timed"
		case b.Choice != b.Default:
			better++
			chosen, gain, rounds = b.Choice.String(), fmt.Sprintf("%.3f", b.Gain), fmt.Sprint(b.Rounds)
		}
		t.AppendRow(append(row, b.Default.String(), microseconds(b.DefaultUS), chosen, microseconds(b.ChosenUS), gain, rounds, b.Tried))
	}
	missed := ""
	if untimed > 0 && c.Budget > 0 && !c.Interrupted {
		missed = fmt.Sprintf("\nthe budget did not suffice to load and time the defaults of %d of %d loads", untimed, len(c.Buckets))
	}
	_, err := fmt.Fprintf(w, "%s, %d SMs, driver %s\n%s\n"+
		"geometric mean of default ÷ chosen %.4f over %d loads, %d of them with another choice than the default; %.2f s of %.3g s, after the device was opened in %.2f s%s\n",
		c.Card.Name, c.Card.SMs, c.Card.Driver, t.Render(), c.Gain(), len(c.Buckets), better, c.Spent, c.Budget, opened.Seconds(), missed)
	return err
}
