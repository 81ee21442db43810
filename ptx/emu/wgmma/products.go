package wgmma

// warpRows is how many rows of the result are a warp's.
const warpRows = 16

// products computes c = a·b for c of 16 rows and n columns, a multiple of 8, a
// of 16×k and b of k×n, all by rows. The sums are those of float64 in ascending
// k. Operands are products' factors of at most 24 bits, whose products are exact.
var products = productsGo

func productsGo(c, a, b []float64, n, k int) {
	for row := 0; row < warpRows; row += 2 {
		x, y := a[row*k:][:k], a[(row+1)*k:][:k]
		to, below := c[row*n:][:n], c[(row+1)*n:][:n]
		for col := 0; col < n; col += 4 {
			var u0, u1, u2, u3, l0, l1, l2, l3 float64
			for i, p := range x {
				q, v := y[i], b[i*n+col:][:4]
				u0 += p * v[0]
				u1 += p * v[1]
				u2 += p * v[2]
				u3 += p * v[3]
				l0 += q * v[0]
				l1 += q * v[1]
				l2 += q * v[2]
				l3 += q * v[3]
			}
			to[col], to[col+1], to[col+2], to[col+3] = u0, u1, u2, u3
			below[col], below[col+1], below[col+2], below[col+3] = l0, l1, l2, l3
		}
	}
}
