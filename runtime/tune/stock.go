package tune

import (
	"cmp"
	"slices"
	"time"

	"github.com/mlagen/mlagen/runtime"
)

const (
	loadTogether = 6 // choices' kernels that are loaded side by side

	// What loading is expected to take before any was.
	firstTogether = 300 * time.Millisecond
	firstWhole    = 1800 * time.Millisecond
)

// stock is the kernels that were loaded, and how long that took: what loading
// others will take. Kernels that compile apart from the driver do so side by side;
// whole programs take turns, whatever is done, and much longer.
type stock struct {
	timer Timer
	now   func() time.Time

	has      map[runtime.DecodeShape]bool // loaded, or known not to load
	together time.Duration                // the last kernels that compiled side by side
	whole    time.Duration                // the slowest whole program
	wholes   int                          // that were loaded
}

func newStock(t Timer, now func() time.Time) *stock {
	return &stock{timer: t, now: now, has: map[runtime.DecodeShape]bool{}, together: firstTogether, whole: firstWhole}
}

// split divides shapes, each once, into those that compile side by side and those
// that are whole programs, without those that are there.
func (s *stock) split(shapes []runtime.DecodeShape) (apart, whole []runtime.DecodeShape) {
	var missing []runtime.DecodeShape
	for _, x := range shapes {
		if !s.has[x] && !slices.Contains(missing, x) {
			missing = append(missing, x)
		}
	}
	for i, is := range s.timer.Whole(missing) {
		if is {
			whole = append(whole, missing[i])
		} else {
			apart = append(apart, missing[i])
		}
	}
	return apart, whole
}

// load loads kernels that compile side by side, and beside them at most one whole
// program.
func (s *stock) load(apart []runtime.DecodeShape, whole ...runtime.DecodeShape) error {
	all := append(slices.Clone(whole), apart...)
	if len(all) == 0 {
		return nil
	}
	begin := s.now()
	if err := s.timer.Load(all); err != nil {
		return err
	}
	took := s.now().Sub(begin)
	if len(whole) == 0 {
		s.together = took
	} else {
		if s.wholes++; s.wholes == 1 {
			s.whole = 0 // a guess until now
		}
		s.whole = max(s.whole, took)
	}
	for _, x := range all {
		s.has[x] = true
	}
	return nil
}

// wishes are kernels beside the defaults' by how much loads want them.
type wishes struct {
	weights map[runtime.DecodeShape]float64
	shapes  []runtime.DecodeShape // as they were first wished for
}

func (w *wishes) add(s runtime.DecodeShape, weight float64) {
	if w.weights == nil {
		w.weights = map[runtime.DecodeShape]float64{}
	}
	if w.weights[s] == 0 {
		w.shapes = append(w.shapes, s)
	}
	w.weights[s] += weight
}

// sorted returns the kernels, the most wanted first.
func (w *wishes) sorted() []runtime.DecodeShape {
	sorted := slices.Clone(w.shapes)
	slices.SortStableFunc(sorted, func(a, b runtime.DecodeShape) int { return cmp.Compare(w.weights[b], w.weights[a]) })
	return sorted
}

// ready reports whether a load's default can be run.
func (t *tuner) ready(i int) bool { return t.stock.has[t.Model.shape(t.loads[i].SQ, t.defaults[i])] }

// loadDefaults loads the kernels of the defaults, those first that most loads take,
// as long as there is time: one in any case. Beside a whole program others
// compile that loads with as many query tokens want.
func (t *tuner) loadDefaults() error {
	users := map[runtime.DecodeShape]int{}
	var shapes []runtime.DecodeShape
	for i, l := range t.loads {
		s := t.Model.shape(l.SQ, t.defaults[i])
		shapes = append(shapes, s)
		users[s]++
	}
	apart, whole := t.stock.split(shapes)
	slices.SortStableFunc(whole, func(a, b runtime.DecodeShape) int { return cmp.Compare(users[b], users[a]) })
	for i, s := range whole {
		if (i > 0 || len(apart) > 0) && !t.clock.left(t.at(defaultShare), t.stock.whole) {
			break
		}
		beside, _ := t.stock.split(t.wishes(func(i int) bool { return t.loads[i].SQ == s.SQ }).sorted())
		beside = slices.DeleteFunc(beside, func(x runtime.DecodeShape) bool { return slices.Contains(apart, x) })
		if err := t.stock.load(append(apart, beside[:min(len(beside), loadTogether)]...), s); err != nil {
			return err
		}
		apart = nil
	}
	return t.stock.load(apart)
}

// wishes returns the kernels that some of the loads want tried.
func (t *tuner) wishes(of func(i int) bool) *wishes {
	var w wishes
	for i, l := range t.loads {
		if !of(i) {
			continue
		}
		varied := func(c Choice, weight float64) {
			for _, v := range variations(t.Model, l, c, t.sms) {
				next := c
				v.apply(&next)
				w.add(t.Model.shape(l.SQ, next), weight)
			}
		}
		varied(t.defaults[i], 0.5)
		for n, c := range t.structures[i] {
			w.add(t.Model.shape(l.SQ, c), 1/float64(1+n))
			varied(c, 0.1/float64(1+n))
		}
	}
	return &w
}
