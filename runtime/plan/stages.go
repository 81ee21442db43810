package plan

import "math"

// absorbed returns the stages of the absorb path. The schedule is not among them:
// one serves all layers of a model.
func (c Card) absorbed(m Model, r Request) []Stage {
	return []Stage{
		c.product("absorb-q", m, r, m.Nope, m.Latent), c.decode(m, r), c.combine(m, r), c.product("absorb-o", m, r, m.Latent, m.Value),
	}
}

// product multiplies every head's row of so many columns by the weights. These
// are on their way before the kernel before has ended.
func (c Card) product(kernel string, m Model, r Request, in, out int) Stage {
	q, heads := float64(r.New), float64(m.Heads)
	flop := 2 * upTo(q, absorbRows) * heads * float64(in) * float64(out)
	bytes := heads * (float64(in)*float64(out) + q*float64(in+out)) * elementBytes
	return Stage{Kernel: kernel, Launches: 1, FLOP: flop, Bytes: bytes, Seconds: max(flop/c.Absorb, bytes/c.Stream) + c.Follow}
}

// groupsOf calls do with the groups that so many new tokens are split into, and
// the tokens of one.
func groupsOf(n int, do func(groups, size float64)) {
	for _, size := range decodeGroups {
		if n >= size {
			do(float64(n/size), float64(size))
		}
		n %= size
	}
}

// decodeBlocks returns the row blocks of a group, their height and how many parts
// the groups' caches are cut into so that blocks × parts fill the device.
func (c Card) decodeBlocks(rows float64) (blocks, height, parts float64) {
	height = decodeRows
	if rows <= narrowRows {
		height = upTo(rows, narrowStep)
	}
	blocks = math.Ceil(rows / height)
	return blocks, height, math.Max(1, math.Floor(float64(c.SMs)/blocks))
}

// decode is attention in latent space, a call for each size of groups. A block of
// query rows on a part of the groups' caches is the work of a multiprocessor.
func (c Card) decode(m Model, r Request) (all Stage) {
	groupsOf(r.New, func(groups, size float64) {
		rows := size * float64(m.Heads)
		blocks, height, parts := c.decodeBlocks(rows)
		tiles := groups * math.Ceil(r.keys()/decodeTokens)
		perTile := decodeTokens * height * 2 * float64(2*m.Latent+m.Rope)
		busy := c.rounds(blocks*parts) * math.Ceil(tiles/parts) * perTile / (c.Decode / float64(c.SMs))
		busy += c.rounds(blocks*parts) * (math.Ceil(groups/parts) - 1) * c.Group
		// Row blocks read the same pages at the same time; the first to ask brings
		// them from memory.
		bytes := groups * (r.keys()*float64(m.RecordBytes()) + rows*float64(2*m.Latent+m.Rope)*elementBytes)
		all = all.plus(c.stage("absorb-decode", blocks*tiles*perTile, bytes, busy))
	})
	return all
}

// combine merges the partial results, f32, of groups that were cut into more
// than two parts; two merge themselves.
func (c Card) combine(m Model, r Request) (all Stage) {
	groupsOf(r.New, func(groups, size float64) {
		rows := size * float64(m.Heads)
		_, _, parts := c.decodeBlocks(rows)
		pieces := math.Min(math.Ceil(parts/groups), math.Ceil(r.keys()/decodeTokens))
		bytes := 0.0
		if pieces > 2 {
			bytes = groups * rows * float64(m.Latent) * (4*pieces + elementBytes)
		}
		all = all.plus(c.follow("decode-combine", bytes))
	})
	return all
}

// upProject expands so many tokens.
func (c Card) upProject(m Model, tokens float64) Stage {
	flop := upTo(tokens, productRows) * m.ExpandToken()
	bytes := tokens*float64(m.RecordBytes()) + m.weightBytes() + tokens*float64(m.ExpandedBytes()+int64(m.Rope)*elementBytes)
	return c.stage("up-project", flop, bytes, flop/c.UpProject)
}

// prefill is attention of a request's new tokens to keys expanded tokens, of
// which the last query sees all, causally or each query all of them. A block of
// query tokens of a head is the work of a multiprocessor; blocks differ by what
// they see and are dealt longest first.
func (c Card) prefill(m Model, queries, keys float64, causal bool) Stage {
	heads := float64(m.Heads)
	blocks := math.Ceil(queries / prefillRows)
	longest := upTo(keys, prefillKeys)
	shortest := longest
	if causal {
		shortest = upTo(math.Max(0, keys-queries)+math.Min(queries, prefillRows), prefillKeys)
	}
	perKey := prefillRows * 2 * float64(m.Nope+m.Rope+m.Value) // FLOP of a block per key
	total := heads * blocks * (longest + shortest) / 2 * perKey
	// Equal blocks take whole rounds; of unequal ones the shortest fill the last.
	sms, pieces := float64(c.SMs), heads*blocks
	idle := c.rounds(pieces) - pieces/sms
	most := math.Max(longest*perKey, total/sms+idle*shortest*perKey)
	busy := most/(c.Prefill/sms) + c.rounds(pieces)*c.Tile
	bytes := queries*heads*float64(m.Nope+m.Rope+m.Value)*elementBytes + keys*float64(m.ExpandedBytes()+int64(m.Rope)*elementBytes)
	return c.stage("extend-attend", total, bytes, busy)
}

// expanded returns the stages of expanding a request's tokens in chunks of so
// many: each chunk's tokens, then attention to them, which goes on with what the
// chunks before gave. Stages that repeat are one.
func (c Card) expanded(m Model, r Request, chunk, chunks float64) []Stage {
	up := c.upProject(m, math.Min(chunk, r.keys())).times(chunks)
	// The last chunk is what is left.
	less := c.upProject(m, chunk).Seconds - c.upProject(m, r.keys()-(chunks-1)*chunk).Seconds
	if chunks > 1 {
		up.Seconds -= less
	}
	attend := c.prefill(m, float64(r.New), r.keys(), true)
	// A block's state is written by one launch and read by the next.
	again := c.stage("", 0, 2*float64(m.StateBytes(r.New)), 0).times(chunks - 1)
	pieces := float64(m.Heads) * math.Ceil(float64(r.New)/prefillRows)
	again.Seconds += (chunks - 1) * c.rounds(pieces) * c.Tile
	again.Kernel = attend.Kernel
	return []Stage{up, attend.plus(again)}
}
