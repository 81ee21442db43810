package gen

import (
	"github.com/mlagen/mlagen/ptx"
	"github.com/mlagen/mlagen/ptx/hopper"
	"github.com/mlagen/mlagen/ptx/isa"
	"github.com/mlagen/mlagen/ptx/manifest"
)

// Role is a job for consecutive warps of the CTA.
type Role struct {
	Name      string
	Warps     int
	Registers int // per thread, by setmaxnreg; 0 leaves them as launched
	Body      func()
}

// WarpgroupThreads is the number of threads of a warpgroup.
const WarpgroupThreads = hopper.WarpgroupThreads

// Warpgroups returns the warps of n warpgroups.
func Warpgroups(n int) int { return 4 * n }

// Roles splits the CTA's warps among roles, in order. Every warp runs one body
// and they meet again after the last.
func (k *Kernel) Roles(roles ...Role) {
	warp := k.Warp().Broadcast(0) // tells ptxas that whole warps take a role
	// One branch after another, each of whole warps: of a condition with two
	// bounds ptxas would not see that it divides no warp, and keep the body's
	// descriptors out of uniform registers.
	var take func(i, first int)
	take = func(i, first int) {
		r := roles[i]
		end := first + r.Warps
		k.man.Roles = append(k.man.Roles, manifest.Role{Name: r.Name, FirstWarp: first, Warps: r.Warps, Registers: r.Registers})
		k.Comment("role %s: warps %d to %d", r.Name, first, end-1)
		body := func() {
			if r.Registers > 0 {
				k.setRegisters(roles, r.Registers)
			}
			r.Body()
		}
		if i == len(roles)-1 {
			body()
			k.warps = max(k.warps, end)
			return
		}
		k.IfElse(warp.Lt(end), body, func() { take(i+1, end) })
	}
	take(0, 0)
}

// setRegisters moves this role's threads to n registers.
func (k *Kernel) setRegisters(roles []Role, n int) {
	warps := 0
	for _, r := range roles {
		warps += r.Warps
	}
	direction := "inc"
	if n < hopper.RegistersPerThread(warps*32, 1) {
		direction = "dec"
	}
	k.emit("setmaxnreg."+direction+".sync.aligned.u32", ptx.Imm(n))
}

// Threads sets the CTA's size for a kernel without roles.
func (k *Kernel) Threads(n int) { k.warps = n / 32 }

// FitCTAs keeps registers so few that n CTAs fit an SM at a time.
func (k *Kernel) FitCTAs(n int) { k.ctas = n }

// Cluster makes CTAs run in clusters of n.
func (k *Kernel) Cluster(n int) { k.man.Cluster = n }

// AlignmentCheck stops the kernel at its start when dynamic shared memory does
// not begin on a swizzle pattern, on which every layout relies.
func (k *Kernel) AlignmentCheck() {
	base := k.apply(isa.S32, "mov.u32", ptx.Symbol(sharedSymbol))
	k.TrapIf(base.And(hopper.Swizzle128.AtomBytes() - 1).Ne(0))
}
