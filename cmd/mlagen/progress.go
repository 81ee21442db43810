package main

import (
	"io"
	"os"

	"github.com/schollz/progressbar/v3"
	"golang.org/x/term"
)

// progress shows how far long work has come, on a terminal only.
type progress struct{ bar *progressbar.ProgressBar }

func (a *app) progress(steps int) progress {
	f, ok := a.stderr.(*os.File)
	if !ok || steps < 2 || !term.IsTerminal(int(f.Fd())) {
		return progress{}
	}
	return progress{progressbar.NewOptions(steps,
		progressbar.OptionSetWriter(f),
		progressbar.OptionClearOnFinish(),
		progressbar.OptionShowCount(),
		progressbar.OptionSetWidth(24),
		progressbar.OptionSetPredictTime(false),
	)}
}

// step says what is being done now and counts it.
func (p progress) step(what string) {
	if p.bar != nil {
		p.bar.Describe(what)
		p.bar.Add(1)
	}
}

func (p progress) done() {
	if p.bar != nil {
		p.bar.Finish()
	}
}

// writer keeps lines written to w apart from the bar.
func (p progress) writer(w io.Writer) io.Writer {
	if p.bar == nil {
		return w
	}
	return barWriter{p.bar, w}
}

type barWriter struct {
	bar *progressbar.ProgressBar
	w   io.Writer
}

func (b barWriter) Write(p []byte) (int, error) {
	if err := b.bar.Clear(); err != nil {
		return 0, err
	}
	return b.w.Write(p)
}
