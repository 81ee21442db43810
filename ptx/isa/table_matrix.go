package isa

// matrices is the part of "Warp Level Matrix Multiply-Accumulate
// Instructions" that loads, stores and transposes 8x8 matrices.
var matrices = []instruction{
	{name: "ldmatrix", ptx: ptx65, target: SM75, scope: PerWarp, proxy: GenericProxy, anchor: "warp-level-matrix-instructions-ldmatrix", summary: "1, 2 or 4 8x8 matrices from shared memory, a row address per lane", forms: []string{
		`ldmatrix.sync.aligned.shape.num{.trans}{.space}.type {r}, [p]
		 .shape = m8n8
		 .num = x1 x2 x4
		 .space = shared shared::cta
		 .type = b16
		 r: w vec b32`,
	}},
	{name: "stmatrix", ptx: ptx78, target: SM90, scope: PerWarp, proxy: GenericProxy, anchor: "warp-level-matrix-instructions-stmatrix", summary: "1, 2 or 4 8x8 matrices to shared memory, a row address per lane", forms: []string{
		`stmatrix.sync.aligned.shape.num{.trans}{.space}.type [p], {r}
		 .shape = m8n8
		 .num = x1 x2 x4
		 .space = shared shared::cta
		 .type = b16
		 p: w
		 r: vec b32`,
	}},
	{name: "movmatrix", ptx: ptx78, target: SM75, scope: PerWarp, anchor: "warp-level-matrix-instructions-movmatrix", summary: "transpose of an 8x8 matrix in registers", forms: []string{
		`movmatrix.sync.aligned.m8n8.trans.b16 d, a
		 d: w b32
		 a: b32 reg`,
	}},
}

// warpgroupMatrices is the chapter "Asynchronous Warpgroup Level Matrix
// Instructions". a-desc and b-desc are shared-memory matrix descriptors; in
// the second form of a pair, A comes from registers.
var warpgroupMatrices = []instruction{
	{name: "wgmma.fence", ptx: ptx80, target: SM90a, scope: PerWarpgroup, anchor: "asynchronous-warpgroup-level-matrix-instructions-wgmma-fence", summary: "orders register accesses before the following wgmma.mma_async", forms: []string{`wgmma.fence.sync.aligned`}},
	{name: "wgmma.commit_group", ptx: ptx80, target: SM90a, scope: PerWarpgroup, anchor: "asynchronous-warpgroup-level-matrix-instructions-wgmma-commit-group", summary: "end of a wgmma group", forms: []string{`wgmma.commit_group.sync.aligned`}},
	{name: "wgmma.wait_group", ptx: ptx80, target: SM90a, scope: PerWarpgroup, anchor: "asynchronous-warpgroup-level-matrix-instructions-wgmma-wait-group", summary: "wait until at most N wgmma groups are pending", forms: []string{
		`wgmma.wait_group.sync.aligned N
		 N: u32 imm`,
	}},
	{name: "wgmma.mma_async", ptx: ptx80, target: SM90a, scope: PerWarpgroup, async: WgmmaGroup, proxy: AsyncProxy, anchor: "asynchronous-warpgroup-level-matrix-instructions-wgmma-mma", summary: "D = A*B + D over a warpgroup", forms: []string{
		wgmma16("f32", "bf16", "f32", false), wgmma16("f32", "bf16", "f32", true),
		wgmma16("f32", "f16", "f32", false), wgmma16("f32", "f16", "f32", true),
		wgmma16("f16", "f16", "b32", false), wgmma16("f16", "f16", "b32", true),
		wgmma8("f32", "f32", false), wgmma8("f32", "f32", true),
		wgmma8("f16", "b32", false), wgmma8("f16", "b32", true),
	}},
}

// wgmma16 is a form with 16-bit inputs; only these can transpose what they
// read from shared memory.
func wgmma16(dtype, input, element string, registers bool) string {
	a, trans, note := "a-desc", ", imm-trans-a", "a-desc: b64 reg"
	flags := "imm-scale-a, imm-scale-b, imm-trans-a, imm-trans-b: s32 imm"
	if registers {
		a, trans, note = "{a}", "", "a: 4 b32"
		flags = "imm-scale-a, imm-scale-b, imm-trans-b: s32 imm"
	}
	return "wgmma.mma_async.sync.aligned.shape.dtype.atype.btype {d}, " + a + ", b-desc, scale-d, imm-scale-a, imm-scale-b" + trans + `, imm-trans-b
		.shape = m64n{8:256:8}k16
		.dtype = ` + dtype + `
		.atype = ` + input + `
		.btype = ` + input + `
		d: rw vec ` + element + `
		` + note + `
		b-desc: b64 reg
		scale-d: pred
		` + flags
}

// wgmma8 is a form with 8-bit floating-point inputs, both K-major.
func wgmma8(dtype, element string, registers bool) string {
	a, note := "a-desc", "a-desc: b64 reg"
	if registers {
		a, note = "{a}", "a: 4 b32"
	}
	return "wgmma.mma_async.sync.aligned.shape.dtype.atype.btype {d}, " + a + `, b-desc, scale-d, imm-scale-a, imm-scale-b
		.shape = m64n{8:256:8}k32
		.dtype = ` + dtype + `
		.atype = e4m3 e5m2
		.btype = e4m3 e5m2
		d: rw vec ` + element + `
		` + note + `
		b-desc: b64 reg
		scale-d: pred
		imm-scale-a, imm-scale-b: s32 imm`
}
