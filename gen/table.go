package gen

import (
	"slices"

	"github.com/mlagen/mlagen/ptx"
	"github.com/mlagen/mlagen/ptx/isa"
	"github.com/mlagen/mlagen/ptx/manifest"
)

// Table is a parameter that holds rows of 64-bit fields by value: descriptions
// of a varying number of tensors, which a launch carries with it, so that none
// of them has to lie in device memory.
type Table struct {
	k      *Kernel
	name   string
	rows   int
	fields []string
}

// tableWord is the size of a field.
const tableWord = 8

// Table declares a table parameter of so many rows. The host fills it row by
// row, in the order of the fields.
func (k *Kernel) Table(name string, rows int, fields ...string) Table {
	if rows < 1 || len(fields) == 0 {
		k.errorf("table %q has %d rows of %d fields", name, rows, len(fields))
		rows, fields = 1, []string{""}
	}
	words := rows * len(fields)
	k.addParam(name, manifest.TableParam, "u64", &ptx.Parameter{Name: name, Type: isa.B8, Align: tableWord, Count: words * tableWord})
	return Table{k, name, rows, fields}
}

// Rows returns how many rows the table has.
func (t Table) Rows() int { return t.rows }

// TableRow is one row of a table.
type TableRow struct {
	t    Table
	base Value // address in parameter memory
}

// Row returns the row of the given index, which must be one of the table's.
func (t Table) Row(index Value) TableRow {
	start := t.k.apply(isa.S64, "mov.b64", ptx.Symbol(t.name))
	return TableRow{t, start.Add(index.MulWide(len(t.fields) * tableWord))}
}

func (r TableRow) read(field string, as isa.Type) Value {
	i := slices.Index(r.t.fields, field)
	if i < 0 {
		r.t.k.errorf("table %q has no field %q", r.t.name, field)
		i = 0
	}
	return r.t.k.apply(as, "ld.param.b64", ptx.Addr{Base: r.base.op, Offset: int64(i * tableWord)})
}

// Int returns a field that is a signed integer.
func (r TableRow) Int(field string) Value { return r.read(field, isa.S64) }

// Pointer returns a field that is the address of an array of elem in global
// memory.
func (r TableRow) Pointer(field string, elem isa.Type) Pointer {
	raw := r.read(field, isa.U64)
	return Pointer{k: r.t.k, elem: elem, base: r.t.k.apply(isa.U64, "cvta.to.global.u64", raw.op)}
}
