package bench

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
	goruntime "runtime"
	"sync"

	"github.com/mlagen/mlagen/runtime"
)

// block is random rows of a record each, laid end to end over and over in a
// device buffer: the host can tell the contents of any row without a copy of
// the buffer.
type block struct {
	rows int64
	data []byte // bf16
}

// newBlock draws rows rows of normally distributed bf16. A number of rows that
// shares no factor with a page's makes pages differ.
func newBlock(rows int64, deviation float64, seed uint64) block {
	b := block{rows, make([]byte, rows*recordBytes)}
	workers := int64(goruntime.GOMAXPROCS(0))
	var wg sync.WaitGroup
	const chunk = 1 << 10 // rows; the contents do not depend on the number of workers
	for w := range workers {
		wg.Go(func() {
			for c := w; c*chunk < rows; c += workers {
				r := rand.New(rand.NewPCG(seed, uint64(c)))
				part := b.data[c*chunk*recordBytes : min((c+1)*chunk, rows)*recordBytes]
				for i := 0; i < len(part); i += elementSize {
					binary.LittleEndian.PutUint16(part[i:], bf16(float32(r.NormFloat64()*deviation)))
				}
			}
		})
	}
	wg.Wait()
	return b
}

// row returns the values of a row of the buffer.
func (b block) row(i int64) []float32 {
	at := b.data[i%b.rows*recordBytes:]
	values := make([]float32, record)
	for j := range values {
		values[j] = math.Float32frombits(uint32(binary.LittleEndian.Uint16(at[j*elementSize:])) << 16)
	}
	return values
}

// element returns an element of the block.
func (b block) element(i int64) float32 {
	return math.Float32frombits(uint32(binary.LittleEndian.Uint16(b.data[i*elementSize:])) << 16)
}

// tile lays the block into size bytes of device memory. It copies on the
// device where the stream can.
func (b block) tile(drv runtime.Driver, s runtime.Stream, dst runtime.Ptr, size int64) error {
	length := int64(len(b.data))
	copier, onDevice := s.(runtime.Copier)
	for at := int64(0); at < size; at += length {
		n := min(length, size-at)
		var err error
		if at > 0 && onDevice {
			err = copier.CopyAsync(dst+runtime.Ptr(at), dst, n)
		} else {
			err = drv.Upload(dst+runtime.Ptr(at), b.data[:n])
		}
		if err != nil {
			return err
		}
	}
	return s.Synchronize()
}

// bf16 rounds to nearest, ties to even; x is finite.
func bf16(x float32) uint16 {
	bits := math.Float32bits(x)
	return uint16((bits + 0x7fff + bits>>16&1) >> 16)
}

func encodeInts(x []int32) []byte {
	b := make([]byte, 0, 4*len(x))
	for _, v := range x {
		b = binary.LittleEndian.AppendUint32(b, uint32(v))
	}
	return b
}
