package verify

// manifest checks that the manifest describes this kernel.
func (c *kernelChecker) manifest() {
	man := c.man
	if man == nil {
		return
	}
	if want := c.m.Version.String(); man.PTXVersion != "" && man.PTXVersion != want {
		c.report(nil, "manifest", "ptx_version %s; the text has %s", man.PTXVersion, want)
	}
	if man.Target != "" && man.Target != c.m.Target {
		c.report(nil, "manifest", "target %s; the text has %s", man.Target, c.m.Target)
	}
	if d := c.k.ReqNTID; d != [3]int{} && man.Threads != d[0]*d[1]*d[2] {
		c.report(nil, "manifest", "%d threads; .reqntid says %d", man.Threads, d[0]*d[1]*d[2])
	}
	if d := c.k.MaxNTID; d != [3]int{} && man.Threads > d[0]*d[1]*d[2] {
		c.report(nil, "manifest", "%d threads; .maxntid allows %d", man.Threads, d[0]*d[1]*d[2])
	}
	if d := c.k.ReqNCTAPerClust; d != [3]int{} && max(man.Cluster, 1) != d[0]*d[1]*d[2] {
		c.report(nil, "manifest", "clusters of %d; .reqnctapercluster says %d", man.Cluster, d[0]*d[1]*d[2])
	}
	if len(man.Params) != len(c.k.Params) {
		c.report(nil, "manifest", "%d parameters; the kernel has %d", len(man.Params), len(c.k.Params))
		return
	}
	offset := 0
	for i, p := range c.k.Params {
		align := p.Alignment()
		if align > 0 && offset%align != 0 {
			offset += align - offset%align
		}
		q := man.Params[i]
		if q.Name != p.Name || q.Size != p.Size() || q.Offset != offset {
			c.report(nil, "manifest", "parameter %d is %s, %d bytes at %d; the kernel has %s, %d bytes at %d",
				i, q.Name, q.Size, q.Offset, p.Name, p.Size(), offset)
		}
		offset += p.Size()
	}
}
