// Command mlagen generates, verifies, checks and times the PTX of multi-head
// latent attention kernels for Hopper GPUs. Run it without arguments for its
// commands.
package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strings"

	"github.com/peterbourgon/ff/v3/ffcli"
)

// Exit codes.
const (
	exitOK      = 0
	exitFailure = 1 // it ran and failed, or found something
	exitUsage   = 2 // the command line cannot be carried out
)

func main() {
	a := &app{stdin: os.Stdin, stdout: os.Stdout, stderr: os.Stderr, again: again}
	os.Exit(a.main(os.Args[1:]))
}

// again runs this program anew, with further settings in its environment, for
// what is read when a process starts.
func again(ctx context.Context, stdout io.Writer, args []string, settings ...string) error {
	program, err := os.Executable()
	if err != nil {
		return err
	}
	c := exec.CommandContext(ctx, program, args...)
	c.Stdout, c.Stderr = stdout, os.Stderr
	c.Env = append(os.Environ(), settings...)
	c.Cancel = func() error { return c.Process.Signal(os.Interrupt) }
	err = c.Run()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		return errQuiet // it has told
	}
	return err
}

// interruptible returns a context that an interrupt cancels, for a command that
// then ends in good order. A second interrupt ends the process, as the first does
// with other commands.
func interruptible(ctx context.Context) (_ context.Context, stop func()) {
	ctx, stop = signal.NotifyContext(ctx, os.Interrupt)
	context.AfterFunc(ctx, stop)
	return ctx, stop
}

// app is the world of one run.
type app struct {
	stdin          io.Reader
	stdout, stderr io.Writer
	// again runs a command line in a process of its own, with settings in its
	// environment; nil where that cannot be done.
	again func(ctx context.Context, stdout io.Writer, args []string, settings ...string) error
}

// usageError is a command line that cannot be carried out as it is.
type usageError struct{ error }

func usagef(format string, args ...any) error { return usageError{fmt.Errorf(format, args...)} }

// errQuiet is a failure that the command has already told in full.
var errQuiet = errors.New("failed")

// run is the command without its process.
func run(args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	return (&app{stdin: stdin, stdout: stdout, stderr: stderr}).main(args)
}

// main carries out a command line and returns the exit code.
func (a *app) main(args []string) int {
	var help bytes.Buffer
	root := a.root(&help)
	err := root.Parse(args)
	switch {
	case errors.Is(err, flag.ErrHelp):
		a.stdout.Write(help.Bytes())
		return exitOK
	case err != nil:
		err = usageError{err}
	default:
		err = root.Run(context.Background())
	}
	var usage usageError
	switch {
	case err == nil:
		return exitOK
	case errors.Is(err, errQuiet):
		if rest := untold(err); rest != nil {
			fmt.Fprintf(a.stderr, "mlagen: %v\n", rest)
		}
		return exitFailure
	case errors.As(err, &usage):
		fmt.Fprintf(a.stderr, "mlagen: %v\n", err)
		return exitUsage
	}
	fmt.Fprintf(a.stderr, "mlagen: %v\n", err)
	return exitFailure
}

// untold returns what of a failure the command has not told: what went wrong
// beside it, as in giving the device back.
func untold(err error) error {
	if err == errQuiet {
		return nil
	}
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok {
		return err
	}
	var rest []error
	for _, e := range joined.Unwrap() {
		rest = append(rest, untold(e))
	}
	return errors.Join(rest...)
}

// commands are the commands in the order in which help lists them.
func (a *app) commands() []*ffcli.Command {
	return []*ffcli.Command{
		a.list(), a.emit(), a.bind(), a.explain(), a.verify(), a.run(), a.check(), a.bench(), a.tune(), a.plan(), a.cache(), a.completion(), a.version(),
	}
}

// root is the tree of commands; help collects what -h prints.
func (a *app) root(help io.Writer) *ffcli.Command {
	commands := a.commands()
	root := &ffcli.Command{
		Name:       "mlagen",
		ShortUsage: "mlagen COMMAND [flags] [arguments]",
		LongHelp: `mlagen generates PTX for multi-head latent attention on Hopper GPUs from tile
specs, and verifies, runs, checks and times it. "mlagen COMMAND -h" tells more.

Exit status: 0 success, 1 failure or findings, 2 a command line that cannot be
carried out.`,
		FlagSet:     newFlags("mlagen"),
		Subcommands: commands,
	}
	root.Exec = func(_ context.Context, args []string) error {
		if len(args) == 0 {
			fmt.Fprint(a.stderr, usage(root))
			return usagef("name a command")
		}
		var names []string
		for _, c := range commands {
			names = append(names, c.Name)
		}
		return usagef("unknown command %q; the commands are %s", args[0], strings.Join(names, ", "))
	}
	for _, c := range append(commands, root) {
		c.UsageFunc = usage
		wrapHelp(c, help)
	}
	return root
}

func newFlags(name string) *flag.FlagSet { return flag.NewFlagSet(name, flag.ContinueOnError) }

// wrapHelp sends a command's help to w and nothing else: package flag also
// writes its errors to where help goes, and those are run's to print.
func wrapHelp(c *ffcli.Command, w io.Writer) {
	c.FlagSet.SetOutput(helpOnly{w})
}

// helpOnly passes on what usage wrote.
type helpOnly struct{ w io.Writer }

func (h helpOnly) Write(p []byte) (int, error) {
	if bytes.HasPrefix(p, []byte(usageMark)) {
		h.w.Write(bytes.TrimSuffix(p, []byte("\n"))) // ffcli ends with a line more
	}
	return len(p), nil
}

const usageMark = "usage: "

// usage renders a command's help.
func usage(c *ffcli.Command) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s%s\n\n%s\n", usageMark, c.ShortUsage, c.LongHelp)
	if len(c.Subcommands) > 0 {
		b.WriteString("\ncommands:\n")
		for _, s := range c.Subcommands {
			fmt.Fprintf(&b, "  %-10s %s\n", s.Name, s.ShortHelp)
		}
	}
	first := true
	c.FlagSet.VisitAll(func(f *flag.Flag) {
		if first {
			b.WriteString("\nflags:\n")
			first = false
		}
		name, text := flag.UnquoteUsage(f)
		fmt.Fprintf(&b, "  %-22s %s", strings.TrimSpace("-"+f.Name+" "+name), text)
		if f.DefValue != "" && f.DefValue != "0" && f.DefValue != "false" {
			fmt.Fprintf(&b, " (default %s)", f.DefValue)
		}
		b.WriteString("\n")
	})
	if lines := examples[c.Name]; len(lines) > 0 {
		b.WriteString("\nexamples:\n")
		for _, e := range lines {
			b.WriteString("  " + e + "\n")
		}
	}
	return b.String()
}

// noArguments refuses arguments left after a command's flags.
func noArguments(command string, args []string) error {
	if len(args) > 0 {
		return usagef("%s takes no arguments after its flags and got %q", command, args)
	}
	return nil
}

// onlyFlags refuses flags other than the named ones, which have no say where
// one of these was given; because says why.
func onlyFlags(fs *flag.FlagSet, because string, names ...string) (err error) {
	fs.Visit(func(f *flag.Flag) {
		if err == nil && !slices.Contains(names, f.Name) {
			err = usagef("%s: -%s does not go with it", because, f.Name)
		}
	})
	return err
}
