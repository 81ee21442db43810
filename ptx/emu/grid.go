package emu

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"sync"
	"sync/atomic"
)

// grid is one launch under way.
type grid struct {
	m      *Machine
	k      *kernel
	cfg    LaunchConfig
	params []byte
	number int64  // of the launch on this machine
	oldest int64  // the first launch that may be unfinished when this one starts
	shape  Dim    // of clusters in the grid
	seed   uint64 // of this launch

	mu        sync.Mutex
	counts    []uint64 // lane-instructions per instruction
	conflicts []conflictCount
	stats     Stats
	found     map[int]*findings // by cluster
	abort     error
	abortID   int // cluster that stopped the launch

	points  map[uint64]*meetingPoint // strong accesses, by address
	writers map[*allocation]*writers // what the grid has written

	early atomic.Bool // griddepcontrol.launch_dependents ran before a wait
	maps  map[uint64]*decodedMap
}

// Launch runs a kernel to its end. The report is valid also when the error is
// not nil; hazards are in the report and not in the error, unless they make it
// impossible to go on.
func (m *Machine) Launch(p *Program, name string, cfg LaunchConfig) (*Report, error) {
	k, err := p.prepare(name, &cfg)
	if err != nil {
		return nil, err
	}
	g := &grid{m: m, k: k, cfg: cfg, params: cfg.Params, number: m.launches.Add(1)}
	g.oldest = g.number
	if cfg.Programmatic {
		g.oldest = m.unfinished
	}
	g.shape = Dim{cfg.Grid.X / cfg.Cluster.X, cfg.Grid.Y / cfg.Cluster.Y, cfg.Grid.Z / cfg.Cluster.Z}
	g.seed = m.cfg.Seed
	g.counts = make([]uint64, len(k.code))
	g.conflicts = make([]conflictCount, len(k.code))
	g.found, g.abortID = map[int]*findings{}, math.MaxInt
	workers := m.cfg.Workers
	if k.atomics {
		workers = 1
	}
	n := g.shape.count()
	queue := &clusterQueue{n: n, order: newPRNG(g.seed, g.turn(), 1), shuffle: g.seed%2 == 1}
	var wg sync.WaitGroup
	for range min(workers, n) {
		wg.Go(func() { g.work(queue) })
	}
	wg.Wait()
	// What may be unfinished when a programmatic launch follows: this grid, and
	// if it let its dependents start before it waited, those it may overlap.
	// One that never lets them ends before they start.
	switch {
	case !k.triggers:
		m.unfinished = g.number + 1
	case g.early.Load():
		m.unfinished = g.oldest
	default:
		m.unfinished = g.number
	}
	return g.report(), g.abort
}

// clusterQueue hands out clusters: in ascending order, or for odd seeds with
// neighbours swapped within a window, as hardware may.
type clusterQueue struct {
	mu      sync.Mutex
	n, done int
	order   prng
	shuffle bool
	window  []int
}

func (q *clusterQueue) take() (int, bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	const width = 8
	for q.done < q.n && len(q.window) < width {
		q.window = append(q.window, q.done)
		q.done++
	}
	if len(q.window) == 0 {
		return 0, false
	}
	i := 0
	if q.shuffle {
		i = q.order.intn(len(q.window))
	}
	id := q.window[i]
	q.window = append(q.window[:i], q.window[i+1:]...)
	return id, true
}

// slice is how many warp instructions a cluster runs before a worker looks
// whether another one could go on instead, which matters only to kernels whose
// CTAs wait for each other through global memory.
const slice = 4 << 20

// work runs clusters until the queue is empty. It brings in another cluster
// beside the ones it has when none of them ends within a slice.
func (g *grid) work(q *clusterQueue) {
	var running []*cluster
	limit := max(1, g.m.cfg.SMs/g.cfg.Cluster.count())
	grow := true
	for {
		last := g.stopped()
		if grow && len(running) < limit {
			if id, ok := q.take(); ok && id < last {
				running = append(running, g.newCluster(id))
			} else if ok {
				continue
			}
		}
		if len(running) == 0 {
			return
		}
		grow = false
		alive := running[:0]
		progress := false
		for _, cl := range running {
			if cl.id > g.stopped() {
				continue
			}
			before := cl.effect
			done, err := cl.run(slice)
			progress = progress || cl.effect != before
			switch {
			case err != nil:
				g.stop(cl.id, err)
				g.collect(cl)
			case done:
				g.collect(cl)
			default:
				alive = append(alive, cl)
			}
		}
		clear(running[len(alive):])
		running = alive
		if progress {
			for _, cl := range running {
				cl.granted = cl.steps
			}
		}
		grow = true
	}
}

// stop notes that cluster id cannot go on. The clusters before it still run,
// so that the first one that fails is the same in every run.
func (g *grid) stop(id int, err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if id < g.abortID {
		g.abortID, g.abort = id, err
	}
}

// stopped returns the cluster that has stopped the launch; those after it need
// not run.
func (g *grid) stopped() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.abortID
}

// collect adds a cluster's counts to the grid's.
func (g *grid) collect(cl *cluster) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for i, n := range cl.counts {
		g.counts[i] += n
	}
	for i, n := range cl.conflicts {
		g.conflicts[i].times += n.times
		g.conflicts[i].extra += n.extra
	}
	g.stats.add(&cl.stats)
	g.stats.Steps += cl.steps
	f := newFindings()
	if cl.hz != nil {
		f = cl.hz.found
	} else if cl.fatal != nil {
		f.add(*cl.fatal)
	}
	if len(f.list) > 0 {
		g.found[cl.id] = f
	}
	cl.release()
}

// fault is thrown by semantics that cannot go on: an access out of bounds, a
// misaligned one, or a broken protocol that has no defined continuation.
type fault struct{ h Hazard }

// hazards merges what the clusters found, in their order.
func (g *grid) hazards() []Hazard {
	all := newFindings()
	for _, id := range slices.Sorted(maps.Keys(g.found)) {
		if id <= g.abortID {
			all.merge(g.found[id])
		}
	}
	return all.sorted()
}

// ctaNumber returns the linear index of a CTA of a cluster.
func (g *grid) ctaNumber(cluster, rank int) int {
	corner, in, c := g.shape.at(cluster), g.cfg.Cluster.at(rank), g.cfg.Cluster
	x, y, z := int(corner[0])*c.X+int(in[0]), int(corner[1])*c.Y+int(in[1]), int(corner[2])*c.Z+int(in[2])
	return x + g.cfg.Grid.X*(y+g.cfg.Grid.Y*z)
}

// turn counts launches since the seed was set.
func (g *grid) turn() uint64 { return uint64(g.number - g.m.seeded) }

func (g *grid) describe() string { return fmt.Sprintf("launch %d of %s", g.number, g.k.def.Name) }
