package runtime_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"log"
	"math"
	"os"

	"github.com/mlagen/mlagen/runtime"
	"github.com/mlagen/mlagen/runtime/emu"
)

// kernel reads a generated kernel from files, as mlagen emit writes them.
func kernel(name string) runtime.Variant {
	ptx, err := os.ReadFile("../golden/ptx/" + name + ".ptx")
	if err != nil {
		log.Fatal(err)
	}
	manifest, err := os.ReadFile("../golden/ptx/" + name + ".json")
	if err != nil {
		log.Fatal(err)
	}
	v, err := runtime.ParseVariant(name, string(ptx), string(manifest))
	if err != nil {
		log.Fatal(err)
	}
	return v
}

// One request of three tokens attends with 16 heads. Its query is zero, so all
// tokens weigh the same: the output is their mean, the LSE the logarithm of 3. The
// step is captured as a graph and replayed with two tokens.
func ExampleDecode() {
	const heads, latent, width, page, batch = 16, 512, 576, 64, 1
	drv, err := emu.Open(emu.Options{}) // or cuda.Open(0)
	if err != nil {
		log.Fatal(err)
	}
	decode, err := runtime.LoadDecode(drv, runtime.DecodeVariants{
		Decode: kernel("absorb-decode-h16"), Schedule: kernel("decode-schedule"), Combine: kernel("decode-combine-h16"),
	})
	if err != nil {
		log.Fatal(err)
	}
	stream, err := drv.NewStream()
	if err != nil {
		log.Fatal(err)
	}

	// The engine's memory, for a capacity of one request and one page.
	alloc := func(name string, bytes int64) runtime.Buffer {
		p, err := drv.Alloc(name, bytes)
		if err == nil {
			err = drv.Fill(p, 0, bytes)
		}
		if err != nil {
			log.Fatal(err)
		}
		return runtime.Buffer{Ptr: p, Bytes: bytes}
	}
	upload := func(to runtime.Buffer, values any) {
		raw, err := binary.Append(nil, binary.LittleEndian, values)
		if err == nil {
			err = drv.Upload(to.Ptr, raw)
		}
		if err != nil {
			log.Fatal(err)
		}
	}
	q, cache := alloc("q", batch*heads*width*2), alloc("cache", page*width*2)
	lengths, table := alloc("kv_len", batch*4), alloc("block_table", batch*4)
	out, lse := alloc("out", batch*heads*latent*2), alloc("lse", batch*heads*4)
	schedule := alloc("schedule", decode.ScheduleBytes(batch, 0))
	workspace := alloc("workspace", decode.WorkspaceBytes(batch, 0))

	rows := make([]uint16, 3*width)
	for token := range 3 {
		for column := range latent {
			rows[token*width+column] = uint16(math.Float32bits(float32(1+token)) >> 16) // bf16
		}
	}
	upload(cache, rows)

	// The step, recorded.
	if err := stream.BeginCapture(); err != nil {
		log.Fatal(err)
	}
	kvLen := runtime.Dense(lengths.Ptr, runtime.S32, batch)
	planned := decode.Schedule(stream, runtime.ScheduleArgs{Batch: batch, KVLen: kvLen, Buffer: schedule})
	ran := decode.Run(stream, runtime.DecodeArgs{
		Batch: batch, Scale: 1 / float32(math.Sqrt(128+64)),
		Q:          runtime.Dense(q.Ptr, runtime.BF16, batch, 1, heads, width),
		KV:         runtime.Dense(cache.Ptr, runtime.BF16, 1, page, width),
		BlockTable: runtime.Dense(table.Ptr, runtime.S32, batch, 1),
		KVLen:      kvLen,
		Schedule:   schedule,
		Workspace:  workspace,
		Out:        runtime.Dense(out.Ptr, runtime.BF16, batch, 1, heads, latent),
		LSE:        runtime.Dense(lse.Ptr, runtime.F32, batch, 1, heads),
	})
	graph, err := stream.EndCapture()
	if err := errors.Join(planned, ran, err); err != nil {
		log.Fatal(err)
	}

	for _, tokens := range []int32{3, 2} {
		upload(lengths, []int32{tokens})
		if err := errors.Join(stream.Replay(graph), stream.Synchronize()); err != nil {
			log.Fatal(err)
		}
		raw := make([]byte, 4)
		if err := drv.Download(raw[2:], out.Ptr); err != nil { // bf16 is the upper half of f32
			log.Fatal(err)
		}
		mean := math.Float32frombits(binary.LittleEndian.Uint32(raw))
		if err := drv.Download(raw, lse.Ptr); err != nil {
			log.Fatal(err)
		}
		fmt.Printf("%d tokens: out %.1f, lse %.4f\n", tokens, mean, math.Float32frombits(binary.LittleEndian.Uint32(raw)))
	}
	// Output:
	// 3 tokens: out 2.0, lse 1.0986
	// 2 tokens: out 1.5, lse 0.6931
}

// A mistake is told by the argument's name before anything is launched.
func ExampleArgumentError() {
	drv, err := emu.Open(emu.Options{})
	if err != nil {
		log.Fatal(err)
	}
	decode, err := runtime.LoadDecode(drv, runtime.DecodeVariants{
		Decode: kernel("absorb-decode-h16"), Schedule: kernel("decode-schedule"), Combine: kernel("decode-combine-h16"),
	})
	if err != nil {
		log.Fatal(err)
	}
	stream, err := drv.NewStream()
	if err != nil {
		log.Fatal(err)
	}
	err = decode.Schedule(stream, runtime.ScheduleArgs{Batch: 4, KVLen: runtime.Dense(0x1000, runtime.S32, 3)})
	var mistake *runtime.ArgumentError
	if errors.As(err, &mistake) {
		fmt.Println("argument:", mistake.Argument)
	}
	fmt.Println(err)
	// Output:
	// argument: kv_len
	// decode schedule: kv_len: shape was [3], must be [batch 4]
}
