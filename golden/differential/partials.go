package differential

import (
	"fmt"
	"math"

	"github.com/mlagen/mlagen/golden/dtype"
	"github.com/mlagen/mlagen/templates"
)

// form is how decode's partial results lie in the workspace. It says once more,
// in its own words, what package templates does: outputs in vectors of 16 bytes
// as the threads held them, all threads side by side; and of each row a state for
// each share of it (what one warp holds, or with rows on wgmma's M one
// warpgroup), its LSE and the unit that the share's elements are counted in.
type form struct {
	elem       dtype.Type // fp16 in units, f32 where the result is fp16
	blocks     int        // row blocks
	rows       int        // of a row block
	latent     int
	warpgroups int  // each has an equal run of latent columns
	onM        bool // wgmma's M are query rows and N latent columns, not the other way round
}

const (
	vectorBytes = 16
	warpThreads = 32
	groupWarps  = 4  // of a warpgroup
	mostOnN     = 40 // query rows of a block that lie on wgmma's N
	onMRows     = 64 // of wgmma's M
	stateWords  = 2  // LSE and unit
)

// The largest element of a share is so many units; they cannot be smaller than
// leastUnit, that of elements which are all 0.
const (
	fewestUnits = 1 << 14
	mostUnits   = 1 << 15
	leastUnit   = 0x1p-126
)

func formOf(spec templates.Spec) form {
	spec = spec.WithDefaults()
	f := form{elem: dtype.FP16, blocks: spec.RowBlocks(), rows: spec.BlockH, latent: spec.Latent, warpgroups: max(1, spec.Teams)}
	if dtype.Type(spec.DType) == dtype.FP16 {
		f.elem = dtype.F32
	}
	if spec.BlockH > mostOnN {
		f.onM, f.warpgroups = true, 2
	}
	return f
}

// paddedRows are a slot's rows, elements and states the size of its two parts.
func (f form) paddedRows() int { return f.blocks * f.rows }
func (f form) elements() int   { return f.paddedRows() * f.latent }
func (f form) states() int     { return f.shares() * f.paddedRows() * stateWords }

// shares returns over how many states a row's elements are spread.
func (f form) shares() int {
	if f.onM {
		return f.warpgroups
	}
	return f.warpgroups * groupWarps
}

// state returns where in a slot's states that of a share of a row is.
func (f form) state(share, row int) int { return (share*f.paddedRows() + row) * stateWords }

// each visits the elements of a slot in the order in which they lie there, and
// tells which row, latent column and share they belong to.
func (f form) each(visit func(at, row, column, share int)) {
	perVector := vectorBytes / f.elem.Size()
	threads := f.warpgroups * groupWarps * warpThreads
	at := 0
	for block := range f.blocks {
		for vector := range f.rows * f.latent / (threads * perVector) {
			for thread := range threads {
				for e := range perVector {
					row, column, share := f.place(vector, thread, e)
					visit(at, block*f.rows+row, column, share)
					at++
				}
			}
		}
	}
}

// place returns which row of its block, column and share an element of a thread's
// vector belongs to. A thread holds quads of a fragment: two neighbouring columns
// of wgmma's N, in two of its rows, M, that are eight apart.
func (f form) place(vector, thread, element int) (row, column, share int) {
	quad, e := f.quad(vector, element/4), element%4
	warp, lane := thread/warpThreads, thread%warpThreads
	group := warp / groupWarps
	perQuads := f.rows / 8 // of an accumulator, which has 64 rows
	if f.onM {
		perQuads = f.latent / f.warpgroups / 8
	}
	m := quad/perQuads*onMRows + warp%groupWarps*16 + lane/4 + e/2*8
	n := quad%perQuads*8 + lane%4*2 + e%2
	if f.onM {
		return m, group*f.latent/f.warpgroups + n, group
	}
	return n, group*f.latent/f.warpgroups + m, warp
}

// quad returns which of a thread's quads a vector has in first or second place:
// of f16 a vector has two, of the same rows, which with rows on wgmma's N are
// those of two accumulators.
func (f form) quad(vector, place int) int {
	if f.elem == dtype.F32 {
		return vector
	}
	apart := 1
	if !f.onM {
		apart = f.rows / 8
	}
	return vector/apart*2*apart + place*apart + vector%apart
}

// partial is what a slot holds, by its worth.
type partial struct {
	out [][]float32 // [padded row][latent]
	lse [][]float32 // [share][padded row]
}

// read returns a slot's worth, or an error where it is not as decode leaves it.
func (f form) read(elements, states []float32) (partial, error) {
	p := partial{make([][]float32, f.paddedRows()), make([][]float32, f.shares())}
	for row := range p.out {
		p.out[row] = make([]float32, f.latent)
	}
	top := make([][]float64, f.shares()) // in units
	for share := range p.lse {
		p.lse[share], top[share] = make([]float32, f.paddedRows()), make([]float64, f.paddedRows())
		for row := range p.lse[share] {
			p.lse[share][row] = states[f.state(share, row)]
			if a, b := p.lse[share][row], p.lse[0][row]; math.Float32bits(a) != math.Float32bits(b) {
				return p, fmt.Errorf("row %d has LSE %v in share %d and %v in share 0", row, a, share, b)
			}
		}
	}
	unit := func(share, row int) float32 { return states[f.state(share, row)+1] }
	f.each(func(at, row, column, share int) {
		p.out[row][column] = elements[at] * unit(share, row)
		top[share][row] = math.Max(top[share][row], math.Abs(float64(elements[at])))
	})
	for share := range top {
		for row, n := range top[share] {
			if err := f.checkUnit(unit(share, row), n); err != nil {
				return p, fmt.Errorf("row %d, share %d: %w", row, share, err)
			}
		}
	}
	return p, nil
}

// checkUnit is an error where elements of which the largest is so many units are
// not counted in them.
func (f form) checkUnit(unit float32, largest float64) error {
	switch fraction, _ := math.Frexp(float64(unit)); {
	case f.elem == dtype.F32 && unit != 1:
		return fmt.Errorf("the unit of f32 elements is %v", unit)
	case f.elem == dtype.F32:
	case fraction != 0.5 || unit < leastUnit:
		return fmt.Errorf("the unit is %v", unit)
	case !(largest <= mostUnits) || largest < fewestUnits && unit > leastUnit:
		return fmt.Errorf("the largest element is %v units of %v", largest, unit)
	}
	return nil
}
