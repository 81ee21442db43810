package wgmma

import "math"

// Multiply computes D = A·B, plus D when accumulate (scale-d) is true.
//
// a is 64×K and b N×K, as Gather and RegistersA write them. Accumulator i of
// thread t (of the warpgroup) is d[i*Threads+t], i < Values().
func (op Op) Multiply(d []float32, a, b []float64, accumulate bool) {
	n, k := op.N, op.K
	d = d[:n/2*Threads]
	a, b = a[:Rows*k], b[:n*k]
	// Threads t and t+1 hold columns c…c+3 of rows r and r+8 in four
	// consecutive accumulators each (PTX manual, #wgmma-64n16-d).
	for warp := range 4 {
		for line := range 8 {
			r := 16*warp + line
			upper, lower := a[r*k:][:k], a[(r+8)*k:][:k]
			for c := 0; c < n; c += 4 {
				t := 32*warp + 4*line + c%8/2
				block := d[c/8*4*Threads+t:]
				var u, l [4]float64
				if k == 16 {
					u, l = dot16((*[16]float64)(upper), (*[16]float64)(lower), (*[64]float64)(b[c*16:]))
				} else {
					u, l = dot(upper, lower, b[c*k:][:4*k])
				}
				store(&block[0], u[0], accumulate)
				store(&block[1], u[2], accumulate)
				store(&block[Threads], u[1], accumulate)
				store(&block[Threads+1], u[3], accumulate)
				store(&block[2*Threads], l[0], accumulate)
				store(&block[2*Threads+1], l[2], accumulate)
				store(&block[3*Threads], l[1], accumulate)
				store(&block[3*Threads+1], l[3], accumulate)
			}
		}
	}
}

var nan = math.Float32frombits(0x7fff_ffff)

// store rounds a sum of products, with the accumulator when wanted, to f32.
func store(d *float32, sum float64, accumulate bool) {
	if accumulate {
		sum += float64(*d)
	}
	v := float32(sum)
	if v != v {
		v = nan
	}
	*d = v
}

// dot returns the products of two rows of A with four of B, len(b) = 4·len(x).
func dot(x, y, b []float64) (u, l [4]float64) {
	k := len(x)
	b0, b1, b2, b3 := b[:k], b[k:][:k], b[2*k:][:k], b[3*k:][:k]
	y = y[:k]
	var u0, u1, u2, u3, l0, l1, l2, l3 float64
	for i, p := range x {
		q := y[i]
		u0 += p * b0[i]
		u1 += p * b1[i]
		u2 += p * b2[i]
		u3 += p * b3[i]
		l0 += q * b0[i]
		l1 += q * b1[i]
		l2 += q * b2[i]
		l3 += q * b3[i]
	}
	return [4]float64{u0, u1, u2, u3}, [4]float64{l0, l1, l2, l3}
}

// dot16 is dot for k = 16.
func dot16(x, y *[16]float64, b *[64]float64) (u, l [4]float64) {
	var u0, u1, u2, u3, l0, l1, l2, l3 float64
	for i := range 16 {
		p, q := x[i], y[i]
		v := b[i]
		u0 += p * v
		l0 += q * v
		v = b[16+i]
		u1 += p * v
		l1 += q * v
		v = b[32+i]
		u2 += p * v
		l2 += q * v
		v = b[48+i]
		u3 += p * v
		l3 += q * v
	}
	return [4]float64{u0, u1, u2, u3}, [4]float64{l0, l1, l2, l3}
}
