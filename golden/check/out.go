package check

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"

	"github.com/mlagen/mlagen/golden/cases"
)

// poisonOut fills the output, gaps included, as the case says.
func poisonOut(call *decodeCall, m *memory) error {
	fill := call.in.Case.Fill.Out
	if fill == "nan" || call.out.size == 0 {
		return m.driver.Fill(call.out.ptr, 0xff, call.out.size)
	}
	filler, err := cases.ParseFill(fill)
	if err != nil {
		return err
	}
	values := make([]float32, call.out.size/int64(call.size()))
	filler(rand.New(rand.NewPCG(call.in.Case.Seed, 0)), values)
	return m.driver.Upload(call.out.ptr, call.in.Case.DType.Encode(nil, values))
}

// gatherOut returns the output without its gaps, which must hold the poison.
func gatherOut(call *decodeCall, out []byte) ([]float32, error) {
	c := call.in.Case
	stride, width := call.headStride*call.size(), c.Model.Latent*call.size()
	values := make([]float32, 0, len(out)/call.size())
	for at := 0; at < len(out); at += stride {
		values = c.DType.Decode(values, out[at:at+width])
		for i, b := range out[at+width : at+stride] {
			if c.Fill.Out == "nan" && b != 0xff {
				return nil, fmt.Errorf("%s: byte %d of the gap after it was written", call.describe(at/stride), i)
			}
		}
	}
	return values, nil
}

// everyWritten reports elements that still hold the poison.
func everyWritten(call *decodeCall, out, lse []byte) error {
	stride, width := call.headStride*call.size(), call.in.Case.Model.Latent*call.size()
	for i := 0; i < len(lse); i += 4 {
		if binary.LittleEndian.Uint32(lse[i:]) == 0xffffffff {
			return fmt.Errorf("%s: lse was not written", call.describe(i/4))
		}
	}
	if call.in.Case.Fill.Out != "nan" {
		return nil
	}
	for at := 0; at < len(out); at += stride {
		for i := 0; i < width; i += 2 {
			if binary.LittleEndian.Uint16(out[at+i:]) == 0xffff {
				return fmt.Errorf("%s: out[%d] was not written", call.describe(at/stride), i/2)
			}
		}
	}
	return nil
}
