package hopper

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestDescriptorBits(t *testing.T) {
	// Bits written out by hand from the manual's table: start 13–0, leading
	// 29–16, stride 45–32, base offset 51–49, swizzle 63–62, all offsets in 16
	// bytes.
	for _, c := range []struct {
		name string
		d    Descriptor
		bits uint64
	}{
		{"zero", Descriptor{}, 0},
		{"start", Descriptor{Start: 0x400}, 0x40},
		{"largest start", Descriptor{Start: 0x3FFF0}, 0x3FFF},
		{"leading", Descriptor{LeadingBytes: 16}, 1 << 16},
		{"stride", Descriptor{StrideBytes: 1024}, 64 << 32},
		{"base offset", Descriptor{BaseOffset: 7}, 7 << 49},
		{"128B", Descriptor{Swizzle: Swizzle128}, 1 << 62},
		{"64B", Descriptor{Swizzle: Swizzle64}, 1 << 63},
		{"32B", Descriptor{Swizzle: Swizzle32}, 3 << 62},
		{"K-major query", Descriptor{Start: 0x12400, LeadingBytes: 16, StrideBytes: 1024, Swizzle: Swizzle128}, 0x4000004000011240},
		{"MN-major value", Descriptor{Start: 0x400, LeadingBytes: 8192, StrideBytes: 1024, Swizzle: Swizzle128}, 0x4000004002000040},
	} {
		if got := c.d.Encode(); got != c.bits {
			t.Errorf("%s: Encode = %#x, want %#x", c.name, got, c.bits)
		}
		if diff := cmp.Diff(c.d, DecodeDescriptor(c.bits)); diff != "" {
			t.Errorf("%s: %s", c.name, diff)
		}
	}
	// A window address has bits above the 18 that count.
	if got := (Descriptor{Start: 0x1000400}).Encode(); got != 0x40 {
		t.Errorf("high address bits: Encode = %#x, want 0x40", got)
	}
}

func TestDescriptorValidate(t *testing.T) {
	good := Descriptor{Start: 1024, LeadingBytes: 16, StrideBytes: 1024, Swizzle: Swizzle128}
	if err := good.Validate(); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		change func(*Descriptor)
		want   string
	}{
		{func(d *Descriptor) { d.Start = 8 }, "descriptor Start: was 8, must be a multiple of 16"},
		{func(d *Descriptor) { d.StrideBytes = 1 << 18 }, "descriptor StrideBytes: was 262144"},
		{func(d *Descriptor) { d.LeadingBytes = 1 }, "descriptor LeadingBytes: was 1"},
		{func(d *Descriptor) { d.BaseOffset = 2 }, "align the tile to 1024 bytes"},
		{func(d *Descriptor) { d.Swizzle = 9 }, "descriptor Swizzle: was 9"},
	} {
		d := good
		c.change(&d)
		if err := d.Validate(); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("Validate = %v, want %q", err, c.want)
		}
	}
}

// TestCanonicalLayouts holds the address maps against the manual's table of
// canonical layouts, quoted in its notation: T = 128/bits, offsets in elements.
func TestCanonicalLayouts(t *testing.T) {
	const unbounded = 1 << 20
	for _, c := range []struct {
		name    string
		swizzle Swizzle
		mnMajor bool
		mn, k   func(T, sbo, lbo int) []mode
	}{
		{"none MN", SwizzleNone, true,
			func(T, sbo, lbo int) []mode { return []mode{{T, 1}, {1, T}, {unbounded, sbo}} },
			func(T, sbo, lbo int) []mode { return []mode{{8, T}, {unbounded, lbo}} }},
		{"32B MN", Swizzle32, true,
			func(T, sbo, lbo int) []mode { return []mode{{T, 1}, {2, T}, {unbounded, lbo}} },
			func(T, sbo, lbo int) []mode { return []mode{{8, 2 * T}, {unbounded, sbo}} }},
		{"64B MN", Swizzle64, true,
			func(T, sbo, lbo int) []mode { return []mode{{T, 1}, {4, T}, {unbounded, lbo}} },
			func(T, sbo, lbo int) []mode { return []mode{{8, 4 * T}, {unbounded, sbo}} }},
		{"128B MN", Swizzle128, true,
			func(T, sbo, lbo int) []mode { return []mode{{T, 1}, {8, T}, {unbounded, lbo}} },
			func(T, sbo, lbo int) []mode { return []mode{{8, 8 * T}, {unbounded, sbo}} }},
		{"none K", SwizzleNone, false,
			func(T, sbo, lbo int) []mode { return []mode{{8, T}, {unbounded, sbo}} },
			func(T, sbo, lbo int) []mode { return []mode{{T, 1}, {unbounded, lbo}} }},
		{"32B K", Swizzle32, false,
			func(T, sbo, lbo int) []mode { return []mode{{8, 2 * T}, {unbounded, sbo}} },
			func(T, sbo, lbo int) []mode { return []mode{{T, 1}, {unbounded, T}} }},
		{"64B K", Swizzle64, false,
			func(T, sbo, lbo int) []mode { return []mode{{8, 4 * T}, {unbounded, sbo}} },
			func(T, sbo, lbo int) []mode { return []mode{{T, 1}, {unbounded, T}} }},
		{"128B K", Swizzle128, false,
			func(T, sbo, lbo int) []mode { return []mode{{8, 8 * T}, {unbounded, sbo}} },
			func(T, sbo, lbo int) []mode { return []mode{{T, 1}, {unbounded, T}} }},
	} {
		for _, elem := range []int{1, 2, 4} {
			T := 16 / elem
			// Strides that no other part of the layout produces.
			d := Descriptor{Start: 3 * 1024, LeadingBytes: 5 * 4096, StrideBytes: 7 * 2048, Swizzle: c.swizzle}
			sbo, lbo := int(d.StrideBytes)/elem, int(d.LeadingBytes)/elem
			depth := 2 * T // one wgmma's K
			for mn := range 256 {
				for k := range depth {
					at := layout(mn, c.mn(T, sbo, lbo)...) + layout(k, c.k(T, sbo, lbo)...)
					want := c.swizzle.Apply(d.Start + uint32(at*elem))
					got := d.KMajorAddress(mn, k, elem)
					if c.mnMajor {
						got = d.MNMajorAddress(mn, k, elem)
					}
					if got != want {
						t.Fatalf("%s, %d-byte elements: (%d, %d) is at %d, want %d", c.name, elem, mn, k, got, want)
					}
				}
			}
		}
	}
}
