package plan

import (
	"fmt"
	"math"
)

// Card is what planning knows of a device. Rates are what the kernels reach when
// every multiprocessor has work all the time; how much of it a request leaves
// idle, and the rows and columns with which tiles are filled up, are counted
// apart.
type Card struct {
	Name string `json:"name"`
	SMs  int    `json:"sms"`

	// FLOP per second.
	Decode    float64 `json:"decode"`     // absorbed attention with whole row blocks
	Prefill   float64 `json:"prefill"`    // attention to expanded keys and values
	UpProject float64 `json:"up_project"` // expanding tokens
	Absorb    float64 `json:"absorb"`     // absorbing queries and outputs

	Stream float64 `json:"stream"` // bytes per second from and to memory
	Launch float64 `json:"launch"` // seconds that a kernel takes besides, however little it does
	Follow float64 `json:"follow"` // the same for a kernel that starts beside its predecessor and mostly moves data
	Tile   float64 `json:"tile"`   // seconds that a prefill kernel's block of query rows takes besides
	Group  float64 `json:"group"`  // seconds that decode takes besides for every further group of tokens on the same multiprocessors
}

// Check finds a card that cannot be planned for.
func (c *Card) Check() error {
	if c.SMs < 1 || c.SMs > maxSMs {
		return fmt.Errorf("card %+v has %d multiprocessors, must be 1 to %d", *c, c.SMs, maxSMs)
	}
	for _, rate := range []float64{c.Decode, c.Prefill, c.UpProject, c.Absorb, c.Stream} {
		if !(rate > 0) || math.IsInf(rate, 0) {
			return fmt.Errorf("card %+v has a rate of %v, must be above 0 and finite", *c, rate)
		}
	}
	for _, seconds := range []float64{c.Launch, c.Follow, c.Tile, c.Group} {
		if !(seconds >= 0) || math.IsInf(seconds, 0) {
			return fmt.Errorf("card %+v has a time of %v s, must be at least 0 and finite", *c, seconds)
		}
	}
	return nil
}

// maxSMs is more multiprocessors than any card has.
const maxSMs = 1 << 16

// H200 is an NVIDIA H200, from measurements of this project's kernels on such a
// card in short runs (golden/perf). Prefill and tile together fit eight shapes of
// expand-prefill to 1.5 %; decode and group six of the absorb path at 128 heads, 64
// and 512 new tokens on 1024 to 32768, to 15 %.
var H200 = Card{
	Name: "NVIDIA H200", SMs: 132,
	Decode: 700e12, Prefill: 865e12, UpProject: 650e12, Absorb: 330e12,
	Stream: 4.5e12, Launch: 4e-6, Follow: 1.2e-6, Tile: 2.7e-6, Group: 24e-6,
}

// The kernels' tiles, in which work comes.
const (
	decodeRows   = 64  // query rows (token × head) of a wide row block of decode
	narrowRows   = 40  // up to so many query rows are one narrow block
	narrowStep   = 8   // of which widths are multiples
	decodeTokens = 64  // cached tokens of a tile of decode
	prefillRows  = 128 // query tokens of a block of prefill
	prefillKeys  = 128 // key tokens of a tile of prefill
	productRows  = 128 // tokens of a tile of the up-projection
	absorbRows   = 64  // tokens of a tile of the absorb products
	chunkStep    = 128 // tokens that a chunk is a multiple of
)

// decodeGroups are the numbers of query tokens that a call of decode takes of each
// request, as runtime.DefaultGroups has them.
var decodeGroups = []int{16, 4, 1}

// Stage is one kernel's share of a path.
type Stage struct {
	Kernel   string  `json:"kernel"`
	Launches int     `json:"launches"`
	FLOP     float64 `json:"flop"`  // as the tensor cores do it, tiles filled up
	Bytes    float64 `json:"bytes"` // from and to memory
	Seconds  float64 `json:"seconds"`
}

// stage estimates a kernel launched once: busy seconds of the tensor cores, or
// the time of its bytes where that is longer, and a launch.
func (c Card) stage(kernel string, flop, bytes, busy float64) Stage {
	return Stage{Kernel: kernel, Launches: 1, FLOP: flop, Bytes: bytes, Seconds: max(busy, bytes/c.Stream) + c.Launch}
}

// follow estimates a kernel that only moves data.
func (c Card) follow(kernel string, bytes float64) Stage {
	return Stage{Kernel: kernel, Launches: 1, Bytes: bytes, Seconds: bytes/c.Stream + c.Follow}
}

// times returns n launches of the stage.
func (s Stage) times(n float64) Stage {
	return Stage{s.Kernel, s.Launches * int(n), s.FLOP * n, s.Bytes * n, s.Seconds * n}
}

// plus returns both stages of one kernel together.
func (s Stage) plus(o Stage) Stage {
	return Stage{o.Kernel, s.Launches + o.Launches, s.FLOP + o.FLOP, s.Bytes + o.Bytes, s.Seconds + o.Seconds}
}

// rounds returns how often the busiest multiprocessor takes one of so many equal
// pieces of work.
func (c Card) rounds(pieces float64) float64 { return math.Ceil(pieces / float64(c.SMs)) }

// upTo fills n up to a multiple of step.
func upTo(n float64, step int) float64 { return math.Ceil(n/float64(step)) * float64(step) }
