package isa

// control is the chapter "Control Flow Instructions".
var control = []instruction{
	{name: "bra", ptx: ptx10, anchor: "control-flow-instructions-bra", summary: "branch", forms: []string{
		`bra{.uni} tgt
		 tgt: label`,
	}},
	{name: "ret", ptx: ptx10, anchor: "control-flow-instructions-ret", summary: "return; from a kernel, the thread's end", forms: []string{`ret{.uni}`}},
	{name: "exit", ptx: ptx10, anchor: "control-flow-instructions-exit", summary: "end of the thread", forms: []string{`exit`}},
	{name: "trap", ptx: ptx10, anchor: "miscellaneous-instructions-trap", summary: "abort of the kernel", forms: []string{`trap`}},
}

// synchronization is the part of "Parallel Synchronization and Communication
// Instructions" about barriers, fences and votes.
var synchronization = []instruction{
	{name: "bar.sync", ptx: ptx10, scope: PerCTA, anchor: "parallel-synchronization-and-communication-instructions-bar", summary: "wait at named barrier a for b threads; all of the CTA without b", forms: []string{
		`bar.sync a{, b}
		 a, b: u32`,
	}},
	{name: "bar.arrive", ptx: ptx20, scope: PerCTA, anchor: "parallel-synchronization-and-communication-instructions-bar", summary: "arrival at named barrier a of b threads, without waiting", forms: []string{
		`bar.arrive a, b
		 a, b: u32`,
	}},
	{name: "bar.red", ptx: ptx20, scope: PerCTA, anchor: "parallel-synchronization-and-communication-instructions-bar", summary: "wait at named barrier a for b threads; the number of them in which c holds, or whether it holds in all, in any", forms: []string{
		`bar.red.popc.u32 d, a{, b}, c
		 d: w u32
		 a, b: u32
		 c: pred not`,
		`bar.red.op.pred p, a{, b}, c
		 .op = and or
		 p: w pred
		 a, b: u32
		 c: pred not`,
	}},
	{name: "barrier.sync", ptx: ptx60, scope: PerCTA, anchor: "parallel-synchronization-and-communication-instructions-bar", summary: "wait at named barrier a for b threads; all of the CTA without b", forms: []string{
		`barrier.sync{.aligned} a{, b}
		 a, b: u32`,
	}},
	{name: "barrier.arrive", ptx: ptx60, scope: PerCTA, anchor: "parallel-synchronization-and-communication-instructions-bar", summary: "arrival at named barrier a of b threads, without waiting", forms: []string{
		`barrier.arrive{.aligned} a, b
		 a, b: u32`,
	}},
	{name: "barrier.red", ptx: ptx60, scope: PerCTA, anchor: "parallel-synchronization-and-communication-instructions-bar", summary: "wait at named barrier a for b threads; the number of them in which c holds, or whether it holds in all, in any", forms: []string{
		`barrier.red.popc{.aligned}.u32 d, a{, b}, c
		 d: w u32
		 a, b: u32
		 c: pred not`,
		`barrier.red.op{.aligned}.pred p, a{, b}, c
		 .op = and or
		 p: w pred
		 a, b: u32
		 c: pred not`,
	}},
	{name: "barrier.cta.sync", ptx: ptx78, scope: PerCTA, anchor: "parallel-synchronization-and-communication-instructions-bar", summary: "wait at named barrier a for b threads; all of the CTA without b", forms: []string{
		`barrier.cta.sync{.aligned} a{, b}
		 a, b: u32`,
	}},
	{name: "barrier.cta.arrive", ptx: ptx78, scope: PerCTA, anchor: "parallel-synchronization-and-communication-instructions-bar", summary: "arrival at named barrier a of b threads, without waiting", forms: []string{
		`barrier.cta.arrive{.aligned} a, b
		 a, b: u32`,
	}},
	{name: "barrier.cta.red", ptx: ptx78, scope: PerCTA, anchor: "parallel-synchronization-and-communication-instructions-bar", summary: "wait at named barrier a for b threads; the number of them in which c holds, or whether it holds in all, in any", forms: []string{
		`barrier.cta.red.popc{.aligned}.u32 d, a{, b}, c
		 d: w u32
		 a, b: u32
		 c: pred not`,
		`barrier.cta.red.op{.aligned}.pred p, a{, b}, c
		 .op = and or
		 p: w pred
		 a, b: u32
		 c: pred not`,
	}},
	{name: "bar.warp.sync", ptx: ptx60, scope: PerWarp, anchor: "parallel-synchronization-and-communication-instructions-bar-warp-sync", summary: "wait for the lanes of a mask", forms: []string{
		`bar.warp.sync membermask
		 membermask: b32`,
	}},
	{name: "barrier.cluster.arrive", ptx: ptx80, target: SM90, scope: PerCluster, anchor: "parallel-synchronization-and-communication-instructions-barrier-cluster", summary: "arrival at the cluster's barrier", forms: []string{
		`barrier.cluster.arrive{.sem}{.aligned}
		 .sem = release relaxed`,
	}},
	{name: "barrier.cluster.wait", ptx: ptx80, target: SM90, scope: PerCluster, anchor: "parallel-synchronization-and-communication-instructions-barrier-cluster", summary: "wait for all threads of the cluster", forms: []string{
		`barrier.cluster.wait{.sem}{.aligned}
		 .sem = acquire`,
	}},
	{name: "membar", ptx: Version{1, 4}, anchor: "parallel-synchronization-and-communication-instructions-membar", summary: "memory barrier in the older spelling", forms: []string{
		`membar.level
		 .level = cta gl sys`,
	}},
	{name: "fence", ptx: ptx60, anchor: "parallel-synchronization-and-communication-instructions-membar", summary: "memory barrier", forms: []string{
		`fence{.sem}.scope
		 .sem = sc acq_rel
		 .scope = cta cluster gpu sys`,
	}},
	{name: "fence.mbarrier_init", ptx: ptx80, target: SM90, anchor: "parallel-synchronization-and-communication-instructions-membar", summary: "makes mbarrier.init visible to the cluster", forms: []string{
		`fence.mbarrier_init.sem.scope
		 .sem = release
		 .scope = cluster`,
	}},
	{name: "fence.proxy.async", ptx: ptx80, target: SM90, proxy: AsyncProxy, anchor: "parallel-synchronization-and-communication-instructions-membar", summary: "orders generic accesses against those of the async proxy", forms: []string{
		`fence.proxy.async{.space}
		 .space = global shared::cta shared::cluster`,
	}},
	{name: "fence.proxy.alias", ptx: ptx75, target: SM70, anchor: "parallel-synchronization-and-communication-instructions-membar", summary: "orders accesses through different addresses of the same memory", forms: []string{`fence.proxy.alias`}},
	{name: "vote.sync", ptx: ptx60, scope: PerWarp, anchor: "parallel-synchronization-and-communication-instructions-vote-sync", summary: "predicate over the lanes of a mask", forms: []string{
		`vote.sync.mode.pred d, a, membermask
		 .mode = all any uni
		 d: w pred
		 a: pred not
		 membermask: b32`,
		`vote.sync.mode.b32 d, a, membermask
		 .mode = ballot
		 d: w b32
		 a: pred not
		 membermask: b32`,
	}},
	{name: "match.any.sync", ptx: ptx60, target: SM70, scope: PerWarp, anchor: "parallel-synchronization-and-communication-instructions-match-sync", summary: "lanes that hold the same value", forms: []string{
		`match.any.sync.type d, a, membermask
		 .type = b32 b64
		 d: w b32
		 membermask: b32`,
	}},
	{name: "match.all.sync", ptx: ptx60, target: SM70, scope: PerWarp, anchor: "parallel-synchronization-and-communication-instructions-match-sync", summary: "the mask when all of its lanes hold the same value", forms: []string{
		`match.all.sync.type d|p, a, membermask
		 .type = b32 b64
		 d: w b32
		 p: w pred
		 membermask: b32`,
	}},
	{name: "activemask", ptx: Version{6, 2}, anchor: "parallel-synchronization-and-communication-instructions-activemask", summary: "lanes active now", forms: []string{
		`activemask.b32 d
		 d: w b32`,
	}},
	{name: "redux.sync", ptx: ptx70, target: SM80, scope: PerWarp, anchor: "parallel-synchronization-and-communication-instructions-redux-sync", summary: "reduction over the lanes of a mask", forms: []string{
		`redux.sync.op.type d, a, membermask
		 .op = add min max
		 .type = u32 s32
		 membermask: b32`,
		`redux.sync.op.type d, a, membermask
		 .op = and or xor
		 .type = b32
		 membermask: b32`,
	}},
	{name: "elect.sync", ptx: ptx80, target: SM90, scope: PerWarp, anchor: "parallel-synchronization-and-communication-instructions-elect-sync", summary: "true in one lane of a mask", forms: []string{
		`elect.sync d|p, membermask
		 d: w b32 sink
		 p: w pred
		 membermask: b32`,
	}},
	{name: "griddepcontrol", ptx: ptx78, target: SM90, anchor: "parallel-synchronization-and-communication-instructions-griddepcontrol", summary: "launch of dependent grids, or wait for the grids this one depends on", forms: []string{
		`griddepcontrol.action
		 .action = launch_dependents wait`,
	}},
}

// atomics is atom and red.
var atomics = []instruction{
	{name: "atom", ptx: ptx60, target: SM70, proxy: GenericProxy, anchor: "parallel-synchronization-and-communication-instructions-atom", summary: "atomic read-modify-write; d is the old value", forms: []string{
		`atom{.sem}{.scope}{.space}.op.type d, [a], b
		 .sem = relaxed acquire release acq_rel
		 .scope = cta cluster gpu sys
		 .space = global shared shared::cta shared::cluster
		 .op = add
		 .type = u32 s32 u64 f32 f64
		 d: w sink
		 a: rw`,
		`atom{.sem}{.scope}{.space}.op.type d, [a], b
		 .sem = relaxed acquire release acq_rel
		 .scope = cta cluster gpu sys
		 .space = global shared shared::cta shared::cluster
		 .op = min max
		 .type = u32 s32 u64 s64
		 d: w sink
		 a: rw`,
		`atom{.sem}{.scope}{.space}.op.type d, [a], b
		 .sem = relaxed acquire release acq_rel
		 .scope = cta cluster gpu sys
		 .space = global shared shared::cta shared::cluster
		 .op = and or xor exch
		 .type = b32 b64
		 d: w sink
		 a: rw`,
		`atom{.sem}{.scope}{.space}.op.type d, [a], b
		 .sem = relaxed acquire release acq_rel
		 .scope = cta cluster gpu sys
		 .space = global shared shared::cta shared::cluster
		 .op = inc dec
		 .type = u32
		 d: w sink
		 a: rw`,
		`atom{.sem}{.scope}{.space}.op.type d, [a], b, c
		 .sem = relaxed acquire release acq_rel
		 .scope = cta cluster gpu sys
		 .space = global shared shared::cta shared::cluster
		 .op = cas
		 .type = b16 b32 b64
		 d: w sink
		 a: rw`,
	}},
	{name: "red", ptx: ptx60, target: SM70, proxy: GenericProxy, anchor: "parallel-synchronization-and-communication-instructions-red", summary: "atomic read-modify-write without a result", forms: []string{
		`red{.sem}{.scope}{.space}.op.type [a], b
		 .sem = relaxed release
		 .scope = cta cluster gpu sys
		 .space = global shared shared::cta shared::cluster
		 .op = add
		 .type = u32 s32 u64 f32 f64
		 a: rw`,
		`red{.sem}{.scope}{.space}.op.type [a], b
		 .sem = relaxed release
		 .scope = cta cluster gpu sys
		 .space = global shared shared::cta shared::cluster
		 .op = min max
		 .type = u32 s32 u64 s64
		 a: rw`,
		`red{.sem}{.scope}{.space}.op.type [a], b
		 .sem = relaxed release
		 .scope = cta cluster gpu sys
		 .space = global shared shared::cta shared::cluster
		 .op = and or xor
		 .type = b32 b64
		 a: rw`,
		`red{.sem}{.scope}{.space}.op.type [a], b
		 .sem = relaxed release
		 .scope = cta cluster gpu sys
		 .space = global shared shared::cta shared::cluster
		 .op = inc dec
		 .type = u32
		 a: rw`,
	}},
	{name: "red", ptx: ptx81, target: SM90, proxy: GenericProxy, anchor: "parallel-synchronization-and-communication-instructions-red", summary: "atomic addition to a vector, element by element", forms: []string{
		`red{.sem}{.scope}.global.op.vec.type [a], b
		 .sem = relaxed release
		 .scope = cta cluster gpu sys
		 .op = add
		 .vec = v2 v4
		 .type = f32
		 a: rw
		 b: vec reg`,
	}},
}

// miscellany is the chapter "Miscellaneous Instructions" and nanosleep.
var miscellany = []instruction{
	{name: "nanosleep", ptx: ptx63, target: SM70, anchor: "miscellaneous-instructions-nanosleep", summary: "sleep for about t nanoseconds", forms: []string{
		`nanosleep.type t
		 .type = u32`,
	}},
	{name: "setmaxnreg", ptx: ptx80, target: SM90a, scope: PerWarpgroup, anchor: "miscellaneous-instructions-setmaxnreg", summary: "registers per thread of the executing warpgroup, taken from and given to the CTA's pool", forms: []string{
		`setmaxnreg.action.sync.aligned.type imm-reg-count
		 .action = inc dec
		 .type = u32
		 imm-reg-count: imm`,
	}},
}
