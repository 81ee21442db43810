package golden_test

import (
	"math/rand/v2"
	"testing"

	"github.com/mlagen/mlagen/golden/dtype"
	"github.com/mlagen/mlagen/runtime"
	"github.com/mlagen/mlagen/runtime/emu"
)

// uploader allocates and fills a test's tensors on the emulator.
type uploader struct {
	t      *testing.T
	driver *emu.Driver
	r      *rand.Rand
}

// put uploads bytes, of which there may be none.
func (u uploader) put(name string, data []byte) runtime.Ptr {
	u.t.Helper()
	at, err := u.driver.Alloc(name, max(16, int64(len(data))))
	must(u.t, err)
	must(u.t, u.driver.Upload(at, data))
	return at
}

// random uploads a dense tensor of normally distributed elements.
func (u uploader) random(name string, t runtime.DType, shape ...int64) runtime.Tensor {
	u.t.Helper()
	n := int64(1)
	for _, d := range shape {
		n *= d
	}
	x := make([]float32, n)
	for i := range x {
		x[i] = float32(u.r.NormFloat64())
	}
	return runtime.Dense(u.put(name, dtype.Type(t).Encode(nil, x)), t, shape...)
}

// ints uploads integers.
func (u uploader) ints(name string, x ...int32) runtime.Tensor {
	u.t.Helper()
	return runtime.Dense(u.put(name, words(x)), runtime.S32, int64(len(x)))
}
