package cases

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// TestReferenceIsTheOracle: the cheaper way to the reference of an extend case
// is the same as expanding everything, where sequences are absorbed, expanded,
// have no key or no query.
func TestReferenceIsTheOracle(t *testing.T) {
	for _, causal := range []string{"true", "false"} {
		e, err := parse(t, `{"name":"x","op":"extend","model":{"heads":3,"latent":16,"rope":4,"nope":8,"value":6},"page_size":4,
			"q_len":[1,40,3,0,5],"kv_len":[50,44,1,7,0],"causal":`+causal+`,"fill":{"weights":"normal*0.3"}}`).Extend()
		if err != nil {
			t.Fatal(err)
		}
		close := cmpopts.EquateApprox(1e-10, 1e-12)
		if d := cmp.Diff(e.Oracle().Run(), e.Reference(), close); d != "" {
			t.Errorf("causal %s (-oracle +reference):\n%s", causal, d)
		}
	}
}
