package faults

const (
	upProject   = "up_project"
	absorbQuery = "absorb_q"
	absorbOut   = "absorb_o"

	upHeads     = 2 // of up-project's problems
	narrowHeads = 3 // of absorb's with few tokens: rows on wgmma's N
	wideHeads   = 5 // and with many: rows on M
)

// Product are the faults of the products with weights.
var Product = []Fault{
	// Up-project: initialisation, registers, clusters.
	{"mbarrier inits not fenced", upProject, upHeads, `^\tfence\.mbarrier_init.*\n\tfence\.proxy\.async;\n`, 0, ""},
	{"no cluster barrier after the inits", upProject, upHeads, `^\tbarrier\.cluster\.arrive.*\n\tbarrier\.cluster\.wait.*\n`, 0, ""},
	{"a CTA ends before its peer", upProject, upHeads, `^\tbarrier\.cluster\.arrive.*\n\tbarrier\.cluster\.wait.*\n`, -1, ""},
	{"weights' empty barrier wants one CTA's arrivals", upProject, upHeads, `(mbarrier\.init\S+ <weights empty>), 8;`, 0, "$1, 4;"},
	{"weights' empty barrier wants an arrival too many", upProject, upHeads, `(mbarrier\.init\S+ <weights empty>), 8;`, 0, "$1, 9;"},
	{"rows' empty barrier wants one warpgroup's arrivals", upProject, upHeads, `(mbarrier\.init\S+ <rows empty>), 8;`, 0, "$1, 4;"},
	{"rows' full barrier wants an arrival too many", upProject, upHeads, `(mbarrier\.init\S+ <rows full>), 1;`, 0, "$1, 2;"},
	{"a turn is passed by three warps", upProject, upHeads, `(mbarrier\.init\S+ <turns>), 4;`, 0, "$1, 5;"},
	{"a message's slot is empty when one warpgroup has read it", upProject, upHeads, `(mbarrier\.init\S+ <runs empty>), 8;`, 0, "$1, 4;"},
	{"loading keeps its registers", upProject, upHeads, `^\tsetmaxnreg\.dec.*\n`, 0, ""},
	{"multiplying asks for too many registers", upProject, upHeads, `setmaxnreg\.inc\.sync\.aligned\.u32 232`, 0, "setmaxnreg.inc.sync.aligned.u32 240"},
	{"every lane loads", upProject, upHeads, `elect\.sync _\|(%p\d+), \S+;((?:.*\n){1,30}?.*<runs empty>)`, -1, "setp.eq.u32 $1, 0, 0;$2"},

	// Its rings.
	{"rows read without waiting for them", upProject, upHeads, `^\tmbarrier\.try_wait\S+ %p\d+, <rows full>.*\n\t@.*\n`, 0, ""},
	{"weights read without waiting for them", upProject, upHeads, `^\tmbarrier\.try_wait\S+ %p\d+, <weights full>.*\n\t@.*\n`, 0, ""},
	{"last weights read without waiting for them", upProject, upHeads, `^\tmbarrier\.try_wait\S+ %p\d+, <weights full>.*\n\t@.*\n`, -1, ""},
	{"rows loaded over rows in use", upProject, upHeads, `^\tmbarrier\.try_wait\S+ %p\d+, <rows empty>.*\n\t@.*\n`, 0, ""},
	{"weights loaded over weights in use", upProject, upHeads, `^\tmbarrier\.try_wait\S+ %p\d+, <weights empty>.*\n\t@.*\n`, 0, ""},
	{"message read without waiting for it", upProject, upHeads, `^\tmbarrier\.try_wait\S+ %p\d+, <runs full>.*\n\t@.*\n`, 0, ""},
	{"rows never given back", upProject, upHeads, `^\tmbarrier\.arrive\.shared\.b64 _, <rows empty>;\n`, 0, ""},
	{"weights never given back", upProject, upHeads, `^\tmbarrier\.arrive\.shared::cluster\.b64.*\n`, 0, ""},
	{"last weights never given back", upProject, upHeads, `^\tmbarrier\.arrive\.shared::cluster\.b64.*\n`, -1, ""},
	{"weights given back to one CTA twice", upProject, upHeads, `mapa\.shared::cluster\.u32 (%r\d+), (%r\d+), %r\d+;`, 0, "mapa.shared::cluster.u32 $1, $2, 0;"},
	{"weights given back before they are multiplied", upProject, upHeads, `^(\twgmma\.wait_group\.sync\.aligned 1;\n)((?:.*\n){1,20}?\tmbarrier\.arrive\.shared::cluster\.b64.*\nL\d+_end:\n)`, 0, "$2$1"},
	{"rows given back before they are multiplied", upProject, upHeads, `^(\twgmma\.wait_group\.sync\.aligned 0;\n)((?:.*\n){1,8}?\tmbarrier\.arrive\.shared\.b64 _, <rows empty>;\nL\d+_end:\n)`, 0, "$2$1"},
	{"a turn not passed", upProject, upHeads, `^\tmbarrier\.arrive\.shared\.b64 _, <turns>;\n`, 0, ""},
	{"the other warpgroup's slots not passed over", upProject, upHeads, `(add\.s32 %r\d+, %r\d+), 2;\n(\tsetp\.ge\.s32 %p\d+, %r\d+, 5;\n\tsub)`, -1, "$1, 1;\n$2"},
	{"expects one CTA's share", upProject, upHeads, `(expect_tx.*<weights full>), (\d+);`, 0, "$1, 4096;"},
	{"expects one page of rows", upProject, upHeads, `(expect_tx.*<rows full>), 16384;`, 0, "$1, 8192;"},
	{"a share goes to one CTA", upProject, upHeads, `mov\.b16 (%h\d+), 3;`, 0, "mov.b16 $1, 1;"},
	{"rows of the second page over the first's", upProject, upHeads, `(cp\.async\.bulk\.tensor\S+ \[%r\d+)\+8192(\], .*<rows full>)`, 0, "$1$2"},
	{"weights of the first columns alone", upProject, upHeads, `(cp\.async\.bulk\.tensor.*multicast.*\{)%r\d+(, )`, 0, "${1}0$2"},
	{"weights of the first head alone", upProject, upHeads, `(cp\.async\.bulk\.tensor.*multicast.*\{%r\d+, %r\d+, )%r\d+(\})`, 0, "${1}0$2"},

	// Its products and results.
	{"no wgmma.fence before a tile", upProject, upHeads, `^\twgmma\.fence.*\n`, 0, ""},
	{"product not waited for", upProject, upHeads, `^\twgmma\.wait_group\.sync\.aligned 0;\n`, 0, ""},
	{"product not committed", upProject, upHeads, `^\twgmma\.commit_group.*\n`, 1, ""},
	{"stride of a descriptor off by one row", upProject, upHeads, `\b1073741888\b`, 0, "1073741889"},
	{"results staged over results that leave", upProject, upHeads, `^\tcp\.async\.bulk\.wait_group\.read.*\n`, 1, ""},
	{"staged results not fenced for the copy engine", upProject, upHeads, `^\tfence\.proxy\.async\.shared::cta;\n`, 0, ""},
	{"results leave before all lanes have staged them", upProject, upHeads, `^(\tfence\.proxy\.async\.shared::cta;\n)\tbar\.warp\.sync.*\n`, 0, "$1"},
	{"results not committed", upProject, upHeads, `^\tcp\.async\.bulk\.commit_group.*\n`, 0, ""},
	{"a CTA ends while its results leave", upProject, upHeads, `^\tcp\.async\.bulk\.wait_group 0;\n`, -1, ""},
	{"rows that no sequence has are written", upProject, upHeads, `setp\.le(\.s32 %p\d+, %r\d+, %r\d+;\n\tand\.pred)`, 0, "setp.ge$1"},
	{"a row too many is written", upProject, upHeads, `(min\.s32 %r\d+, %r\d+, %r\d+;\n\tmov\.u32 %r\d+, %laneid;\n)\tsub\.s32 (%r\d+), (%r\d+), (%r\d+);(\n\tshl\.b32 %r\d+, %r\d+, \d;)`, 0, "$1\tsub.s32 $2, $3, $4;\n\tadd.s32 $2, $2, 1;$5"},
	{"a tile that is not full is none", upProject, upHeads, `(add\.s32 %r\d+, %r\d+), 127;`, 0, "$1, 0;"},
	{"no barrier between counting and adding up", upProject, upHeads, `^\tbar\.sync 0;\n`, 1, ""},
	{"no barrier before the counts are used", upProject, upHeads, `^\tbar\.sync 0;\n`, 2, ""},

	// Absorb with few tokens.
	{"inits not fenced", absorbQuery, narrowHeads, `^\tfence\.mbarrier_init.*\n\tfence\.proxy\.async;\n`, 0, ""},
	{"a block read without waiting for it", absorbQuery, narrowHeads, `^\tmbarrier\.try_wait\S+ %p\d+, <blocks full>.*\n\t@.*\n`, 0, ""},
	{"the last block read without waiting for it", absorbQuery, narrowHeads, `^\tmbarrier\.try_wait\S+ %p\d+, <blocks full>.*\n\t@.*\n`, -1, ""},
	{"full barrier wants one filler", absorbQuery, narrowHeads, `(mbarrier\.init\S+ <blocks full>), 2;`, 0, "$1, 1;"},
	{"expects a box of weights too few", absorbQuery, narrowHeads, `(expect_tx.*<blocks full>), 8192;`, 0, "$1, 4096;"},
	{"a box of weights not copied", absorbQuery, narrowHeads, `^\tcp\.async\.bulk\.tensor.*\n`, 1, ""},
	{"a tile not fenced before wgmma", absorbQuery, narrowHeads, `^\twgmma\.fence.*\n`, 0, ""},
	{"multiplied columns not waited for", absorbQuery, narrowHeads, `^\twgmma\.wait_group.*\n`, -1, ""},
	{"weights not transposed", absorbQuery, narrowHeads, `(wgmma\.mma_async.*), 1, 1, 1, 0;`, 0, "$1, 1, 1, 0, 0;"},
	{"results staged without transposition", absorbQuery, narrowHeads, `(stmatrix\S+)\.trans`, 0, "$1"},
	{"results read before all are staged", absorbQuery, narrowHeads, `^\tbar\.sync 1, 128;\n`, -1, ""},
	{"tokens that are not there are written", absorbQuery, narrowHeads, `min\.s32 (%r\d+), (%r\d+), 16;`, 0, "mov.b32 $1, 16;"},
	{"blocks loaded over blocks in use", absorbOut, narrowHeads, `^\tmbarrier\.try_wait\S+ %p\d+, <blocks empty>.*\n\t@.*\n`, 0, ""},
	{"rows loaded over rows in use", absorbOut, narrowHeads, `^\tmbarrier\.try_wait\S+ %p\d+, <blocks empty>.*\n\t@.*\n`, -1, ""},
	{"a block never given back", absorbOut, narrowHeads, `^\tmbarrier\.arrive\.shared\.b64 _, <blocks empty>;\n`, 0, ""},
	{"a block given back before it is multiplied", absorbOut, narrowHeads, `^(\twgmma\.wait_group.*\n)((?:.*\n){1,10}?\tmbarrier\.arrive\.shared\.b64 _, <blocks empty>;\nL\d+_end:\n)`, 0, "$2$1"},
	{"phase of the blocks' ring does not flip", absorbOut, narrowHeads, `(xor\.b32 %r\d+, %r\d+), 1;`, -1, "$1, 0;"},

	// And with many.
	{"notes read before they are there", absorbQuery, wideHeads, `^\tmbarrier\.try_wait\S+ %p\d+, <blocks full>.*\n\t@.*\n`, 0, ""},
	{"blocks loaded over blocks in use", absorbQuery, wideHeads, `^\tmbarrier\.try_wait\S+ %p\d+, <blocks empty>.*\n\t@.*\n`, 0, ""},
	{"a slot empty when one warpgroup has read it", absorbQuery, wideHeads, `(mbarrier\.init\S+ <blocks empty>), 8;`, 0, "$1, 4;"},
	{"a slot given back before it is multiplied", absorbQuery, wideHeads, `^(\twgmma\.wait_group\.sync\.aligned 0;\n)((?:.*\n){1,10}?\tmbarrier\.arrive\.shared\.b64 _, <blocks empty>;\nL\d+_end:\n)`, 0, "$2$1"},
	{"a slot given back before its notes are read", absorbQuery, wideHeads, `^\tst\.shared\.b32 \[%r\d+(?:\+\d+)?\], %r\d+;\n`, 1, ""},
	{"both warpgroups multiply the first's rows", absorbQuery, wideHeads, `(shr\.s32 %r\d+, %r\d+), 2;\n`, 0, "$1, 3;\n"},
	{"staged over results that leave", absorbQuery, wideHeads, `^\tcp\.async\.bulk\.wait_group\.read.*\n`, 0, ""},
	{"staged results not fenced", absorbQuery, wideHeads, `^\tfence\.proxy\.async\.shared::cta;\n`, 0, ""},
	{"rope parts of tokens past the last", absorbQuery, wideHeads, `min\.s32 (%r\d+), (%r\d+), 128;`, -1, "mov.b32 $1, 128;"},
	{"results of a token too many", absorbQuery, wideHeads, `(min\.s32 %r\d+, %r\d+, %r\d+;\n\tmov\.u32 %r\d+, %laneid;\n)\tsub\.s32 (%r\d+), (%r\d+), (%r\d+);(\n\tshl\.b32 %r\d+, %r\d+, \d;)`, 0, "$1\tsub.s32 $2, $3, $4;\n\tadd.s32 $2, $2, 1;$5"},
	{"results of the last tile not waited for", absorbQuery, wideHeads, `^\tcp\.async\.bulk\.wait_group 0;\n`, -1, ""},
	{"no end is told", absorbQuery, wideHeads, `^\tmbarrier\.arrive\.shared\.b64 _, <blocks full>;\n`, 0, ""},
}
