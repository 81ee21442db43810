// Command decode is a decode step of multi-head latent attention, from kernels
// that the program embeds: two requests attend, with 8 heads, to a paged cache.
// It runs on the emulator, so no GPU is needed; with a driver of runtime/cuda
// the rest stays as it is.
package main

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log"
	"math"
	"math/rand/v2"
	"os"

	"github.com/mlagen/mlagen/runtime"
	"github.com/mlagen/mlagen/runtime/emu"
)

// In a module of your own, after go get -tool github.com/mlagen/mlagen/cmd/mlagen,
// this is: go tool mlagen bind -op decode -heads 8
//
//go:generate go run github.com/mlagen/mlagen/cmd/mlagen bind -op decode -heads 8

const (
	heads  = 8
	latent = 512
	width  = latent + 64 // of a query and of a cache row: latent and rope key
	page   = 64          // tokens
	pages  = 4
	scale  = 0.0722 // 1/sqrt(128+64): of the head before absorption
)

// step is what a model knows before a decode step.
type step struct {
	kvLen  []int32   // tokens in each request's cache, the new one included
	table  [][]int32 // page ids, a row per request
	query  []float32 // [request][head][width]
	cache  []float32 // [page][slot][width]
	output []float32 // [request][head][latent], filled by run
	lse    []float32 // [request][head], filled by run
}

func newStep() *step {
	s := &step{
		kvLen: []int32{100, 37},
		table: [][]int32{{3, 1}, {0, -1}}, // entries past a request's last page are never read
	}
	random := rand.New(rand.NewPCG(1, 2))
	fill := func(n int) []float32 {
		x := make([]float32, n)
		for i := range x {
			x[i] = float32(random.IntN(128)-64) / 64 // bf16 holds it exactly
		}
		return x
	}
	s.query, s.cache = fill(len(s.kvLen)*heads*width), fill(pages*page*width)
	return s
}

// run executes the step on a device.
func (s *step) run(drv runtime.Driver) (err error) {
	decode, err := LoadMLADecodeH8(drv)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, decode.Close()) }()
	stream, err := drv.NewStream()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stream.Destroy()) }()

	const planned = 0 // splits: the schedule balances the work
	batch := len(s.kvLen)
	b := int64(batch)
	m := memory{Driver: drv}
	lengths := runtime.Dense(m.put("kv_len", s.kvLen), runtime.S32, b)
	schedule := m.room("schedule", decode.ScheduleBytes(batch, planned))
	args := runtime.DecodeArgs{
		Batch: batch, Splits: planned, Scale: scale,
		Q:          runtime.Dense(m.put("q", bf16(s.query)), runtime.BF16, b, 1, heads, width),
		KV:         runtime.Dense(m.put("kv", bf16(s.cache)), runtime.BF16, pages, page, width),
		BlockTable: runtime.Dense(m.put("block_table", s.table[0], s.table[1]), runtime.S32, b, int64(len(s.table[0]))),
		KVLen:      lengths,
		Schedule:   schedule,
		Workspace:  m.room("workspace", decode.WorkspaceBytes(batch, planned)),
		Out:        runtime.Dense(m.room("out", 2*b*heads*latent).Ptr, runtime.BF16, b, 1, heads, latent),
		LSE:        runtime.Dense(m.room("lse", 4*b*heads).Ptr, runtime.F32, b, 1, heads),
	}
	defer func() { err = errors.Join(err, m.free()) }()
	if m.err != nil {
		return m.err
	}

	// One schedule serves every layer of the model; Run is once per layer.
	if err := decode.Schedule(stream, runtime.ScheduleArgs{Batch: batch, Splits: planned, KVLen: lengths, Buffer: schedule}); err != nil {
		return err
	}
	if err := decode.Run(stream, args); err != nil {
		return err
	}
	if err := stream.Synchronize(); err != nil {
		return err
	}
	out := make([]uint16, b*heads*latent)
	s.lse = make([]float32, b*heads)
	m.get(out, args.Out.Ptr)
	m.get(s.lse, args.LSE.Ptr)
	s.output = make([]float32, len(out))
	for i, bits := range out {
		s.output[i] = math.Float32frombits(uint32(bits) << 16)
	}
	return m.err
}

// print writes the first numbers of every request.
func (s *step) print(w io.Writer) {
	for r, n := range s.kvLen {
		fmt.Fprintf(w, "request %d, %d tokens, head 0: out %.4f…, lse %.4f\n",
			r, n, s.output[r*heads*latent:][:4], s.lse[r*heads])
	}
}

// memory allocates on a device and remembers the first error.
type memory struct {
	runtime.Driver
	owned []runtime.Ptr
	err   error
}

// room returns n bytes.
func (m *memory) room(name string, n int64) runtime.Buffer {
	if m.err != nil {
		return runtime.Buffer{}
	}
	var p runtime.Ptr
	if p, m.err = m.Alloc(name, n); m.err == nil {
		m.owned = append(m.owned, p)
	}
	return runtime.Buffer{Ptr: p, Bytes: n}
}

// put returns the place of a copy of the values.
func (m *memory) put(name string, values ...any) runtime.Ptr {
	var raw []byte
	for _, v := range values {
		var err error
		if raw, err = binary.Append(raw, binary.LittleEndian, v); err != nil {
			m.err = errors.Join(m.err, err)
		}
	}
	b := m.room(name, int64(len(raw)))
	if m.err == nil {
		m.err = m.Upload(b.Ptr, raw)
	}
	return b.Ptr
}

// get reads values back.
func (m *memory) get(values any, from runtime.Ptr) {
	raw := make([]byte, binary.Size(values))
	if m.err == nil {
		m.err = m.Download(raw, from)
	}
	if m.err == nil {
		_, m.err = binary.Decode(raw, binary.LittleEndian, values)
	}
}

// free gives everything back.
func (m *memory) free() error {
	var all []error
	for _, p := range m.owned {
		all = append(all, m.Free(p))
	}
	return errors.Join(all...)
}

// bf16 returns the upper halves of values that bf16 holds exactly.
func bf16(x []float32) []uint16 {
	bits := make([]uint16, len(x))
	for i, v := range x {
		bits[i] = uint16(math.Float32bits(v) >> 16)
	}
	return bits
}

func main() {
	drv, err := emu.Open(emu.Options{})
	if err != nil {
		log.Fatal(err)
	}
	s := newStep()
	if err := errors.Join(s.run(drv), drv.Close()); err != nil {
		log.Fatal(err)
	}
	s.print(os.Stdout)
}
