package emu

// prng is a small deterministic generator (splitmix64), so that a seed gives
// the same schedule on every machine and in every version of Go.
type prng struct{ state uint64 }

func newPRNG(parts ...uint64) prng {
	p := prng{0x9e3779b97f4a7c15}
	for _, x := range parts {
		p.state ^= x
		p.state = p.next()
	}
	return p
}

func (p *prng) next() uint64 {
	p.state += 0x9e3779b97f4a7c15
	z := p.state
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

// intn returns a number in [0, n).
func (p *prng) intn(n int) int { return int(p.next() >> 1 % uint64(n)) }

func (p *prng) bool() bool { return p.next()>>63 != 0 }
