package golden_test

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/mlagen/mlagen/runtime"
	"github.com/mlagen/mlagen/runtime/plan"
)

// paperLayer loads a layer of 16 heads.
func paperLayer(t *testing.T) (*paper, *runtime.Layer) {
	t.Helper()
	v, err := runtime.LayerKernels(source{}, runtime.LayerShape{Heads: 16, Latent: 512, Rope: 64, Nope: 128, Value: 128, Page: 64, DType: runtime.BF16})
	must(t, err)
	p := newPaper()
	l, err := runtime.LoadLayer(p, v)
	must(t, err)
	return p, l
}

// paperArgs are arguments that are right for a plan.
func paperArgs(p *runtime.LayerPlan) runtime.LayerArgs {
	n, tokens := int64(len(p.Requests)), int64(p.QueryTokens)
	return runtime.LayerArgs{
		LayerStep: runtime.LayerStep{
			Plan: p, KVLen: runtime.Dense(0x1000, runtime.S32, n), BlockTable: runtime.Dense(0x2000, runtime.S32, n, 40),
			Schedule: runtime.Buffer{Ptr: 0x10000, Bytes: p.ScheduleBytes},
		},
		Q:         runtime.Dense(0x100000, runtime.BF16, tokens, 16, 192),
		KV:        runtime.Dense(0x8000000, runtime.BF16, 500, 64, 576),
		Weights:   runtime.Dense(0x20000000, runtime.BF16, 16, 256, 512),
		Workspace: runtime.Buffer{Ptr: 0x40000000, Bytes: p.WorkspaceBytes},
		Out:       runtime.Dense(0x4000000, runtime.BF16, tokens, 16, 128),
		Scale:     0.07,
	}
}

// A batch of both kinds, gathered, in one go and one chunk.
var (
	someRequests = []plan.Request{{New: 1, Prefix: 100}, {New: 200}, {New: 5, Prefix: 70}}
	somePaths    = []plan.Path{plan.Absorb, plan.Expand, plan.Absorb}
)

func TestLayerPlanMisuse(t *testing.T) {
	_, l := paperLayer(t)
	for want, c := range map[string]struct {
		requests []plan.Request
		options  runtime.LayerOptions
	}{
		"requests: request 1 had -1 new tokens on 5, must be":                                        {[]plan.Request{{New: 1}, {New: -1, Prefix: 5}}, runtime.LayerOptions{}},
		"requests: request 0 had 1 new tokens on 2147483647, must be":                                {[]plan.Request{{New: 1, Prefix: math.MaxInt32}}, runtime.LayerOptions{}},
		"requests: had 67108864 or more new tokens together, must be at most 67108863 with 16 heads": {[]plan.Request{{New: 1 << 26}, {New: 1}}, runtime.LayerOptions{}},
		"paths: there were 1, must be one for each of 2 requests":                                    {someRequests[:2], runtime.LayerOptions{Paths: somePaths[:1]}},
		`paths: that of request 1 was "", must be "absorb" or "expand"`:                              {someRequests[:2], runtime.LayerOptions{Paths: []plan.Path{plan.Absorb, ""}}},
		"options: workspace was -1, chunk 0, must be":                                                {someRequests, runtime.LayerOptions{Workspace: -1}},
	} {
		_, err := l.Plan(c.requests, c.options)
		var argument *runtime.ArgumentError
		if !errors.As(err, &argument) || !strings.HasPrefix(err.Error(), "layer plan: "+want) {
			t.Errorf("%v, want layer plan: %s", err, want)
		}
	}
	// A workspace as large as the message says is large enough, and none is smaller.
	for i := range 2 {
		requests, paths := someRequests[i:i+1], somePaths[i:i+1]
		_, err := l.Plan(requests, runtime.LayerOptions{Workspace: 1000, Paths: paths})
		var argument *runtime.ArgumentError
		least := int64(0)
		if !errors.As(err, &argument) || argument.Argument != "workspace" || argument.Was != "was 1000 bytes" {
			t.Fatal(err)
		}
		if _, err := fmt.Sscanf(argument.Must, "at least %d", &least); err != nil {
			t.Fatal(argument.Must)
		}
		p, err := l.Plan(requests, runtime.LayerOptions{Workspace: least, Paths: paths})
		if err != nil || p.WorkspaceBytes > least {
			t.Errorf("%v: %v in %d bytes, which were said to be enough", paths, err, least)
		}
		if _, err := l.Plan(requests, runtime.LayerOptions{Workspace: least - 512, Paths: paths}); err == nil {
			t.Errorf("%v: less than %d bytes are enough", paths, least)
		}
	}
	must(t, l.Close())
	if _, err := l.Plan(someRequests, runtime.LayerOptions{}); err == nil || !strings.Contains(err.Error(), "was closed") {
		t.Error(err)
	}
}

// TestLayerLaunches: a batch that only decodes takes what decode takes and the two
// products, a batch that only prefills what extend takes; the rest is for mixtures.
func TestLayerLaunches(t *testing.T) {
	dev, l := paperLayer(t)
	for _, c := range []struct {
		requests      []plan.Request
		paths         []plan.Path
		schedule, run []string
	}{
		{[]plan.Request{{New: 1, Prefix: 9}, {New: 1}, {New: 1, Prefix: 500}}, []plan.Path{plan.Absorb, plan.Absorb, plan.Absorb},
			[]string{"decode_schedule"}, []string{"absorb_q", "absorb_decode", "decode_combine", "absorb_o"}},
		{[]plan.Request{{New: 4, Prefix: 9}, {New: 4, Prefix: 500}}, []plan.Path{plan.Absorb, plan.Absorb},
			[]string{"decode_schedule"}, []string{"absorb_q", "absorb_decode", "decode_combine", "absorb_o"}},
		{[]plan.Request{{New: 64, Prefix: 900}}, []plan.Path{plan.Absorb},
			[]string{"layer_groups", "decode_schedule"}, []string{"absorb_q", "absorb_decode", "decode_combine", "absorb_o"}},
		{[]plan.Request{{New: 200}, {New: 300}}, []plan.Path{plan.Expand, plan.Expand},
			[]string{"layer_groups", "extend_schedule"}, []string{"up_project", "extend_attend"}},
		{[]plan.Request{{New: 1, Prefix: 9}, {New: 1, Prefix: 9}, {New: 200}}, []plan.Path{plan.Absorb, plan.Absorb, plan.Expand},
			[]string{"decode_schedule", "layer_groups", "extend_schedule"},
			[]string{"absorb_q", "absorb_decode", "decode_combine", "absorb_o", "up_project", "extend_attend"}},
		{someRequests, somePaths, []string{"layer_groups", "decode_schedule", "decode_schedule", "layer_groups", "extend_schedule"},
			[]string{"layer_rows", "absorb_q", "absorb_decode", "decode_combine", "absorb_decode", "decode_combine", "absorb_o", "layer_rows", "up_project", "extend_attend"}},
		{[]plan.Request{{Prefix: 9}, {}}, []plan.Path{"", ""}, nil, nil},
	} {
		p, err := l.Plan(c.requests, runtime.LayerOptions{Paths: c.paths})
		must(t, err)
		a := paperArgs(p)
		dev.launches = nil
		must(t, l.Schedule(dev, a.LayerStep))
		scheduled := len(dev.launches)
		must(t, l.Run(dev, a))
		if !slices.Equal(dev.launches[:scheduled], c.schedule) || !slices.Equal(dev.launches[scheduled:], c.run) {
			t.Errorf("%v %v: %v, then %v", c.requests, c.paths, dev.launches[:scheduled], dev.launches[scheduled:])
		}
	}
}

// TestLayerNewTokens: a promise of fewer new tokens than a request of the plan has is
// refused, one of as many holds for groups with more places.
func TestLayerNewTokens(t *testing.T) {
	dev, l := paperLayer(t)
	for most, requests := range map[int][]plan.Request{200: someRequests, 3: {{New: 3, Prefix: 90}, {New: 1}}, 1: {{New: 1, Prefix: 5}}, 0: {{Prefix: 5}}} {
		p, err := l.Plan(requests, runtime.LayerOptions{})
		must(t, err)
		a := paperArgs(p)
		must(t, l.Schedule(dev, a.LayerStep))
		for n, right := range map[int]bool{-1: false, 0: true, 1: most <= 1, most: true, most + 5: true, most - 1: most == 1} {
			a.NewTokens, dev.launches = n, nil
			err := l.Run(dev, a)
			if right != (err == nil) && p.QueryTokens > 0 || err != nil && !strings.Contains(err.Error(), fmt.Sprintf("new tokens: was %d, must be 0", n)) || err != nil && len(dev.launches) > 0 {
				t.Errorf("%v, %d promised: %v", requests, n, err)
			}
		}
	}
}

// TestLayerAllocatesNothing: what is called for every layer of a model leaves no
// garbage.
func TestLayerAllocatesNothing(t *testing.T) {
	dev, l := paperLayer(t)
	for _, paths := range [][]plan.Path{{plan.Absorb, plan.Absorb, plan.Absorb}, somePaths} {
		p, err := l.Plan(someRequests, runtime.LayerOptions{Paths: paths})
		must(t, err)
		a := paperArgs(p)
		dev.launches = make([]string, 0, 1<<10)
		n := testing.AllocsPerRun(10, func() {
			dev.launches = dev.launches[:0]
			must(t, l.Schedule(dev, a.LayerStep))
			must(t, l.Run(dev, a))
		})
		if n > 0 {
			t.Errorf("%v: %.1f allocations per call", paths, n)
		}
	}
}
