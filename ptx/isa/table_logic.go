package isa

// comparison is the chapter "Comparison and Selection Instructions".
var comparison = []instruction{
	{name: "setp", ptx: ptx10, anchor: "comparison-and-selection-instructions-setp", summary: "comparison into a predicate, and its complement into a second one", forms: []string{
		`setp.cmp.type p, a, b
		 .cmp = eq ne lt le gt ge lo ls hi hs
		 .type = u16 u32 u64 s16 s32 s64
		 p: w pred`,
		`setp.cmp.type p|q, a, b
		 .cmp = eq ne lt le gt ge lo ls hi hs
		 .type = u16 u32 u64 s16 s32 s64
		 p, q: w pred`,
		`setp.cmp.bool.type p, a, b, c
		 .cmp = eq ne lt le gt ge lo ls hi hs
		 .bool = and or xor
		 .type = u16 u32 u64 s16 s32 s64
		 p: w pred
		 c: pred not`,
		`setp.cmp.bool.type p|q, a, b, c
		 .cmp = eq ne lt le gt ge lo ls hi hs
		 .bool = and or xor
		 .type = u16 u32 u64 s16 s32 s64
		 p, q: w pred
		 c: pred not`,
		`setp.cmp.type p, a, b
		 .cmp = eq ne
		 .type = b16 b32 b64
		 p: w pred`,
		`setp.cmp.bool.type p, a, b, c
		 .cmp = eq ne
		 .bool = and or xor
		 .type = b16 b32 b64
		 p: w pred
		 c: pred not`,
		`setp.cmp{.ftz}.type p, a, b
		 .cmp = eq ne lt le gt ge equ neu ltu leu gtu geu num nan
		 .type = f32
		 p: w pred`,
		`setp.cmp{.ftz}.type p|q, a, b
		 .cmp = eq ne lt le gt ge equ neu ltu leu gtu geu num nan
		 .type = f32
		 p, q: w pred`,
		`setp.cmp.bool{.ftz}.type p, a, b, c
		 .cmp = eq ne lt le gt ge equ neu ltu leu gtu geu num nan
		 .bool = and or xor
		 .type = f32
		 p: w pred
		 c: pred not`,
		`setp.cmp.type p, a, b
		 .cmp = eq ne lt le gt ge equ neu ltu leu gtu geu num nan
		 .type = f64
		 p: w pred`,
	}},
	{name: "selp", ptx: ptx10, anchor: "comparison-and-selection-instructions-selp", summary: "a when c, else b", forms: []string{
		`selp.type d, a, b, c
		 .type = b16 b32 b64 u16 u32 u64 s16 s32 s64 f32 f64
		 c: pred`,
	}},
}

// logic is the chapter "Logic and Shift Instructions", with prmt.
var logic = []instruction{
	{name: "and", ptx: ptx10, anchor: "logic-and-shift-instructions-and", summary: "bitwise and", forms: []string{
		`and.type d, a, b
		 .type = b16 b32 b64`,
		`and.type d, a, b
		 .type = pred
		 a, b: reg`,
	}},
	{name: "or", ptx: ptx10, anchor: "logic-and-shift-instructions-or", summary: "bitwise or", forms: []string{
		`or.type d, a, b
		 .type = b16 b32 b64`,
		`or.type d, a, b
		 .type = pred
		 a, b: reg`,
	}},
	{name: "xor", ptx: ptx10, anchor: "logic-and-shift-instructions-xor", summary: "bitwise exclusive or", forms: []string{
		`xor.type d, a, b
		 .type = b16 b32 b64`,
		`xor.type d, a, b
		 .type = pred
		 a, b: reg`,
	}},
	{name: "not", ptx: ptx10, anchor: "logic-and-shift-instructions-not", summary: "bitwise complement", forms: []string{
		`not.type d, a
		 .type = b16 b32 b64`,
		`not.type d, a
		 .type = pred
		 a: reg`,
	}},
	{name: "shl", ptx: ptx10, anchor: "logic-and-shift-instructions-shl", summary: "shift left; 0 from the type's width on", forms: []string{
		`shl.type d, a, b
		 .type = b16 b32 b64
		 b: u32`,
	}},
	{name: "shr", ptx: ptx10, anchor: "logic-and-shift-instructions-shr", summary: "shift right, arithmetic for signed types; counts clamp to the type's width", forms: []string{
		`shr.type d, a, b
		 .type = b16 b32 b64 u16 u32 u64 s16 s32 s64
		 b: u32`,
	}},
	{name: "shf", ptx: ptx30, anchor: "logic-and-shift-instructions-shf", summary: "funnel shift of the 64 bits {b,a} by c", forms: []string{
		`shf.dir.mode.type d, a, b, c
		 .dir = l r
		 .mode = clamp wrap
		 .type = b32
		 c: u32`,
	}},
	{name: "lop3", ptx: Version{4, 3}, anchor: "logic-and-shift-instructions-lop3", summary: "any function of three bits, by truth table", forms: []string{
		`lop3.type d, a, b, c, immLut
		 .type = b32
		 immLut: u8 imm`,
	}},
	{name: "prmt", ptx: ptx20, anchor: "data-movement-and-conversion-instructions-prmt", summary: "four bytes picked from the eight of {b,a} by the nibbles of c", forms: []string{
		`prmt.type d, a, b, c
		 .type = b32`,
	}},
}
