package hopper

// Tile is a matrix in shared memory as tensor-map boxes lay it: the columns,
// contiguous in global memory, are cut into blocks of Swizzle.RowBytes, and
// each block keeps all rows, one after another. A 64×576 bf16 tile with the
// 128-byte swizzle is nine blocks of 64 rows by 64 columns.
type Tile struct {
	Rows      int // a multiple of 8
	Columns   int // a multiple of BlockColumns
	ElemBytes int // 1, 2 or 4
	Swizzle   Swizzle
}

// Validate reports a shape that whole blocks cannot cover.
func (t Tile) Validate() error {
	switch {
	case t.Swizzle > Swizzle128:
		return wrong("tile swizzle", uint8(t.Swizzle), "a known mode")
	case t.ElemBytes != 1 && t.ElemBytes != 2 && t.ElemBytes != 4:
		return wrong("tile element bytes", t.ElemBytes, "1, 2 or 4")
	case t.Rows <= 0 || t.Rows%8 != 0:
		return wrong("tile rows", t.Rows, "a positive multiple of 8")
	case t.Columns <= 0 || t.Columns%t.BlockColumns() != 0:
		return wrong("tile columns", t.Columns, "a positive multiple of %d (%d bytes)", t.BlockColumns(), t.Swizzle.RowBytes())
	}
	return nil
}

// BlockColumns returns the columns of one block, which is one box.
func (t Tile) BlockColumns() int { return t.Swizzle.RowBytes() / t.ElemBytes }

// Blocks returns the number of column blocks.
func (t Tile) Blocks() int { return t.Columns / t.BlockColumns() }

// BlockBytes returns the bytes of one column block.
func (t Tile) BlockBytes() int { return t.Rows * t.Swizzle.RowBytes() }

// Bytes returns the bytes of the whole tile.
func (t Tile) Bytes() int { return t.Blocks() * t.BlockBytes() }

// Box returns the tensor-map box of one block, innermost first.
func (t Tile) Box() []int { return []int{t.BlockColumns(), t.Rows} }

// Offset returns the byte offset of element (row, column) from the tile's
// start, the swizzle applied. The start is aligned to Swizzle.AtomBytes.
func (t Tile) Offset(row, column int) int {
	return int(t.Swizzle.Apply(uint32(t.linear(row, column))))
}

// linear is Offset before the swizzle. A descriptor's start moves by it, since
// the hardware applies the swizzle to the sum.
func (t Tile) linear(row, column int) int {
	block, within := column/t.BlockColumns(), column%t.BlockColumns()
	return block*t.BlockBytes() + row*t.Swizzle.RowBytes() + within*t.ElemBytes
}

// View is a reading of a tile as a wgmma operand. The two views of one tile
// share its bytes: K-major takes rows as M or N and columns as K; MN-major
// takes rows as K and columns as M or N (imm-trans 1).
type View struct {
	Tile
	MNMajor      bool
	LeadingBytes int // LBO
	StrideBytes  int // SBO
}

// KMajor returns the view with rows as M or N and columns as K.
//
// With a swizzle SBO is AtomBytes (the next eight rows) and LBO is unused; it
// is set to 16, which encodes as the 1 that the manual assumes. Without one,
// SBO is 128 and LBO the bytes of a 16-byte column block.
func KMajor(t Tile) (View, error) {
	if err := t.Validate(); err != nil {
		return View{}, err
	}
	v := View{Tile: t, StrideBytes: t.Swizzle.AtomBytes(), LeadingBytes: 16}
	if t.Swizzle == SwizzleNone {
		v.LeadingBytes = t.BlockBytes()
	}
	return v, nil
}

// MNMajor returns the view with rows as K and columns as M or N.
//
// With a swizzle SBO is AtomBytes (the next eight of K) and LBO the bytes
// between adjacent column blocks. Without one the two change places. The
// elements must be 16 bits wide: wgmma transposes no others.
func MNMajor(t Tile) (View, error) {
	if err := t.Validate(); err != nil {
		return View{}, err
	}
	if t.ElemBytes != 2 {
		return View{}, wrong("element bytes of an MN-major operand", t.ElemBytes, "2")
	}
	v := View{Tile: t, MNMajor: true, StrideBytes: t.Swizzle.AtomBytes(), LeadingBytes: t.BlockBytes()}
	if t.Swizzle == SwizzleNone {
		v.StrideBytes, v.LeadingBytes = v.LeadingBytes, v.StrideBytes
	}
	return v, nil
}

// Descriptor returns the view's descriptor for a tile that starts at the
// shared-memory address start; 0 gives the constant part, to which the
// generated code adds (start+Step)>>4.
func (v View) Descriptor(start uint32) Descriptor {
	return Descriptor{
		Start:        start,
		LeadingBytes: uint32(v.LeadingBytes),
		StrideBytes:  uint32(v.StrideBytes),
		Swizzle:      v.Swizzle,
	}
}

// Step returns the bytes to add to the start so that the operand begins at
// element (mn, k) of the tile. With the 128-byte swizzle and 16-bit elements,
// 16 of k are 32 bytes K-major (within the atom) and 2048 bytes MN-major.
//
// k is a multiple of 16 bytes K-major and of 8 MN-major; mn is a multiple of 8
// K-major and of BlockColumns MN-major. Others have no descriptor.
func (v View) Step(mn, k int) (int, error) {
	mnUnit, kUnit := 8, 16/v.ElemBytes
	row, column := mn, k
	if v.MNMajor {
		mnUnit, kUnit = v.BlockColumns(), 8
		row, column = k, mn
	}
	switch {
	case mn < 0 || mn%mnUnit != 0:
		return 0, wrong("operand offset in M or N", mn, "a multiple of %d", mnUnit)
	case k < 0 || k%kUnit != 0:
		return 0, wrong("operand offset in K", k, "a multiple of %d", kUnit)
	case row >= v.Rows || column >= v.Columns:
		return 0, wrong("operand offset (row, column)", [2]int{row, column}, "inside %d×%d", v.Rows, v.Columns)
	}
	return v.linear(row, column), nil
}

// Address returns the address that wgmma reads for element (mn, k) of the
// operand that d describes in this view's major-ness.
func (v View) Address(d Descriptor, mn, k int) uint32 {
	if v.MNMajor {
		return d.MNMajorAddress(mn, k, v.ElemBytes)
	}
	return d.KMajorAddress(mn, k, v.ElemBytes)
}
