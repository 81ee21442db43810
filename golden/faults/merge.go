package faults

// twoTokens is the heads of a decode of two query tokens, one warpgroup, whose
// rows may have keys in a piece or none.
const twoTokens = 8

// Parts of patterns: the way to a state in the workspace from the number of its
// share on, of 16 or of 128 padded rows; where states are left, with registers that
// are not in use there; the weight of one of a merge's two pieces; and the maximum
// of a column's lanes.
const (
	shareOf16  = `shl\.b32 (%r\d+), %r\d+, 4;(\n\tadd\.s32 %r\d+, %r\d+, %r\d+;\n\tshl\.b32 %r\d+, %r\d+, 1;\n\tmul\.wide\.s32 .*\n\tadd\.s64 .*\n`
	shareOf128 = `shl\.b32 (%r\d+), %r\d+, 7;(\n\tadd\.s32 %r\d+, %r\d+, %r\d+;\n\tshl\.b32 %r\d+, %r\d+, 1;\n\tmul\.wide\.s32 .*\n\tadd\.s64 .*\n`
	leaving    = `^(\t@!%p\d+ bra (L\d+_end);\n)((?:\tst\.global\.v2\.f32.*\n)+L\d+_end:\n\tsetp\.ge\.s32 (%p\d+), .*\n(?:.*\n){3}\tmov\.b32 (%r\d+), )`
	weigh      = `rcp\.approx.*\n\tselp\.f32 .*\n\tmul\.rn\.f32 `
	maximum    = `(?:\n\tshfl\.sync\.bfly.*\n\tmax\.f32 .*){3}`
)

// Merge are the faults of merging pieces: of what decode leaves in the workspace,
// of the later piece of two, and of decode_combine.
var Merge = []Fault{
	// The unit that a row's elements are counted in.
	{"a row's unit made for the largest element of another row", decode, twoTokens, `(mul\.rn\.f32 %f\d+, (%f\d+), (%f\d+);` + maximum + `\n\tmul\.rn\.f32 .*` + maximum + `\n\tmul\.rn\.f32 %f\d+, )%f\d+, %f\d+;`, 0, "$1$2, $3;"},
	{"a row's largest element normalised with another row's sum", decode, twoTokens, `(mul\.rn\.f32 %f\d+, %f\d+, (%f\d+);` + maximum + `\n\tmul\.rn\.f32 .*` + maximum + `\n\tmul\.rn\.f32 %f\d+, %f\d+, )%f\d+;`, 0, "$1$2;"},
	{"a row's largest element that of a lane", decode, narrow, `(shfl\.sync\.bfly\.b32 %f\d+, )(%f\d+)(, 4, 31, 4294967295;(?:\n.*){4}\n\tmax\.f32 (%f\d+), %f\d+, %f\d+;\n\tmul\.rn\.f32 %f\d+, )%f\d+(, %f\d+;(?:\n.*){6}\n\tmul\.rn)`, 0, "$1$2$3$2$5"},
	{"the unit of tiny elements is no number", decode, twoTokens, `max\.s32 (%r\d+), (%r\d+), 125829120;`, 0, "mov.b32 $1, $2;"},
	{"elements are not counted in their unit", decode, narrow, `(sub\.s32 %r\d+, %r\d+, %r\d+;\n\tmov\.b32 %f\d+, %r\d+;\n\tmov\.f32 %f\d+, %f\d+;\n)\tmul\.rn\.f32 .*\n`, 0, "$1"},
	{"the unit half as large", decode, narrow, `sub\.s32 (%r\d+), (%r\d+), 117440512;`, 0, "sub.s32 $1, $2, 125829120;"},
	{"a unit left for another row as well", decode, narrow, `(st\.global\.v2\.f32 .*, )(%f\d+)(\};\n\tst\.global\.v2\.f32 .*, )%f\d+`, 0, "$1$2$3$2"},

	// States, one for each share of a row.
	{"states left by one warp alone", decode, narrow, leaving, 0, "$1\tmov.u32 $5, %tid.x;\n\tsetp.gt.u32 $4, $5, 31;\n\t@$4 bra $2;\n$3"},
	{"states left by one warpgroup alone", decode, wide, leaving, 0, "$1\tmov.u32 $5, %tid.x;\n\tsetp.gt.u32 $4, $5, 127;\n\t@$4 bra $2;\n$3"},
	{"states left by one team alone", decode, teamed, leaving, 0, "$1\tmov.u32 $5, %tid.x;\n\tsetp.gt.u32 $4, $5, 127;\n\t@$4 bra $2;\n$3"},
	{"states of all warps left in one place", decode, narrow, shareOf16 + `\tmul\.rn)`, 0, "mov.b32 $1, 0;$2"},
	{"states of both warpgroups left in one place", decode, wide, shareOf128 + `\tmul\.rn)`, 0, "mov.b32 $1, 0;$2"},
	{"the other piece's units read of another share", decode, narrow, shareOf16 + `\tld\.global\.v2\.f32)`, 0, "mov.b32 $1, 0;$2"},
	{"the other piece's units read of the other warpgroup's share", decode, wide, shareOf128 + `\tld\.global\.v2\.f32)`, 0, "mov.b32 $1, 0;$2"},
	{"the other piece's units read of the other team's share", decode, teamed, `(shl\.b32 %r\d+, )(%r\d+), 4;(\n\tadd\.s32 (%r\d+), .*\n\tshl\.b32 %r\d+, %r\d+, 1;\n\tmul\.wide\.s32 .*\n\tadd\.s64 .*\n\tld\.global\.v2\.f32)`, 0, "xor.b32 $2, $2, 4;\n\t$1$2, 4;$3"},

	// The later piece of two.
	{"this piece's unit not applied", decode, narrow, `(` + weigh + `(%f\d+), .*\n)\tmul\.rn\.f32 (%f\d+), .*;`, 0, "$1\tmov.f32 $3, $2;"},
	{"the other piece's unit not applied", decode, narrow, `(` + weigh + `.*\n\tmul\.rn\.f32 .*\n\tmov\.f32 .*\n\tmul\.rn\.f32 (%f\d+), .*\n)\tmul\.rn\.f32 (%f\d+), .*;`, 0, "$1\tmov.f32 $3, $2;"},
	{"units of the two pieces exchanged", decode, narrow, `(` + weigh + `.*\n\tmul\.rn\.f32 %f\d+, %f\d+, )(%f\d+)(;\n\tmov\.f32 .*\n\tmul\.rn\.f32 .*\n\tmul\.rn\.f32 %f\d+, %f\d+, )(%f\d+);`, 0, "$1$4$3$2;"},
	{"this piece's unit not applied, rows on M", decode, wide, `(` + weigh + `(%f\d+), .*\n)\tmul\.rn\.f32 (%f\d+), .*;`, 0, "$1\tmov.f32 $3, $2;"},
	{"elements of a pair exchanged where they are left", decode, narrow, `(cvt\.rn\.f16x2\.f32 %r\d+, )(%f\d+), (%f\d+);`, 0, "$1$3, $2;"},
	{"elements of a pair exchanged where they are left, rows on M", decode, wide, `(cvt\.rn\.f16x2\.f32 %r\d+, )(%f\d+), (%f\d+);`, 0, "$1$3, $2;"},
	{"elements of a pair exchanged where they are rounded as they would be left", decode, narrow, `(cvt\.rn\.f16x2\.f32 %r\d+, )(%f\d+), (%f\d+);`, -1, "$1$3, $2;"},
	{"elements of a pair exchanged where the other piece's are taken", decode, narrow, `mov\.b32 \{(%h\d+), (%h\d+)\},`, -1, "mov.b32 {$2, $1},"},
	{"quads of a vector exchanged", decode, narrow, `(cvt\.rn\.f16x2.*\n\tst\.global\.v4\.b32 .*\{)(%r\d+, %r\d+), (%r\d+, %r\d+)\}`, 0, "$1$3, $2}"},
	{"vectors of another piece's partial result", decode, narrow, `(ld\.global\.v4\.b32 \{.*\}, \[%rd\d+)\+2048\]`, -1, "$1+4096]"},

	// decode_combine, on each of its ways or whichever.
	{"units read of another share, a warp for a unit of work", combine, narrow, shareOf16 + `(?:.*\n){0,70}?\tgriddepcontrol\.wait)`, 0, "mov.b32 $1, 0;$2"},
	{"units read of another share, half of a CTA", combine, narrow, shareOf16 + `(?:.*\n){0,70}?\tgriddepcontrol\.wait)`, 1, "mov.b32 $1, 0;$2"},
	{"units read of another share, a CTA", combine, narrow, shareOf16 + `(?:.*\n){0,70}?\tgriddepcontrol\.wait)`, 2, "mov.b32 $1, 0;$2"},
	{"units read of another share, half vectors, once", combine, narrow, shareOf16 + `(?:.*\n){0,70}?\tgriddepcontrol\.wait)`, 3, "mov.b32 $1, 0;$2"},
	{"units read of another share, half vectors, in rounds", combine, narrow, shareOf16 + `(?:.*\n){0,70}?\tgriddepcontrol\.wait)`, 4, "mov.b32 $1, 0;$2"},
	{"units read of the other warpgroup's share", combine, wide, shareOf128 + `(?:.*\n){0,70}?\tgriddepcontrol\.wait)`, 0, "mov.b32 $1, 0;$2"},
	{"a slot's unit not applied", combine, narrow, `(ex2.*\n\tadd\.rn\.f32 %f\d+, %f\d+, (%f\d+);\n)\tmul\.rn\.f32 (%f\d+), .*;`, 0, "$1\tmov.f32 $3, $2;"},
	{"the unit of the slot before applied", combine, narrow, `(ex2.*\n\tadd.*\n\tmul\.rn\.f32 %f\d+, %f\d+, )(%f\d+)(;\n\tsub.*\n\tex2.*\n\tadd.*\n\tmul\.rn\.f32 %f\d+, %f\d+, )%f\d+;`, 0, "$1$2$3$2;"},
	{"units of two rows exchanged", combine, narrow, `(ld\.global\.v4\.f32 \{%f\d+, )(%f\d+), (%f\d+), (%f\d+)\}`, 0, "$1$4, $3, $2}"},
	{"elements of a pair exchanged where they are taken", combine, narrow, `mov\.b32 \{(%h\d+), (%h\d+)\},`, 0, "mov.b32 {$2, $1},"},
	{"both lanes of a vector have its first half", combine, narrow, `and\.b32 (%r\d+), %r0, 1;`, 0, "mov.b32 $1, 0;"},
	{"a slot weighed by another lane", combine, narrow, `(shfl\.sync\.idx\.b32 %f\d+, %f\d+, )%r\d+`, 4, "${1}0"},
	{"a slot weighed as another", combine, narrow, `(shfl\.sync\.idx\.b32 %f\d+, %f\d+, )(%r\d+)(,(?:.*\n){1,4}?\tshfl\.sync\.idx(?:.*\n){1,40}?\tshfl\.sync\.idx\.b32 %f\d+, %f\d+, )%r\d+`, 0, "$1$2$3$2"},
	{"a lane's own weights for all", combine, narrow, `(shfl\.sync\.bfly\.b32 %f\d+, (%f\d+), 16, .*\n)\tadd\.rn\.f32 (%f\d+), .*;`, 0, "$1\tmov.f32 $3, $2;"},
	{"slots beyond the last weighed", combine, narrow, `selp\.f32 (%f\d+), (%f\d+), 0fFF800000, %p\d+;`, 6, "mov.f32 $1, $2;"},
	{"both quads of a vector written to the columns of the first", combine, narrow, `st\.global\.b32 \[(%rd\d+)\+128\]`, 0, "st.global.b32 [$1]"},
	{"both quads of a vector written to the columns of the first, a warp for each pair", combine, narrow, `shr\.s32 (%r\d+), %r\d+, 1;(\n\tshl\.b32 %r\d+, %r\d+, 6;)`, 0, "mov.b32 $1, 0;$2"},
	{"both columns of a quad written to the first", combine, narrow, `and\.b32 (%r\d+), %r\d+, 1;(\n\tshl\.b32 %r\d+, %r\d+, 3;(?:.*\n){1,20}?\tgriddepcontrol\.wait)`, 1, "mov.b32 $1, 0;$2"},
	{"a warp's sums gathered twice", combine, narrow, `(ld\.shared\.v2\.f32 .*, \[%r\d+)\+1552\]`, 0, "$1+16]"},
	{"a warp's state gathered twice", combine, narrow, `(ld\.shared\.v4\.f32 .*, \[%r\d+)\+1536\]`, 0, "$1]"},
	{"all warps gather the first pair", combine, narrow, `shl\.b32 (%r\d+), %r\d+, 1;(\n\tshl\.b32 %r\d+, %r\d+, 2;\n\tadd\.s32 .*\n(?:.*\n){1,12}?\tld\.shared\.v2)`, 0, "mov.b32 $1, 0;$2"},
	{"the first row's weights for the second", combine, wide, `(setp\.ne\.s32 %p\d+, %r\d+, )0(;\n(?:.*\n){1,6}?\tld\.shared\.v4)`, 0, "${1}2$2"},
	{"no barrier before sums are gathered", combine, narrow, `^\tbar\.sync 0;\n(\tsetp\.lt)`, 1, "$1"},
	{"no barrier between units of work", combine, narrow, `^\tbar\.sync 0;\n(\tadd\.s32)`, 1, "$1"},
	{"units of work of two groups gathered in one place", combine, narrow, `shl\.b32 (%r\d+), %r\d+, 2;(\n\tadd\.s32 %r\d+, %r\d+, %r\d+;\n\tshl\.b32 %r\d+, %r\d+, 5;)`, 0, "mov.b32 $1, 0;$2"},
}
