package wgmma

import "golang.org/x/sys/cpu"

// productsAVX2 is products for processors with AVX2 and FMA.
//
//go:noescape
func productsAVX2(c, a, b *float64, n, k int)

func init() {
	if cpu.X86.HasAVX2 && cpu.X86.HasFMA {
		products = func(c, a, b []float64, n, k int) {
			c, a, b = c[:warpRows*n], a[:warpRows*k], b[:k*n]
			productsAVX2(&c[0], &a[0], &b[0], n, k)
		}
	}
}
