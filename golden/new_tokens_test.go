package golden_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/mlagen/mlagen/golden/dtype"
	"github.com/mlagen/mlagen/golden/faults"
	"github.com/mlagen/mlagen/runtime"
	"github.com/mlagen/mlagen/runtime/emu"
	"github.com/mlagen/mlagen/templates"
)

// TestNewTokens: in a step that appends tokens and attends, and whose appending
// kernel lets decode start early, the promise that these are the only ones since
// the schedule changes no bit, and nothing is read before it is there. A broken
// promise is found by the observers, and so is a kernel that reads too much.
func TestNewTokens(t *testing.T) {
	appendKV, err := buildVariant("append-kv", templates.Spec{})
	must(t, err)
	for _, spec := range []templates.Spec{{Heads: 3}, {Heads: 12}, {Heads: 40}, {Heads: 70}} { // of all families
		v, err := source{spec}.Decode(runtime.DecodeShape{Heads: spec.Heads, SQ: 1, Latent: 512, Rope: 64, Page: 64, DType: runtime.BF16})
		must(t, err)
		step := func(v runtime.DecodeVariants, written, promised int) ([]byte, error) {
			return appendAndAttend(t, v, appendKV, spec.Heads, written, promised)
		}
		t.Run(fmt.Sprintf("heads=%d", spec.Heads), func(t *testing.T) {
			for _, written := range []int{1, 3, 70} {
				cautious, err := step(v, written, 0)
				must(t, err)
				early, err := step(v, written, written)
				if err != nil {
					t.Errorf("%d new tokens, so many promised: %v", written, err)
				}
				if !bytes.Equal(cautious, early) {
					t.Errorf("%d new tokens: a promise changes the result", written)
				}
			}
			if _, err := step(v, 70, 1); err == nil || !strings.Contains(err.Error(), "missing-grid-dependency") {
				t.Errorf("70 new tokens, 1 promised: not found: %v", err)
			}
			text, err := faults.Fault{Kernel: "absorb_decode", Pattern: `ld\.param\.b32 (%r\d+), \[new_tokens\];`, Replace: "mov.b32 $1, -63;"}.Plant(v.Decode.PTX)
			must(t, err)
			m, faulty := *v.Decode.Manifest, v
			m.PTXSHA256 = ""
			faulty.Decode = runtime.Variant{Name: "faulty", PTX: text, Manifest: &m}
			if _, err := step(faulty, 1, 1); err == nil || !strings.Contains(err.Error(), "missing-grid-dependency") {
				t.Errorf("a kernel that takes no heed of new tokens was not found: %v", err)
			}
		})
	}
}

// appendAndAttend runs a step of two requests, whose newest tokens it appends after
// the schedule was made, and returns the bytes of the output.
func appendAndAttend(t *testing.T, v runtime.DecodeVariants, appendKV runtime.Variant, heads, written, promised int) ([]byte, error) {
	t.Helper()
	driver, err := emu.Open(emu.Options{Programs: programs, SMs: 4})
	must(t, err)
	s, err := driver.NewStream()
	must(t, err)
	d, err := runtime.LoadDecode(driver, v)
	must(t, err)
	a, err := runtime.LoadAppendKV(driver, appendKV)
	must(t, err)
	defer func() { must(t, d.Close()); must(t, a.Close()) }()

	put := func(name string, data []byte) runtime.Ptr {
		at, err := driver.Alloc(name, int64(len(data)))
		must(t, err)
		must(t, driver.Upload(at, data))
		return at
	}
	r := rand.New(rand.NewPCG(1, 30))
	random := func(name string, shape ...int64) runtime.Tensor {
		n := int64(1)
		for _, d := range shape {
			n *= d
		}
		x := make([]float32, n)
		for i := range x {
			x[i] = float32(r.NormFloat64())
		}
		return runtime.Dense(put(name, dtype.BF16.Encode(nil, x)), runtime.BF16, shape...)
	}
	const pages, width = 8, 4
	lengths := []int32{256, max(40, int32(written))} // new tokens in a last page, which is full, and in a first
	table := []int32{3, 5, 0, 6, 2, 7, 1, 4}
	kvLen := runtime.Dense(put("kv_len", words(lengths)), runtime.S32, 2)
	schedule := runtime.Buffer{Bytes: d.ScheduleBytes(2, 0)}
	schedule.Ptr = put("schedule", make([]byte, schedule.Bytes))
	workspace := runtime.Buffer{Bytes: d.WorkspaceBytes(2, 0)}
	workspace.Ptr = put("workspace", make([]byte, workspace.Bytes))
	kv := random("kv", pages, 64, 576)
	out, lse := random("out", 2, 1, int64(heads), 512), put("lse", make([]byte, 2*heads*4))
	var slots []int64
	for i, n := range lengths {
		for token := int(n) - written; token < int(n); token++ {
			slots = append(slots, int64(table[i*width+token/64])*64+int64(token%64))
		}
	}
	latent, rope := random("latent", int64(len(slots)), 512), random("rope_key", int64(len(slots)), 64)
	q := random("q", 2, 1, int64(heads), 576)
	where := runtime.Dense(put("slots", encodeSlots(slots)), runtime.S64, int64(len(slots)))

	must(t, d.Schedule(s, runtime.ScheduleArgs{Batch: 2, KVLen: kvLen, Buffer: schedule}))
	must(t, a.Run(s, runtime.AppendArgs{Latent: latent, RopeKey: rope, KV: kv, Slots: where}))
	err = d.Run(s, runtime.DecodeArgs{
		Batch: 2, Q: q, KV: kv, BlockTable: runtime.Dense(put("block_table", words(table)), runtime.S32, 2, width), KVLen: kvLen, NewTokens: promised,
		Schedule: schedule, Workspace: workspace, Out: out, LSE: runtime.Dense(lse, runtime.F32, 2, 1, int64(heads)), Scale: 0.07,
	})
	if err == nil {
		err = s.Synchronize()
	}
	if err != nil {
		return nil, err
	}
	result := make([]byte, 2*heads*512*2)
	must(t, driver.Download(result, out.Ptr))
	return result, findings(driver)
}

func encodeSlots(x []int64) (b []byte) {
	for _, v := range x {
		b = binary.LittleEndian.AppendUint64(b, uint64(v))
	}
	return b
}
