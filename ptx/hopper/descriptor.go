package hopper

// Descriptor is a shared-memory matrix descriptor, the 64-bit operand by which
// wgmma finds A or B in shared memory. PTX manual,
// #asynchronous-warpgroup-level-matrix-shared-memory-layout-matrix-descriptor.
type Descriptor struct {
	Start        uint32 // shared-memory address in bytes, a multiple of 16
	LeadingBytes uint32 // leading dimension byte offset (LBO)
	StrideBytes  uint32 // stride dimension byte offset (SBO)
	BaseOffset   uint8  // 0 when the tile is aligned to the swizzle's AtomBytes
	Swizzle      Swizzle
}

const (
	// FieldMask is what a descriptor has room for of an address or an offset: 18
	// bits, of which the low 4 are not kept.
	FieldMask = 0x3FFFF

	leadingShift    = 16
	strideShift     = 32
	baseOffsetShift = 49
	swizzleShift    = 62
)

// field is the manual's matrix-descriptor-encode.
func field(x uint32) uint64 { return uint64(x&FieldMask) >> 4 }

// Encode returns the descriptor's bits. Bits that a field has no room for are
// dropped, as the manual's formula does; Validate reports them.
func (d Descriptor) Encode() uint64 {
	return field(d.Start) |
		field(d.LeadingBytes)<<leadingShift |
		field(d.StrideBytes)<<strideShift |
		uint64(d.BaseOffset&7)<<baseOffsetShift |
		d.Swizzle.DescriptorCode()<<swizzleShift
}

// DecodeDescriptor returns the descriptor that bits encode.
func DecodeDescriptor(bits uint64) Descriptor {
	offset := func(shift int) uint32 { return uint32(bits>>shift&(FieldMask>>4)) << 4 }
	return Descriptor{
		Start:        offset(0),
		LeadingBytes: offset(leadingShift),
		StrideBytes:  offset(strideShift),
		BaseOffset:   uint8(bits >> baseOffsetShift & 7),
		Swizzle:      swizzleOfCode(bits >> swizzleShift),
	}
}

// Validate reports a field that cannot be encoded, or a base offset: every
// tile of this code base is aligned to its swizzle's repeat, and the address
// maps below hold for base offset 0 only.
func (d Descriptor) Validate() error {
	for _, f := range []struct {
		name string
		v    uint32
	}{{"Start", d.Start}, {"LeadingBytes", d.LeadingBytes}, {"StrideBytes", d.StrideBytes}} {
		if f.v%16 != 0 || f.v > FieldMask {
			return wrong("descriptor "+f.name, f.v, "a multiple of 16 below 262144")
		}
	}
	if d.BaseOffset != 0 {
		return wrong("descriptor BaseOffset", d.BaseOffset, "0: align the tile to %d bytes", d.Swizzle.AtomBytes())
	}
	if d.Swizzle > Swizzle128 {
		return wrong("descriptor Swizzle", uint8(d.Swizzle), "a known mode")
	}
	return nil
}

// KMajorAddress returns the shared-memory address of element (mn, k) of an
// operand whose K elements are contiguous (imm-trans 0); mn is M for A and N
// for B. Canonical layouts, in bytes, T = 16/elemBytes:
//
//	none     row mn%8 of a core matrix is 16 bytes; SBO steps 8 rows, LBO steps T of k
//	swizzled row mn%8 is RowBytes wide; SBO steps 8 rows, LBO is unused
func (d Descriptor) KMajorAddress(mn, k, elemBytes int) uint32 {
	row, group, byteK := uint32(mn%8), uint32(mn/8), uint32(k*elemBytes)
	addr := d.Start + row*uint32(d.Swizzle.RowBytes()) + group*d.StrideBytes
	if d.Swizzle == SwizzleNone {
		return addr + byteK/16*d.LeadingBytes + byteK%16
	}
	return d.Swizzle.Apply(addr + byteK)
}

// MNMajorAddress returns the shared-memory address of element (mn, k) of an
// operand whose M or N elements are contiguous (imm-trans 1, 16-bit elements
// only). Canonical layouts, in bytes:
//
//	none     16 bytes of mn by 8 of k; SBO steps 16 bytes of mn, LBO steps 8 of k
//	swizzled RowBytes of mn by 8 of k; LBO steps RowBytes of mn, SBO steps 8 of k
func (d Descriptor) MNMajorAddress(mn, k, elemBytes int) uint32 {
	width := uint32(d.Swizzle.RowBytes())
	byteMN := uint32(mn * elemBytes)
	block, within := byteMN/width, byteMN%width
	row, group := uint32(k%8), uint32(k/8)
	addr := d.Start + within + row*width
	if d.Swizzle == SwizzleNone {
		return addr + block*d.StrideBytes + group*d.LeadingBytes
	}
	return d.Swizzle.Apply(addr + block*d.LeadingBytes + group*d.StrideBytes)
}
