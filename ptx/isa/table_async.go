package isa

// mbarriers is the section "mbarrier". PTX spells the state space of the
// barrier .shared, .shared::cta or .shared::cluster.
var mbarriers = []instruction{
	{name: "mbarrier.init", ptx: ptx70, target: SM80, anchor: "parallel-synchronization-and-communication-instructions-mbarrier-init", summary: "start of an mbarrier's life, expecting count arrivals a phase", forms: []string{
		`mbarrier.init{.space}.b64 [addr], count
		 .space = shared shared::cta
		 addr: w
		 count: u32`,
	}},
	{name: "mbarrier.inval", ptx: ptx70, target: SM80, anchor: "parallel-synchronization-and-communication-instructions-mbarrier-inval", summary: "end of an mbarrier's life", forms: []string{
		`mbarrier.inval{.space}.b64 [addr]
		 .space = shared shared::cta
		 addr: w`,
	}},
	{name: "mbarrier.expect_tx", ptx: ptx80, target: SM90, anchor: "parallel-synchronization-and-communication-instructions-mbarrier-expect-tx", summary: "bytes more to come in this phase", forms: []string{
		`mbarrier.expect_tx{.space}.b64 [addr], txCount
		 .space = shared shared::cta shared::cluster
		 addr: rw
		 txCount: u32`,
		`mbarrier.expect_tx.sem.scope{.space}.b64 [addr], txCount
		 .sem = relaxed
		 .scope = cta cluster
		 .space = shared shared::cta shared::cluster
		 addr: rw
		 txCount: u32`,
	}},
	{name: "mbarrier.complete_tx", ptx: ptx80, target: SM90, anchor: "parallel-synchronization-and-communication-instructions-mbarrier-complete-tx", summary: "bytes counted as arrived", forms: []string{
		`mbarrier.complete_tx{.space}.b64 [addr], txCount
		 .space = shared shared::cta shared::cluster
		 addr: rw
		 txCount: u32`,
		`mbarrier.complete_tx.sem.scope{.space}.b64 [addr], txCount
		 .sem = relaxed
		 .scope = cta cluster
		 .space = shared shared::cta shared::cluster
		 addr: rw
		 txCount: u32`,
	}},
	{name: "mbarrier.arrive", ptx: ptx78, target: SM90, anchor: "parallel-synchronization-and-communication-instructions-mbarrier-arrive", summary: "count arrivals, one without a count", forms: []string{
		`mbarrier.arrive{.space}.b64 state, [addr]{, count}
		 .space = shared shared::cta
		 state: w b64 sink
		 addr: rw
		 count: u32`,
	}},
	{name: "mbarrier.arrive", ptx: ptx80, target: SM90, anchor: "parallel-synchronization-and-communication-instructions-mbarrier-arrive", summary: "count arrivals, one without a count", forms: []string{
		`mbarrier.arrive.sem.scope{.space}.b64 state, [addr]{, count}
		 .sem = release
		 .scope = cta cluster
		 .space = shared shared::cta
		 state: w b64 sink
		 addr: rw
		 count: u32`,
		`mbarrier.arrive.space.b64 state, [addr]{, count}
		 .space = shared::cluster
		 state: _ b64
		 addr: rw
		 count: u32`,
		`mbarrier.arrive.sem.scope.space.b64 state, [addr]{, count}
		 .sem = release
		 .scope = cta cluster
		 .space = shared::cluster
		 state: _ b64
		 addr: rw
		 count: u32`,
	}},
	{name: "mbarrier.arrive.expect_tx", ptx: ptx80, target: SM90, anchor: "parallel-synchronization-and-communication-instructions-mbarrier-arrive", summary: "expect_tx, then one arrival", forms: []string{
		`mbarrier.arrive.expect_tx{.space}.b64 state, [addr], txCount
		 .space = shared shared::cta
		 state: w b64 sink
		 addr: rw
		 txCount: u32`,
		`mbarrier.arrive.expect_tx.sem.scope{.space}.b64 state, [addr], txCount
		 .sem = release
		 .scope = cta cluster
		 .space = shared shared::cta
		 state: w b64 sink
		 addr: rw
		 txCount: u32`,
		`mbarrier.arrive.expect_tx.space.b64 state, [addr], txCount
		 .space = shared::cluster
		 state: _ b64
		 addr: rw
		 txCount: u32`,
		`mbarrier.arrive.expect_tx.sem.scope.space.b64 state, [addr], txCount
		 .sem = release
		 .scope = cta cluster
		 .space = shared::cluster
		 state: _ b64
		 addr: rw
		 txCount: u32`,
	}},
	{name: "mbarrier.arrive_drop", ptx: ptx80, target: SM90, anchor: "parallel-synchronization-and-communication-instructions-mbarrier-arrive-drop", summary: "count arrivals, expected no more from the next phase on", forms: []string{
		`mbarrier.arrive_drop{.space}.b64 state, [addr]{, count}
		 .space = shared shared::cta
		 state: w b64 sink
		 addr: rw
		 count: u32`,
		`mbarrier.arrive_drop.sem.scope{.space}.b64 state, [addr]{, count}
		 .sem = release
		 .scope = cta cluster
		 .space = shared shared::cta
		 state: w b64 sink
		 addr: rw
		 count: u32`,
		`mbarrier.arrive_drop.space.b64 state, [addr]{, count}
		 .space = shared::cluster
		 state: _ b64
		 addr: rw
		 count: u32`,
		`mbarrier.arrive_drop.sem.scope.space.b64 state, [addr]{, count}
		 .sem = release
		 .scope = cta cluster
		 .space = shared::cluster
		 state: _ b64
		 addr: rw
		 count: u32`,
	}},
	{name: "mbarrier.arrive.noComplete", ptx: ptx70, target: SM80, anchor: "parallel-synchronization-and-communication-instructions-mbarrier-arrive", summary: "count arrivals that must not end the phase", forms: []string{
		`mbarrier.arrive.noComplete{.space}.b64 state, [addr], count
		 .space = shared shared::cta
		 state: w b64
		 addr: rw
		 count: u32`,
	}},
	{name: "mbarrier.pending_count", ptx: ptx70, target: SM80, anchor: "parallel-synchronization-and-communication-instructions-mbarrier-pending-count", summary: "pending arrivals that a state records", forms: []string{
		`mbarrier.pending_count.b64 count, state
		 count: w u32
		 state: b64 reg`,
	}},
	{name: "mbarrier.test_wait", ptx: ptx71, target: SM80, anchor: "parallel-synchronization-and-communication-instructions-mbarrier-test-wait-try-wait", summary: "whether a phase is complete", forms: []string{
		`mbarrier.test_wait{.space}.b64 waitComplete, [addr], state
		 .space = shared shared::cta
		 waitComplete: w pred
		 state: b64 reg`,
		`mbarrier.test_wait.parity{.space}.b64 waitComplete, [addr], phaseParity
		 .space = shared shared::cta
		 waitComplete: w pred
		 phaseParity: u32`,
	}},
	{name: "mbarrier.test_wait", ptx: ptx80, target: SM90, anchor: "parallel-synchronization-and-communication-instructions-mbarrier-test-wait-try-wait", summary: "whether a phase is complete", forms: []string{
		`mbarrier.test_wait.sem.scope{.space}.b64 waitComplete, [addr], state
		 .sem = acquire
		 .scope = cta cluster
		 .space = shared shared::cta
		 waitComplete: w pred
		 state: b64 reg`,
		`mbarrier.test_wait.parity.sem.scope{.space}.b64 waitComplete, [addr], phaseParity
		 .sem = acquire
		 .scope = cta cluster
		 .space = shared shared::cta
		 waitComplete: w pred
		 phaseParity: u32`,
	}},
	{name: "mbarrier.try_wait", ptx: ptx78, target: SM90, anchor: "parallel-synchronization-and-communication-instructions-mbarrier-test-wait-try-wait", summary: "whether a phase is complete, after waiting a while for it", forms: []string{
		`mbarrier.try_wait{.space}.b64 waitComplete, [addr], state{, suspendTimeHint}
		 .space = shared shared::cta
		 waitComplete: w pred
		 state: b64 reg
		 suspendTimeHint: u32`,
		`mbarrier.try_wait.parity{.space}.b64 waitComplete, [addr], phaseParity{, suspendTimeHint}
		 .space = shared shared::cta
		 waitComplete: w pred
		 phaseParity, suspendTimeHint: u32`,
	}},
	{name: "mbarrier.try_wait", ptx: ptx80, target: SM90, anchor: "parallel-synchronization-and-communication-instructions-mbarrier-test-wait-try-wait", summary: "whether a phase is complete, after waiting a while for it", forms: []string{
		`mbarrier.try_wait.sem.scope{.space}.b64 waitComplete, [addr], state{, suspendTimeHint}
		 .sem = acquire
		 .scope = cta cluster
		 .space = shared shared::cta
		 waitComplete: w pred
		 state: b64 reg
		 suspendTimeHint: u32`,
		`mbarrier.try_wait.parity.sem.scope{.space}.b64 waitComplete, [addr], phaseParity{, suspendTimeHint}
		 .sem = acquire
		 .scope = cta cluster
		 .space = shared shared::cta
		 waitComplete: w pred
		 phaseParity, suspendTimeHint: u32`,
	}},
}

// asyncCopies is the section "Asynchronous copy".
var asyncCopies = []instruction{
	{name: "cp.async", ptx: ptx70, target: SM80, proxy: GenericProxy, anchor: "data-movement-and-conversion-instructions-cp-async", summary: "copy of 4, 8 or 16 bytes; past src-size zeros are written", forms: []string{
		`cp.async.ca.shared.global{.L2::cache_hint}{.prefetch} [dst], [src], cp-size{, src-size}{, cache-policy}
		 .prefetch = L2::64B L2::128B L2::256B
		 dst: w
		 cp-size: u32 imm
		 src-size: u32
		 cache-policy: b64 reg with=L2::cache_hint`,
		`cp.async.cg.shared.global{.L2::cache_hint}{.prefetch} [dst], [src], cp-size{, src-size}{, cache-policy}
		 .prefetch = L2::64B L2::128B L2::256B
		 dst: w
		 cp-size: u32 imm
		 src-size: u32
		 cache-policy: b64 reg with=L2::cache_hint`,
	}},
	{name: "cp.async.commit_group", ptx: ptx70, target: SM80, anchor: "data-movement-and-conversion-instructions-cp-async-commit-group", summary: "end of a group of cp.async", forms: []string{`cp.async.commit_group`}},
	{name: "cp.async.wait_group", ptx: ptx70, target: SM80, anchor: "data-movement-and-conversion-instructions-cp-async-wait-group", summary: "wait until at most N groups are pending", forms: []string{
		`cp.async.wait_group N
		 N: u32 imm`,
	}},
	{name: "cp.async.wait_all", ptx: ptx70, target: SM80, anchor: "data-movement-and-conversion-instructions-cp-async-wait-group", summary: "wait for every cp.async of the thread", forms: []string{`cp.async.wait_all`}},
	{name: "cp.async.mbarrier.arrive", ptx: ptx70, target: SM80, anchor: "parallel-synchronization-and-communication-instructions-cp-async-mbarrier-arrive", summary: "arrival when the thread's earlier cp.async are complete", forms: []string{
		`cp.async.mbarrier.arrive{.noinc}{.space}.b64 [addr]
		 .space = shared shared::cta
		 addr: rw`,
	}},
	{name: "st.async", ptx: ptx81, target: SM90, async: MbarrierTx, proxy: AsyncProxy, anchor: "data-movement-and-conversion-instructions-st-async", summary: "store to shared memory of the cluster that counts its bytes on an mbarrier there", forms: []string{
		`st.async{.weak}.shared::cluster.mbarrier::complete_tx::bytes{.vec}.type [a], b, [mbar]
		 .vec = v2 v4
		 .type = b32 b64 u32 u64 s32 s64 f32 f64
		 a: w
		 b: vec
		 mbar: rw`,
	}},
	{name: "cp.async.bulk", ptx: ptx80, target: SM90, async: MbarrierTx, proxy: AsyncProxy, anchor: "data-movement-and-conversion-instructions-cp-async-bulk", summary: "copy of size bytes that counts them on an mbarrier", forms: []string{
		`cp.async.bulk.dst.src.mbarrier::complete_tx::bytes{.multicast::cluster}{.L2::cache_hint} [dstMem], [srcMem], size, [mbar]{, ctaMask}{, cache-policy}
		 .dst = shared::cluster
		 .src = global
		 dstMem: w
		 size: u32
		 mbar: rw
		 ctaMask: u16 reg imm with=multicast::cluster
		 cache-policy: b64 reg with=L2::cache_hint`,
		`cp.async.bulk.dst.src.mbarrier::complete_tx::bytes [dstMem], [srcMem], size, [mbar]
		 .dst = shared::cluster
		 .src = shared::cta
		 dstMem: w
		 size: u32
		 mbar: rw`,
	}},
	{name: "cp.async.bulk", ptx: ptx86, target: SM90, async: MbarrierTx, proxy: AsyncProxy, anchor: "data-movement-and-conversion-instructions-cp-async-bulk", summary: "copy of size bytes that counts them on an mbarrier", forms: []string{
		`cp.async.bulk.dst.src.mbarrier::complete_tx::bytes{.L2::cache_hint} [dstMem], [srcMem], size, [mbar]{, cache-policy}
		 .dst = shared::cta
		 .src = global
		 dstMem: w
		 size: u32
		 mbar: rw
		 cache-policy: b64 reg with=L2::cache_hint`,
	}},
	{name: "cp.async.bulk", ptx: ptx80, target: SM90, async: BulkGroup, proxy: AsyncProxy, anchor: "data-movement-and-conversion-instructions-cp-async-bulk", summary: "copy of size bytes in a bulk group", forms: []string{
		`cp.async.bulk.dst.src.bulk_group{.L2::cache_hint} [dstMem], [srcMem], size{, cache-policy}
		 .dst = global
		 .src = shared::cta
		 dstMem: w
		 size: u32
		 cache-policy: b64 reg with=L2::cache_hint`,
	}},
	{name: "cp.reduce.async.bulk", ptx: ptx80, target: SM90, async: BulkGroup, proxy: AsyncProxy, anchor: "data-movement-and-conversion-instructions-cp-reduce-async-bulk", summary: "element-wise reduction of size bytes into global memory", forms: []string{
		`cp.reduce.async.bulk.dst.src.bulk_group{.L2::cache_hint}.op.type [dstMem], [srcMem], size{, cache-policy}
		 .dst = global
		 .src = shared::cta
		 .op = add
		 .type = f32 f64 u32 s32 u64
		 dstMem: rw
		 size: u32
		 cache-policy: b64 reg with=L2::cache_hint`,
		`cp.reduce.async.bulk.dst.src.bulk_group{.L2::cache_hint}.op.noftz.type [dstMem], [srcMem], size{, cache-policy}
		 .dst = global
		 .src = shared::cta
		 .op = add
		 .type = f16 bf16
		 dstMem: rw
		 size: u32
		 cache-policy: b64 reg with=L2::cache_hint`,
	}},
	{name: "cp.async.bulk.prefetch", ptx: ptx80, target: SM90, proxy: AsyncProxy, anchor: "data-movement-and-conversion-instructions-cp-async-bulk-prefetch", summary: "size bytes brought into L2", forms: []string{
		`cp.async.bulk.prefetch.L2.global{.L2::cache_hint} [srcMem], size{, cache-policy}
		 size: u32
		 cache-policy: b64 reg with=L2::cache_hint`,
	}},
	{name: "cp.async.bulk.tensor", ptx: ptx80, target: SM90, async: MbarrierTx, proxy: AsyncProxy, anchor: "data-movement-and-conversion-instructions-cp-async-bulk-tensor", summary: "copy of a box of a tensor into shared memory that counts its bytes on an mbarrier", forms: []string{
		`cp.async.bulk.tensor.dim.dst.src{.tile}.mbarrier::complete_tx::bytes{.multicast::cluster}{.L2::cache_hint} [dstMem], [tensorMap, tensorCoords], [mbar]{, ctaMask}{, cache-policy}
		 .dim = 1d 2d 3d 4d 5d
		 .dst = shared::cluster
		 .src = global
		 dstMem: w
		 mbar: rw
		 ctaMask: u16 reg imm with=multicast::cluster
		 cache-policy: b64 reg with=L2::cache_hint`,
	}},
	{name: "cp.async.bulk.tensor", ptx: ptx86, target: SM90, async: MbarrierTx, proxy: AsyncProxy, anchor: "data-movement-and-conversion-instructions-cp-async-bulk-tensor", summary: "copy of a box of a tensor into shared memory that counts its bytes on an mbarrier", forms: []string{
		`cp.async.bulk.tensor.dim.dst.src{.tile}.mbarrier::complete_tx::bytes{.L2::cache_hint} [dstMem], [tensorMap, tensorCoords], [mbar]{, cache-policy}
		 .dim = 1d 2d 3d 4d 5d
		 .dst = shared::cta
		 .src = global
		 dstMem: w
		 mbar: rw
		 cache-policy: b64 reg with=L2::cache_hint`,
	}},
	{name: "cp.async.bulk.tensor", ptx: ptx80, target: SM90, async: BulkGroup, proxy: AsyncProxy, anchor: "data-movement-and-conversion-instructions-cp-async-bulk-tensor", summary: "copy of a box from shared memory into a tensor", forms: []string{
		`cp.async.bulk.tensor.dim.dst.src{.tile}.bulk_group{.L2::cache_hint} [tensorMap, tensorCoords], [srcMem]{, cache-policy}
		 .dim = 1d 2d 3d 4d 5d
		 .dst = global
		 .src = shared::cta
		 tensorMap: w
		 cache-policy: b64 reg with=L2::cache_hint`,
	}},
	{name: "cp.reduce.async.bulk.tensor", ptx: ptx80, target: SM90, async: BulkGroup, proxy: AsyncProxy, anchor: "data-movement-and-conversion-instructions-cp-reduce-async-bulk-tensor", summary: "element-wise reduction of a box from shared memory into a tensor", forms: []string{
		`cp.reduce.async.bulk.tensor.dim.dst.src.op{.tile}.bulk_group{.L2::cache_hint} [tensorMap, tensorCoords], [srcMem]{, cache-policy}
		 .dim = 1d 2d 3d 4d 5d
		 .dst = global
		 .src = shared::cta
		 .op = add min max
		 tensorMap: rw
		 cache-policy: b64 reg with=L2::cache_hint`,
	}},
	{name: "cp.async.bulk.prefetch.tensor", ptx: ptx80, target: SM90, proxy: AsyncProxy, anchor: "data-movement-and-conversion-instructions-cp-async-bulk-prefetch-tensor", summary: "box of a tensor brought into L2", forms: []string{
		`cp.async.bulk.prefetch.tensor.dim.L2.global{.tile}{.L2::cache_hint} [tensorMap, tensorCoords]{, cache-policy}
		 .dim = 1d 2d 3d 4d 5d
		 cache-policy: b64 reg with=L2::cache_hint`,
	}},
	{name: "cp.async.bulk.commit_group", ptx: ptx80, target: SM90, anchor: "data-movement-and-conversion-instructions-cp-async-bulk-commit-group", summary: "end of a bulk group", forms: []string{`cp.async.bulk.commit_group`}},
	{name: "cp.async.bulk.wait_group", ptx: ptx80, target: SM90, anchor: "data-movement-and-conversion-instructions-cp-async-bulk-wait-group", summary: "wait until at most N bulk groups are pending; with .read, until they have read their sources", forms: []string{
		`cp.async.bulk.wait_group{.read} N
		 N: u32 imm`,
	}},
}
