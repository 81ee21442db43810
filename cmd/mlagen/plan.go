package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"

	"github.com/peterbourgon/ff/v3/ffcli"

	"github.com/mlagen/mlagen/runtime/plan"
)

// defaultPlanHeads is the whole model's, for which the trade-off is best known.
const defaultPlanHeads = 128

func (a *app) plan() *ffcli.Command {
	fs := newFlags("mlagen plan")
	var r plan.Request
	fs.IntVar(&r.New, "new", 0, "new `tokens` of the request")
	fs.IntVar(&r.Prefix, "prefix", 0, "cached `tokens` before them")
	heads := fs.Int("heads", defaultPlanHeads, "query `heads` on a device")
	workspace := fs.Int64("workspace", 0, "`bytes` of memory for expanded tokens and what is carried between chunks (left out: as many as it takes)")
	asJSON := fs.Bool("json", false, "print JSON for programs")
	return &ffcli.Command{
		Name:       "plan",
		ShortUsage: "mlagen plan -new N [-prefix N] [flags]",
		ShortHelp:  "say how a request is computed fastest: absorb, expand, or expand in chunks",
		LongHelp: `plan estimates the ways to compute the attention of a request's new tokens to
its cached prefix and to themselves, in one layer of DeepSeek's shape on an H200,
and chooses the fastest. absorb attends in latent space, expand up-projects every
token to keys and values of each head, expand-chunked does so chunk by chunk when
the workspace does not hold them all. FLOP are those of the mathematics;
bytes and times are of the kernels, as they fill their tiles and the device.`,
		FlagSet: fs,
		Exec: func(_ context.Context, args []string) error {
			if err := noArguments("plan", args); err != nil {
				return err
			}
			room, given := plan.Unlimited, false
			fs.Visit(func(f *flag.Flag) {
				given = given || f.Name == "new"
				if f.Name == "workspace" {
					room = *workspace
				}
			})
			if !given {
				return usagef("say with -new how many new tokens there are")
			}
			p := plan.Planner{Card: plan.H200, Model: plan.DeepSeek(*heads), Workspace: room}
			decided, err := p.Plan(r)
			if err != nil {
				return usageError{fmt.Errorf("plan: %w", err)}
			}
			if *asJSON {
				return a.planJSON(&p, decided)
			}
			return a.planTable(&p, decided)
		},
	}
}

// planJSON prints a plan for programs: the plan, with what it was made for.
func (a *app) planJSON(p *plan.Planner, decided *plan.Plan) error {
	report := struct {
		Card      plan.Card  `json:"card"`
		Model     plan.Model `json:"model"`
		Workspace *int64     `json:"workspace"` // null without a limit
		*plan.Plan
	}{Card: p.Card, Model: p.Model, Plan: decided}
	if p.Workspace != plan.Unlimited {
		report.Workspace = &p.Workspace
	}
	text, err := json.MarshalIndent(report, "", "  ")
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(a.stdout, "%s\n", text)
	return err
}

// planTable prints a plan for people.
func (a *app) planTable(p *plan.Planner, decided *plan.Plan) error {
	t := newTable("path", "kernel", "launches", "GFLOP", "GB", "µs")
	chosen := decided.Chosen()
	for i, e := range decided.Estimates {
		if i > 0 {
			t.AppendSeparator()
		}
		name := string(e.Path)
		if e.Chunks > 1 {
			name = fmt.Sprintf("%s (%d of %d tokens)", name, e.Chunks, e.Chunk)
		}
		t.AppendRow([]any{name, "", e.Launches, fixed(e.FLOP/1e9, 1), fixed(e.Bytes/1e9, 3), fixed(1e6*e.Seconds, 1)})
		for _, s := range e.Stages {
			t.AppendRow([]any{"", s.Kernel, s.Launches, fixed(s.FLOP/1e9, 1), fixed(s.Bytes/1e9, 3), fixed(1e6*s.Seconds, 1)})
		}
	}
	_, err := fmt.Fprintf(a.stdout, "%d new tokens on %d cached, %d heads, %s\n%s\n", decided.Request.New, decided.Request.Prefix, p.Model.Heads, p.Card.Name, t.Render())
	for _, e := range decided.Estimates {
		if err == nil && !e.Possible {
			_, err = fmt.Fprintf(a.stdout, "%s is not possible: %s\n", e.Path, e.Reason)
		}
	}
	if err == nil {
		_, err = fmt.Fprintf(a.stdout, "choice: %s, %.0f µs\n", decided.Choice, 1e6*chosen.Seconds)
	}
	return err
}
