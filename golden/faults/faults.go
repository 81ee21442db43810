// Package faults plants faults in generated kernels: a removed fence, a flipped
// phase, a byte count off by one box. Each is a mistake that somebody could
// make in a template or in the generator, and each must be caught by the
// emulator, as a hazard or as a wrong result.
package faults

import (
	"fmt"
	"regexp"
	"strings"
)

// Fault is one change to a kernel's text.
type Fault struct {
	Name    string
	Kernel  string // the .entry that it is planted in
	Heads   int    // of the cases that must catch it
	Pattern string // what is replaced, (?m) regular expression; <NAME> is the address of what the text says is NAME in shared memory
	Nth     int    // which of its matches, −1 = the last: what reads ahead stands before what loads
	Replace string
}

// shared is how the generator tells where in shared memory something lies.
var shared = regexp.MustCompile(`// shared: (.+) at (\d+),`)

// Plant returns the kernel's text with the fault, or an error when the text
// has no such place.
func (f Fault) Plant(text []byte) ([]byte, error) {
	re, at, err := f.place(text)
	if err != nil {
		return nil, err
	}
	out := append([]byte(nil), text[:at[0]]...)
	out = re.Expand(out, []byte(f.Replace), text, at)
	return append(out, text[at[1]:]...), nil
}

// place returns what is replaced: the match of the pattern, with its groups.
func (f Fault) place(text []byte) (*regexp.Regexp, []int, error) {
	pattern := f.Pattern
	for _, place := range shared.FindAllSubmatch(text, -1) {
		pattern = strings.ReplaceAll(pattern, "<"+string(place[1])+">", `\[(?:smem|%r\d+)\+`+string(place[2])+`\]`)
	}
	re, err := regexp.Compile("(?m)" + pattern)
	if err != nil {
		return nil, nil, err
	}
	all := re.FindAllSubmatchIndex(text, -1)
	n := f.Nth
	if n < 0 {
		n += len(all)
	}
	if n < 0 || n >= len(all) {
		return nil, nil, fmt.Errorf("%s: %s has %d matches of %q, none is number %d", f.Name, f.Kernel, len(all), f.Pattern, f.Nth)
	}
	return re, all[n], nil
}

const (
	decode   = "absorb_decode"
	schedule = "decode_schedule"
	combine  = "decode_combine"

	narrow = 16  // heads: the kernel with one warpgroup, rows on wgmma's N
	wide   = 128 // heads: the kernel with two warpgroups that take turns, rows on M
	teamed = 12  // heads: the kernel with two warpgroups that have tiles of their own, rows on N
)

// Decode are the faults of decode's kernels.
var Decode = []Fault{
	// Initialisation.
	{"mbarrier inits not fenced", decode, narrow, `^\tfence\.mbarrier_init.*\n\tfence\.proxy\.async;\n`, 0, ""},
	{"no barrier after the inits", decode, narrow, `^\tbar\.sync 0;\n`, 0, ""},
	{"full barrier wants an arrival too many", decode, narrow, `(mbarrier\.init\S+ \S+), 1;`, 0, "$1, 2;"},
	{"empty barrier wants an arrival too many", decode, narrow, `(mbarrier\.init\S+ \S+), 4;`, 0, "$1, 5;"},
	{"empty barrier wants an arrival too few", decode, narrow, `(mbarrier\.init\S+ \S+), 4;`, 0, "$1, 3;"},
	{"one mbarrier initialised twice, its neighbour never", decode, narrow, `(mbarrier\.init\S+ )\S+(, 1;\n\tmbarrier\.init\S+ )(\S+),`, 0, "$1$3$2$3,"},

	// Proxies and barriers between warps.
	{"queries not fenced for wgmma", decode, narrow, `^\tfence\.proxy\.async\.shared::cta;\n`, 0, ""},
	{"weights not fenced for wgmma", decode, narrow, `^\tfence\.proxy\.async\.shared::cta;\n`, 1, ""},
	{"no barrier between queries and scores", decode, narrow, `^\tbar\.sync 1, 128;\n`, 0, ""},
	{"no barrier around the exchange of maxima", decode, narrow, `^\tbar\.sync 1, 128;\n`, 1, ""},
	{"no barrier before the weights are read", decode, narrow, `^\tbar\.sync 1, 128;\n`, 2, ""},
	{"a barrier waits for a warp too many", decode, narrow, `bar\.sync 1, 128;`, 1, "bar.sync 1, 160;"},
	{"a barrier waits for a warp too few", decode, narrow, `bar\.sync 1, 128;`, 1, "bar.sync 1, 96;"},

	// wgmma.
	{"no wgmma.fence before the scores", decode, narrow, `^\twgmma\.fence.*\n`, 0, ""},
	{"no wgmma.fence before the output", decode, narrow, `^\twgmma\.fence.*\n`, 3, ""},
	{"scores not committed", decode, narrow, `^\twgmma\.commit_group.*\n`, 0, ""},
	{"output not committed", decode, narrow, `^\twgmma\.commit_group.*\n`, -1, ""},
	{"scores not waited for", decode, narrow, `^\twgmma\.wait_group.*\n`, 0, ""},
	{"output not waited for", decode, narrow, `^\twgmma\.wait_group.*\n`, -1, ""},
	{"a wait leaves one group pending", decode, narrow, `wgmma\.wait_group\.sync\.aligned 0`, 0, "wgmma.wait_group.sync.aligned 1"},
	{"stride of a descriptor off by one row", decode, narrow, `\b1073741888\b`, 0, "1073741889"},
	{"swizzle of a descriptor half as wide", decode, narrow, `\b1073741888\b`, 0, "2147483712"},
	{"operand A not transposed", decode, narrow, `(wgmma\.mma_async.*), 1, 1, 1, 0;`, 0, "$1, 1, 1, 0, 0;"},
	{"descriptor steps by half an atom", decode, narrow, `(add\.s64 %rd\d+, %rd\d+), 2;\n`, 0, "$1, 1;\n"},

	// The ring.
	{"tile read without waiting for it", decode, narrow, `^\t@!%p\d+ bra L\d+_await;\n`, 0, ""},
	{"slot refilled without waiting for it", decode, narrow, `^\t@!%p\d+ bra L\d+_await;\n`, -1, ""},
	{"part never released", decode, narrow, `^\tmbarrier\.arrive\.shared\.b64.*\n`, 0, ""},
	{"part released before the multiplication is complete", decode, narrow, `^(\twgmma\.wait_group.*\n)((?:.*\n){1,8}?\tmbarrier\.arrive\.shared\.b64.*\n)`, -1, "$2$1"},
	{"consumer's phase never flips", decode, narrow, `(xor\.b32 %r\d+, %r\d+), 1;`, 2, "$1, 0;"},
	{"consumer's phase does not flip within a tile", decode, narrow, `(xor\.b32 %r\d+, %r\d+), 1;`, 0, "$1, 0;"},
	{"producer's phase never flips", decode, narrow, `(xor\.b32 %r\d+, %r\d+), 1;`, -1, "$1, 0;"},
	{"producer's phase does not flip within a tile", decode, narrow, `(xor\.b32 %r\d+, %r\d+), 1;`, -2, "$1, 0;"},
	{"consumer counts a slot too many", decode, narrow, `(setp\.ge\.s32 %p\d+, %r\d+), 8;`, 2, "$1, 9;"},
	{"producer counts a slot too few", decode, narrow, `(setp\.ge\.s32 %p\d+, %r\d+), 8;`, -1, "$1, 7;"},
	{"expects a box too few", decode, narrow, `(mbarrier\.arrive\.expect_tx.*), 24576;`, -3, "$1, 16384;"},
	{"expects a box too many", decode, narrow, `(mbarrier\.arrive\.expect_tx.*), 24576;`, -2, "$1, 32768;"},
	{"expects nothing", decode, narrow, `^\tmbarrier\.arrive\.expect_tx.*\n`, -3, ""},
	{"a box not copied", decode, narrow, `^\tcp\.async\.bulk\.tensor.*\n`, -5, ""},
	{"a box copied twice", decode, narrow, `^(\tcp\.async\.bulk\.tensor.*\n)`, -5, "$1$1"},
	{"a box from the wrong columns", decode, narrow, `\{64, 0, `, -1, "{0, 0, "},
	{"a box from the wrong row", decode, narrow, `\{64, 0, `, -1, "{64, 1, "},
	{"a box one row too far", decode, narrow, `(cp\.async\.bulk\.tensor\S+ \[%r\d+)\+8192\]`, -3, "$1+8320]"},
	{"a box off its alignment", decode, narrow, `(cp\.async\.bulk\.tensor\S+ \[%r\d+)\+8192\]`, -3, "$1+8256]"},
	{"every lane issues the copies", decode, narrow, `elect\.sync _\|(%p\d+), \S+;`, -1, "setp.eq.u32 $1, 0, 0;"},

	// Fragments, masks, zero fill.
	{"stmatrix without transposition", decode, narrow, `(stmatrix\S+x4)\.trans`, 0, "$1"},
	{"a chunk of the weights not swizzled", decode, narrow, `xor\.b32 (%r\d+), (%r\d+), (%r\d+);((?:.*\n){1,8}?\tstmatrix)`, 0, "mov.b32 $1, $2;$4"},
	{"mask off by one", decode, narrow, `setp\.lt(\.s32 %p\d+, %r\d+, %r\d+;\n\tselp\.f32 %f\d+, %f\d+, 0fFF800000)`, 0, "setp.le$1"},
	{"unused rows not cleared", decode, narrow, `^\tst\.shared\.v4\.b32.*\n`, -1, ""},
	{"accumulator not cleared by the first multiplication", decode, narrow, `(wgmma\.mma_async.*\}, %rd\d+, %rd\d+, )%p\d+(, 1, 1, 0, 0;(?:.*\n){1,4}?.*wgmma\.mma_async.*\}, %rd\d+, %rd\d+, )(%p\d+)`, 0, "$1$3$2$3"},

	// The kernel with two warpgroups: weights and references pass from one to the other.
	{"turn not passed to the other warpgroup", decode, wide, `^(\tbar\.warp\.sync.*\n(?:.*\n){1,8}?)\tmbarrier\.arrive\.shared\.b64.*\n`, 0, "$1"},
	{"turn not passed back", decode, wide, `^(\tbar\.warp\.sync.*\n(?:.*\n){1,8}?)\tmbarrier\.arrive\.shared\.b64.*\n`, 1, "$1"},
	{"weights read without waiting for them", decode, wide, `^\t@!%p\d+ bra L\d+_await;\n((?:.*\n){1,10}?\tld\.shared\.v4\.b32)`, 1, "$1"},
	{"second weights read without waiting for them", decode, wide, `^\t@!%p\d+ bra L\d+_await;\n((?:.*\n){1,10}?\tld\.shared\.v4\.b32)`, 0, "$1"},
	{"weights left after the other warpgroup was told", decode, wide, `^(\tst\.shared\.v4\.b32.*\n)((?:.*\n){1,4}?\tbar\.warp\.sync.*\n(?:.*\n){1,8}?\tmbarrier\.arrive\.shared\.b64.*\nL\d+_end:\n)`, 0, "$2$1"},
	{"one lane tells before the others have left their weights", decode, wide, `^\tbar\.warp\.sync.*\n((?:.*\n){1,8}?\tmbarrier\.arrive\.shared\.b64)`, 0, "$1"},
	{"weights told by another warp", decode, wide, `(and\.b32 %r\d+, %r\d+, )3(;\n\tbar\.warp\.sync)`, 0, "${1}2$2"},
	{"weights left in another thread's place", decode, wide, `(and\.b32 %r\d+, %r\d+, )127(;(?:.*\n){1,8}?\tst\.shared\.v4\.b32)`, 0, "${1}126$2"},
	{"a reference not left for the other warpgroup", decode, wide, `^\tst\.shared\.f32.*\n`, 0, ""},
	{"waiter's phase never flips", decode, wide, `(bra L\d+_await;\n(?:.*\n){0,3}?\txor\.b32 %r\d+, %r\d+), 1(;(?:.*\n){1,10}?\tld\.shared\.v4\.b32)`, 0, "$1, 0$2"},
	{"threads decide about references by themselves", decode, narrow, `bar\.red\.or\.pred (%p\d+), 1, 128, (%p\d+);`, 0, "or.pred $1, $2, $2;"},

	// Reading ahead.
	{"a page read ahead is given back by too few", decode, narrow, `(mbarrier\.arrive\.shared\.b64 _, \S+), 4;`, 0, "$1, 3;"},
	{"a page read ahead is given back by too many", decode, narrow, `(mbarrier\.arrive\.shared\.b64 _, \S+), 4;`, 0, "$1, 5;"},
	{"a page read ahead expects a box too few", decode, narrow, `(mbarrier\.arrive\.expect_tx.*), 24576;`, 0, "$1, 16384;"},
	{"a box of a page read ahead not copied", decode, narrow, `^\tcp\.async\.bulk\.tensor.*\n`, 4, ""},
	{"every lane issues the copies of a page read ahead", decode, narrow, `elect\.sync _\|(%p\d+), \S+;`, 0, "setp.eq.u32 $1, 0, 0;"},
	{"the last page read ahead is not awaited", decode, narrow, `^(L\d+_steps_end:\n.*\n.*\n.*\n)\t@!%p\d+ bra`, 0, "$1\tbra"},

	// From one item to the next, rows on M.
	{"the next queries not awaited", decode, wide, `^\tcp\.async\.wait_all;\n`, 0, ""},
	{"the next queries not fenced for wgmma", decode, wide, `^(\tcp\.async\.wait_all;\n)\tfence\.proxy\.async\.shared::cta;\n`, 0, "$1"},
	{"no barrier between the next queries and their scores", decode, wide, `^(\tcp\.async\.wait_all;\n.*\n)\tbar\.sync 1, 256;\n`, 0, "$1"},
	{"the next queries copied over queries in use", decode, wide, `^(\tst\.shared\.f32 \[%r\d+\+\d+\], %f\d+;\nL\d+_end:\n)\tbar\.sync 1, 256;\n`, -1, "$1"},
	{"output of the item before left in the next", decode, wide, `^(L\d+_end:\n)\tmov\.f32 %f\d+, 0f00000000;\n((?:\tmov\.f32 %f\d+, 0f00000000;\n){127}L\d+_end:\n)`, 0, "$1$2"},
	{"output read before all lanes have staged it", decode, wide, `^(\tstmatrix.*\n)\tbar\.warp\.sync.*\n`, 0, "$1"},
	{"output staged over what other lanes read", decode, wide, `^(\tst\.global\.v4\.b32 .*\n)\tbar\.warp\.sync.*\n`, 0, "$1"},
	{"output of all warps staged in one place", decode, wide, `(shr\.s32 %r\d+, %r\d+, 5;\n\tshl\.b32 (%r\d+), %r\d+, 4;\n)`, 0, "$1\tmov.b32 $2, 0;\n"},
	{"output of both warpgroups in the columns of one", decode, wide, `(\tshl\.b32 (%r\d+), %r\d+, 7;\n)(\tmul\.wide\.s32 %rd\d+, %r\d+, 4;\n)`, 0, "$1\tmov.b32 $2, 0;\n$3"},
	{"an item's destination forgotten over the next one's", decode, wide, `^((?:\tmov\.b32 %r\d+, %r\d+;\n){3})\tmov\.b32 %r\d+, %r\d+;\n(\tmov\.b32 %r\d+, 1;\n\tsetp\.lt)`, 0, "$1$2"},
	{"an item's request forgotten over the next one's", decode, wide, `^\tmov\.b32 %r\d+, %r\d+;\n((?:\tmov\.b32 %r\d+, %r\d+;\n){3}\tmov\.b32 %r\d+, 1;\n\tsetp\.lt)`, 0, "$1"},
	{"producer keeps its registers", decode, wide, `^\tsetmaxnreg\.dec.*\n`, 0, ""},
	{"consumers ask for too many registers", decode, wide, `setmaxnreg\.inc\.sync\.aligned\.u32 232`, 0, "setmaxnreg.inc.sync.aligned.u32 248"},

	// The kernel with two teams, which meet when an item is over.
	{"a team begins before the other has loaded its queries", decode, teamed, `bar\.sync 1, 256;`, 0, "bar.arrive 1, 256;"},
	{"sums read before the other team has left them", decode, teamed, `bar\.sync 1, 256;`, 1, "bar.arrive 1, 256;"},
	{"columns added before the other team has left them", decode, teamed, `bar\.sync 1, 256;`, 2, "bar.arrive 1, 256;"},
	{"further columns added before the other team has left them", decode, teamed, `bar\.sync 1, 256;`, 3, "bar.arrive 1, 256;"},
	{"output staged where the other team has columns to add", decode, teamed, `bar\.sync 1, 256;`, 6, "bar.arrive 1, 256;"},
	{"a team's tile not given back by the other", decode, teamed, `^(\tbar\.warp\.sync.*\n(?:.*\n){1,8}?)\tmbarrier\.arrive\.shared\.b64.*\n`, 0, "$1"},
	{"a team's tile given back by its own warps alone", decode, teamed, `(mbarrier\.init\S+ \S+), 8;`, 0, "$1, 4;"},

	// Partial results between CTAs.
	{"partial result signalled before all have written it", decode, narrow, `^\tbar\.sync 1, 128;\n((?:.*\n){1,4}?\tred\.release)`, 0, "$1"},
	{"signal releases nothing", decode, narrow, `red\.release\.gpu`, 0, "red.relaxed.gpu"},
	{"signal's reader acquires nothing", decode, narrow, `ld\.acquire\.gpu`, 0, "ld.relaxed.gpu"},
	{"signal of block scope", decode, narrow, `red\.release\.gpu`, 0, "red.release.cta"},

	// Schedule and combine.
	{"no barrier in the schedule's first scan", schedule, narrow, `^\tbar\.sync 0;\n`, 0, ""},
	{"no barrier before the lengths are summed", schedule, narrow, `^\tbar\.sync 0;\n`, 5, ""},
	{"no barrier before a part looks for its request", schedule, narrow, `^\tbar\.sync 0;\n`, 10, ""},
	{"no barrier before boundaries are compared", schedule, narrow, `^\tbar\.sync 0;\n`, 13, ""},
	{"a barrier under divergence", schedule, narrow, `^(\t)(bar\.sync 0;)`, 0, "${1}elect.sync _|%p0, 4294967295;\n\t@%p0 $2"},
	{"partial results read before the grid that writes them has ended", combine, narrow, `^\tgriddepcontrol\.wait;\n`, 0, ""},
	{"no barrier between partial sums", combine, narrow, `^\tbar\.sync 0;\n`, 0, ""},
}
