//go:build unix

package main

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestInterrupts: an interrupt ends every command, those that run for long and do
// not end in good order at once.
func TestInterrupts(t *testing.T) {
	// Where interrupts are ignored, as in the background of a shell, they would be
	// in processes of ours.
	heeded := make(chan os.Signal, 1)
	signal.Notify(heeded, os.Interrupt)
	defer signal.Stop(heeded)
	for line, told := range map[string]string{
		"run -heads 128 -kv 60000": "",
		"check -extremes":          "",
		"check -random 1000000 -workers 1 -failures " + t.TempDir(): " cases in ",
	} {
		c := exec.Command(os.Args[0], strings.Fields(line)...)
		c.Env = append(os.Environ(), commandVariable+"=1")
		var out bytes.Buffer
		c.Stdout = &out
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		time.AfterFunc(time.Second, func() { c.Process.Signal(os.Interrupt) })
		killed := time.AfterFunc(20*time.Second, func() { c.Process.Kill() })
		err := c.Wait()
		if !killed.Stop() {
			t.Errorf("%s: it went on", line)
		}
		var exit *exec.ExitError
		bySignal := errors.As(err, &exit) && exit.Sys().(syscall.WaitStatus).Signal() == syscall.SIGINT
		if bySignal != (told == "") || !strings.Contains(out.String(), told) {
			t.Errorf("%s: %v, %q, want %q", line, err, &out, told)
		}
	}
}
