package golden_test

import (
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/mlagen/mlagen/runtime"
	"github.com/mlagen/mlagen/runtime/plan"
)

// TestLayerBuffersHoldEveryPlan: what Buffers says is enough for any batch within
// the capacity, on whatever paths.
func TestLayerBuffersHoldEveryPlan(t *testing.T) {
	_, l := paperLayer(t)
	planned, goes := 0, 0
	for seed := range uint64(3000) {
		r := rand.New(rand.NewPCG(seed, 31))
		var requests []plan.Request
		var paths []plan.Path
		c := runtime.LayerCapacity{}
		for range 1 + r.IntN(pick(r, 1, 4, 60)) {
			q := plan.Request{New: pick(r, 0, 1, 1, 4, r.IntN(30), r.IntN(600), r.IntN(9000)), Prefix: pick(r, 0, r.IntN(500), r.IntN(40000))}
			requests, paths = append(requests, q), append(paths, pick(r, plan.Absorb, plan.Expand))
			c.Requests, c.QueryTokens, c.KeyTokens, c.Context = c.Requests+1, c.QueryTokens+q.New, c.KeyTokens+q.New+q.Prefix, max(c.Context, q.New+q.Prefix)
		}
		if r.IntN(3) == 0 {
			paths = nil
		}
		if r.IntN(2) == 0 { // the capacity is larger than the batch
			c.Requests, c.QueryTokens, c.KeyTokens = c.Requests+r.IntN(30), c.QueryTokens+r.IntN(3000), c.KeyTokens+3000+r.IntN(90000)
		}
		workspace := pick(r, 0, 36<<20, 40<<20, 64<<20, 100<<20, 512<<20)
		schedule, bytes, err := l.Buffers(c, int64(workspace))
		must(t, err)
		p, err := l.Plan(requests, runtime.LayerOptions{Workspace: int64(workspace), Paths: paths})
		if err != nil {
			t.Fatalf("%v %v in %d bytes: %v", requests, paths, workspace, err)
		}
		if p.ScheduleBytes > schedule || p.WorkspaceBytes > bytes {
			t.Errorf("%v %v in %d bytes: schedule of %d bytes and %d were said to be enough, workspace of %d and %d",
				requests, p.Paths, workspace, p.ScheduleBytes, schedule, p.WorkspaceBytes, bytes)
		}
		if planned++; strings.Contains(p.String(), " goes") {
			goes++
		}
	}
	if goes < planned/20 {
		t.Errorf("only %d of %d plans take several goes", goes, planned)
	}
}
