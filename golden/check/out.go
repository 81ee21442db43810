package check

import (
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
