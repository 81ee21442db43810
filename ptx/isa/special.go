package isa

// SpecialRegister describes a predefined read-only register.
type SpecialRegister struct {
	Name    string // with the percent sign
	Type    Type
	PTX     Version
	Target  Target
	Summary string
}

var specials = func() map[string]SpecialRegister {
	m := map[string]SpecialRegister{}
	add := func(t Type, v Version, target Target, summary string, names ...string) {
		for _, n := range names {
			m[n] = SpecialRegister{n, t, v, target, summary}
		}
	}
	xyz := func(v Version, target Target, summary, name string) {
		add(U32, v, target, summary, name+".x", name+".y", name+".z")
	}
	xyz(ptx10, SM70, "thread within the CTA", "%tid")
	xyz(ptx10, SM70, "threads per CTA", "%ntid")
	xyz(ptx10, SM70, "CTA within the grid", "%ctaid")
	xyz(ptx10, SM70, "CTAs per grid", "%nctaid")
	xyz(ptx78, SM90, "cluster within the grid", "%clusterid")
	xyz(ptx78, SM90, "clusters per grid", "%nclusterid")
	xyz(ptx78, SM90, "CTA within the cluster", "%cluster_ctaid")
	xyz(ptx78, SM90, "CTAs per cluster", "%cluster_nctaid")
	add(U32, ptx78, SM90, "rank of the CTA within the cluster", "%cluster_ctarank")
	add(U32, ptx78, SM90, "CTAs of the cluster", "%cluster_nctarank")
	add(Pred, ptx78, SM90, "whether the launch names a cluster", "%is_explicit_cluster")
	add(U32, ptx10, SM70, "lane within the warp", "%laneid")
	add(U32, ptx10, SM70, "warp within the CTA", "%warpid")
	add(U32, ptx20, SM70, "warp slots of the CTA", "%nwarpid")
	add(U32, ptx10, SM70, "multiprocessor", "%smid")
	add(U32, ptx20, SM70, "multiprocessor slots", "%nsmid")
	add(U64, ptx30, SM70, "grid", "%gridid")
	add(U32, ptx10, SM70, "cycle counter, low half", "%clock")
	add(U32, ptx50, SM70, "cycle counter, high half", "%clock_hi")
	add(U64, ptx20, SM70, "cycle counter", "%clock64")
	add(U64, Version{3, 1}, SM70, "nanosecond timer", "%globaltimer")
	add(U32, Version{3, 1}, SM70, "nanosecond timer, low half", "%globaltimer_lo")
	add(U32, Version{3, 1}, SM70, "nanosecond timer, high half", "%globaltimer_hi")
	add(U32, ptx20, SM70, "mask of lanes in the named relation to this one",
		"%lanemask_eq", "%lanemask_le", "%lanemask_lt", "%lanemask_ge", "%lanemask_gt")
	add(U32, ptx40, SM70, "shared memory of the CTA in bytes", "%total_smem_size", "%dynamic_smem_size")
	return m
}()

// LookupSpecial returns the special register of that name, percent sign included.
func LookupSpecial(name string) (SpecialRegister, bool) {
	s, ok := specials[name]
	return s, ok
}
