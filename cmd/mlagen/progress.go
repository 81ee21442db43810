package main

import (
	"io"
	"os"
	"strings"
	"time"

	bars "github.com/jedib0t/go-pretty/v6/progress"
	"golang.org/x/term"
)

// progress shows how far long work has come, on a terminal only.
type progress struct {
	bars  bars.Writer
	bar   *bars.Tracker
	ended chan struct{} // closed when nothing more is drawn
}

func (a *app) progress(steps int) progress {
	if steps < 2 || !isTerminal(a.stderr) {
		return progress{}
	}
	return newProgress(a.stderr, steps)
}

// newProgress draws a bar on w until done.
func newProgress(w io.Writer, steps int) progress {
	p := progress{bars.NewWriter(), &bars.Tracker{Total: int64(steps), RemoveOnCompletion: true, AutoStopDisabled: true}, make(chan struct{})}
	p.bars.SetOutputWriter(w)
	p.bars.SetAutoStop(true) // when the bar is done
	p.bars.SetUpdateFrequency(100 * time.Millisecond)
	p.bars.SetTrackerPosition(bars.PositionRight)
	v := &p.bars.Style().Visibility
	v.Time, v.Percentage = false, false
	p.bars.AppendTracker(p.bar)
	go func() {
		defer close(p.ended)
		p.bars.Render()
	}()
	return p
}

func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// step says what is being done now and counts it.
func (p progress) step(what string) {
	if p.bar != nil {
		p.bar.UpdateMessage(what)
		p.bar.Increment(1)
	}
}

// done removes the bar.
func (p progress) done() {
	if p.bar == nil {
		return
	}
	p.bar.MarkAsDone()
	<-p.ended
}

// writer keeps lines written to w apart from the bar: on a terminal the bar's
// own writer prints them above it.
func (p progress) writer(w io.Writer) io.Writer {
	if p.bar == nil || !isTerminal(w) {
		return w
	}
	return barWriter{p.bars}
}

type barWriter struct{ bars bars.Writer }

func (b barWriter) Write(p []byte) (int, error) {
	for line := range strings.Lines(string(p)) {
		b.bars.Log("%s", strings.TrimSuffix(line, "\n"))
	}
	return len(p), nil
}
