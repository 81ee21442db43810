package cases

import (
	"math"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestMergeCaseIsAttention: whatever the pieces, the merged state is the one of
// all keys, but for rounding of the states.
func TestMergeCaseIsAttention(t *testing.T) {
	const fields = `{"name":"x","op":"merge","model":{"heads":2,"nope":8,"rope":4,"value":6},"q_len":[3,0,2],"kv_len":[9,4,0],"partial":"f32"`
	states := func(more string) *Merge {
		t.Helper()
		m, err := parse(t, fields+more+"}").Merge()
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
	whole := states(`,"splits":1`)
	if len(whole.Outs) != 1 || whole.Tokens != 5 || whole.Width != 6 || len(whole.Outs[0]) != 5*2*6 {
		t.Fatalf("%d states of %d tokens", len(whole.Outs), whole.Tokens)
	}
	want := whole.Oracle()
	for more, count := range map[string]int{``: 2, `,"splits":4`: 4, `,"splits":20`: 20, `,"chunk":4`: 3, `,"chunk":100`: 1, `,"splits":3,"lse_base":"2"`: 3} {
		m := states(more)
		if len(m.Outs) != count || len(m.LSEs) != count {
			t.Errorf("%s: %d states, want %d", more, len(m.Outs), count)
		}
		got := m.Oracle()
		for i := range want.LSE {
			if d := math.Abs(got.LSE[i] - want.LSE[i]); d > 1e-6 {
				t.Errorf("%s, row %d: lse %v, want %v", more, i, got.LSE[i], want.LSE[i])
			}
			for j, v := range want.Row(i) {
				if d := math.Abs(got.Row(i)[j] - v); d > 1e-6 {
					t.Errorf("%s, row %d: out[%d] is %v, want %v", more, i, j, got.Row(i)[j], v)
				}
			}
		}
	}
	// States without a key hold what unused memory does.
	last := states(`,"chunk":4`)
	if l := last.LSEs[0][3*2]; !math.IsInf(float64(l), -1) || last.Outs[0][3*2*6] == last.Outs[0][3*2*6] {
		t.Errorf("the third sequence, without a key: lse %v, out %v", l, last.Outs[0][3*2*6])
	}
}

func TestAppendCase(t *testing.T) {
	const fields = `{"name":"x","op":"append","model":{"heads":1,"latent":8,"rope":4},"page_size":4,"q_len":[3,0,5],"kv_len":[9,4,5],"pages":{"order":"identity"}`
	for _, rotate := range []string{"", "half", "interleaved"} {
		a, err := parse(t, fields+`,"rotate":"`+rotate+`"}`).Append()
		if err != nil {
			t.Fatal(err)
		}
		// Pages 0–2 are the first sequence's, 3 the second's, 4 and 5 the third's.
		if diff := cmp.Diff([]int64{-1, 6, 7, 8, -1, -1, 16, 17, 18, 19, 20, -1}, a.Slots); diff != "" {
			t.Errorf("slots (-want +got):\n%s", diff)
		}
		if len(a.New) != 8 || a.Tokens != 12 {
			t.Errorf("%d new of %d", len(a.New), a.Tokens)
		}
		for i := range a.Before.Used {
			before, after := a.Before.Used[i].Values, a.After.Used[i].Values
			for row := range 4 {
				slot := a.After.Used[i].ID*4 + int64(row)
				b, w := before[row*12:][:12], after[row*12:][:12]
				token := slices.Index(a.Slots, slot)
				switch {
				case token < 0:
					same := slices.EqualFunc(b, w, func(x, y float32) bool { return x == y || x != x && y != y })
					if !same {
						t.Errorf("slot %d is not new and differs", slot)
					}
				case b[0] == b[0]:
					t.Errorf("slot %d is new and not NaN before", slot)
				case !slices.Equal(w[:8], a.Latent[token*8:][:8]):
					t.Errorf("slot %d: latent %v, given %v", slot, w[:8], a.Latent[token*8:][:8])
				case rotate == "" && !slices.Equal(w[8:], a.RopeKey[token*4:][:4]):
					t.Errorf("slot %d: rope key %v, given %v", slot, w[8:], a.RopeKey[token*4:][:4])
				}
				if token >= 0 && rotate != "" { // a rotation keeps lengths
					norm := func(x []float32) (n float64) {
						for _, v := range x {
							n += float64(v) * float64(v)
						}
						return math.Sqrt(n)
					}
					if n, m := norm(w[8:]), norm(a.RopeKey[token*4:][:4]); math.Abs(n-m) > 0.01*m || a.Positions[token] > 0 && slices.Equal(w[8:], a.RopeKey[token*4:][:4]) {
						t.Errorf("slot %d: rope key of norm %v became %v", slot, m, n)
					}
				}
			}
		}
	}
	for _, refused := range []string{`{"name":"x","op":"append","q_len":5,"kv_len":[4]}`, `{"name":"x","op":"append","rotate":"neox"}`, `{"name":"x","op":"merge","partial":"fp16"}`, `{"name":"x","op":"merge","q_len":-1,"kv_len":[4]}`} {
		if _, err := Parse([]byte(refused)); err == nil {
			t.Errorf("accepted %s", refused)
		}
	}
}
