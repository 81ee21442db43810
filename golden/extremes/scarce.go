package extremes

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/mlagen/mlagen/golden/cases"
	"github.com/mlagen/mlagen/golden/check"
	"github.com/mlagen/mlagen/runtime"
)

// scarce is a device whose memory ends after so many allocations.
type scarce struct {
	runtime.Driver
	left int
	live map[runtime.Ptr]bool
	ran  string // the allocation that failed
}

// errScarce stands for a driver's error.
var errScarce = errors.New("out of memory, as planned")

func (s *scarce) Alloc(name string, size int64) (runtime.Ptr, error) {
	if s.left--; s.left < 0 {
		s.ran = name
		return 0, fmt.Errorf("allocate %q, %d bytes (0 of 1 bytes free): %w", name, size, errScarce)
	}
	p, err := s.Driver.Alloc(name, size)
	if err == nil {
		s.live[p] = true
	}
	return p, err
}

func (s *scarce) Free(p runtime.Ptr) error {
	delete(s.live, p)
	return s.Driver.Free(p)
}

// outOfMemory lets every allocation of every operation fail in turn, and then
// asks the device itself for more than it has.
func outOfMemory(e *Env) (string, error) {
	failures := 0
	for _, op := range []string{
		`"op":"decode","kv_len":[70,3],"splits":2`, `"op":"prefill","q_len":3,"kv_len":[70,3]`, `"op":"extend","q_len":3,"kv_len":[70,3]`,
		`"op":"layer","q_len":3,"kv_len":[70,3],"paths":["absorb","expand"]`, `"op":"merge","q_len":3,"kv_len":[70]`,
		`"op":"upproject","kv_len":[70]`, `"op":"absorb","q_len":3`, `"op":"append","q_len":3,"kv_len":[70]`,
	} {
		c, err := cases.Parse([]byte(`{"name":"x","model":{"heads":1},"tolerance":{"out":0.01,"lse":0.01},` + op + `}`))
		if err != nil {
			return "", err
		}
		n, err := e.starve(c)
		if err != nil {
			return "", err
		}
		failures += n
	}
	if e.Small {
		return fmt.Sprintf("%d allocations", failures), nil
	}
	const much = 1 << 50
	_, err := e.Driver.Alloc("everything", much)
	if err == nil {
		return "", errors.New("the device gave 2⁵⁰ bytes")
	}
	for _, part := range []string{`"everything"`, fmt.Sprint(much), " free"} {
		if !strings.Contains(err.Error(), part) {
			return "", fmt.Errorf("the device's error does not say %s: %w", part, err)
		}
	}
	return fmt.Sprintf("%d allocations; %v", failures, err), nil
}

// starve runs a case with room for 0 allocations, 1, and so on until it is
// right.
func (e *Env) starve(c *cases.Case) (failures int, err error) {
	s := &scarce{Driver: e.Driver, live: map[runtime.Ptr]bool{}}
	r := check.New(check.Options{Driver: s, Source: e.Source, Hazards: e.Small}) // kernels stay loaded
	defer func() { err = errors.Join(err, r.Close()) }()
	for ; ; failures++ {
		s.left, s.ran = failures, ""
		o := r.Case(c)
		if len(s.live) > 0 {
			return failures, fmt.Errorf("%s with room for %d allocations leaves %d behind", c.Op, failures, len(s.live))
		}
		if s.ran == "" {
			if o.Status != check.OK || failures == 0 {
				return failures, fmt.Errorf("%s with room for %d allocations: %v", c.Op, failures, o)
			}
			return failures, nil
		}
		if o.Status != check.Failed || !strings.Contains(o.Reason, fmt.Sprintf("allocate %q", s.ran)) || !strings.Contains(o.Reason, "bytes") || !strings.Contains(o.Reason, "free") {
			return failures, fmt.Errorf("%s: memory ran out at %q, and the outcome is %v", c.Op, s.ran, o)
		}
	}
}

// twoProcesses runs cases in two processes at a time, beside this one.
func twoProcesses(e *Env) (figures string, err error) {
	if e.Again == nil {
		return "", skip("no second process can be started from here")
	}
	dir, err := os.MkdirTemp("", "mlagen-extremes-")
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	file := filepath.Join(dir, "twice.json")
	c, err := cases.Parse([]byte(fmt.Sprintf(`{"name":"twice","op":"decode","kv_len":[%d,65,0],"repeat":%d}`, e.size(5000, 200), e.size(300, 2))))
	if err != nil {
		return "", err
	}
	if err := os.WriteFile(file, c.Format(), 0o666); err != nil {
		return "", err
	}
	type end struct {
		out []byte
		err error
	}
	ends := make(chan end)
	for range 2 {
		go func() {
			out, err := e.Again(context.Background(), file).CombinedOutput()
			ends <- end{out, err}
		}()
	}
	mine, err := e.run(string(c.Format()))
	for range 2 {
		x := <-ends
		if x.err != nil || !strings.Contains(string(x.out), "1 passed, 0 failed") {
			err = errors.Join(err, fmt.Errorf("a process beside this one: %w\n%s", x.err, x.out))
		}
	}
	return mine + " in each of three processes", err
}
