package faults

const (
	prefill         = "expand_prefill"
	prefillSchedule = "expand_schedule"
)

const few = 2 // heads

// Prefill are the faults of prefill's kernels.
var Prefill = []Fault{
	// Initialisation and registers.
	{"mbarrier inits not fenced", prefill, few, `^\tfence\.mbarrier_init.*\n\tfence\.proxy\.async;\n`, 0, ""},
	{"no barrier after the inits", prefill, few, `^\tbar\.sync 0;\n`, 0, ""},
	{"keys' full barrier wants an arrival too many", prefill, few, `(mbarrier\.init\S+ <k full>), 1;`, 0, "$1, 2;"},
	{"keys' empty barrier wants an arrival too many", prefill, few, `(mbarrier\.init\S+ <k empty>), 8;`, 0, "$1, 9;"},
	{"keys' empty barrier wants an arrival too few", prefill, few, `(mbarrier\.init\S+ <k empty>), 8;`, 0, "$1, 7;"},
	{"values' empty barrier wants one warpgroup's arrivals", prefill, few, `(mbarrier\.init\S+ <v empty>), 8;`, 0, "$1, 4;"},
	{"queries' empty barrier wants an arrival too few", prefill, few, `(mbarrier\.init\S+ <q empty>), 4;`, 0, "$1, 3;"},
	{"a message's slot is empty when one warpgroup has read it", prefill, few, `(mbarrier\.init\S+ <item empty>), 8;`, 0, "$1, 4;"},
	{"loading keeps its registers", prefill, few, `^\tsetmaxnreg\.dec.*\n`, 0, ""},
	{"attending asks for too many registers", prefill, few, `setmaxnreg\.inc\.sync\.aligned\.u32 232`, 0, "setmaxnreg.inc.sync.aligned.u32 240"},
	{"every lane loads", prefill, few, `elect\.sync _\|(%p\d+), \S+;`, 0, "setp.eq.u32 $1, 0, 0;"},

	// The rings.
	{"queries read without waiting for them", prefill, few, `^\tmbarrier\.try_wait\S+ %p\d+, <q full>.*\n\t@.*\n`, 0, ""},
	{"first keys read without waiting for them", prefill, few, `^\tmbarrier\.try_wait\S+ %p\d+, <k full>.*\n\t@.*\n`, 0, ""},
	{"further keys read without waiting for them", prefill, few, `^\tmbarrier\.try_wait\S+ %p\d+, <k full>.*\n\t@.*\n`, -1, ""},
	{"values read without waiting for them", prefill, few, `^\tmbarrier\.try_wait\S+ %p\d+, <v full>.*\n\t@.*\n`, 0, ""},
	{"last values read without waiting for them", prefill, few, `^\tmbarrier\.try_wait\S+ %p\d+, <v full>.*\n\t@.*\n`, -1, ""},
	{"an item's first keys loaded over keys in use", prefill, few, `^\tmbarrier\.try_wait\S+ %p\d+, <k empty>.*\n\t@.*\n`, 0, ""},
	{"keys loaded over keys in use", prefill, few, `^\tmbarrier\.try_wait\S+ %p\d+, <k empty>.*\n\t@.*\n`, -1, ""},
	{"queries loaded over queries in use", prefill, few, `^\tmbarrier\.try_wait\S+ %p\d+, <q empty>.*\n\t@.*\n`, 0, ""},
	{"values loaded over values in use", prefill, few, `^\tmbarrier\.try_wait\S+ %p\d+, <v empty>.*\n\t@.*\n`, 0, ""},
	{"last values loaded over values in use", prefill, few, `^\tmbarrier\.try_wait\S+ %p\d+, <v empty>.*\n\t@.*\n`, -1, ""},
	{"first keys never released", prefill, few, `^\tmbarrier\.arrive\.shared\.b64 _, <k empty>;\n`, 0, ""},
	{"further keys never released", prefill, few, `^\tmbarrier\.arrive\.shared\.b64 _, <k empty>;\n`, -1, ""},
	{"values never released", prefill, few, `^\tmbarrier\.arrive\.shared\.b64 _, <v empty>;\n`, 0, ""},
	{"last values never released", prefill, few, `^\tmbarrier\.arrive\.shared\.b64 _, <v empty>;\n`, 1, ""},
	{"queries never released", prefill, few, `^\tmbarrier\.arrive\.shared\.b64 _, <q empty>;\n`, -1, ""},
	{"queries released after every tile", prefill, few, `^\tsetp\.eq\.s32 (%p\d+), (%r\d+), %r\d+;(\n\t@!%p\d+ bra L\d+_end;\n(?:.*\n){1,4}?\tmbarrier\.arrive\.shared\.b64 _, <q empty>)`, -1, "\tsetp.eq.s32 $1, $2, $2;$3"},
	{"keys released before their scores are there", prefill, few, `^(\twgmma\.wait_group.*\n)((?:.*\n){1,16}?\tmbarrier\.arrive\.shared\.b64 _, <k empty>;\nL\d+_end:\n)`, -1, "$2$1"},
	{"values released before they are multiplied", prefill, few, `^(\twgmma\.wait_group.*\n)((?:.*\n){1,4}?\tmbarrier\.arrive\.shared\.b64 _, <v empty>;\nL\d+_end:\n)`, 0, "$2$1"},
	{"last values released before they are multiplied", prefill, few, `^(\twgmma\.wait_group.*\n)((?:.*\n){1,4}?\tmbarrier\.arrive\.shared\.b64 _, <v empty>;\nL\d+_end:\n)`, -1, "$2$1"},
	{"phase of the keys' ring does not flip with the first tile", prefill, few, `(xor\.b32 %r\d+, %r\d+), 1;`, 2, "$1, 0;"},
	{"phase of the values' ring does not flip", prefill, few, `(xor\.b32 %r\d+, %r\d+), 1;`, 4, "$1, 0;"},
	{"phase of the queries' ring does not flip", prefill, few, `(xor\.b32 %r\d+, %r\d+), 1;`, 1, "$1, 0;"},
	{"loading's last phase does not flip", prefill, few, `(xor\.b32 %r\d+, %r\d+), 1;`, -2, "$1, 0;"},
	{"expects a box of keys too few", prefill, few, `(expect_tx.*<k full>), 49152;`, 0, "$1, 32768;"},
	{"expects a box of values too few", prefill, few, `(expect_tx.*<v full>), 32768;`, 0, "$1, 16384;"},
	{"expects a box of queries too many", prefill, few, `(expect_tx.*<q full>), 24576;`, 0, "$1, 32768;"},
	{"rope keys not copied", prefill, few, `^\tcp\.async\.bulk\.tensor\.2d.*<k full>;\n`, 0, ""},
	{"rope keys of the first tile everywhere", prefill, few, `(cp\.async\.bulk\.tensor\.2d.*\{0, )%r\d+(\}\], <k full>;)`, -1, "${1}0$2"},
	{"keys of the first columns twice", prefill, few, `(cp\.async\.bulk\.tensor\.3d.*\{)64(, .*<k full>;)`, -1, "${1}0$2"},
	{"values of the first head alone", prefill, few, `(cp\.async\.bulk\.tensor\.3d.*\{64, )%r\d+(, .*<v full>;)`, 0, "${1}0$2"},
	{"values one row too far", prefill, few, `(cp\.async\.bulk\.tensor\.3d\S+ \[%r\d+)\+16384(\], .*<v full>;)`, -1, "$1+16512$2"},

	// The products.
	{"no wgmma.fence before the first scores", prefill, few, `^\twgmma\.fence.*\n`, 0, ""},
	{"no wgmma.fence before the next scores", prefill, few, `^\twgmma\.fence.*\n`, 1, ""},
	{"no wgmma.fence before the weights", prefill, few, `^\twgmma\.fence.*\n`, -1, ""},
	{"first scores not waited for", prefill, few, `^\twgmma\.wait_group.*\n`, 0, ""},
	{"next scores not waited for", prefill, few, `^\twgmma\.wait_group\.sync\.aligned 1;\n`, 0, ""},
	{"output not waited for", prefill, few, `^\twgmma\.wait_group.*\n`, -1, ""},
	{"scores and output in one group", prefill, few, `^\twgmma\.commit_group.*\n`, 1, ""},
	{"last product not committed", prefill, few, `^\twgmma\.commit_group.*\n`, -1, ""},
	{"scores added to those of the tile before", prefill, few, `(wgmma\.mma_async.*\}, %rd\d+, %rd\d+, )%p\d+(, 1, 1, 0, 0;(?:.*\n){1,4}?.*wgmma\.mma_async.*\}, %rd\d+, %rd\d+, )(%p\d+)`, 6, "$1$3$2$3"},
	{"values not transposed", prefill, few, `(wgmma\.mma_async.*\}, %rd\d+, %p\d+, 1, 1), 1;`, 0, "$1, 0;"},
	{"weights of two rows exchanged", prefill, few, `(wgmma\.mma_async.*\{)(%r\d+), (%r\d+)(, %r\d+, %r\d+\}, %rd\d+, )`, 0, "$1$3, $2$4"},
	{"stride of the keys' descriptor off by one row", prefill, few, `\b1073741888\b`, 1, "1073741889"},
	{"both warpgroups take the first's queries", prefill, few, `(shfl\.sync\.idx\.b32 %r\d+, %r\d+, 0, 31, 4294967295;\n)\tshr\.s32 (%r\d+), %r\d+, 2;`, 0, "$1\tmov.b32 $2, 0;"},
	{"next item's first scores added to the last of this", prefill, few, `(wgmma\.mma_async.*\}, %rd\d+, %rd\d+, )%p\d+(, 1, 1, 0, 0;(?:.*\n){1,4}?.*wgmma\.mma_async.*\}, %rd\d+, %rd\d+, )(%p\d+)`, -6, "$1$3$2$3"},
	{"result written before its product is done", prefill, few, `^\twgmma\.wait_group\.sync\.aligned 1;\n`, -1, ""},

	// Masks, softmax, results.
	{"mask off by one", prefill, few, `setp\.gt(\.s32 %p\d+, %r\d+, 8;\n\tselp\.f32 %f\d+, %f\d+, 0fFF800000)`, -1, "setp.ge$1"},
	{"last tiles not masked", prefill, few, `setp\.gt(\.s32 %p\d+, %r\d+, %r\d+;\n\t@!%p\d+ bra L\d+_end;\n\tmov\.u32 %r\d+, %tid\.x;)`, -1, "setp.lt$1"},
	{"a single tile not masked", prefill, few, `setp\.gt(\.s32 %p\d+, %r\d+, %r\d+;\n\t@!%p\d+ bra L\d+_end;\n\tmov\.u32 %r\d+, %tid\.x;)`, 0, "setp.lt$1"},
	{"unused values not cleared", prefill, few, `^\tst\.shared\.v4\.b32 <v>, .*\n`, 0, ""},
	{"cleared values not fenced for wgmma", prefill, few, `^\tfence\.proxy\.async\.shared::cta;\n`, 0, ""},
	{"cleared values multiplied before all are cleared", prefill, few, `^\tbar\.sync 1, 256;\n`, 0, ""},
	{"output not scaled to the new reference", prefill, few, `mul\.rn\.f32 %f\d+, %f\d+, %f\d+;\n(\tsetp\.lt\.f32 %p\d+, %f\d+, 0f7F800000)`, -1, "$1"},
	{"sum not scaled to the new reference", prefill, few, `mul\.rn\.f32 %f\d+, %f\d+, %f\d+;\n(\tmul\.rn\.f32 %f\d+, %f\d+, %f\d+;\n\tsub\.rn\.f32 %f\d+, 0f00000000)`, -1, "$1"},
	{"a reference is never outgrown", prefill, few, `0f46800000`, 0, "0f7F800000"},
	{"large scores are scaled before they are subtracted", prefill, few, `0f45800000`, 0, "0f7F800000"},
	{"a row's maximum is not that of all lanes", prefill, few, `shfl\.sync\.bfly\.b32 (%f\d+), (%f\d+), 2, 31, 4294967295;\n(\tmax)`, 0, "mov.f32 $1, $2;\n$3"},
	{"a row's sum is not that of all lanes", prefill, few, `shfl\.sync\.bfly\.b32 (%f\d+), (%f\d+), 2, 31, 4294967295;\n(\tadd)`, 0, "mov.f32 $1, $2;\n$3"},
	{"an output row too many", prefill, few, `setp\.lt(\.s32 %p\d+, %r\d+, %r\d+;\n\t@!%p\d+ bra L\d+_end;\n(?:.*\n){1,20}?\tst\.global\.v4)`, 0, "setp.le$1"},
	{"an LSE too many", prefill, few, `setp\.lt(\.s32 %p\d+, %r\d+, %r\d+;\n\t@!%p\d+ bra L\d+_end;\n(?:.*\n){0,4}?\tst\.global\.f32)`, 0, "setp.le$1"},
	{"output read before it is staged", prefill, few, `(stmatrix.*\n)\tbar\.warp\.sync 4294967295;\n`, 0, "$1"},
	{"output staged before the last is read", prefill, few, `^(L\d+_end:\n(?:.*\n){0,4}?)\tbar\.warp\.sync 4294967295;\n((?:.*\n){1,90}?\tstmatrix)`, -1, "$1$2"},

	// Messages.
	{"message read without waiting for it", prefill, few, `^\tmbarrier\.try_wait\S+ %p\d+, <item full>.*\n\t@.*\n`, 0, ""},
	{"message told of before it is written", prefill, few, `(\tst\.shared\.v4\.b32 <item>.*\n)((?:.*\n){1,14}?\tmbarrier\.arrive\.shared\.b64 _, <item full>;\n)`, 0, "$2$1"},
	{"message given back before it is read", prefill, few, `(\tld\.shared\.v4\.b32 .*, <item>;\n)((?:.*\n){1,20}?\tmbarrier\.arrive\.shared\.b64 _, <item empty>;\nL\d+_end:\n)`, 0, "$2$1"},
	{"no message of the end", prefill, few, `^\tmbarrier\.arrive\.shared\.b64 _, <item full>;\n`, -1, ""},

	// The schedule.
	{"no barrier in the schedule's first scan", prefillSchedule, few, `^\tbar\.sync 0;\n`, 0, ""},
	{"no barrier after the count", prefillSchedule, few, `^\tbar\.sync 0;\n((?:.*\n){1,30}?L\d+_size:)`, 0, "$1"},
	{"no barrier between sorting's steps", prefillSchedule, few, `^\tbar\.sync 0;\n`, -1, ""},
	{"a barrier under divergence", prefillSchedule, few, `^(\t)(bar\.sync 0;)`, 0, "${1}elect.sync _|%p0, 4294967295;\n\t@%p0 $2"},
	{"a block that is not full is none", prefillSchedule, few, `(add\.s32 %r\d+, %r\d+), 127;`, 0, "$1, 0;"},
	{"causal where it is not, and the other way round", prefillSchedule, few, `setp\.ne\.s32 (%p\d+), (%r\d+), 0;\n(\t@!%p\d+ bra L\d+_end;\n\tsub)`, 1, "setp.ne.s32 $1, $2, 1;\n$3"},
	{"sorting keeps one block twice", prefillSchedule, few, `^\tmax\.s32 (%r\d+), (%r\d+), (%r\d+);\n`, -1, "\tmin.s32 $1, $2, $3;\n"},
}
