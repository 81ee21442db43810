package main

import (
	"errors"
	"fmt"

	"github.com/mlagen/mlagen/runtime"
)

// poison is what pages hold that nobody has written, and from the moment that
// their owner leaves: in bf16, NaN.
const poison = 0xff

// engine has the kernels, the memory and the cache.
type engine struct {
	config
	driver runtime.Driver
	stream runtime.Stream
	begin  runtime.Event // of a replay
	end    runtime.Event

	decode   *runtime.Decode
	appendKV *runtime.AppendKV
	splits   int
	model    *model

	pool    *pagePool
	buckets []*bucket // by capacity
	owned   []runtime.Ptr

	// Device memory.
	cache, in, out, prompt, promptSlots runtime.Ptr
	schedule, workspace                 runtime.Buffer
}

// newEngine prepares for all batches that the configuration allows. Nothing is
// allocated afterwards.
func newEngine(drv runtime.Driver, c *config) (*engine, error) {
	e := &engine{config: *c, driver: drv, model: newModel(c.seed), pool: newPagePool(c.pages, c.seed)}
	if err := e.prepare(); err != nil {
		return nil, errors.Join(err, e.close())
	}
	return e, nil
}

// prepare makes what the engine uses; what is there when it fails is for close.
func (e *engine) prepare() (err error) {
	if e.decode, e.appendKV, e.splits, err = loadKernels(e.driver, &e.config); err != nil {
		return err
	}
	if e.stream, err = e.driver.NewStream(); err != nil {
		return err
	}
	if e.begin, err = e.driver.NewEvent(); err != nil {
		return err
	}
	if e.end, err = e.driver.NewEvent(); err != nil {
		return err
	}
	return e.allocate()
}

// allocate makes the buckets, powers of two up to the capacity, and the memory
// that they share.
func (e *engine) allocate() error {
	width := pagesOf(e.context())
	for n := 1; n < e.capacity; n *= 2 {
		e.buckets = append(e.buckets, newBucket(n, e.heads, width))
	}
	largest := newBucket(e.capacity, e.heads, width)
	e.buckets = append(e.buckets, largest)

	for _, b := range e.buckets {
		e.schedule.Bytes = max(e.schedule.Bytes, e.decode.ScheduleBytes(b.capacity, e.splits))
		e.workspace.Bytes = max(e.workspace.Bytes, e.decode.WorkspaceBytes(b.capacity, e.splits))
	}
	for _, m := range []struct {
		to    *runtime.Ptr
		name  string
		bytes int64
	}{
		{&e.cache, "cache", int64(e.pages) * pageBytes},
		{&e.in, "inputs", int64(len(largest.in))},
		{&e.out, "outputs", int64(len(largest.out))},
		{&e.prompt, "prompt", int64(e.config.prompt) * rowBytes},
		{&e.promptSlots, "prompt slots", int64(e.config.prompt) * 8},
		{&e.schedule.Ptr, "schedule", e.schedule.Bytes},
		{&e.workspace.Ptr, "workspace", e.workspace.Bytes},
	} {
		p, err := e.driver.Alloc(m.name, m.bytes)
		if err != nil {
			return err
		}
		*m.to = p
		e.owned = append(e.owned, p)
	}
	return e.driver.Fill(e.cache, poison, int64(e.pages)*pageBytes)
}

// close gives everything back.
func (e *engine) close() error {
	var all []error
	for _, b := range e.buckets {
		if b.graph != nil {
			all = append(all, b.graph.Destroy())
		}
	}
	for _, event := range []runtime.Event{e.begin, e.end} {
		if event != nil {
			all = append(all, event.Destroy())
		}
	}
	if e.stream != nil {
		all = append(all, e.stream.Destroy())
	}
	for _, p := range e.owned {
		all = append(all, e.driver.Free(p))
	}
	if e.appendKV != nil {
		all = append(all, e.appendKV.Close())
	}
	if e.decode != nil {
		all = append(all, e.decode.Close())
	}
	return errors.Join(all...)
}

// mode says for people how requests are cut.
func (e *engine) mode() string {
	switch e.splits {
	case 0:
		return "work balanced over the device"
	case 1:
		return "batch-invariant: requests in 1 piece"
	}
	return fmt.Sprintf("batch-invariant: requests in up to %d pieces", e.splits)
}

// bucket returns the smallest that holds so many requests.
func (e *engine) bucket(requests int) *bucket {
	for _, b := range e.buckets {
		if b.capacity >= requests {
			return b
		}
	}
	panic("more requests than the capacity were admitted")
}

// store writes rows of the cache into their slots.
func (e *engine) store(rows, slots runtime.Ptr, tokens int) error {
	n, strides := int64(tokens), []int64{row, 1}
	return e.appendKV.Run(e.stream, runtime.AppendArgs{
		Latent:  runtime.Tensor{Ptr: rows, DType: runtime.BF16, Shape: []int64{n, latent}, Strides: strides},
		RopeKey: runtime.Tensor{Ptr: rows + latent*element, DType: runtime.BF16, Shape: []int64{n, rope}, Strides: strides},
		KV:      runtime.Dense(e.cache, runtime.BF16, int64(e.pages), page, row),
		Slots:   runtime.Dense(slots, runtime.S64, n),
	})
}

// launch is a step: distribute the work, store the new tokens' rows, attend.
func (e *engine) launch(b *bucket) error {
	n, heads := int64(b.capacity), int64(e.heads)
	lengths := runtime.Dense(e.in+b.lengths.offset, runtime.S32, n)
	err := e.decode.Schedule(e.stream, runtime.ScheduleArgs{Batch: b.capacity, Splits: e.splits, KVLen: lengths, Buffer: e.schedule})
	if err != nil {
		return err
	}
	// A model with more layers stores and runs once for each; the schedule is the same.
	if err := e.store(e.in+b.record.offset, e.in+b.slots.offset, b.capacity); err != nil {
		return err
	}
	return e.decode.Run(e.stream, runtime.DecodeArgs{
		Batch: b.capacity, Splits: e.splits, Scale: softmaxScale,
		Q:          runtime.Dense(e.in+b.query.offset, runtime.BF16, n, 1, heads, row),
		KV:         runtime.Dense(e.cache, runtime.BF16, int64(e.pages), page, row),
		BlockTable: runtime.Dense(e.in+b.tables.offset, runtime.S32, n, int64(b.width)),
		KVLen:      lengths,
		NewTokens:  1, // which store has just written; prompts were stored before Schedule
		Schedule:   e.schedule,
		Workspace:  e.workspace,
		Out:        runtime.Dense(e.out+b.output.offset, runtime.BF16, n, 1, heads, latent),
		LSE:        runtime.Dense(e.out+b.lse.offset, runtime.F32, n, 1, heads),
	})
}

// replay runs the bucket's step, which is captured the first time, from inputs
// to outputs. It returns the microseconds that the kernels took.
func (e *engine) replay(b *bucket) (microseconds float64, err error) {
	if err := e.driver.Upload(e.in, b.in); err != nil {
		return 0, err
	}
	if b.graph == nil {
		if err := e.stream.BeginCapture(); err != nil {
			return 0, err
		}
		launched := e.launch(b)
		graph, err := e.stream.EndCapture()
		if launched != nil && err == nil {
			err = graph.Destroy()
		}
		if err := errors.Join(launched, err); err != nil {
			return 0, err
		}
		b.graph = graph
	}
	if err := e.stream.Record(e.begin); err != nil {
		return 0, err
	}
	if err := e.stream.Replay(b.graph); err != nil {
		return 0, err
	}
	if err := e.stream.Record(e.end); err != nil {
		return 0, err
	}
	if err := e.stream.Synchronize(); err != nil {
		return 0, err
	}
	if err := e.driver.Download(b.out, e.out); err != nil {
		return 0, err
	}
	return e.end.Since(e.begin)
}
