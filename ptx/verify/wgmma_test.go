package verify

import "testing"

func TestWgmma(t *testing.T) {
	const (
		zero   = "\tmov.b64 %rd0, 0;\n\tmov.f32 %f0, 0f00000000;\n\tmov.f32 %f1, %f0;\n\tmov.f32 %f2, %f0;\n\tmov.f32 %f3, %f0;\n\tsetp.ne.u64 %p0, %rd0, 1;\n"
		fence  = "\twgmma.fence.sync.aligned;\n"
		mul    = "\twgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {%f0, %f1, %f2, %f3}, %rd0, %rd0, %p0, 1, 1, 0, 0;\n"
		mulReg = "\twgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {%f0, %f1, %f2, %f3}, {%r0, %r1, %r2, %r3}, %rd0, %p0, 1, 1, 0;\n"
		commit = "\twgmma.commit_group.sync.aligned;\n"
		wait0  = "\twgmma.wait_group.sync.aligned 0;\n"
		wait1  = "\twgmma.wait_group.sync.aligned 1;\n"
		use    = "\tadd.f32 %f4, %f0, %f1;\n"
		set    = "\tmov.f32 %f0, 0f00000000;\n"
		end    = "\tret;"
		frag   = "\tmov.u32 %r0, 1;\n\tmov.u32 %r1, 1;\n\tmov.u32 %r2, 1;\n\tmov.u32 %r3, 1;\n"
	)
	checkBodies(t, "wgmma", nil, []bodyCase{
		{"clean", zero + fence + mul + mul + commit + wait0 + use + end, nil},
		{"no fence", zero + mul + commit + wait0 + end, []string{"07: no wgmma.fence comes before the first wgmma.mma_async"}},
		{"read uncommitted", zero + fence + mul + use + commit + wait0 + end,
			[]string{"09: %f0 is read while the wgmma.mma_async that accumulates into it is not committed"}},
		{"read before the wait", zero + fence + mul + commit + use + wait0 + end,
			[]string{"10: %f0 is read while the wgmma.mma_async that accumulates into it is not waited for"}},
		{"written before the wait", zero + fence + mul + commit + set + wait0 + end,
			[]string{"10: %f0 is written while a wgmma.mma_async that accumulates into it is not waited for"}},
		{"wait of one group too few", zero + fence + mul + commit + wait1 + use + wait0 + end,
			[]string{"11: %f0 is read while the wgmma.mma_async that accumulates into it is not waited for"}},
		{"older group", zero + fence + mul + commit + commit + wait1 + use + wait0 + end, nil},
		{"write without a fence", zero + fence + mul + commit + wait0 + set + mul + commit + wait0 + end,
			[]string{"12: %f0 was written after the last wgmma.fence"}},
		{"write with a fence", zero + fence + mul + commit + wait0 + set + fence + mul + commit + wait0 + end, nil},
		{"no wait", zero + fence + mul + commit + end, []string{"10: the kernel may end while a wgmma.mma_async is in flight"}},
		{"no wait, no ret", zero + fence + mul + commit, []string{"09: the kernel may end while a wgmma.mma_async is in flight"}},
		{"fragment", zero + frag + fence + mulReg + commit + wait0 + "\tmov.u32 %r0, 2;\n" + end, nil},
		{"fragment written", zero + frag + fence + mulReg + commit + "\tmov.u32 %r0, 2;\n" + wait0 + end,
			[]string{"14: %r0 is written while a wgmma.mma_async that reads it is not waited for"}},
		{"fragment without a fence", zero + fence + frag + mulReg + commit + wait0 + end,
			[]string{"12: %r0 was written after the last wgmma.fence"}},
		{"around a loop", zero + fence + "L:\n" + mul + commit + "\tsetp.eq.u64 %p1, %rd0, 0;\n\t@%p1 bra L;\n" + wait0 + use + end, nil},
		{"read around a loop", zero + fence + "L:\n" + use + mul + commit + "\tsetp.eq.u64 %p1, %rd0, 0;\n\t@%p1 bra L;\n" + wait0 + use + end,
			[]string{"09: %f0 is read while the wgmma.mma_async that accumulates into it is not waited for"}},
		{"trap", zero + fence + mul + commit + "\ttrap;", nil},
	})
}
