package verify

import "testing"

func TestMemberMasks(t *testing.T) {
	const (
		elect = "\telect.sync _|%p0, -1;\n"
		lane  = "\tmov.u32 %r0, %laneid;\n\tsetp.lt.u32 %p0, %r0, 16;\n"
		skip  = "\t@!%p0 bra L;\n"
		shfl  = "\tshfl.sync.idx.b32 %r1, %r0, 0, 31, -1;\n"
		end   = "L:\n\tbar.warp.sync -1;\n\tret;"
	)
	wants := func(at, opcode, because string) []string {
		return []string{at + ": " + opcode + " waits for the lanes of its mask 0xffffffff, but " + because + " lets only some of them pass"}
	}
	checkBodies(t, "member-mask", nil, []bodyCase{
		{"clean", lane + shfl + skip + end, nil},
		{"elected", "\tmov.u32 %r0, 7;\n" + elect + skip + shfl + end, wants("04", "shfl.sync.idx.b32", "the branch on %p0")},
		{"half a warp", lane + skip + shfl + end, wants("04", "shfl.sync.idx.b32", "the branch on %p0")},
		{"vote", lane + skip + "\tvote.sync.any.pred %p1, %p0, 0xffffffff;\n" + end, wants("04", "vote.sync.any.pred", "the branch on %p0")},
		{"barrier", lane + skip + "\tbar.warp.sync -1;\n\tmov.u32 %r1, 0;\nL:\n\tbar.sync 0;\n\tret;", wants("04", "bar.warp.sync", "the branch on %p0")},
		{"redux", lane + skip + "\tredux.sync.add.u32 %r1, %r0, -1;\n" + end, wants("04", "redux.sync.add.u32", "the branch on %p0")},
		{"match", lane + skip + "\tmatch.any.sync.b32 %r1, %r0, -1;\n" + end, wants("04", "match.any.sync.b32", "the branch on %p0")},
		{"elect within", lane + skip + "\telect.sync _|%p1, -1;\n" + end, wants("04", "elect.sync", "the branch on %p0")},
		{"guard", lane + "\t@%p0 shfl.sync.idx.b32 %r1, %r0, 0, 31, -1;\n" + end[3:], wants("03", "shfl.sync.idx.b32", "its guard %p0")},
		{"in a loop", lane + skip + "M:\n" + shfl + "\tsetp.ne.u32 %p1, %r1, 0;\n\t@%p1 bra M;\n" + end, wants("05", "shfl.sync.idx.b32", "the branch on %p0")},
		{"mask of those who pass", lane + skip + "\tshfl.sync.idx.b32 %r1, %r0, 0, 31, 0xffff;\n" + end, nil},
		{"mask of some of them", lane + skip + "\tshfl.sync.idx.b32 %r1, %r0, 0, 31, 0x1ffff;\n" + end,
			[]string{"04: shfl.sync.idx.b32 waits for the lanes of its mask 0x0001ffff, but the branch on %p0 lets only some of them pass"}},
		{"mask unknown", lane + skip + "\tactivemask.b32 %r2;\n\tshfl.sync.idx.b32 %r1, %r0, 0, 31, %r2;\n" + end, nil},
		{"whole warps", "\tmov.u32 %r0, %tid.x;\n\tsetp.lt.u32 %p0, %r0, 64;\n" + skip + shfl + end, nil},
		{"both ways", lane + skip + shfl + "\tbra M;\nL:\n" + shfl + "M:\n\tbar.warp.sync -1;\n\tret;", nil},
		{"both ways, other masks", lane + skip + shfl + "\tbra M;\nL:\n\tshfl.sync.idx.b32 %r1, %r0, 0, 31, 0xffff0000;\nM:\n\tbar.warp.sync -1;\n\tret;",
			wants("04", "shfl.sync.idx.b32", "the branch on %p0")},
		{"the others have returned", lane + "\t@!%p0 ret;\n" + shfl + "\tbar.warp.sync -1;\n\tret;", nil},
		{"the others return", lane + skip + shfl + "L:\n\tret;", nil},
		{"loaded condition", "\tld.param.u32 %r0, [x];\n\tsetp.ne.u32 %p0, %r0, 0;\n" + skip + shfl + end, nil},
	})
}
