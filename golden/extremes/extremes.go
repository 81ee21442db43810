// Package extremes checks what ordinary cases do not reach: a million tokens,
// twenty thousand requests, tens of thousands of rows, pools beyond 32 bits,
// graphs replayed at other sizes and thousands of times, streams and processes
// side by side, memory that runs out, kernels that come and go. Each check is
// small on an emulator and as large as it is meant to be on a GPU.
package extremes

import (
	"context"
	"fmt"
	"io"
	"os/exec"

	"github.com/mlagen/mlagen/golden/check"
	"github.com/mlagen/mlagen/runtime"
)

// Env is where checks run.
type Env struct {
	Driver runtime.Driver
	Source runtime.Source
	Small  bool // the sizes are an emulator's
	// Again is a process that checks case files on the same device, for checks
	// of several processes; nil leaves those out.
	Again func(ctx context.Context, files ...string) *exec.Cmd
}

// Check is a named check.
type Check struct {
	Name, Why string
	Run       func(e *Env) (figures string, err error)
}

// Checks are all of them.
var Checks = []Check{
	{"million-tokens", "a context of 2²⁰ tokens, and one more, cut among all SMs", millionTokens},
	{"million-tokens-128-heads", "likewise with two row blocks", millionTokensWide},
	{"million-tokens-layer", "a layer's new token on a million others, absorbed, and expanded in chunks", millionTokensLayer},
	{"twenty-thousand-requests", "a batch of 20,000 of all lengths", manyRequests},
	{"pools-beyond-32-bits", "page ids, elements and bytes of a pool of more than 2³² bytes and 2³¹ elements", hugePools},
	{"seventy-thousand-queries", "prefill of 70,000 query tokens that see up to as many keys", manyQueries},
	{"seventy-thousand-rows", "every operation on 70,000 tokens, and decode's refusal of as many rows", manyRows},
	{"graph-of-any-size", "a graph captured at one size, replayed with shorter and longer contexts and with nothing but padding", graphSizes},
	{"ten-thousand-replays", "a graph gives the same bits 10,000 times", manyReplays},
	{"two-streams", "two decodes run on two streams, and neither disturbs the other", twoStreams},
	{"two-processes", "two processes use the device at a time", twoProcesses},
	{"out-of-memory", "at whichever allocation memory runs out, the error says what was asked for, and nothing is leaked", outOfMemory},
	{"unloaded-while-idle", "kernels that are unloaded and loaded again give the same bits; a call in between is an error", unloadedWhileIdle},
}

// Run runs the checks whose names keep says, one line each, and the tally.
func Run(w io.Writer, e *Env, keep func(name string) bool) check.Tally {
	var t check.Tally
	for _, c := range Checks {
		if !keep(c.Name) {
			continue
		}
		figures, err := c.Run(e)
		switch skipped := (skip)(""); {
		case asSkip(err, &skipped):
			t.Skipped++
			fmt.Fprintf(w, "%s %s: %s\n", check.Skipped, c.Name, skipped)
		case err != nil:
			t.Failed++
			fmt.Fprintf(w, "%s %s: %v\n", check.Failed, c.Name, err)
		default:
			t.Passed++
			fmt.Fprintf(w, "%s %s %s\n", check.OK, c.Name, figures)
		}
	}
	fmt.Fprintln(w, t)
	return t
}

// skip is why a check cannot run here.
type skip string

func (s skip) Error() string { return string(s) }

func asSkip(err error, to *skip) bool {
	s, ok := err.(skip)
	if ok {
		*to = s
	}
	return ok
}

// size is a check's size: on a GPU, or on an emulator.
func (e *Env) size(gpu, emulated int) int {
	if e.Small {
		return emulated
	}
	return gpu
}
