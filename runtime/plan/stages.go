package plan

import "math"

// absorbed returns the stages of the absorb path.
func (c Card) absorbed(m Model, r Request) []Stage {
	q, heads := float64(r.New), float64(m.Heads)
	rows := q * heads
	// Both products together have the up-projections' weights.
	product := func(kernel string, in, out int, share float64) Stage {
		flop := 2 * upTo(q, absorbRows) * heads * float64(in) * float64(out)
		bytes := m.weightBytes()*share + rows*float64(in+out)*elementBytes
		return c.stage(kernel, flop, bytes, flop/c.Absorb)
	}
	share := float64(m.Nope) / float64(m.Nope+m.Value)
	return []Stage{
		product("absorb-q", m.Nope, m.Latent, share),
		c.stage("decode-schedule", 0, 0, 0),
		c.decode(m, r),
		c.combine(m, r),
		product("absorb-o", m.Latent, m.Value, 1-share),
	}
}

// decodeBlocks returns the row blocks of one call of decode, their height and
// how many parts the cache is cut into so that blocks × parts fill the device.
func (c Card) decodeBlocks(rows float64) (blocks, height, parts float64) {
	height = decodeRows
	if rows <= narrowRows {
		height = upTo(rows, narrowStep)
	}
	blocks = math.Ceil(rows / height)
	return blocks, height, math.Max(1, math.Floor(float64(c.SMs)/blocks))
}

// calls returns into how many calls decode takes the request, and the query
// rows of one.
func calls(m Model, r Request) (count, rows float64) {
	all := float64(r.New) * float64(m.Heads)
	count = math.Ceil(all / decodeMost)
	return count, all / count
}

// decode is attention in latent space. A block of query rows on a part of the
// cache is the work of a multiprocessor.
func (c Card) decode(m Model, r Request) Stage {
	count, rows := calls(m, r)
	blocks, height, parts := c.decodeBlocks(rows)
	tiles := math.Ceil(r.keys() / decodeTokens)
	perTile := decodeTokens * height * 2 * float64(2*m.Latent+m.Rope)
	busy := c.rounds(blocks*parts) * math.Ceil(tiles/parts) * perTile / (c.Decode / float64(c.SMs))
	// Row blocks read the same pages at the same time; the first to ask brings
	// them from memory.
	bytes := r.keys()*float64(m.RecordBytes()) + rows*float64(2*m.Latent+m.Rope)*elementBytes
	return c.stage("absorb-decode", blocks*tiles*perTile, bytes, busy).times(count)
}

// combine merges the partial results, f32, of a request that was cut into more
// than two parts; two merge themselves.
func (c Card) combine(m Model, r Request) Stage {
	count, rows := calls(m, r)
	_, _, parts := c.decodeBlocks(rows)
	parts = math.Min(parts, math.Ceil(r.keys()/decodeTokens))
	bytes := 0.0
	if parts > 2 {
		bytes = rows * float64(m.Latent) * (4*parts + elementBytes)
	}
	return c.follow("decode-combine", bytes).times(count)
}

// upProject expands so many tokens.
func (c Card) upProject(m Model, tokens float64) Stage {
	flop := upTo(tokens, productRows) * m.ExpandToken()
	bytes := tokens*float64(m.RecordBytes()) + m.weightBytes() + tokens*float64(m.ExpandedBytes()+int64(m.Rope)*elementBytes)
	return c.stage("up-project", flop, bytes, flop/c.UpProject)
}

// prefill is attention of the request's new tokens to keys expanded tokens, of
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
	return c.stage("expand-prefill", total, bytes, busy)
}

// merge merges so many partial states of the request's rows.
func (c Card) merge(m Model, queries, states float64) Stage {
	rows := queries * float64(m.Heads)
	return c.follow("merge-states", rows*(states+1)*float64(m.Value*elementBytes+4))
}

// expanded returns the stages of expanding everything at once.
func (c Card) expanded(m Model, r Request) []Stage {
	return []Stage{c.upProject(m, r.keys()), c.prefill(m, float64(r.New), r.keys(), true)}
}

// chunked returns the stages of expanding the prefix in chunks of so many
// tokens, then the new tokens, and merging what each gave. Stages that repeat
// are one.
func (c Card) chunked(m Model, r Request, chunk int) []Stage {
	q, prefix, size := float64(r.New), float64(r.Prefix), float64(chunk)
	var up, attend Stage
	piece := func(queries, keys, times float64, causal bool) {
		up = up.plus(c.upProject(m, keys).times(times))
		attend = attend.plus(c.prefill(m, queries, keys, causal).times(times))
	}
	states := math.Ceil(prefix / size)
	if whole := math.Floor(prefix / size); whole > 0 {
		piece(q, size, whole, false)
	}
	if rest := math.Mod(prefix, size); rest > 0 {
		piece(q, rest, 1, false)
	}
	// New tokens that do not fit a chunk are expanded in several; each is seen by
	// its own queries, and by those of the chunks after it, half of all on average.
	own := math.Ceil(q / size)
	piece(q/own, q/own, own, true)
	if own > 1 {
		attend = attend.plus(c.prefill(m, q/2, q/own, false).times(own - 1))
	}
	return []Stage{up, attend, c.merge(m, q, states+own)}
}
