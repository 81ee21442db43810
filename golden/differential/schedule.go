package differential

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/mlagen/mlagen/ptx/manifest"
	"github.com/mlagen/mlagen/runtime"
	"github.com/mlagen/mlagen/templates"
)

// sectionNames are the parts of the schedule buffer by the names of the
// parameters that lead to them.
var sectionNames = []string{"part_first", "items", "merges", "arrivals"}

// sections is where the parts of a schedule buffer lie. They end where the
// next one begins, padding included.
type sections map[string]runtime.Buffer

// findSections reads the places from what decode_schedule was given.
func findSections(d *device, m *manifest.Manifest, buffer runtime.Buffer) (sections, error) {
	at := map[string]runtime.Ptr{}
	starts := []runtime.Ptr{buffer.Ptr + runtime.Ptr(buffer.Bytes)}
	for _, name := range sectionNames {
		p, err := d.given(0, m, name)
		if err != nil {
			return nil, err
		}
		if p < buffer.Ptr || p >= starts[0] {
			return nil, fmt.Errorf("%s at %#x is not in the schedule buffer", name, p)
		}
		at[name] = p
		starts = append(starts, p)
	}
	slices.Sort(starts)
	s := sections{}
	for name, p := range at {
		i, _ := slices.BinarySearch(starts, p)
		s[name] = runtime.Buffer{Ptr: p, Bytes: int64(starts[i+1] - p)}
	}
	return s, nil
}

// download returns the sections' contents.
func (s sections) download(d *device) (map[string][]byte, error) {
	contents := map[string][]byte{}
	for name, b := range s {
		data, err := d.download(b)
		if err != nil {
			return nil, err
		}
		contents[name] = data
	}
	return contents, nil
}

// Kinds of requests by how their output comes about.
const (
	whole  = "whole"  // by one CTA per row block
	pair   = "pair"   // by the later of two pieces
	merged = "merged" // by decode_combine
)

// merge is an entry of the merge list.
type merge struct{ request, slot, count int }

// readSchedule returns each request's kind and the merge list.
func readSchedule(contents map[string][]byte, parts, batch int) (kinds []string, merges []merge, err error) {
	first, items, list := decodeInts(contents["part_first"]), decodeInts(contents["items"]), decodeInts(contents["merges"])
	pieces := make([]int, batch)
	count := func(item int) error {
		if item < 0 || 4*item+3 >= len(items) {
			return fmt.Errorf("item %d is past the %d items of the schedule", item, len(items)/4)
		}
		request := int(items[4*item])
		switch {
		case request == -1: // an idle part
		case request < 0 || request >= batch:
			return fmt.Errorf("item %d is of request %d of %d", item, request, batch)
		default:
			pieces[request]++
		}
		return nil
	}
	if len(first) <= parts {
		return nil, nil, fmt.Errorf("%d parts and %d words of part_first", parts, len(first))
	}
	for p := range parts {
		if err := count(p); err != nil {
			return nil, nil, err
		}
		for i := first[p]; i < first[p+1]; i++ {
			if err := count(int(i)); err != nil {
				return nil, nil, err
			}
		}
	}
	kinds = make([]string, batch)
	for i, n := range pieces {
		switch n {
		case 0:
			return nil, nil, fmt.Errorf("request %d is in no part", i)
		case 1:
			kinds[i] = whole
		default:
			kinds[i] = pair
		}
	}
	for i := 1; i <= int(list[0]); i++ {
		if 4*i+3 >= len(list) {
			return nil, nil, fmt.Errorf("%d merges and room for %d", list[0], len(list)/4-1)
		}
		m := merge{int(list[4*i]), int(list[4*i+1]), int(list[4*i+2])}
		if m.request < 0 || m.request >= batch || kinds[m.request] != pair || pieces[m.request] != m.count {
			return nil, nil, fmt.Errorf("merge %d is %+v and the requests' pieces are %v", i, m, pieces)
		}
		kinds[m.request] = merged
		merges = append(merges, m)
	}
	for i, n := range pieces {
		if kinds[i] == pair && n != 2 {
			return nil, nil, fmt.Errorf("request %d is in %d pieces and nothing merges them", i, n)
		}
	}
	slices.SortFunc(merges, func(a, b merge) int { return cmp.Compare(a.request, b.request) })
	return kinds, merges, nil
}

// compareSections returns one row for two schedules that are equal, and
// otherwise one for each of their sections.
func compareSections(name string, a, b map[string][]byte) (rows []Row) {
	all := Row{Kernel: "decode-schedule", Case: name, Result: "schedule"}
	for _, section := range sectionNames {
		r := Row{Kernel: all.Kernel, Case: name, Result: section}
		r.words(a[section], b[section])
		all.add(r.Figures)
		rows = append(rows, r)
	}
	if all.Differ == 0 {
		return []Row{all}
	}
	return rows
}

// PlanCase is a batch that is scheduled and not attended to.
type PlanCase struct {
	Name    string
	Spec    templates.Spec
	SMs     int // for which both devices plan
	Splits  int
	Batch   int
	Longest int // lengths are random up to it, one in four is 0
	Seed    uint64
}

func (c *PlanCase) lengths() []int32 {
	r := rand.New(rand.NewPCG(c.Seed, 1))
	lengths := make([]int32, c.Batch)
	for i := range lengths {
		if r.IntN(4) > 0 {
			lengths[i] = r.Int32N(int32(c.Longest + 1))
		}
	}
	return lengths
}

// Plan compares schedules.
func (p *Pair) Plan(c PlanCase) ([]Row, error) {
	results, err := each(p, c.SMs, func(dev *device) (map[string][]byte, error) {
		d, err := p.load(dev, c.Spec)
		if err != nil {
			return nil, err
		}
		defer d.Close()
		schedule, err := planned(dev, d, c.lengths(), c.Splits)
		return schedule.contents, err
	})
	if err != nil {
		return nil, err
	}
	return compareSections(c.Name, results[0], results[1]), nil
}

// planning is a schedule in device memory.
type planning struct {
	kvLen    runtime.Tensor
	buffer   runtime.Buffer
	sections sections
	contents map[string][]byte
}

// planned runs decode_schedule.
func planned(dev *device, d *runtime.Decode, lengths []int32, splits int) (planning, error) {
	var s planning
	batch := len(lengths)
	kvLen, err := dev.upload("kv_len", encodeInts(lengths))
	if err != nil {
		return s, err
	}
	s.kvLen = runtime.Dense(kvLen.Ptr, runtime.S32, int64(batch))
	if s.buffer, err = dev.alloc("schedule", d.ScheduleBytes(batch, splits)); err != nil {
		return s, err
	}
	err = d.Schedule(dev.stream, runtime.ScheduleArgs{Batch: batch, Splits: splits, KVLen: s.kvLen, Buffer: s.buffer})
	if err != nil {
		return s, err
	}
	if err := dev.stream.Synchronize(); err != nil {
		return s, err
	}
	m := d.Kernels()[scheduleKernel].Manifest
	if s.sections, err = findSections(dev, m, s.buffer); err != nil {
		return s, err
	}
	s.contents, err = s.sections.download(dev)
	return s, err
}
