// Command decode-server serves requests by continuous batching: they join and
// leave at every step, their tokens lie in pages of one cache that are reused
// as soon as a request has left, and a step is the replay of a CUDA graph that
// was captured once for so many requests. It runs the attention of one layer,
// with a made-up model around it, on the emulator or on a GPU.
//
// Afterwards every request is run again alone. In batch-invariant mode (the
// default) each bit must be the same, and since a token decides the next one, a
// single wrong bit would show in all that follow.
//
//	go run ./examples/decode-server
//	go run -tags cuda ./examples/decode-server -device cuda -heads 128
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/mlagen/mlagen/runtime"
	"github.com/mlagen/mlagen/runtime/cuda"
	"github.com/mlagen/mlagen/runtime/emu"
)

// Exit codes.
const (
	exitOK      = 0
	exitFailure = 1
	exitUsage   = 2
)

func main() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr)) }

// config is what the command line says.
type config struct {
	device   string
	heads    int
	requests int // how many come in all
	capacity int // how many are served at a time
	prompt   int // tokens at most
	generate int // tokens at most
	pages    int // in the cache
	seed     uint64
	balanced bool
	verify   bool
}

// defaults are a device's: the emulator gets as much as takes a few seconds.
var defaults = map[string]config{
	"emu":  {heads: 8, requests: 12, capacity: 4, prompt: 400, generate: 8},
	"cuda": {heads: 16, requests: 200, capacity: 64, prompt: 4096, generate: 128},
}

// most bounds what the command line may ask for: the lists of a larger server
// would not fit the host.
const most = 1 << 20

// open starts the device.
func (c *config) open() (runtime.Driver, error) {
	if c.device == "cuda" {
		return cuda.Open(0)
	}
	return emu.Open(emu.Options{})
}

// context returns the most tokens that a request can come to have.
func (c *config) context() int { return c.prompt + c.generate }

// run is the command without its process.
func run(args []string, stdout, stderr io.Writer) int {
	c, err := parse(args, stderr)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return exitOK
	case err != nil:
		fmt.Fprintf(stderr, "decode-server: %v\n", err)
		return exitUsage
	}
	if err := c.run(stdout); err != nil {
		fmt.Fprintf(stderr, "decode-server: %v\n", err)
		return exitFailure
	}
	return exitOK
}

// parse reads the command line.
func parse(args []string, stderr io.Writer) (c config, err error) {
	fs := flag.NewFlagSet("decode-server", flag.ContinueOnError)
	fs.SetOutput(stderr)
	fs.StringVar(&c.device, "device", "emu", "`device`: emu or cuda; the other defaults are the emulator's (a GPU's)")
	numbers := []struct {
		to         *int
		name, text string
		of         func(config) int
	}{
		{&c.heads, "heads", "query `heads`", func(d config) int { return d.heads }},
		{&c.requests, "requests", "`number` of requests", func(d config) int { return d.requests }},
		{&c.capacity, "capacity", "`requests` that are served at a time", func(d config) int { return d.capacity }},
		{&c.prompt, "prompt", "`tokens` of a prompt, at most", func(d config) int { return d.prompt }},
		{&c.generate, "generate", "`tokens` to generate for a request, at most", func(d config) int { return d.generate }},
	}
	for _, n := range numbers {
		fs.IntVar(n.to, n.name, 0, fmt.Sprintf("%s (%d; %d)", n.text, n.of(defaults["emu"]), n.of(defaults["cuda"])))
	}
	fs.IntVar(&c.pages, "pages", 0, "`pages` of the cache, 64 tokens each (half of what a full batch of the longest requests takes)")
	fs.Uint64Var(&c.seed, "seed", 1, "`seed` of requests and model")
	fs.BoolVar(&c.balanced, "balanced", false, "balance every step's work over the device; a request's bits then depend on its batch mates")
	fs.BoolVar(&c.verify, "verify", true, "run every request alone afterwards and compare each bit")
	if err := fs.Parse(args); err != nil {
		return c, err
	}
	if fs.NArg() > 0 {
		return c, fmt.Errorf("%q: there are flags only", fs.Arg(0))
	}
	d, ok := defaults[c.device]
	if !ok {
		return c, fmt.Errorf("-device %q does not exist; the devices are emu and cuda", c.device)
	}
	given := map[string]bool{}
	fs.Visit(func(f *flag.Flag) { given[f.Name] = true })
	for _, n := range numbers {
		if !given[n.name] {
			*n.to = n.of(d)
		}
		if *n.to < 1 || *n.to > most {
			return c, fmt.Errorf("-%s was %d, must be at least 1 and at most %d", n.name, *n.to, most)
		}
	}
	longest := pagesOf(c.context())
	if !given["pages"] {
		c.pages = max(longest, c.capacity*longest/2)
	}
	if c.pages > most {
		return c, fmt.Errorf("%d pages are too many, must be at most %d: say fewer with -pages, or a smaller -capacity or -prompt", c.pages, most)
	}
	if c.pages < longest {
		return c, fmt.Errorf("-pages was %d, must be at least %d: a request may have %d tokens", c.pages, longest, c.context())
	}
	return c, nil
}

// run serves the requests, verifies and prints.
func (c *config) run(w io.Writer) (err error) {
	drv, err := c.open()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, drv.Close()) }()
	e, err := newEngine(drv, c)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, e.close()) }()

	requests := newRequests(c)
	fmt.Fprintf(w, "%s: %d SMs; %d heads, row blocks of %d, %s; %d pages\n",
		drv.Name(), drv.Attributes().SMs, c.heads, e.decode.Model().BlockH, e.mode(), c.pages)
	batched, err := e.serve(requests)
	if err != nil {
		return err
	}
	batched.print(w)
	if !c.verify {
		return nil
	}
	start := time.Now()
	tokens, err := e.verify(requests, batched)
	if err != nil {
		return err
	}
	fmt.Fprintf(w, "verified %d tokens of %d requests in %.1f s: every bit as in a run alone\n", tokens, len(requests), time.Since(start).Seconds())
	return nil
}

// print writes what serving took.
func (s *service) print(w io.Writer) {
	seconds := s.elapsed.Seconds()
	steps := float64(max(1, s.steps))
	fmt.Fprintf(w, "%d requests, %d tokens of prompts, %d steps, %d tokens: %.0f tokens/s, %.1f µs per step",
		len(s.tokens), s.promptTokens, s.steps, s.generated, float64(s.generated)/seconds, seconds*1e6/steps)
	if s.deviceMicroseconds > 0 {
		fmt.Fprintf(w, ", %.1f of them on the device", s.deviceMicroseconds/steps)
	}
	var graphs []string
	for _, b := range s.buckets {
		graphs = append(graphs, fmt.Sprint(b))
	}
	fmt.Fprintf(w, "\n%d graph replays of %d graphs, for %s requests; up to %d requests at a time, %d pages given out and taken back\n",
		s.replays, len(s.buckets), strings.Join(graphs, ", "), s.most, s.returned)
}
