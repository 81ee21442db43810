package check

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"

	"github.com/mlagen/mlagen/golden/dtype"
	"github.com/mlagen/mlagen/golden/oracle"
	"github.com/mlagen/mlagen/runtime"
)

// hostDriver is device memory in host memory; it loads and launches nothing.
type hostDriver struct {
	runtime.Driver
	attributes runtime.Attributes
	blocks     []block
	next       runtime.Ptr
	freed      int
	room       int // the allocation that fails, counted from 1; 0 = none
}

type block struct {
	at   runtime.Ptr
	data []byte
}

func newHostDriver() *hostDriver {
	return &hostDriver{next: 1 << 20, attributes: runtime.Attributes{MemoryBytes: 4 << 30, GraphCapture: true}}
}

func (d *hostDriver) Name() string                   { return "host" }
func (d *hostDriver) Attributes() runtime.Attributes { return d.attributes }

func (d *hostDriver) Alloc(name string, size int64) (runtime.Ptr, error) {
	if d.room--; d.room == 0 {
		return 0, fmt.Errorf("allocate %q, %d bytes (1 of 2 bytes free)", name, size)
	}
	at := d.next
	d.blocks = append(d.blocks, block{at, make([]byte, size)})
	d.next += runtime.Ptr(size+4096) &^ 255
	return at, nil
}

func (d *hostDriver) Free(runtime.Ptr) error { d.freed++; return nil }

// at returns n bytes of memory from p on.
func (d *hostDriver) at(p runtime.Ptr, n int64) []byte {
	i, _ := slices.BinarySearchFunc(d.blocks, p+1, func(b block, p runtime.Ptr) int {
		if b.at < p {
			return -1
		}
		return 1
	})
	b := d.blocks[i-1]
	return b.data[p-b.at:][:n]
}

func (d *hostDriver) Upload(dst runtime.Ptr, src []byte) error {
	copy(d.at(dst, int64(len(src))), src)
	return nil
}

func (d *hostDriver) Download(dst []byte, src runtime.Ptr) error {
	copy(dst, d.at(src, int64(len(dst))))
	return nil
}

func (d *hostDriver) Fill(dst runtime.Ptr, value byte, size int64) error {
	b := d.at(dst, size)
	for i := range b {
		b[i] = value
	}
	return nil
}

func (d *hostDriver) NewStream() (runtime.Stream, error) { return &hostStream{}, nil }

// hostStream captures functions instead of launches.
type hostStream struct {
	runtime.Stream
	capturing bool
	captured  hostGraph
}

type hostGraph []func() error

func (hostGraph) Destroy() error { return nil }

func (s *hostStream) do(f func() error) error {
	if s.capturing {
		s.captured = append(s.captured, f)
		return nil
	}
	return f()
}

func (s *hostStream) Synchronize() error  { return nil }
func (s *hostStream) Destroy() error      { return nil }
func (s *hostStream) BeginCapture() error { s.capturing = true; return nil }
func (s *hostStream) EndCapture() (runtime.Graph, error) {
	s.capturing = false
	return s.captured, nil
}
func (s *hostStream) Replay(g runtime.Graph) error {
	for _, f := range g.(hostGraph) {
		if err := f(); err != nil {
			return err
		}
	}
	return nil
}

// fakeDecoder decodes with the oracle from what lies in memory, and then
// spoils the outcome as told.
type fakeDecoder struct {
	d     *hostDriver
	call  *decodeCall
	runs  int
	spoil func(f *fakeDecoder, out, lse []byte)
	fail  error
}

func (f *fakeDecoder) sizes() (int64, int64) { return 100, 1000 }

func (f *fakeDecoder) run(s runtime.Stream, schedule, workspace buffer) error {
	if f.fail != nil {
		return f.fail
	}
	return s.(*hostStream).do(f.compute)
}

func (f *fakeDecoder) compute() error {
	f.runs++
	in, c := f.call.in, f.call.in.Case
	bytesOf := func(b buffer) []byte { return f.d.at(b.ptr, b.size) }
	read := func(raw []byte, t dtype.Type, first, n int) []float32 {
		return t.Decode(nil, raw[first*t.Size():(first+n)*t.Size()])
	}
	var kvLen []int
	for raw := bytesOf(f.call.kvLen); len(raw) > 0; raw = raw[4:] {
		kvLen = append(kvLen, int(int32(binary.LittleEndian.Uint32(raw))))
	}
	table, kv, q := bytesOf(f.call.table), bytesOf(f.call.kv), bytesOf(f.call.q)
	m := c.Model
	p := &oracle.Decode[float32]{
		Heads: m.Heads, QLen: in.QLen, Latent: m.Latent, Rope: m.Rope, Scale: c.SoftmaxScale(), Causal: c.Causal, KVLen: kvLen,
		Q: func(request, token, head int) []float32 {
			row := (request*in.QLen+token)*m.Heads + head
			if c.Layout.Q == "split" {
				l, r := f.call.qRows, f.call.ropeRows
				return append(read(q, c.DType, l.place(row)*l.pitch(), m.Latent), read(bytesOf(f.call.qRope), c.DType, r.place(row)*r.pitch(), m.Rope)...)
			}
			return read(q, c.DType, f.call.qRows.place(row)*f.call.qRows.pitch(), m.Record())
		},
		Row: oracle.Pages(c.PageSize,
			func(request, index int) int64 {
				return int64(int32(binary.LittleEndian.Uint32(table[4*(request*in.Width+index):])))
			},
			func(page int64, slot int) []float32 {
				return read(kv, c.DType, int(page*c.PageStride())+slot*c.RowStride(), m.Record())
			}),
	}
	r := p.Run()
	out, lse := bytesOf(f.call.out), bytesOf(f.call.lse)
	for i := range r.LSE {
		row := make([]float32, m.Latent)
		for j, v := range r.Row(i) {
			row[j] = float32(v)
		}
		copy(out[f.call.rows.place(i)*f.call.rows.pitch()*c.DType.Size():], c.DType.Encode(nil, row))
		l := r.LSE[i]
		if c.LSEBase == "2" {
			l /= math.Ln2
		}
		binary.LittleEndian.PutUint32(lse[4*i:], math.Float32bits(float32(l)))
	}
	if f.spoil != nil {
		f.spoil(f, out, lse)
	}
	return nil
}

// fake returns a runner whose decodes are spoilt.
func fake(d *hostDriver, spoil func(f *fakeDecoder, out, lse []byte)) *Runner {
	r := New(Options{Driver: d})
	r.open = func(call *decodeCall) (decoder, error) {
		return &fakeDecoder{d: d, call: call, spoil: spoil}, nil
	}
	return r
}
