package check

import (
	"math"
	"path/filepath"
	"slices"

	"github.com/mlagen/mlagen/golden/cases"
)

// maxDumpElements bounds the dumped pool; of a larger one only the pages in
// use are written, renumbered.
const maxDumpElements = 16 << 20

// dumpedPool returns the cache as it is dumped, and the block table into it.
func dumpedPool(in *cases.Decode) (kv []float32, pages int64, table []int32) {
	pool := in.Pool
	pageSize := pool.PageSize * pool.Record
	pages, table = pool.Pages, in.Table
	place := func(i int) int64 { return pool.Used[i].ID }
	if pages*int64(pageSize) > maxDumpElements {
		pages = int64(len(pool.Used))
		place = func(i int) int64 { return int64(i) }
		table = slices.Clone(in.Table)
		for at, id := range table {
			for i, page := range pool.Used {
				if page.ID == int64(id) {
					table[at] = int32(i)
				}
			}
		}
	}
	kv = make([]float32, pages*int64(pageSize))
	for i := range kv {
		kv[i] = float32(math.NaN())
	}
	for i, page := range pool.Used {
		copy(kv[place(i)*int64(pageSize):], page.Values)
	}
	return kv, pages, table
}

// dumpDecode writes a decode case's inputs and outputs for other programs.
func dumpDecode(dir string, call *decodeCall, out, lse []float32) error {
	in, c := call.in, call.in.Case
	pool := in.Pool
	kv, pages, table := dumpedPool(in)
	batch, heads := len(in.KVLen), c.Model.Heads
	for _, a := range []struct {
		name  string
		shape []int
		data  []float32
	}{
		{"q", []int{batch, in.QLen, heads, pool.Record}, in.Q},
		{"kv", []int{int(pages), pool.PageSize, pool.Record}, kv},
		{"out", []int{batch, in.QLen, heads, c.Model.Latent}, out},
		{"lse", []int{batch, in.QLen, heads}, lse},
	} {
		if err := writeNPY(filepath.Join(dir, a.name+".npy"), a.shape, a.data); err != nil {
			return err
		}
	}
	if err := writeNPY(filepath.Join(dir, "block_table.npy"), []int{batch, in.Width}, table); err != nil {
		return err
	}
	return writeNPY(filepath.Join(dir, "kv_len.npy"), []int{batch}, in.KVLen)
}
