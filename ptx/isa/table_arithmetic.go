package isa

var (
	ptx10 = Version{1, 0}
	ptx20 = Version{2, 0}
	ptx30 = Version{3, 0}
	ptx40 = Version{4, 0}
	ptx50 = Version{5, 0}
	ptx60 = Version{6, 0}
	ptx63 = Version{6, 3}
	ptx65 = Version{6, 5}
	ptx70 = Version{7, 0}
	ptx71 = Version{7, 1}
	ptx74 = Version{7, 4}
	ptx75 = Version{7, 5}
	ptx77 = Version{7, 7}
	ptx78 = Version{7, 8}
	ptx80 = Version{8, 0}
	ptx81 = Version{8, 1}
	ptx86 = Version{8, 6}
)

// integerArithmetic is the manual's chapter "Integer Arithmetic Instructions".
var integerArithmetic = []instruction{
	{name: "add", ptx: ptx10, anchor: "integer-arithmetic-instructions-add", summary: "sum", forms: []string{
		`add.type d, a, b
		 .type = u16 u32 u64 s16 s32 s64`,
		`add.sat.type d, a, b
		 .type = s32`,
	}},
	{name: "add", ptx: ptx80, target: SM90, anchor: "integer-arithmetic-instructions-add", summary: "sum of packed halves", forms: []string{
		`add.type d, a, b
		 .type = u16x2 s16x2
		 d: w b32
		 a, b: b32 reg`,
	}},
	{name: "sub", ptx: ptx10, anchor: "integer-arithmetic-instructions-sub", summary: "difference", forms: []string{
		`sub.type d, a, b
		 .type = u16 u32 u64 s16 s32 s64`,
		`sub.sat.type d, a, b
		 .type = s32`,
	}},
	{name: "mul", ptx: ptx10, anchor: "integer-arithmetic-instructions-mul", summary: "low or high half of the product, or all of it", forms: []string{
		`mul.mode.type d, a, b
		 .mode = lo hi
		 .type = u16 u32 u64 s16 s32 s64`,
		`mul.wide.type d, a, b
		 .type = u16
		 d: w u32`,
		`mul.wide.type d, a, b
		 .type = s16
		 d: w s32`,
		`mul.wide.type d, a, b
		 .type = u32
		 d: w u64`,
		`mul.wide.type d, a, b
		 .type = s32
		 d: w s64`,
	}},
	{name: "mad", ptx: ptx10, anchor: "integer-arithmetic-instructions-mad", summary: "product plus c", forms: []string{
		`mad.mode.type d, a, b, c
		 .mode = lo hi
		 .type = u16 u32 u64 s16 s32 s64`,
		`mad.wide.type d, a, b, c
		 .type = u16
		 d: w u32
		 c: u32`,
		`mad.wide.type d, a, b, c
		 .type = s16
		 d: w s32
		 c: s32`,
		`mad.wide.type d, a, b, c
		 .type = u32
		 d: w u64
		 c: u64`,
		`mad.wide.type d, a, b, c
		 .type = s32
		 d: w s64
		 c: s64`,
	}},
	{name: "div", ptx: ptx10, anchor: "integer-arithmetic-instructions-div", summary: "quotient, rounded toward zero", forms: []string{
		`div.type d, a, b
		 .type = u16 u32 u64 s16 s32 s64`,
	}},
	{name: "rem", ptx: ptx10, anchor: "integer-arithmetic-instructions-rem", summary: "remainder of the quotient rounded toward zero", forms: []string{
		`rem.type d, a, b
		 .type = u16 u32 u64 s16 s32 s64`,
	}},
	{name: "abs", ptx: ptx10, anchor: "integer-arithmetic-instructions-abs", summary: "absolute value", forms: []string{
		`abs.type d, a
		 .type = s16 s32 s64`,
	}},
	{name: "neg", ptx: ptx10, anchor: "integer-arithmetic-instructions-neg", summary: "negation", forms: []string{
		`neg.type d, a
		 .type = s16 s32 s64`,
	}},
	{name: "min", ptx: ptx10, anchor: "integer-arithmetic-instructions-min", summary: "minimum", forms: []string{
		`min.type d, a, b
		 .type = u16 u32 u64 s16 s32 s64`,
	}},
	{name: "max", ptx: ptx10, anchor: "integer-arithmetic-instructions-max", summary: "maximum", forms: []string{
		`max.type d, a, b
		 .type = u16 u32 u64 s16 s32 s64`,
	}},
	{name: "popc", ptx: ptx20, anchor: "integer-arithmetic-instructions-popc", summary: "number of one bits", forms: []string{
		`popc.type d, a
		 .type = b32 b64
		 d: w u32`,
	}},
	{name: "clz", ptx: ptx20, anchor: "integer-arithmetic-instructions-clz", summary: "number of leading zeros", forms: []string{
		`clz.type d, a
		 .type = b32 b64
		 d: w u32`,
	}},
	{name: "bfind", ptx: ptx20, anchor: "integer-arithmetic-instructions-bfind", summary: "position of the most significant non-sign bit, -1 when none", forms: []string{
		`bfind{.shiftamt}.type d, a
		 .type = u32 u64 s32 s64
		 d: w u32`,
	}},
	{name: "brev", ptx: ptx20, anchor: "integer-arithmetic-instructions-brev", summary: "bits in reverse order", forms: []string{
		`brev.type d, a
		 .type = b32 b64`,
	}},
	{name: "bfe", ptx: ptx20, anchor: "integer-arithmetic-instructions-bfe", summary: "bit field of a from bit b, c bits long", forms: []string{
		`bfe.type d, a, b, c
		 .type = u32 u64 s32 s64
		 b, c: u32`,
	}},
	{name: "bfi", ptx: ptx20, anchor: "integer-arithmetic-instructions-bfi", summary: "b with a inserted at bit c, d bits long", forms: []string{
		`bfi.type f, a, b, c, d
		 .type = b32 b64
		 f: w
		 c, d: r u32 reg imm`,
	}},
}

// floatArithmetic is the chapter "Floating-Point Instructions" for f32 and f64.
var floatArithmetic = []instruction{
	{name: "add", ptx: ptx10, anchor: "floating-point-instructions-add", summary: "sum", forms: []string{
		`add{.rnd}{.ftz}{.sat}.type d, a, b
		 .rnd = rn rz rm rp
		 .type = f32`,
		`add{.rnd}.type d, a, b
		 .rnd = rn rz rm rp
		 .type = f64`,
	}},
	{name: "sub", ptx: ptx10, anchor: "floating-point-instructions-sub", summary: "difference", forms: []string{
		`sub{.rnd}{.ftz}{.sat}.type d, a, b
		 .rnd = rn rz rm rp
		 .type = f32`,
		`sub{.rnd}.type d, a, b
		 .rnd = rn rz rm rp
		 .type = f64`,
	}},
	{name: "mul", ptx: ptx10, anchor: "floating-point-instructions-mul", summary: "product", forms: []string{
		`mul{.rnd}{.ftz}{.sat}.type d, a, b
		 .rnd = rn rz rm rp
		 .type = f32`,
		`mul{.rnd}.type d, a, b
		 .rnd = rn rz rm rp
		 .type = f64`,
	}},
	{name: "fma", ptx: ptx20, anchor: "floating-point-instructions-fma", summary: "product plus c, rounded once", forms: []string{
		`fma.rnd{.ftz}{.sat}.type d, a, b, c
		 .rnd = rn rz rm rp
		 .type = f32`,
		`fma.rnd.type d, a, b, c
		 .rnd = rn rz rm rp
		 .type = f64`,
	}},
	{name: "div", ptx: ptx20, anchor: "floating-point-instructions-div", summary: "quotient", forms: []string{
		`div.approx{.ftz}.type d, a, b
		 .type = f32`,
		`div.full{.ftz}.type d, a, b
		 .type = f32`,
		`div.rnd{.ftz}.type d, a, b
		 .rnd = rn rz rm rp
		 .type = f32`,
	}},
	{name: "abs", ptx: ptx10, anchor: "floating-point-instructions-abs", summary: "absolute value", forms: []string{
		`abs{.ftz}.type d, a
		 .type = f32`,
		`abs.type d, a
		 .type = f64`,
	}},
	{name: "neg", ptx: ptx10, anchor: "floating-point-instructions-neg", summary: "negation", forms: []string{
		`neg{.ftz}.type d, a
		 .type = f32`,
		`neg.type d, a
		 .type = f64`,
	}},
	{name: "min", ptx: ptx10, anchor: "floating-point-instructions-min", summary: "minimum; of a number and a NaN the number", forms: []string{
		`min{.ftz}.type d, a, b
		 .type = f32`,
		`min.type d, a, b
		 .type = f64`,
	}},
	{name: "min", ptx: ptx70, target: SM80, anchor: "floating-point-instructions-min", summary: "minimum; NaN when an operand is", forms: []string{
		`min{.ftz}.NaN.type d, a, b
		 .type = f32`,
	}},
	{name: "max", ptx: ptx10, anchor: "floating-point-instructions-max", summary: "maximum; of a number and a NaN the number", forms: []string{
		`max{.ftz}.type d, a, b
		 .type = f32`,
		`max.type d, a, b
		 .type = f64`,
	}},
	{name: "max", ptx: ptx70, target: SM80, anchor: "floating-point-instructions-max", summary: "maximum; NaN when an operand is", forms: []string{
		`max{.ftz}.NaN.type d, a, b
		 .type = f32`,
	}},
	{name: "rcp", ptx: ptx20, anchor: "floating-point-instructions-rcp", summary: "reciprocal", forms: []string{
		`rcp.approx{.ftz}.type d, a
		 .type = f32`,
		`rcp.rnd{.ftz}.type d, a
		 .rnd = rn rz rm rp
		 .type = f32`,
	}},
	{name: "sqrt", ptx: ptx20, anchor: "floating-point-instructions-sqrt", summary: "square root", forms: []string{
		`sqrt.approx{.ftz}.type d, a
		 .type = f32`,
		`sqrt.rnd{.ftz}.type d, a
		 .rnd = rn rz rm rp
		 .type = f32`,
	}},
	{name: "rsqrt", ptx: ptx10, anchor: "floating-point-instructions-rsqrt", summary: "reciprocal of the square root", forms: []string{
		`rsqrt.approx{.ftz}.type d, a
		 .type = f32`,
	}},
	{name: "sin", ptx: ptx10, anchor: "floating-point-instructions-sin", summary: "sine of a in radians", forms: []string{
		`sin.approx{.ftz}.type d, a
		 .type = f32`,
	}},
	{name: "cos", ptx: ptx10, anchor: "floating-point-instructions-cos", summary: "cosine of a in radians", forms: []string{
		`cos.approx{.ftz}.type d, a
		 .type = f32`,
	}},
	{name: "lg2", ptx: ptx10, anchor: "floating-point-instructions-lg2", summary: "base-2 logarithm", forms: []string{
		`lg2.approx{.ftz}.type d, a
		 .type = f32`,
	}},
	{name: "ex2", ptx: ptx10, anchor: "floating-point-instructions-ex2", summary: "2 to the power a", forms: []string{
		`ex2.approx{.ftz}.type d, a
		 .type = f32`,
	}},
	{name: "tanh", ptx: ptx70, target: SM75, anchor: "floating-point-instructions-tanh", summary: "hyperbolic tangent", forms: []string{
		`tanh.approx.type d, a
		 .type = f32`,
	}},
	{name: "testp", ptx: ptx20, anchor: "floating-point-instructions-testp", summary: "class of a number", forms: []string{
		`testp.op.type p, a
		 .op = finite infinite number notanumber normal subnormal
		 .type = f32 f64
		 p: w pred
		 a: reg`,
	}},
	{name: "copysign", ptx: ptx20, anchor: "floating-point-instructions-copysign", summary: "b with the sign of a", forms: []string{
		`copysign.type d, a, b
		 .type = f32 f64`,
	}},
}

// halfArithmetic is the chapter "Half Precision Floating-Point Instructions".
var halfArithmetic = []instruction{
	{name: "add", ptx: ptx60, target: SM70, anchor: "half-precision-floating-point-instructions-add", summary: "sum of halves", forms: []string{
		`add{.rnd}{.ftz}{.sat}.type d, a, b
		 .rnd = rn
		 .type = f16 f16x2
		 a, b: reg`,
	}},
	{name: "add", ptx: ptx78, target: SM90, anchor: "half-precision-floating-point-instructions-add", summary: "sum of bfloats", forms: []string{
		`add{.rnd}.type d, a, b
		 .rnd = rn
		 .type = bf16 bf16x2
		 a, b: reg`,
	}},
	{name: "sub", ptx: ptx60, target: SM70, anchor: "half-precision-floating-point-instructions-sub", summary: "difference of halves", forms: []string{
		`sub{.rnd}{.ftz}{.sat}.type d, a, b
		 .rnd = rn
		 .type = f16 f16x2
		 a, b: reg`,
	}},
	{name: "sub", ptx: ptx78, target: SM90, anchor: "half-precision-floating-point-instructions-sub", summary: "difference of bfloats", forms: []string{
		`sub{.rnd}.type d, a, b
		 .rnd = rn
		 .type = bf16 bf16x2
		 a, b: reg`,
	}},
	{name: "mul", ptx: ptx60, target: SM70, anchor: "half-precision-floating-point-instructions-mul", summary: "product of halves", forms: []string{
		`mul{.rnd}{.ftz}{.sat}.type d, a, b
		 .rnd = rn
		 .type = f16 f16x2
		 a, b: reg`,
	}},
	{name: "mul", ptx: ptx78, target: SM90, anchor: "half-precision-floating-point-instructions-mul", summary: "product of bfloats", forms: []string{
		`mul{.rnd}.type d, a, b
		 .rnd = rn
		 .type = bf16 bf16x2
		 a, b: reg`,
	}},
	{name: "fma", ptx: ptx60, target: SM70, anchor: "half-precision-floating-point-instructions-fma", summary: "product plus c of halves, rounded once", forms: []string{
		`fma.rnd{.ftz}{.sat}.type d, a, b, c
		 .rnd = rn
		 .type = f16 f16x2
		 a, b, c: reg`,
	}},
	{name: "fma", ptx: ptx70, target: SM80, anchor: "half-precision-floating-point-instructions-fma", summary: "product plus c of halves, rounded once", forms: []string{
		`fma.rnd{.ftz}.relu.type d, a, b, c
		 .rnd = rn
		 .type = f16 f16x2
		 a, b, c: reg`,
		`fma.rnd{.relu}.type d, a, b, c
		 .rnd = rn
		 .type = bf16 bf16x2
		 a, b, c: reg`,
	}},
	{name: "neg", ptx: ptx60, target: SM70, anchor: "half-precision-floating-point-instructions-neg", summary: "negation of halves", forms: []string{
		`neg{.ftz}.type d, a
		 .type = f16 f16x2
		 a: reg`,
	}},
	{name: "neg", ptx: ptx70, target: SM80, anchor: "half-precision-floating-point-instructions-neg", summary: "negation of bfloats", forms: []string{
		`neg.type d, a
		 .type = bf16 bf16x2
		 a: reg`,
	}},
	{name: "abs", ptx: ptx65, target: SM70, anchor: "half-precision-floating-point-instructions-abs", summary: "absolute value of halves", forms: []string{
		`abs{.ftz}.type d, a
		 .type = f16 f16x2
		 a: reg`,
	}},
	{name: "abs", ptx: ptx70, target: SM80, anchor: "half-precision-floating-point-instructions-abs", summary: "absolute value of bfloats", forms: []string{
		`abs.type d, a
		 .type = bf16 bf16x2
		 a: reg`,
	}},
	{name: "min", ptx: ptx70, target: SM80, anchor: "half-precision-floating-point-instructions-min", summary: "minimum of halves", forms: []string{
		`min{.ftz}{.NaN}.type d, a, b
		 .type = f16 f16x2
		 a, b: reg`,
		`min{.NaN}.type d, a, b
		 .type = bf16 bf16x2
		 a, b: reg`,
	}},
	{name: "max", ptx: ptx70, target: SM80, anchor: "half-precision-floating-point-instructions-max", summary: "maximum of halves", forms: []string{
		`max{.ftz}{.NaN}.type d, a, b
		 .type = f16 f16x2
		 a, b: reg`,
		`max{.NaN}.type d, a, b
		 .type = bf16 bf16x2
		 a, b: reg`,
	}},
	{name: "ex2", ptx: ptx70, target: SM75, anchor: "half-precision-floating-point-instructions-ex2", summary: "2 to the power a of halves", forms: []string{
		`ex2.approx.type d, a
		 .type = f16 f16x2
		 a: reg`,
	}},
	{name: "ex2", ptx: ptx78, target: SM90, anchor: "half-precision-floating-point-instructions-ex2", summary: "2 to the power a of bfloats", forms: []string{
		`ex2.approx.ftz.type d, a
		 .type = bf16 bf16x2
		 a: reg`,
	}},
}
