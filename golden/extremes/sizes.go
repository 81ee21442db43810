package extremes

import (
	"errors"
	"fmt"
	"strings"

	"github.com/mlagen/mlagen/golden/cases"
	"github.com/mlagen/mlagen/golden/check"
	"github.com/mlagen/mlagen/runtime"
)

func millionTokens(e *Env) (string, error) { return longContext(e, 16) }

func millionTokensWide(e *Env) (string, error) { return longContext(e, 128) }

// longContext decodes one long request, and one beside empty and short ones.
func longContext(e *Env, heads int) (figures string, err error) {
	n := e.size(1<<20, 1<<10)
	r, err := newRig(e, heads, 4, n+page, 1)
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, r.close()) }()
	for _, lengths := range [][]int{{n + 1, 0, 0, 0}, {n, n - 1, 65, n/2 + 7}} {
		if _, _, figures, err = r.right(lengths); err != nil {
			return "", err
		}
	}
	return fmt.Sprintf("%s, %d tokens", figures, n), nil
}

// manyRequests decodes a batch of which most requests are short.
func manyRequests(e *Env) (figures string, err error) {
	n := e.size(20000, 150)
	r, err := newRig(e, 16, n, 1000, 2)
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, r.close()) }()
	lengths := make([]int, n)
	for i := range lengths {
		lengths[i] = []int{1, 0, 64, 65, 0, 7, 129, 1}[i%8]
		if i%997 == 5 {
			lengths[i] = 1000
		}
	}
	if _, _, figures, err = r.right(lengths); err != nil {
		return "", err
	}
	return fmt.Sprintf("%s, %d requests", figures, n), nil
}

// run runs cases, of which none may fail or be skipped.
func (e *Env) run(all ...string) (figures string, err error) {
	r := check.New(check.Options{Driver: e.Driver, Source: e.Source, Hazards: e.Small})
	defer func() { err = errors.Join(err, r.Close()) }()
	for _, text := range all {
		c, err := cases.Parse([]byte(text))
		if err != nil {
			return "", err
		}
		if o := r.Case(c); o.Status != check.OK {
			return "", errors.New(o.String())
		}
	}
	return fmt.Sprintf("%d operations", len(all)), nil
}

// hugePools has sequences in the last pages of pools beyond 2³² bytes and 2³¹
// elements. An emulator's memory is sparse, and is as large.
func hugePools(e *Env) (string, error) {
	const pool = `"kv_len":[70,0,130],"pages":{"pool":65000,"base":64990,"order":"reversed"}` // of 73,728 bytes
	return e.run(
		`{"name":"decode","op":"decode","model":{"heads":3},`+pool+`}`,
		`{"name":"upproject","op":"upproject","model":{"heads":1},`+pool+`}`,
		`{"name":"extend","op":"extend","model":{"heads":1},"q_len":[3,1,9],"tolerance":{"out":0.01,"lse":0.01},`+pool+`}`,
		`{"name":"layer","op":"layer","model":{"heads":1},"q_len":[3,1,9],"paths":["absorb","expand","expand"],"tolerance":{"out":0.01,"lse":0.01},`+pool+`}`,
		`{"name":"append","op":"append","model":{"heads":1},"q_len":[3,0,9],`+pool+`}`,
	)
}

// manyRows has 70,000 tokens in every operation.
func manyRows(e *Env) (string, error) {
	n := e.size(70000, 700)
	const small = `"model":{"heads":1,"latent":128,"rope":64,"nope":64,"value":64},"tolerance":{"out":0.01,"lse":0.01}`
	figures, err := e.run(
		fmt.Sprintf(`{"name":"prefill","op":"prefill",%s,"q_len":%d,"kv_len":[100]}`, small, n),
		fmt.Sprintf(`{"name":"extend","op":"extend",%s,"q_len":%d,"kv_len":[100]}`, strings.Replace(small, "128", "256", 1), n),
		fmt.Sprintf(`{"name":"expanded","op":"layer",%s,"q_len":%d,"kv_len":[100],"paths":["expand"]}`, strings.Replace(small, "128", "256", 1), n),
		fmt.Sprintf(`{"name":"absorbed","op":"layer",%s,"q_len":%d,"kv_len":[100],"paths":["absorb"]}`, strings.Replace(small, "128", "256", 1), n),
		fmt.Sprintf(`{"name":"merge","op":"merge",%s,"q_len":%d,"kv_len":[9]}`, small, n),
		fmt.Sprintf(`{"name":"upproject","op":"upproject",%s,"kv_len":[%d]}`, small, n),
		fmt.Sprintf(`{"name":"absorb","op":"absorb",%s,"q_len":%d}`, small, n),
		fmt.Sprintf(`{"name":"append","op":"append",%s,"q_len":%d,"kv_len":[%d]}`, small, n, n),
	)
	if err != nil {
		return "", err
	}
	_, err = e.Source.Decode(runtime.DecodeShape{Heads: 1, SQ: 70000, Latent: latent, Rope: rope, Page: page, DType: runtime.BF16})
	if err == nil || !strings.Contains(err.Error(), "nearest") {
		return "", fmt.Errorf("decode of 70,000 rows per request: %v; an error must say what builds", err)
	}
	return fmt.Sprintf("%s on %d tokens", figures, n), nil
}
