package gen_test

import (
	"encoding/binary"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/mlagen/mlagen/gen"
	"github.com/mlagen/mlagen/ptx/isa"
	"github.com/mlagen/mlagen/ptx/manifest"
)

// TestTable: threads read the row they ask for, fields by name; integers keep
// 64 bits, and addresses lead to their arrays.
func TestTable(t *testing.T) {
	r := newRig(t, 32)
	k := r.k
	k.Scalar("before", isa.U32) // so that the table does not lie at offset 0
	table := k.Table("table", 8, "at", "high")
	if table.Rows() != 8 {
		t.Errorf("%d rows, want 8", table.Rows())
	}
	var raw [128]byte
	for i := range 8 {
		words := each(4, func(j int) uint32 { return uint32(100*i + j) })
		binary.LittleEndian.PutUint64(raw[16*i:], r.upload("array", words))
		binary.LittleEndian.PutUint64(raw[16*i+8:], uint64(i)<<40)
	}
	r.maps["table"] = raw
	lane := k.Lane()
	row := table.Row(lane.Rem(8))
	sum := row.Pointer("at", isa.U32).At(lane.Div(8)).Load(0).Add(row.Int("high").Shr(36).Truncate().As(isa.U32))
	r.mine().Store(0, sum)
	want := each(32, func(i int) uint32 { return uint32(100*(i%8) + i/8 + i%8<<4) })
	out := r.build()
	if diff := cmp.Diff(want, r.execute(out, 32)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(manifest.Param{Name: "table", Kind: manifest.TableParam, Type: "u64", Size: 128, Align: 8, Offset: 16}, out.Manifest.Params[2]); diff != "" {
		t.Errorf("manifest (-want +got):\n%s", diff)
	}
}

func TestTableMisuse(t *testing.T) {
	k := gen.NewKernel("k", nil)
	k.Threads(32)
	k.Table("empty", 0, "field")
	k.Table("table", 4, "field").Row(k.Lane()).Int("other")
	_, err := k.Build()
	if err == nil {
		t.Fatal("it builds")
	}
	for _, want := range []string{`table "empty" has 0 rows of 1 fields`, `table "table" has no field "other"`, "table_test.go:"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%v\ndoes not say %s", err, want)
		}
	}
}

// TestUnpack is the inverse of Pack.
func TestUnpack(t *testing.T) {
	for _, d := range []gen.DType{gen.BF16, gen.FP16} {
		r := newRig(t, 32)
		k := r.k
		x := k.Lane().ToFloat().Sub(10.0)
		lo, hi := k.Unpack(d, k.Pack(d, x, x.Mul(0.5)))
		// Both are exact in either type: the lane's number, minus 10, and half of it.
		wrong := lo.Ne(x).Or(hi.Ne(x.Mul(0.5)))
		r.mine().Store(0, k.Select(wrong, k.Int(1), k.Int(0)).As(isa.U32))
		if diff := cmp.Diff(make([]uint32, 32), r.run(32)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", d.Name, diff)
		}
	}
}
