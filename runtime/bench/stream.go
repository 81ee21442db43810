package bench

import (
	"errors"

	"github.com/mlagen/mlagen/runtime"
)

// streamPages bounds the pages of one bandwidth measurement: 4.8 GB.
const streamPages = 65_536

// Bandwidth reads scattered pages of the pool through the copy engine and
// returns the terabytes per second: what decode is held against on this card,
// today.
func (b *Bench) Bandwidth() (tbps float64, err error) {
	k, err := runtime.Load(b.Driver, b.Config.Stream)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, k.Unload()) }()
	m := &memory{drv: b.Driver}
	defer func() { err = errors.Join(err, m.free()) }()
	pages := b.take(min(streamPages, b.pages))
	list, err := m.upload("pages", encodeInts(pages))
	if err != nil {
		return 0, err
	}
	grid := max(1, b.Driver.Attributes().SMs)
	sink, err := m.alloc("sink", int64(grid)*4)
	if err != nil {
		return 0, err
	}
	kv, err := k.EncodeTensorMap("kv", b.pool, []uint64{record, pageTokens, uint64(b.pages)}, []uint64{recordBytes, pageBytes})
	if err != nil {
		return 0, err
	}
	p := k.NewParams().TensorMap("kv", &kv).Pointer("pages", list).Int("count", int64(len(pages))).Pointer("sink", sink)
	w, err := b.prepare(func() error { return k.Launch(b.stream, runtime.Dim3{X: grid}, p, true) })
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, w.close()) }()
	times, err := b.bursts(w, 1+max(1, b.Replays))
	if err != nil {
		return 0, err
	}
	return float64(len(pages)) * pageBytes / median(times[1:]) / 1e6, nil
}
