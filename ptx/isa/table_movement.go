package isa

// movement is the part of the chapter "Data Movement and Conversion
// Instructions" that is neither conversion nor asynchronous nor of matrices.
var movement = []instruction{
	{name: "mov", ptx: ptx10, anchor: "data-movement-and-conversion-instructions-mov", summary: "copy of a register, special register or constant, or the address of a variable", forms: []string{
		`mov.type d, a
		 .type = b16 b32 b64 u16 u32 u64 s16 s32 s64 f32 f64
		 a: reg imm special symbol`,
		`mov.type d, a
		 .type = pred
		 a: reg imm`,
	}},
	{name: "mov", ptx: ptx10, anchor: "data-movement-and-conversion-instructions-mov-2", summary: "packing into and unpacking from a wider register", forms: []string{
		`mov.type d, {a}
		 .type = b32
		 a: 2 b16 reg imm`,
		`mov.type d, {a}
		 .type = b64
		 a: 2 b32 reg imm`,
		`mov.type d, {a}
		 .type = b64
		 a: 4 b16 reg imm`,
		`mov.type {d}, a
		 .type = b32
		 d: w 2 b16 reg sink
		 a: reg`,
		`mov.type {d}, a
		 .type = b64
		 d: w 2 b32 reg sink
		 a: reg`,
		`mov.type {d}, a
		 .type = b64
		 d: w 4 b16 reg sink
		 a: reg`,
	}},
	{name: "ld", ptx: ptx10, proxy: GenericProxy, anchor: "data-movement-and-conversion-instructions-ld", summary: "load", forms: []string{
		`ld{.weak}{.space}{.cop}{.L2::cache_hint}{.prefetch}{.vec}.type d, [a]{, cache-policy}
		 .space = global shared shared::cta shared::cluster local const param
		 .cop = ca cg cs lu cv
		 .prefetch = L2::64B L2::128B L2::256B
		 .vec = v2 v4
		 .type = b8 b16 b32 b64 u8 u16 u32 u64 s8 s16 s32 s64 f32 f64
		 d: w vec wide
		 cache-policy: b64 reg with=L2::cache_hint`,
		`ld{.weak}{.space}.L1{.L2::cache_hint}{.prefetch}{.vec}.type d, [a]{, cache-policy}
		 .space = global
		 .L1 = L1::evict_normal L1::evict_unchanged L1::evict_first L1::evict_last L1::no_allocate
		 .prefetch = L2::64B L2::128B L2::256B
		 .vec = v2 v4
		 .type = b8 b16 b32 b64 u8 u16 u32 u64 s8 s16 s32 s64 f32 f64
		 d: w vec wide
		 cache-policy: b64 reg with=L2::cache_hint`,
		`ld.volatile{.space}{.vec}.type d, [a]
		 .space = global shared shared::cta shared::cluster
		 .vec = v2 v4
		 .type = b8 b16 b32 b64 u8 u16 u32 u64 s8 s16 s32 s64 f32 f64
		 d: w vec wide`,
		`ld.sem.scope{.space}{.vec}.type d, [a]
		 .sem = relaxed acquire
		 .scope = cta cluster gpu sys
		 .space = global shared shared::cta shared::cluster
		 .vec = v2 v4
		 .type = b8 b16 b32 b64 u8 u16 u32 u64 s8 s16 s32 s64 f32 f64
		 d: w vec wide`,
	}},
	{name: "ld.global.nc", ptx: Version{3, 1}, proxy: GenericProxy, anchor: "data-movement-and-conversion-instructions-ld-global-nc", summary: "load from memory that the kernel never writes", forms: []string{
		`ld.global.nc{.cop}{.L2::cache_hint}{.prefetch}{.vec}.type d, [a]{, cache-policy}
		 .cop = ca cg cs
		 .prefetch = L2::64B L2::128B L2::256B
		 .vec = v2 v4
		 .type = b8 b16 b32 b64 u8 u16 u32 u64 s8 s16 s32 s64 f32 f64
		 d: w vec wide
		 cache-policy: b64 reg with=L2::cache_hint`,
		`ld.global.nc.L1{.L2::cache_hint}{.prefetch}{.vec}.type d, [a]{, cache-policy}
		 .L1 = L1::evict_normal L1::evict_unchanged L1::evict_first L1::evict_last L1::no_allocate
		 .prefetch = L2::64B L2::128B L2::256B
		 .vec = v2 v4
		 .type = b8 b16 b32 b64 u8 u16 u32 u64 s8 s16 s32 s64 f32 f64
		 d: w vec wide
		 cache-policy: b64 reg with=L2::cache_hint`,
	}},
	{name: "st", ptx: ptx10, proxy: GenericProxy, anchor: "data-movement-and-conversion-instructions-st", summary: "store", forms: []string{
		`st{.weak}{.space}{.cop}{.L2::cache_hint}{.vec}.type [a], b{, cache-policy}
		 .space = global shared shared::cta shared::cluster local
		 .cop = wb cg cs wt
		 .vec = v2 v4
		 .type = b8 b16 b32 b64 u8 u16 u32 u64 s8 s16 s32 s64 f32 f64
		 a: w
		 b: vec wide
		 cache-policy: b64 reg with=L2::cache_hint`,
		`st{.weak}{.space}.L1{.L2::cache_hint}{.vec}.type [a], b{, cache-policy}
		 .space = global
		 .L1 = L1::evict_normal L1::evict_unchanged L1::evict_first L1::evict_last L1::no_allocate
		 .vec = v2 v4
		 .type = b8 b16 b32 b64 u8 u16 u32 u64 s8 s16 s32 s64 f32 f64
		 a: w
		 b: vec wide
		 cache-policy: b64 reg with=L2::cache_hint`,
		`st.volatile{.space}{.vec}.type [a], b
		 .space = global shared shared::cta shared::cluster
		 .vec = v2 v4
		 .type = b8 b16 b32 b64 u8 u16 u32 u64 s8 s16 s32 s64 f32 f64
		 a: w
		 b: vec wide`,
		`st.sem.scope{.space}{.vec}.type [a], b
		 .sem = relaxed release
		 .scope = cta cluster gpu sys
		 .space = global shared shared::cta shared::cluster
		 .vec = v2 v4
		 .type = b8 b16 b32 b64 u8 u16 u32 u64 s8 s16 s32 s64 f32 f64
		 a: w
		 b: vec wide`,
	}},
	{name: "cvta", ptx: ptx20, anchor: "data-movement-and-conversion-instructions-cvta", summary: "generic address of an address in a state space, and back", forms: []string{
		`cvta.space.type d, a
		 .space = global shared shared::cta shared::cluster local const
		 .type = u64
		 a: reg symbol`,
		`cvta.to.space.type d, a
		 .space = global shared shared::cta shared::cluster local const
		 .type = u64
		 a: reg`,
	}},
	{name: "cvta", ptx: ptx77, target: SM70, anchor: "data-movement-and-conversion-instructions-cvta", summary: "generic address of a kernel parameter", forms: []string{
		`cvta.space.type d, a
		 .space = param
		 .type = u64
		 a: reg symbol`,
		`cvta.to.space.type d, a
		 .space = param
		 .type = u64
		 a: reg`,
	}},
	{name: "isspacep", ptx: ptx20, anchor: "data-movement-and-conversion-instructions-isspacep", summary: "whether a generic address lies in a state space", forms: []string{
		`isspacep.space p, a
		 .space = global shared shared::cta shared::cluster local const
		 p: w pred
		 a: u64 reg`,
	}},
	{name: "mapa", ptx: ptx78, target: SM90, anchor: "data-movement-and-conversion-instructions-mapa", summary: "address of the same shared variable in CTA b of the cluster", forms: []string{
		`mapa.shared::cluster.type d, a, b
		 .type = u32 u64
		 a: reg symbol
		 b: u32`,
		`mapa.type d, a, b
		 .type = u64
		 a: reg
		 b: u32`,
	}},
	{name: "getctarank", ptx: ptx78, target: SM90, anchor: "data-movement-and-conversion-instructions-getctarank", summary: "rank of the CTA whose shared memory an address lies in", forms: []string{
		`getctarank.shared::cluster.type d, a
		 .type = u32 u64
		 d: w u32
		 a: reg`,
		`getctarank.type d, a
		 .type = u64
		 d: w u32
		 a: reg`,
	}},
	{name: "prefetch", ptx: ptx20, anchor: "data-movement-and-conversion-instructions-prefetch-prefetchu", summary: "line brought into a cache", forms: []string{
		`prefetch{.space}.level [a]
		 .space = global local
		 .level = L1 L2`,
		`prefetch.global.level [a]
		 .level = L2::evict_last L2::evict_normal`,
	}},
	{name: "prefetch", ptx: ptx80, target: SM90, anchor: "data-movement-and-conversion-instructions-prefetch-prefetchu", summary: "tensor map brought into the descriptor cache", forms: []string{
		`prefetch{.space}.tensormap [a]
		 .space = const param`,
	}},
	{name: "createpolicy.fractional", ptx: ptx74, target: SM80, anchor: "data-movement-and-conversion-instructions-createpolicy", summary: "cache policy for a fraction of the accesses", forms: []string{
		`createpolicy.fractional.primary{.secondary}.b64 cache-policy{, fraction}
		 .primary = L2::evict_last L2::evict_normal L2::evict_first L2::evict_unchanged
		 .secondary = L2::evict_first L2::evict_unchanged
		 cache-policy: w b64
		 fraction: f32 imm`,
	}},
	{name: "shfl.sync", ptx: ptx60, scope: PerWarp, anchor: "data-movement-and-conversion-instructions-shfl-sync", summary: "register of another lane", forms: []string{
		`shfl.sync.mode.b32 d, a, b, c, membermask
		 .mode = up down bfly idx
		 d: w b32
		 a: b32 reg
		 b, c, membermask: b32`,
		`shfl.sync.mode.b32 d|p, a, b, c, membermask
		 .mode = up down bfly idx
		 d: w b32
		 p: w pred
		 a: b32 reg
		 b, c, membermask: b32`,
	}},
}

// conversion is cvt.
var conversion = []instruction{
	{name: "cvt", ptx: ptx10, anchor: "data-movement-and-conversion-instructions-cvt", summary: "conversion between types", forms: []string{
		`cvt{.sat}.dtype.atype d, a
		 .dtype = u8 u16 u32 u64 s8 s16 s32 s64
		 .atype = u8 u16 u32 u64 s8 s16 s32 s64
		 d: w .dtype wide
		 a: .atype wide reg`,
		`cvt.rnd{.ftz}{.sat}.dtype.atype d, a
		 .rnd = rn rz rm rp
		 .dtype = f32
		 .atype = u8 u16 u32 u64 s8 s16 s32 s64
		 d: w .dtype
		 a: .atype wide reg`,
		`cvt.rnd{.sat}.dtype.atype d, a
		 .rnd = rn rz rm rp
		 .dtype = f16 f64
		 .atype = u8 u16 u32 u64 s8 s16 s32 s64
		 d: w .dtype
		 a: .atype wide reg`,
		`cvt.rnd{.ftz}{.sat}.dtype.atype d, a
		 .rnd = rni rzi rmi rpi
		 .dtype = u8 u16 u32 u64 s8 s16 s32 s64 f32
		 .atype = f32
		 d: w .dtype wide
		 a: .atype reg`,
		`cvt.rnd{.sat}.dtype.atype d, a
		 .rnd = rni rzi rmi rpi
		 .dtype = u8 u16 u32 u64 s8 s16 s32 s64
		 .atype = f16 f64
		 d: w .dtype wide
		 a: .atype reg`,
		`cvt.rnd{.ftz}{.sat}.dtype.atype d, a
		 .rnd = rn rz rm rp
		 .dtype = f32
		 .atype = f64
		 d: w .dtype
		 a: .atype reg`,
		`cvt{.ftz}{.sat}.dtype.atype d, a
		 .dtype = f64
		 .atype = f32
		 d: w .dtype
		 a: .atype reg`,
		`cvt.rnd{.ftz}{.sat}.dtype.atype d, a
		 .rnd = rn rz rm rp
		 .dtype = f16
		 .atype = f32
		 d: w .dtype
		 a: .atype reg`,
		`cvt{.ftz}{.sat}.dtype.atype d, a
		 .dtype = f32
		 .atype = f16
		 d: w .dtype
		 a: .atype reg`,
	}},
	{name: "cvt", ptx: ptx70, target: SM80, anchor: "data-movement-and-conversion-instructions-cvt", summary: "conversion to halves and bfloats, packed ones with a in the upper half", forms: []string{
		`cvt.rnd{.relu}.dtype.atype d, a
		 .rnd = rn rz
		 .dtype = bf16
		 .atype = f32
		 d: w .dtype
		 a: .atype reg`,
		`cvt.rnd{.relu}.dtype.atype d, a, b
		 .rnd = rn rz
		 .dtype = f16x2 bf16x2
		 .atype = f32
		 d: w .dtype
		 a, b: .atype reg`,
	}},
	{name: "cvt", ptx: ptx71, target: SM90, anchor: "data-movement-and-conversion-instructions-cvt", summary: "conversion of a bfloat", forms: []string{
		`cvt.dtype.atype d, a
		 .dtype = f32
		 .atype = bf16
		 d: w .dtype
		 a: .atype reg`,
	}},
	{name: "cvt", ptx: ptx78, target: SM90, anchor: "data-movement-and-conversion-instructions-cvt", summary: "conversion between 8-bit pairs and wider ones, a in the upper half", forms: []string{
		`cvt.rn.satfinite{.relu}.dtype.atype d, a, b
		 .dtype = e4m3x2 e5m2x2
		 .atype = f32
		 d: w b16
		 a, b: f32 reg`,
		`cvt.rn.satfinite{.relu}.dtype.atype d, a
		 .dtype = e4m3x2 e5m2x2
		 .atype = f16x2
		 d: w b16
		 a: f16x2 reg`,
		`cvt.rn{.relu}.dtype.atype d, a
		 .dtype = f16x2
		 .atype = e4m3x2 e5m2x2
		 d: w f16x2
		 a: b16 reg`,
	}},
}
