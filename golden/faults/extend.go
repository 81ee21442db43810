package faults

const (
	extend         = "extend_attend"
	extendSchedule = "extend_schedule"
	extendUp       = "up_project"
)

// Extend are the faults of extend's kernels, but for those that Prefill plants in
// what extend_attend has in common with expand_prefill.
var Extend = []Fault{
	// Launches that depend on one another.
	{"keys loaded before they are expanded", extend, few, `^\tgriddepcontrol\.wait;\n`, 1, ""},
	{"nobody waits for the launch before", extend, few, `^\tgriddepcontrol\.wait;\n((?:.*\n)*?)\tgriddepcontrol\.wait;\n`, 0, "$1"},
	{"expanded over keys that are attended to", extendUp, few, `^\tgriddepcontrol\.wait;\n((?:.*\n)*?)\tgriddepcontrol\.wait;\n`, 0, "$1"},
	{"rope keys copied over some that are attended to", extendUp, few, `^\tgriddepcontrol\.wait;\n`, 2, ""},
	{"readers of the schedule start before it is there", extendSchedule, few, `^\tgriddepcontrol\.wait;\n`, 0, "\tgriddepcontrol.wait;\n\tgriddepcontrol.launch_dependents;\n"},

	// Where states lie.
	{"state of the first head loaded", extend, few, `add\.s32 (%r\d+), (%r\d+), %r\d+;(\n\tmul\.wide\.s32 %rd\d+, %r\d+, 69632;)`, 0, "mov.b32 $1, $2;$3"},
	{"states of all heads left in one place", extend, few, `add\.s32 (%r\d+), (%r\d+), %r\d+;(\n\tmul\.wide\.s32 %rd\d+, %r\d+, 69632;)`, 1, "mov.b32 $1, $2;$3"},
	{"state of the sequence's first block loaded", extend, few, `shl\.b32 (%r\d+), %r\d+, 1;(\n\tadd\.s32 %r\d+, %r\d+, %r\d+;\n\tmul\.wide\.s32 %rd\d+, %r\d+, 69632;)`, 0, "mov.b32 $1, 0;$2"},
	{"states of all blocks left in one place", extend, few, `shl\.b32 (%r\d+), %r\d+, 1;(\n\tadd\.s32 %r\d+, %r\d+, %r\d+;\n\tmul\.wide\.s32 %rd\d+, %r\d+, 69632;)`, 1, "mov.b32 $1, 0;$2"},
	{"state of another thread loaded", extend, few, `(mov\.u32 %r\d+, %tid\.x;\n\tshl\.b32 %r\d+, %r\d+, )2(;\n\tmul\.wide\.s32 %rd\d+, %r\d+, 4;\n\tadd\.s64 %rd\d+, %rd\d+, %rd\d+;\n\tld\.global\.v4\.f32)`, 0, "${1}3$2"},
	{"states left where others are read", extend, few, `\[state_to\]`, 0, "[state_from]"},
	{"states read where others are left", extend, few, `\[state_from\]`, 0, "[state_to]"},
	{"a state loaded where a sequence begins", extend, few, `setp\.ge(\.s32 %p\d+, %r\d+, )0(;\n\t@!%p\d+ bra L\d+_else;\n\tshl)`, 0, "setp.ge${1}-1$2"},
	{"a state left where a result is due", extend, few, `setp\.ge(\.s32 %p\d+, %r\d+, )0(;\n\t@!%p\d+ bra L\d+_else;\n\tshl)`, 1, "setp.ge${1}-1$2"},
	{"where a state is and where it goes exchanged", extend, few, `(st\.shared\.v4\.b32 .*\{%r\d+, %r\d+, )(%r\d+), (%r\d+)\}`, 2, "$1$3, $2}"},

	// What a state is.
	{"a vector of the output not left", extend, few, `^\tst\.global\.v4\.f32 .*\n`, -1, ""},
	{"two vectors of the output in one place", extend, few, `(st\.global\.v4\.f32 \[%rd\d+\+)8192\]`, 0, "${1}4096]"},
	{"reference not carried", extend, few, `(ld\.global\.v4\.f32 .*\n\tmov\.f32 %f\d+, )%f\d+;`, 0, "${1}0fFF800000;"},
	{"sum not carried", extend, few, `(ld\.global\.v4\.f32 .*\n(?:\tmov\.f32 .*\n){2}\tmov\.f32 %f\d+, )%f\d+;`, 0, "${1}0f00000000;"},
	{"output not carried", extend, few, `(ld\.global\.v4\.f32 .*\+4096\];\n\tmov\.f32 %f\d+, )%f\d+;`, 0, "${1}0f00000000;"},
	{"references of two rows exchanged", extend, few, `(ld\.global\.v4\.f32 \{)(%f\d+), (%f\d+),`, 0, "$1$3, $2,"},
	{"sums of two rows exchanged", extend, few, `(st\.global\.v4\.f32 .*, )(%f\d+), (%f\d+)\};`, 0, "$1$3, $2};"},
	{"a reference that is outgrown in a chunk's first tile is kept", extend, few, `^(L\d+_end:\nL\d+_end:\n\tsetp\.eq\.s32 %p\d+, %r\d+, )0;(\n\t@!%p\d+ bra L\d+_end;\n\tmax)`, 0, "${1}2;$2"},
	{"rows that begin go on with the reference and the sum of the rows before", extend, few, `^(L\d+_else:\n)\tmov\.f32 %f\d+, 0fFF800000;\n\tmov\.f32 %f\d+, 0f00000000;\n`, 0, "$1"},
	{"rows that begin go on with the reference of the rows before", extend, few, `^(L\d+_else:\n)\tmov\.f32 %f\d+, 0fFF800000;\n(\tmov\.f32 %f\d+, 0f00000000;\n)`, 0, "$1$2"},
	{"unused values of a chunk's last tile not cleared", extend, few, `^\tst\.shared\.v4\.b32 <v>, .*\n`, 0, ""},

	// The schedule.
	{"no barrier in the schedule's first scan", extendSchedule, few, `^\tbar\.sync 0;\n`, 0, ""},
	{"no barrier before tokens are summed", extendSchedule, few, `^\tbar\.sync 0;\n`, 1, ""},
	{"no barrier after the count", extendSchedule, few, `^\tbar\.sync 0;\n(\tsetp\.gt\.s32 %p\d+, %r\d+, %r\d+;\n\t@%p\d+ trap;)`, 0, "$1"},
	{"no barrier between sorting's steps", extendSchedule, few, `^\tbar\.sync 0;\n`, -1, ""},
	{"sorting keeps one block twice", extendSchedule, few, `^\tmax\.s32 (%r\d+), (%r\d+), (%r\d+);\n(\tmin\.s32 %r\d+, %r\d+, %r\d+;\n\tselp)`, 0, "\tmin.s32 $1, $2, $3;\n$4"},
	{"chunks begin a tile late", extendSchedule, few, `^\tmov\.b32 (%r\d+), (%r\d+);\n(\tmov\.b32 %r\d+, 0;\n\tmov\.b32 %r\d+, 0;)`, 0, "\tadd.s32 $1, $2, 128;\n$3"},
	{"chunks begin a token late", extendSchedule, few, `^\tmov\.b32 (%r\d+), (%r\d+);\n(\tmov\.b32 %r\d+, 0;\n\tmov\.b32 %r\d+, 0;)`, 0, "\tadd.s32 $1, $2, 1;\n$3"},
	{"a chunk's tokens counted a tile too far", extendSchedule, few, `add\.s32 (%r\d+), (%r\d+), (%r\d+);(\n\tsub\.s32 %r\d+, %r\d+, %r\d+;\n\tmax\.s32 %r\d+, %r\d+, 0;\n\tmin\.s32 %r\d+, %r\d+, %r\d+;\n\tmov)`, 0, "add.s32 $1, $2, 384;$4"},
	{"sequences not filled up to whole tiles", extendSchedule, few, `(add\.s32 %r\d+, %r\d+), 127;(\n\tshr\.s32 %r\d+, %r\d+, 31;)`, 0, "$1, 0;$2"},
	{"a block that is not full not listed", extendSchedule, few, `(add\.s32 %r\d+, %r\d+), 127;(\n\tshr\.s32 %r\d+, %r\d+, 31;(?:\n.*){3}\n\tsub)`, 0, "$1, 0;$2"},
	{"blocks without a key not listed", extendSchedule, few, `(%ctaid\.x;\n\tsetp\.eq\.s32 %p\d+, %r\d+, 0;\n\tselp\.b32 %r\d+, )%r\d+,`, 0, "${1}0,"},
	{"blocks counted that see nothing of the chunk", extendSchedule, few, `(selp\.b32 %r\d+, )%r\d+(, %r\d+, %p\d+;\n\tsub\.s32 %r\d+, %r\d+, %r\d+;\n\tmov\.u32 %r\d+, %ctaid)`, 0, "${1}0$2"},
	{"a block with more keys to come ends", extendSchedule, few, `setp\.gt(\.s32 %p\d+, %r\d+, %r\d+;\n\tand\.pred %p\d+, %p\d+, %p\d+;\n\tselp\.b32 %r\d+, %r\d+, -1, %p\d+;\n\tmax)`, 0, "setp.lt$1"},
	{"a block with keys before begins anew", extendSchedule, few, `setp\.gt(\.s32 %p\d+, %r\d+, 0;\n\tand\.pred)`, 0, "setp.lt$1"},
	{"where a sequence's part begins not told", extendSchedule, few, `^\tst\.global\.b32 \[%rd\d+\], %r\d+;\n`, 0, ""},
	{"where a sequence's part lies told of the next", extendSchedule, few, `(st\.global\.b32 \[%rd\d+)\+4\]`, 0, "$1]"},
	{"keys that a query sees counted from the sequence's beginning", extendSchedule, few, `sub\.s32 (%r\d+), (%r\d+), %r\d+;(\n\tmin\.s32 %r\d+, %r\d+, %r\d+;\n\tsub)`, 1, "mov.b32 $1, $2;$3"},
	{"a sequence's keys taken for the chunk's", extendSchedule, few, `sub\.s32 (%r\d+), (%r\d+), %r\d+;(\n\tst\.global\.v4\.b32)`, 0, "mov.b32 $1, $2;$3"},
	{"causal where it is not, and the other way round", extendSchedule, few, `setp\.ne(\.s32 %p\d+, %r\d+), 0;(\n\t@!%p\d+ bra L\d+_end;\n\tsub)`, 1, "setp.ne$1, 1;$2"},
}
