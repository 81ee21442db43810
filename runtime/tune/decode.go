package tune

import (
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/mlagen/mlagen/runtime"
)

// Decode runs decode steps as choices say: it holds every kernel that they name,
// and for a step picks one by its load. Like runtime.Decode it allocates nothing
// per call, never waits for the device and must not be called concurrently.
//
// What decides is on the host and known when a step is captured: batch and the
// longest request, or their capacities. A graph that was captured for a load may be
// replayed with any other lengths; results are right with every choice.
type Decode struct {
	source  runtime.Source
	model   Model
	sms     int
	choices *Choices // nil where defaults are all there is
	ignored error
	loaded  map[runtime.DecodeShape]*runtime.Decode
	first   map[int]Choice // by s_q: the source's choice without knowing the load
}

// LoadDecode loads what decode takes for a model with the given numbers of query
// tokens per request, compiled side by side where the driver can. The source may
// be asked for several kernels at once. choices may be nil; those that were made
// for another card, driver, generator or model, or for kernels with another text,
// are not used, and Ignored says why.
func LoadDecode(drv runtime.Driver, src runtime.Source, choices *Choices, model Model, sqs ...int) (*Decode, error) {
	if drv == nil || src == nil || len(sqs) == 0 {
		return nil, errors.New("tuned decode: driver, source and s_q must be given")
	}
	d := &Decode{source: src, model: model, sms: max(1, drv.Attributes().SMs), first: map[int]Choice{}}
	var shapes []runtime.DecodeShape
	for _, sq := range sqs {
		shapes = append(shapes, model.shape(sq, Choice{}))
	}
	if choices != nil {
		shapes = choices.shapes(model, shapes)
	}
	variants, errs := generate(src, shapes[:min(len(shapes), mostVariants+1)])
	if err := errors.Join(errs[:len(sqs)]...); err != nil {
		return nil, fmt.Errorf("tuned decode: %w", err)
	}
	if choices != nil {
		if d.ignored = d.holds(drv, choices, shapes, variants, errors.Join(errs...)); d.ignored == nil {
			if err := d.load(drv, shapes, variants); err != nil {
				d.ignored = &StaleError{err.Error()}
			} else {
				d.choices = choices
			}
		}
	}
	if d.choices == nil {
		if err := d.load(drv, shapes[:len(sqs)], variants[:len(sqs)]); err != nil {
			return nil, fmt.Errorf("tuned decode: %w", err)
		}
	}
	for _, sq := range sqs {
		r := d.loaded[model.shape(sq, Choice{})]
		d.first[sq] = Choice{BlockH: r.Model().BlockH}
		d.loaded[model.shape(sq, d.first[sq])] = r
	}
	return d, nil
}

// shapes adds what the choices need to shapes.
func (c *Choices) shapes(m Model, shapes []runtime.DecodeShape) []runtime.DecodeShape {
	own := len(shapes)
	for i := range c.Buckets {
		b := &c.Buckets[i]
		if !slices.ContainsFunc(shapes[:own], func(s runtime.DecodeShape) bool { return s.SQ == b.SQ }) {
			continue
		}
		needed := []Choice{b.Choice}
		if c.Invariant {
			needed = append(needed, Choice{BlockH: b.Choice.BlockH, Teams: b.Choice.Teams}) // for loads that no bucket is near
		}
		for _, n := range needed {
			if s := m.shape(b.SQ, n); !slices.Contains(shapes, s) {
				shapes = append(shapes, s)
			}
		}
	}
	return shapes
}

// load loads variants, equal ones once: the source's own choice is among the others
// as a rule.
func (d *Decode) load(drv runtime.Driver, shapes []runtime.DecodeShape, variants []runtime.DecodeVariants) error {
	var distinct []runtime.DecodeVariants
	at := make([]int, len(shapes))
	for i, v := range variants {
		at[i] = slices.IndexFunc(distinct, func(w runtime.DecodeVariants) bool { return same(v, w) })
		if at[i] < 0 {
			at[i] = len(distinct)
			distinct = append(distinct, v)
		}
	}
	decodes, err := runtime.LoadDecodes(drv, distinct)
	if err != nil {
		return err
	}
	d.loaded = map[runtime.DecodeShape]*runtime.Decode{}
	for i, s := range shapes {
		d.loaded[s] = decodes[at[i]]
	}
	return nil
}

// generate has the source make kernels for shapes, side by side.
func generate(src runtime.Source, shapes []runtime.DecodeShape) (variants []runtime.DecodeVariants, errs []error) {
	variants, errs = make([]runtime.DecodeVariants, len(shapes)), make([]error, len(shapes))
	var group sync.WaitGroup
	for i, s := range shapes {
		group.Go(func() { variants[i], errs[i] = src.Decode(s) })
	}
	group.Wait()
	return variants, errs
}

// same reports whether variants have the same texts.
func same(a, b runtime.DecodeVariants) bool {
	sum := func(v runtime.DecodeVariants) (s [3]string) {
		for i, k := range []runtime.Variant{v.Decode, v.Schedule, v.Combine} {
			s[i] = string(k.PTX)
		}
		return s
	}
	return sum(a) == sum(b)
}

// mostVariants bounds what a file can have compiled.
const mostVariants = 64

// holds reports why choices do not hold here.
func (d *Decode) holds(drv runtime.Driver, c *Choices, shapes []runtime.DecodeShape, variants []runtime.DecodeVariants, missing error) error {
	if len(variants) > mostVariants {
		return &StaleError{fmt.Sprintf("they name %d kernels, more than %d", len(variants), mostVariants)}
	}
	if missing != nil {
		return &StaleError{missing.Error()}
	}
	tool := c.Tool
	if m := variants[0].Decode.Manifest; m != nil {
		tool = m.Tool
	}
	if err := c.Fits(CardOf(drv), d.model, tool); err != nil {
		return err
	}
	for i, v := range variants {
		now := identifyVariants(shapes[i], v)
		for _, was := range c.Kernels {
			if was.SHA256 = now.SHA256; was == now && !slices.Contains(c.Kernels, now) {
				return &StaleError{fmt.Sprintf("the kernels with s_q %d and row block %d are others than were timed", now.SQ, now.BlockH)}
			}
		}
	}
	return nil
}

// Ignored says why the choices are not used, nil where they are or where none were
// given.
func (d *Decode) Ignored() error { return d.ignored }

// Kernels returns the loaded kernels.
func (d *Decode) Kernels() (kernels []*runtime.Kernel) {
	for _, r := range d.each() {
		kernels = append(kernels, r.Kernels()...)
	}
	return kernels
}

// each lists the loaded decodes once.
func (d *Decode) each() (all []*runtime.Decode) {
	for _, r := range d.loaded {
		if !slices.Contains(all, r) {
			all = append(all, r)
		}
	}
	return all
}

// Close unloads the kernels. None of them may be running.
func (d *Decode) Close() error {
	var errs []error
	for _, r := range d.each() {
		errs = append(errs, r.Close())
	}
	clear(d.loaded)
	return errors.Join(errs...)
}

// Step is how a step is run: by which kernels, and cut how.
type Step struct {
	Choice Choice
	decode *runtime.Decode
}

// Step picks what a load is run with: the choice of the nearest bucket, or, where
// none is near, the source's default among the loaded kernels. Schedule and Run of
// one step must be the same Step's.
func (d *Decode) Step(l Load) (Step, error) {
	if d.choices != nil {
		if c, ok := d.choices.Lookup(l); ok {
			if r := d.loaded[d.model.shape(l.SQ, c)]; r != nil {
				return Step{c, r}, nil
			}
		}
	}
	c, ok := d.first[l.SQ]
	if !ok {
		return Step{}, fmt.Errorf("tuned decode: s_q was %d, must be one that was loaded", l.SQ)
	}
	if chooser, ok := d.source.(runtime.Chooser); ok {
		liked := Choice{BlockH: chooser.BlockH(d.model.shape(l.SQ, Choice{}), l.Batch, l.mean(), d.sms)}
		if r := d.loaded[d.model.shape(l.SQ, liked)]; r != nil {
			return Step{liked, r}, nil
		}
	}
	return Step{c, d.loaded[d.model.shape(l.SQ, c)]}, nil
}

// Decode returns the decode that the step runs with.
func (s Step) Decode() *runtime.Decode { return s.decode }

// Schedule is runtime.Decode.Schedule, with the step's splits in place of a's.
func (s Step) Schedule(stream runtime.Stream, a runtime.ScheduleArgs) error {
	if s.decode == nil {
		return errors.New("tuned decode: the step was not made by Decode.Step")
	}
	a.Splits = s.Choice.Splits
	return s.decode.Schedule(stream, a)
}

// Run is runtime.Decode.Run, with the step's splits and tuning in place of a's.
func (s Step) Run(stream runtime.Stream, a runtime.DecodeArgs) error {
	if s.decode == nil {
		return errors.New("tuned decode: the step was not made by Decode.Step")
	}
	a.Splits, a.Tuning = s.Choice.Splits, s.Choice.Tuning()
	return s.decode.Run(stream, a)
}

// ScheduleBytes returns the size of a schedule buffer for any step of up to batch
// requests.
func (d *Decode) ScheduleBytes(batch int) int64 {
	return d.most(batch, (*runtime.Decode).ScheduleBytes)
}

// WorkspaceBytes returns the size of a workspace for any step of up to batch
// requests.
func (d *Decode) WorkspaceBytes(batch int) int64 {
	return d.most(batch, (*runtime.Decode).WorkspaceBytes)
}

// most returns the largest size that a step may need.
func (d *Decode) most(batch int, size func(r *runtime.Decode, batch, splits int) int64) (bytes int64) {
	for _, r := range d.loaded {
		bytes = max(bytes, size(r, batch, 0))
	}
	if d.choices == nil {
		return bytes
	}
	for i := range d.choices.Buckets {
		b := &d.choices.Buckets[i]
		r := d.loaded[d.model.shape(b.SQ, b.Choice)]
		if r == nil || b.Choice.Splits == 0 {
			continue
		}
		reach := min(batch, b.Batch) // forced pieces serve no larger batch
		if d.choices.Invariant {
			reach = batch
		}
		bytes = max(bytes, size(r, reach, b.Choice.Splits))
	}
	return bytes
}
