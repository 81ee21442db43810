package hopper

import (
	"strings"
	"testing"
)

func TestRegistersPerThread(t *testing.T) {
	for _, c := range []struct{ threads, ctas, want int }{
		// Measured: ptxas and the hardware give a ninth warp the price of a twelfth.
		{32, 1, 255}, {128, 1, 255}, {160, 1, 255}, {256, 1, 255}, {288, 1, 168}, {384, 1, 168},
		{416, 1, 128}, {512, 1, 128}, {1024, 1, 64},
		{128, 2, 255}, {256, 2, 128}, {128, 4, 128}, {1024, 2, 32},
		{0, 1, 0}, {1025, 1, 0}, {32, 0, 0},
	} {
		if got := RegistersPerThread(c.threads, c.ctas); got != c.want {
			t.Errorf("RegistersPerThread(%d, %d) = %d, want %d", c.threads, c.ctas, got, c.want)
		}
	}
}

func TestPool(t *testing.T) {
	for _, c := range []struct{ threads, registers, want int }{
		{384, 168, 64512}, {128, 255, 32768}, {160, 136, 21760}, {33, 17, 1536},
	} {
		if got := Pool(c.threads, c.registers); got != c.want {
			t.Errorf("Pool(%d, %d) = %d, want %d", c.threads, c.registers, got, c.want)
		}
	}
}

func TestCheckPool(t *testing.T) {
	groups := func(registers ...int) []Share {
		var s []Share
		for i, n := range registers {
			s = append(s, Share{Role: string(rune('a' + i)), Warps: 4, Registers: n})
		}
		return s
	}
	for _, c := range []struct {
		launched int
		shares   []Share
		want     string // "" = legal
	}{
		// 3 warpgroups of 168 are 504 per lane, not 512: 24+240+240 fits, and
		// 192+160+160 was seen to fail where 184+160+160 ran.
		{168, groups(24, 240, 240), ""},
		{168, groups(40, 232, 232), ""},
		{168, groups(184, 160, 160), ""},
		{168, groups(192, 160, 160), "registers claimed by setmaxnreg: was 65536, must be at most 64512"},
		{168, groups(0, 168, 168), ""},
		{168, groups(0, 176, 168), "registers claimed"},
		{255, groups(256, 256), ""},
		{176, groups(24, 240, 240), "registers per thread at launch: was 176, must be 1 to 168 with 384 threads"},
		{168, groups(16, 240, 240), "a registers: was 16, must be a multiple of 8 from 24 to 256"},
		{168, groups(24, 236, 240), "b registers: was 236"},
		{128, groups(24, 264), "b registers: was 264"},
		{128, []Share{{"load", 1, 24}, {"attend", 4, 0}}, "load warps: was 1 from warp 0, must be whole warpgroups"},
		{128, []Share{{"load", 1, 0}, {"attend", 4, 128}}, "attend warps: was 4 from warp 1"},
		{128, []Share{{"load", 1, 0}, {"attend", 4, 0}}, ""},
		{128, []Share{{"load", 0, 0}}, "load warps: was 0"},
		{32, nil, "threads: was 0"},
		{32, []Share{{"all", 33, 0}}, "threads: was 1056"},
	} {
		switch err := CheckPool(c.launched, c.shares...); {
		case c.want == "" && err != nil:
			t.Errorf("CheckPool(%d, %v) = %v, want no error", c.launched, c.shares, err)
		case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
			t.Errorf("CheckPool(%d, %v) = %v, want %q", c.launched, c.shares, err, c.want)
		}
	}
}

func TestCheckShared(t *testing.T) {
	for bytes, ok := range map[int]bool{0: true, 232448: true, 232449: false, -1: false} {
		if err := CheckShared(bytes); (err == nil) != ok {
			t.Errorf("CheckShared(%d) = %v", bytes, err)
		}
	}
	if SharedSM-SharedReserve != SharedLimit {
		t.Errorf("an SM of %d bytes less %d is not %d", SharedSM, SharedReserve, SharedLimit)
	}
}
