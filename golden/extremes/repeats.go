package extremes

import (
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/mlagen/mlagen/golden/dtype"
	"github.com/mlagen/mlagen/runtime"
)

// captured records a rig's launches as a graph.
func (r *rig) captured() (runtime.Graph, error) {
	if err := r.s.BeginCapture(); err != nil {
		return nil, err
	}
	if err := r.launch(); err != nil {
		return nil, err
	}
	return r.s.EndCapture()
}

// graphSizes replays a graph with other lengths than it was captured for.
func graphSizes(e *Env) (figures string, err error) {
	if !e.Driver.Attributes().GraphCapture {
		return "", skip(e.Driver.Name() + " does not capture graphs")
	}
	n := e.size(40000, 700)
	r, err := newRig(e, 16, 6, n, 3)
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, r.close()) }()
	if err := r.lengthen([]int{300, 64, 1, 0, 130, 65}); err != nil {
		return "", err
	}
	g, err := r.captured()
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, g.Destroy()) }()
	none := make([]int, 6)
	all := [][]int{{300, 64, 1, 0, 130, 65}, {3, 0, 1, 0, 2, 1}, {n, n / 2, 1, n - 1, 130, n}, none, {0, 0, 0, 0, 0, n}, {300, 64, 1, 0, 130, 65}}
	for i, lengths := range all {
		if err := errors.Join(r.lengthen(lengths), r.poison(), r.s.Replay(g)); err != nil {
			return "", err
		}
		out, lse, err := r.results()
		if err != nil {
			return "", err
		}
		errs, err := r.judge(out, lse)
		if err != nil {
			return "", fmt.Errorf("replay %d: %w", i+1, err)
		}
		figures = fmt.Sprintf("out %.1e lse %.1e", errs.Out, errs.LSE)
		if slices.Equal(lengths, none) {
			for _, l := range dtype.F32.Decode(nil, lse) {
				if !math.IsInf(float64(l), -1) {
					return "", fmt.Errorf("padding has lse %v", l)
				}
			}
		}
		// At once it must be the same to the bit.
		atOnce, lseAtOnce, err := r.decode()
		if err != nil {
			return "", err
		}
		if err := sameBits(fmt.Sprintf("replay %d and a launch", i+1), out, lse, atOnce, lseAtOnce); err != nil {
			return "", err
		}
	}
	return fmt.Sprintf("%s, %d sizes", figures, len(all)), nil
}

// manyReplays replays one graph again and again.
func manyReplays(e *Env) (figures string, err error) {
	if !e.Driver.Attributes().GraphCapture {
		return "", skip(e.Driver.Name() + " does not capture graphs")
	}
	times := e.size(10000, 6)
	r, err := newRig(e, 16, 5, 2000, 4)
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, r.close()) }()
	out, lse, figures, err := r.right([]int{e.size(1900, 400), 0, 65, 1, e.size(700, 128)})
	if err != nil {
		return "", err
	}
	g, err := r.captured()
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, g.Destroy()) }()
	for i := range times {
		if err := errors.Join(r.poison(), r.s.Replay(g)); err != nil {
			return "", err
		}
		again, lseAgain, err := r.results()
		if err != nil {
			return "", err
		}
		if err := sameBits(fmt.Sprintf("replay %d", i+1), again, lseAgain, out, lse); err != nil {
			return "", err
		}
	}
	return fmt.Sprintf("%s, %d replays", figures, times), nil
}

// twoStreams has two decodes under way at a time.
func twoStreams(e *Env) (figures string, err error) {
	rounds, depth := e.size(200, 2), e.size(10, 2)
	var rigs [2]*rig
	var out, lse [2][]byte
	for i := range rigs {
		r, err := newRig(e, []int{16, 64}[i], 3, 3000, uint64(10+i))
		if err != nil {
			return "", err
		}
		defer func() { err = errors.Join(err, r.close()) }()
		rigs[i] = r
		if out[i], lse[i], figures, err = r.right([]int{e.size(2900, 200), 0, 64 + i}); err != nil {
			return "", err
		}
	}
	for round := range rounds {
		for _, r := range rigs {
			if err := r.poison(); err != nil {
				return "", err
			}
		}
		for range depth { // nobody waits in between
			for _, r := range rigs {
				if err := r.launch(); err != nil {
					return "", err
				}
			}
		}
		for i, r := range rigs {
			again, lseAgain, err := r.results()
			if err != nil {
				return "", err
			}
			if err := sameBits(fmt.Sprintf("round %d, stream %d", round+1, i+1), again, lseAgain, out[i], lse[i]); err != nil {
				return "", err
			}
		}
	}
	return fmt.Sprintf("%s, %d launches on each stream", figures, rounds*depth), nil
}

// unloadedWhileIdle unloads and loads the kernels of a rig.
func unloadedWhileIdle(e *Env) (figures string, err error) {
	times := e.size(20, 3)
	r, err := newRig(e, 16, 3, 1000, 6)
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, r.close()) }()
	out, lse, figures, err := r.right([]int{e.size(900, 150), 0, 65})
	if err != nil {
		return "", err
	}
	for i := range times {
		if err := r.d.Close(); err != nil {
			return "", err
		}
		if err := r.launch(); err == nil {
			return "", errors.New("kernels that were unloaded were launched")
		}
		if err := r.load(); err != nil {
			return "", err
		}
		again, lseAgain, err := r.decode()
		if err != nil {
			return "", err
		}
		if err := sameBits(fmt.Sprintf("loaded %d times", i+2), again, lseAgain, out, lse); err != nil {
			return "", err
		}
	}
	return fmt.Sprintf("%s, loaded %d times", figures, times+1), nil
}
