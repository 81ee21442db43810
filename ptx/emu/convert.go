package emu

import (
	"strings"

	"github.com/mlagen/mlagen/ptx"
	"github.com/mlagen/mlagen/ptx/emu/num"
	"github.com/mlagen/mlagen/ptx/isa"
)

var _ = register(map[string]func(*compiler, *ptx.Instr) error{"cvt": buildCvt})

// buildCvt decodes scalar and packed conversions.
func buildCvt(c *compiler, in *ptx.Instr) error {
	dt, at := in.Mod("dtype"), in.Mod("atype")
	relu := in.Mod("relu") != ""
	rnd := in.Mod("rnd")
	if rnd == "" {
		rnd = in.Mod("rn")
	}
	r, ok := num.ParseRounding(rnd)
	if !ok {
		return unsupported("rnd", rnd)
	}
	positive := func(x float32) float32 { // .relu: negative and −0 to 0, NaN stays
		if relu && x <= 0 {
			return 0
		}
		return x
	}
	narrow := map[string]*num.Format{"e4m3x2": num.E4M3, "e5m2x2": num.E5M2, "f16x2": num.F16, "bf16x2": num.BF16}
	switch {
	case narrow[dt] != nil && at == "f32": // two f32 into a packed register
		f := narrow[dt]
		n, sat := f.Bits(), in.Mod("satfinite") != ""
		enc := func(v uint64) uint64 { return uint64(f.Encode(float64(positive(f32(v))), r, sat)) }
		if f == num.BF16 && r == num.RN && !relu && !sat {
			enc = func(v uint64) uint64 { return uint64(num.F32ToBF16(f32(v))) }
		}
		return c.binary(in, isa.B32, isa.F32, isa.F32, func(a, b uint64) uint64 { return enc(a)<<n | enc(b) })
	case strings.HasSuffix(dt, "m2x2") || strings.HasSuffix(dt, "m3x2"): // from f16x2
		f := narrow[dt]
		return c.unary(in, isa.B16, isa.B32, func(a uint64) uint64 {
			hi, lo := num.Unpack(uint32(a))
			return uint64(num.PackFP8(f, positive(num.F16ToF32(hi)), positive(num.F16ToF32(lo))))
		})
	case strings.HasSuffix(at, "m2x2") || strings.HasSuffix(at, "m3x2"): // to f16x2
		f := narrow[at]
		return c.unary(in, isa.B32, isa.B16, func(a uint64) uint64 {
			hi, lo := num.Unpack(num.UnpackFP8(f, uint16(a)))
			clip := func(h uint16) uint16 {
				if relu && h&0x8000 != 0 && h&0x7fff <= 0x7c00 {
					return 0
				}
				return h
			}
			return uint64(num.Pack(clip(hi), clip(lo)))
		})
	}
	cvt := num.Cvt{
		Dst: in.Type("dtype"), Src: in.Type("atype"), Round: r, Integral: strings.HasSuffix(rnd, "i"),
		FTZ: in.Mod("ftz") != "", Sat: in.Mod("sat") != "", SatFinite: in.Mod("satfinite") != "", Relu: relu,
	}
	f, err := cvt.Func()
	if err != nil {
		return err
	}
	// The register may be wider than the type: f extends its result.
	wide := map[int]isa.Type{8: isa.B8, 16: isa.B16, 32: isa.B32, 64: isa.B64}[max(dstBits(in.Args[0], 0), cvt.Dst.Bits())]
	return c.unary(in, wide, cvt.Src, f)
}
