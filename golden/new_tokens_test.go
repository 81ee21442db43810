package golden_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/mlagen/mlagen/golden/faults"
	"github.com/mlagen/mlagen/runtime"
	"github.com/mlagen/mlagen/runtime/emu"
	"github.com/mlagen/mlagen/templates"
)

// appendStep is a decode step as a model with layers makes it: the cache is filled
// by one kernel, the schedule is made, and for each layer another kernel, which lets
// the next start early, appends the newest tokens.
type appendStep struct {
	spec    templates.Spec
	splits  int
	sms     int
	layers  int
	lengths []int32
	shared  bool // the first page of all requests is one
	written int  // newest tokens of each request that are appended
	seed    uint64
}

// notFound reports that the observers did not find what is read too early.
func notFound(err error) bool {
	return err == nil || !strings.Contains(err.Error(), "missing-grid-dependency")
}

// decodeSource returns the kernels of the step's spec.
func (a appendStep) decodeSource() (runtime.DecodeVariants, error) {
	s := a.spec.WithDefaults()
	return source{a.spec}.Decode(runtime.DecodeShape{Heads: s.Heads, SQ: s.SQ, Latent: s.Latent, Rope: s.Rope, Page: s.Page, DType: runtime.DType(s.DType)})
}

// run executes the step with a promise and returns the bytes of outputs and LSEs.
func (a appendStep) run(t *testing.T, v runtime.DecodeVariants, promised int) (result []byte, err error) {
	t.Helper()
	spec := a.spec.WithDefaults()
	dt, sq, heads := runtime.DType(spec.DType), int64(spec.SQ), int64(spec.Heads)
	batch := len(a.lengths)
	driver, err := emu.Open(emu.Options{Programs: programs, SMs: a.sms, Seed: a.seed})
	must(t, err)
	s, err := driver.NewStream()
	must(t, err)
	d, err := runtime.LoadDecode(driver, v)
	must(t, err)
	appended, err := buildVariant("append-kv", templates.Spec{Latent: spec.Latent, Rope: spec.Rope, DType: spec.DType})
	must(t, err)
	k, err := runtime.LoadAppendKV(driver, appended)
	must(t, err)
	defer func() { err = errors.Join(err, d.Close(), k.Close(), s.Destroy(), driver.Close()) }()

	r := rand.New(rand.NewPCG(a.seed, 30))
	up := uploader{t, driver, r}
	random := func(name string, shape ...int64) runtime.Tensor { return up.random(name, dt, shape...) }
	table, width, pages := a.table(r)
	old, fresh := a.slots(table, width)
	store := func(kv runtime.Tensor, slots []int64) {
		if n := int64(len(slots)); n > 0 {
			must(t, k.Run(s, runtime.AppendArgs{Latent: random("latent", n, int64(spec.Latent)), RopeKey: random("rope_key", n, int64(spec.Rope)), KV: kv,
				Slots: runtime.Dense(up.put("slots", encodeSlots(slots)), runtime.S64, n)}))
		}
	}
	kvLen := up.ints("kv_len", a.lengths...)
	tables := runtime.Dense(up.put("block_table", words(table)), runtime.S32, int64(batch), int64(width))
	schedule := runtime.Buffer{Bytes: d.ScheduleBytes(batch, a.splits)}
	schedule.Ptr = up.put("schedule", make([]byte, schedule.Bytes))
	workspace := runtime.Buffer{Bytes: d.WorkspaceBytes(batch, a.splits)}
	workspace.Ptr = up.put("workspace", make([]byte, workspace.Bytes))
	var caches []runtime.Tensor
	for range a.layers {
		caches = append(caches, random("kv", int64(pages), int64(spec.Page), int64(spec.Width())))
		store(caches[len(caches)-1], old)
	}
	must(t, d.Schedule(s, runtime.ScheduleArgs{Batch: batch, Splits: a.splits, KVLen: kvLen, Buffer: schedule}))
	rows := int64(batch) * sq * heads
	results := map[runtime.Ptr]int64{}
	var order []runtime.Ptr
	for _, kv := range caches {
		q, out := random("q", int64(batch), sq, heads, int64(spec.Width())), random("out", int64(batch), sq, heads, int64(spec.Latent))
		lse := up.put("lse", make([]byte, 4*rows))
		store(kv, fresh)
		if err := d.Run(s, runtime.DecodeArgs{
			Batch: batch, Splits: a.splits, Q: q, KV: kv, BlockTable: tables, KVLen: kvLen, NewTokens: promised,
			Schedule: schedule, Workspace: workspace, Out: out, LSE: runtime.Dense(lse, runtime.F32, int64(batch), sq, heads), Scale: 0.07,
		}); err != nil {
			return nil, err
		}
		results[out.Ptr], results[lse] = rows*int64(spec.Latent)*dt.Bytes(), 4*rows
		order = append(order, out.Ptr, lse)
	}
	if err := s.Synchronize(); err != nil {
		return nil, err
	}
	for _, at := range order {
		part := make([]byte, results[at])
		must(t, driver.Download(part, at))
		result = append(result, part...)
	}
	return result, findings(driver)
}

// table returns a block table with its width and how many pages there are: scattered
// pages, and behind each request's last an entry that means nothing.
func (a appendStep) table(r *rand.Rand) (table []int32, width, pages int) {
	for _, n := range a.lengths {
		used := (max(0, int(n)) + 63) / 64
		width, pages = max(width, used+1), pages+used
	}
	pages++
	ids := r.Perm(pages)
	for _, n := range a.lengths {
		for p := range width {
			switch {
			case p*64 >= int(n):
				table = append(table, pick[int32](r, -1, math.MaxInt32, math.MinInt32, 1<<20))
			case p == 0 && a.shared:
				table = append(table, int32(ids[0]))
			default:
				table = append(table, int32(ids[len(ids)-1]))
				ids = ids[:len(ids)-1]
			}
		}
	}
	return table, width, pages
}

// slots returns the cache's slots of older tokens and of the newest, each once.
func (a appendStep) slots(table []int32, width int) (old, fresh []int64) {
	seen := map[int64]bool{}
	for _, newest := range []bool{true, false} {
		for i, n := range a.lengths {
			for token := range max(0, int(n)) {
				slot := int64(table[i*width+token/64])*64 + int64(token%64)
				if newest != (token >= int(n)-a.written) || seen[slot] {
					continue
				}
				seen[slot] = true
				if newest {
					fresh = append(fresh, slot)
				} else {
					old = append(old, slot)
				}
			}
		}
	}
	return old, fresh
}

func encodeSlots(x []int64) (b []byte) {
	for _, v := range x {
		b = binary.LittleEndian.AppendUint64(b, uint64(v))
	}
	return b
}

// TestNewTokens: a broken promise is found by the observers, and so is a kernel that
// reads too much.
func TestNewTokens(t *testing.T) {
	for _, spec := range []templates.Spec{{Heads: 3}, {Heads: 12}, {Heads: 40}, {Heads: 70}} { // of all families
		t.Run(fmt.Sprintf("heads=%d", spec.Heads), func(t *testing.T) {
			v, err := appendStep{spec: spec}.decodeSource()
			must(t, err)
			// New tokens in a last page, which is full, and in a first.
			a := appendStep{spec: spec, sms: 4, layers: 1, lengths: []int32{256, 70}, written: 70, seed: 1}
			if _, err := a.run(t, v, 1); notFound(err) {
				t.Errorf("70 new tokens, 1 promised: %v", err)
			}
			a.lengths, a.written = []int32{256, 40}, 1
			faulty := v
			faulty.Decode, err = withFault(v.Decode, faults.Fault{Kernel: "absorb_decode", Pattern: `ld\.param\.b32 (%r\d+), \[new_tokens\];`, Replace: "mov.b32 $1, -63;"})
			must(t, err)
			if _, err := a.run(t, faulty, 1); notFound(err) {
				t.Errorf("a kernel that takes no heed of new tokens: %v", err)
			}
			// One request's newest token is an older one of the other.
			a = appendStep{spec: spec, sms: 4, layers: 1, lengths: []int32{64, 101}, written: 1, shared: true, seed: 1}
			if _, err := a.run(t, v, 1); notFound(err) {
				t.Errorf("a page of two requests: %v", err)
			}
			if _, err := a.run(t, v, 101-63); err != nil {
				t.Errorf("a page of two requests, and as many promised as are new for either: %v", err)
			}
		})
	}
}

// TestNewTokensBorders: promising one token less than is new is found exactly where
// that token keeps a page from being read early.
func TestNewTokensBorders(t *testing.T) {
	for _, spec := range []templates.Spec{{Heads: 8}, {Heads: 24}, {Heads: 40}, {Heads: 64}, {Heads: 128, Cluster: 1}, {Heads: 4, SQ: 2, Rope: 128, DType: "fp16"}} {
		spec.Latent = 128
		s := spec.WithDefaults()
		v, err := appendStep{spec: spec}.decodeSource()
		must(t, err)
		for _, tokens := range []int{448, 449, 512, 1984, 1985} { // 7, 8, 8, 31 and 32 pages
			ahead, long := 1, 32
			if s.BlockH <= 16 {
				long = 8
			}
			if s.BlockH == 64 || (tokens+63)/64 >= long {
				ahead = 2
			}
			for _, settled := range []int{64*ahead - 1, 64 * ahead} {
				a := appendStep{spec: spec, splits: 1, sms: s.RowBlocks(), layers: 1, lengths: []int32{int32(tokens)}, written: tokens - settled, seed: 3}
				if _, err := a.run(t, v, a.written); err != nil {
					t.Errorf("%+v, %d tokens, %d of them old: %v", spec, tokens, settled, err)
				}
				if _, err := a.run(t, v, a.written-1); notFound(err) != (settled%64 == 0) {
					t.Errorf("%+v, %d tokens, %d of them old, and one more promised: %v", spec, tokens, settled, err)
				}
			}
		}
	}
}

// TestNewTokensDrawn: promises that hold change no bit, whatever the step.
func TestNewTokensDrawn(t *testing.T) {
	specs := []templates.Spec{
		{Heads: 3}, {Heads: 16, BlockH: 8}, {Heads: 16}, {Heads: 24}, {Heads: 32, BlockH: 16}, {Heads: 40}, {Heads: 40, Teams: 1}, {Heads: 70}, {Heads: 128, Cluster: 1},
		{Heads: 8, DType: "fp16"}, {Heads: 64, DType: "fp16"}, {Heads: 8, Latent: 128, Stages: 2}, {Heads: 16, Latent: 256}, {Heads: 64, Latent: 128}, {Heads: 40, Rope: 128},
		{Heads: 16, SQ: 2}, {Heads: 2, SQ: 7, BlockH: 8}, {Heads: 64, SQ: 2, Cluster: 1}, {Heads: 64, SQ: 4, Cluster: 2},
	}
	n := len(specs)
	if testing.Short() {
		n = len(specs) / 2
	}
	for i := range n {
		r := rand.New(rand.NewPCG(uint64(i), 99))
		a := appendStep{spec: specs[i%len(specs)], splits: pick(r, 0, 0, 0, 1, 2, 3, 5), layers: 1 + r.IntN(2), seed: r.Uint64()}
		s := a.spec.WithDefaults()
		a.sms, a.written = max(s.RowBlocks(), pick(r, 1, 2, 3, 4, 8, 13)), pick(r, 1, s.SQ, s.SQ+1, 63, 64, 65, 130)
		for range 1 + r.IntN(5) {
			w := a.written
			a.lengths = append(a.lengths, int32(pick(r, -1, math.MinInt32, 0, 1, w, w-1, w+63, w+64, w+65, w+127, w+128, 64, 128, 300, 64+r.IntN(500))))
		}
		v, err := a.decodeSource()
		must(t, err)
		cautious, err := a.run(t, v, 0)
		if err != nil {
			t.Fatalf("%+v: %v", a, err)
		}
		for _, promised := range []int{max(a.written, s.SQ), max(a.written, s.SQ) + r.IntN(130), math.MaxInt32} {
			if early, err := a.run(t, v, promised); err != nil || !bytes.Equal(cautious, early) {
				t.Errorf("%+v, %d promised: bits differ, or %v", a, promised, err)
			}
		}
	}
}
