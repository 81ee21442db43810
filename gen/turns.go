package gen

// Turns lets teams of warps do something one after another, again and again,
// without any waiting for more than the team before.
type Turns struct {
	done  *Barrier // [teams]: the team before has had its turn
	teams int
}

// Turns declares turns of so many teams of so many warps each.
func (k *Kernel) Turns(name string, teams, warps int) *Turns {
	return &Turns{k.Barrier(name, teams, warps), teams}
}

// Turn is a team's place among the others.
type Turn struct {
	t      *Turns
	team   Value
	parity *Var
}

// Of returns the place of a team, a number from 0 on; team 0 begins.
func (t *Turns) Of(team Value) Turn {
	k := t.done.k
	return Turn{t, team, k.Var(k.Select(team.Eq(0), k.Int(1), k.Int(0)))}
}

// Await waits for the team's turn.
func (x Turn) Await() {
	x.t.done.k.await(x.t.done.at.At(x.team).addr(0), x.parity.Value)
	x.parity.Set(x.parity.Xor(1))
}

// Pass hands over to the next team. Run by all warps of the team.
func (x Turn) Pass() {
	k := x.t.done.k
	next := x.team.Add(1)
	x.t.done.Arrive(k.Select(next.Ge(x.t.teams), k.Int(0), next))
}
