package bench

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/mlagen/mlagen/runtime"
)

// ScheduleResult is what was measured of the schedule kernel.
type ScheduleResult struct {
	Shape
	Setting
	Microseconds float64 // per call, median of the bursts
	Spread       float64 // (slowest−fastest)/median of the bursts
	Calls        int     // per replay
	Parts        int     // into which the device is cut
	Pieces       int     // of requests, over all parts
}

// scheduleCalls are the calls of a replay, one after another.
const scheduleCalls = 256

// Schedule times the schedule kernel alone: calls for the same batch, each of
// which begins when the one before has ended, so that a call's launch inside a
// graph is part of its time. Lengths and schedule lie in the L2, where the
// step before leaves them. A schedule that does not cover its requests, or
// changes from replay to replay, is an error.
func (b *Bench) Schedule(s Shape, set Setting) (r ScheduleResult, err error) {
	r = ScheduleResult{Shape: s, Setting: set, Calls: scheduleCalls}
	m := &memory{drv: b.Driver}
	defer func() { err = errors.Join(err, m.free()) }()
	if err := b.timeSchedule(&r, m); err != nil {
		return r, fmt.Errorf("schedule of %v: %w", s, err)
	}
	return r, nil
}

func (b *Bench) timeSchedule(r *ScheduleResult, m *memory) (err error) {
	d, err := b.decode(r.Shape, r.Setting)
	if err != nil {
		return err
	}
	r.BlockH, r.Parts = d.Model().BlockH, d.Parts()
	lengths := r.Lengths()
	kvLen, err := m.upload("kv_len", encodeInts(lengths))
	if err != nil {
		return err
	}
	buffer, err := b.buffer(m, "schedule", d.ScheduleBytes(r.Batch, r.Splits))
	if err != nil {
		return err
	}
	if err := b.Driver.Fill(buffer.Ptr, 0xff, buffer.Bytes); err != nil {
		return err
	}
	args := runtime.ScheduleArgs{Batch: r.Batch, Splits: r.Splits, KVLen: runtime.Dense(kvLen, runtime.S32, int64(r.Batch)), Buffer: buffer}
	w, err := b.prepare(func() error {
		for range r.Calls {
			if err := d.Schedule(b.stream, args); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.close()) }()

	if _, err := b.bursts(w, 1); err != nil {
		return err
	}
	first := make([]byte, buffer.Bytes)
	if err := b.Driver.Download(first, buffer.Ptr); err != nil {
		return err
	}
	pieces, err := d.Pieces(first, r.Batch, r.Splits)
	if err == nil {
		err = runtime.CheckPieces(pieces, tiles(lengths))
	}
	if err != nil {
		return &WrongError{err.Error()}
	}
	r.Pieces = len(pieces)
	times, err := b.bursts(w, max(1, b.Replays))
	if err != nil {
		return err
	}
	r.Microseconds, r.Spread = median(times)/float64(r.Calls), spread(times)
	again := make([]byte, len(first))
	if err := b.Driver.Download(again, buffer.Ptr); err != nil {
		return err
	}
	if !bytes.Equal(first, again) {
		return &WrongError{"the last replay's schedule differs from the first's"}
	}
	return nil
}

// tiles returns the pages of each request.
func tiles(lengths []int32) []int {
	n := make([]int, len(lengths))
	for i, l := range lengths {
		n[i] = int(pagesOf(l))
	}
	return n
}
