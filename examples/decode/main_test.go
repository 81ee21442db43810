package main

import (
	"math"
	"strings"
	"testing"

	"github.com/mlagen/mlagen/golden/oracle"
	"github.com/mlagen/mlagen/runtime/emu"
)

// TestStep: what the program prints is what the oracle computes.
func TestStep(t *testing.T) {
	drv, err := emu.Open(emu.Options{})
	if err != nil {
		t.Fatal(err)
	}
	s := newStep()
	if err := s.run(drv); err != nil {
		t.Fatal(err)
	}
	problem := oracle.Decode[float32]{
		Heads: heads, QLen: 1, Latent: latent, Rope: width - latent, Scale: scale,
		Q: func(request, _, head int) []float32 { return s.query[(request*heads+head)*width:][:width] },
		Row: oracle.Pages(page,
			func(request, index int) int64 { return int64(s.table[request][index]) },
			func(id int64, slot int) []float32 { return s.cache[(int(id)*page+slot)*width:][:width] }),
	}
	for _, n := range s.kvLen {
		problem.KVLen = append(problem.KVLen, int(n))
	}
	want := problem.Run()
	if len(s.output) != len(want.Out) || len(s.lse) != len(want.LSE) {
		t.Fatalf("%d outputs and %d LSEs, want %d and %d", len(s.output), len(s.lse), len(want.Out), len(want.LSE))
	}
	for i, w := range want.Out {
		// Weights and output are rounded to bf16, 8 bits.
		if got := float64(s.output[i]); !(math.Abs(got-w) <= 0.01) {
			t.Fatalf("output %d is %v, want %v", i, got, w)
		}
	}
	for i, w := range want.LSE {
		if got := float64(s.lse[i]); !(math.Abs(got-w) <= 1e-4) {
			t.Fatalf("LSE %d is %v, want %v", i, got, w)
		}
	}

	var text strings.Builder
	s.print(&text)
	if got := text.String(); strings.Count(got, "\n") != len(s.kvLen) || !strings.Contains(got, "request 1, 37 tokens, head 0: out [") {
		t.Error(got)
	}
}
