package oracle

// Rotate turns pairs of columns of a rope key by the angles whose cosines and
// sines are given: columns 2i and 2i+1 when they are interleaved, columns i and
// i + half otherwise.
func Rotate[T, U Float](x []T, cos, sin []U, interleaved bool) []float64 {
	out := make([]float64, len(x))
	for i := range cos {
		a, b := i, i+len(x)/2
		if interleaved {
			a, b = 2*i, 2*i+1
		}
		c, s := float64(cos[i]), float64(sin[i])
		out[a] = float64(x[a])*c - float64(x[b])*s
		out[b] = float64(x[b])*c + float64(x[a])*s
	}
	return out
}
