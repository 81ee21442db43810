package cost

import (
	"fmt"
	"testing"
)

func TestPublishedFigures(t *testing.T) {
	giga := func(x float64) string { return fmt.Sprintf("%.1f", x/1e9) }
	for _, c := range []struct{ what, got, want string }{
		{"expand per pair", fmt.Sprint(V3.ExpandPair()), "81920"},
		{"absorb per pair", fmt.Sprint(V3.AbsorbPair()), "278528"},
		{"pair ratio", fmt.Sprintf("%.1f", V3.AbsorbPair()/V3.ExpandPair()), "3.4"},
		{"expand per key token", fmt.Sprintf("%.0f", V3.ExpandToken()), "33554432"},
		{"absorb per query token", fmt.Sprintf("%.0f", V3.AbsorbToken()), "33554432"},
		{"crossover", fmt.Sprintf("%.0f", V3.Crossover()), "171"},
		{"intensity bf16", fmt.Sprintf("%.0f", V3.Intensity(2)), "242"},
		{"intensity fp8", fmt.Sprintf("%.0f", V3.Intensity(1)), "484"},
		{"decode 8K expand", giga(V3.Expand(1, 8192)), "275.5"},
		{"decode 8K absorb", giga(V3.Absorb(1, 8192)), "2.3"},
		{"prefill 8K expand", giga(V3.Expand(8192, 8192)), "3024.0"},
		{"prefill 8K absorb", giga(V3.Absorb(8192, 8192)), "9621.9"},
		{"64 on 32K expand", giga(V3.Expand(64, 32768+64)), "1273.6"},
		{"64 on 32K absorb", giga(V3.Absorb(64, 32768+64)), "586.8"},
		{"512 on 32K expand", giga(V3.Expand(512, 32768+512)), "2501.8"},
		{"512 on 32K absorb", giga(V3.Absorb(512, 32768+512)), "4726.7"},
		{"cache of 61 layers", fmt.Sprint(61 * V3.RecordBytes(2)), "70272"},
	} {
		if c.got != c.want {
			t.Errorf("%s = %s, want %s", c.what, c.got, c.want)
		}
	}
}

func TestCrossoverSeparatesThePaths(t *testing.T) {
	const cached = 1 << 20 // long enough for the limit to hold
	n := int(V3.Crossover())
	if a, b := V3.Absorb(n, cached), V3.Expand(n, cached); a > b {
		t.Errorf("%d new tokens: absorb %g > expand %g", n, a, b)
	}
	if a, b := V3.Absorb(n+1, cached), V3.Expand(n+1, cached); a < b {
		t.Errorf("%d new tokens: absorb %g < expand %g", n+1, a, b)
	}
}
