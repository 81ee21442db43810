package hopper

// Swizzle is the pattern in which 16-byte chunks of a shared-memory tile are
// permuted, so that eight rows of one column touch all banks.
// PTX manual, #asynchronous-warpgroup-level-matrix-shared-memory-layout.
type Swizzle uint8

// The swizzle modes of sm_90, named after the width in bytes of a tile row.
const (
	SwizzleNone Swizzle = iota
	Swizzle32
	Swizzle64
	Swizzle128
)

// SwizzleOf returns the mode whose Bytes is n: 0, 32, 64 or 128.
func SwizzleOf(n int) (Swizzle, error) {
	for s := SwizzleNone; s <= Swizzle128; s++ {
		if s.Bytes() == n {
			return s, nil
		}
	}
	return SwizzleNone, wrong("swizzle", n, "0, 32, 64 or 128 bytes")
}

// String returns "none", "32B", "64B" or "128B".
func (s Swizzle) String() string { return [...]string{"none", "32B", "64B", "128B"}[s] }

// Bytes returns the width of the mode as manifests write it: 0 for none.
func (s Swizzle) Bytes() int { return [...]int{0, 32, 64, 128}[s] }

// RowBytes returns the bytes of one row of the canonical layout: the mode's
// width, and 16 (one row of a core matrix) without a swizzle.
func (s Swizzle) RowBytes() int { return 16 << s }

// AtomBytes returns the bytes after which the pattern repeats, eight rows of
// RowBytes: 128 (none), 256, 512, 1024. A tile is aligned to it.
func (s Swizzle) AtomBytes() int { return 8 * s.RowBytes() }

// Apply returns the address at which the byte that an unswizzled tile would
// keep at addr lies. The pattern is a function of absolute address bits: bits
// 7 and up are xored into bits 4 and up, one, two or three of them. Apply is
// its own inverse.
func (s Swizzle) Apply(addr uint32) uint32 {
	mask := uint32(1)<<s - 1
	return addr ^ (addr>>7&mask)<<4
}

// DescriptorCode is the value of bits 63–62 of a matrix descriptor. It counts
// the other way round than MapCode.
func (s Swizzle) DescriptorCode() uint64 { return [...]uint64{0, 3, 2, 1}[s] }

// MapCode is the value of CUtensorMapSwizzle in cuda.h.
func (s Swizzle) MapCode() int { return int(s) }

// swizzleOfCode is the inverse of DescriptorCode.
func swizzleOfCode(code uint64) Swizzle {
	return [...]Swizzle{SwizzleNone, Swizzle128, Swizzle64, Swizzle32}[code&3]
}
