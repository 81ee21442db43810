package isa

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestEveryRowIsComplete(t *testing.T) {
	seen := map[string]bool{}
	for _, f := range Table() {
		name := f.Grammar
		if !strings.HasPrefix(name, f.Root) {
			t.Errorf("%s: root %s", name, f.Root)
		}
		if f.Summary == "" || f.PTX == (Version{}) || f.Link == manual || !strings.HasPrefix(f.Link, manual) {
			t.Errorf("%s: summary %q, PTX %v, link %s", name, f.Summary, f.PTX, f.Link)
		}
		if f.Async != Synchronous && f.Proxy != AsyncProxy {
			t.Errorf("%s: asynchronous, yet not through the async proxy", name)
		}
		key := name
		for _, s := range f.Slots {
			if s.Name == "" || len(s.Values) == 0 {
				t.Errorf("%s: slot %+v", name, s)
			}
			key += " " + strings.Join(s.Values, ",")
		}
		for _, o := range f.Operands {
			if o.Name == "" || o.Access == 0 || o.Kinds == 0 {
				t.Errorf("%s: operand %+v", name, o)
			}
			key += " " + o.Name + o.Type.String()
		}
		if seen[key] {
			t.Errorf("%s: twice in the table", name)
		}
		seen[key] = true
	}
	if n := len(seen); n < 95 {
		t.Errorf("%d forms", n)
	}
}

func TestLookup(t *testing.T) {
	for _, c := range []struct {
		opcode  string
		grammar string
		mods    []string
	}{
		{"add.u32", "add.type d, a, b", []string{"u32"}},
		{"add.rn.ftz.f32", "add{.rnd}{.ftz}{.sat}.type d, a, b", []string{"rn", "ftz", "", "f32"}},
		{"add.sat.f32", "add{.rnd}{.ftz}{.sat}.type d, a, b", []string{"", "", "sat", "f32"}},
		{"ret", "ret{.uni}", []string{""}},
		{"ld.global.nc.L1::no_allocate.v4.f32", "ld.global.nc.L1{.L2::cache_hint}{.prefetch}{.vec}.type d, [a]{, cache-policy}",
			[]string{"L1::no_allocate", "", "", "v4", "f32"}},
		{"ld.global.cg.v2.u64", "ld{.weak}{.space}{.cop}{.L2::cache_hint}{.prefetch}{.vec}.type d, [a]{, cache-policy}",
			[]string{"", "global", "cg", "", "", "v2", "u64"}},
		{"mbarrier.arrive.expect_tx.shared::cta.b64", "mbarrier.arrive.expect_tx{.space}.b64 state, [addr], txCount", []string{"shared::cta", "b64"}},
		{"fence.proxy.async.shared::cta", "fence.proxy.async{.space}", []string{"shared::cta"}},
		{"wgmma.mma_async.sync.aligned.m64n256k16.f32.bf16.bf16",
			"wgmma.mma_async.sync.aligned.shape.dtype.atype.btype {d}, a-desc, b-desc, scale-d, imm-scale-a, imm-scale-b, imm-trans-a, imm-trans-b",
			[]string{"sync", "aligned", "m64n256k16", "f32", "bf16", "bf16"}},
	} {
		f, mods, err := Lookup(c.opcode)
		if err != nil {
			t.Error(err)
			continue
		}
		if f.Grammar != c.grammar {
			t.Errorf("%s is %q, want %q", c.opcode, f.Grammar, c.grammar)
		}
		if d := cmp.Diff(c.mods, mods); d != "" {
			t.Errorf("%s: %s", c.opcode, d)
		}
	}
}

func TestLookupErrors(t *testing.T) {
	for opcode, want := range map[string]string{
		"":                         `unknown instruction ""`,
		"foo.bar":                  `unknown instruction "foo.bar"`,
		"add":                      `no form of add is spelled "add"`,
		"add.b32":                  `no form of add is spelled "add.b32"`,
		"add.u32.sat":              `no form of add is spelled "add.u32.sat"`,
		"fma.f32":                  `no form of fma is spelled "fma.f32"; known: fma.rnd{.ftz}{.sat}.type; `,
		"mbarrier.arrive.now":      `no form of mbarrier.arrive is spelled`,
		"wgmma.fence.sync":         `no form of wgmma.fence is spelled "wgmma.fence.sync"`,
		"wgmma.fence.sync.aligned": "",
		"wgmma.mma_async.sync.aligned.m64n12k16.f32.bf16.bf16": `no form of wgmma.mma_async`,
	} {
		_, _, err := Lookup(opcode)
		got := ""
		if err != nil {
			got = err.Error()
		}
		if want == "" && err != nil || !strings.HasPrefix(got, want) {
			t.Errorf("%q: %q, want %q", opcode, got, want)
		}
	}
}

func TestBindAndElements(t *testing.T) {
	for _, c := range []struct {
		opcode string
		n      int
		want   []string // the operands that n arguments are; nil when they do not fit
		counts []int
	}{
		{"add.u32", 3, []string{"d", "a", "b"}, []int{0, 0, 0}},
		{"add.u32", 2, nil, nil},
		{"bar.sync", 1, []string{"a"}, []int{0}},
		{"bar.sync", 2, []string{"a", "b"}, []int{0, 0}},
		{"bar.red.or.pred", 3, []string{"p", "a", "c"}, []int{0, 0, 0}},
		{"barrier.cta.red.popc.aligned.u32", 4, []string{"d", "a", "b", "c"}, []int{0, 0, 0, 0}},
		{"ld.global.v4.f32", 2, []string{"d", "a"}, []int{4, 0}},
		{"ld.global.f32", 3, nil, nil},
		{"ld.global.L2::cache_hint.f32", 3, []string{"d", "a", "cache-policy"}, []int{0, 0, 0}},
		{"ld.global.L2::cache_hint.f32", 2, nil, nil},
		{"stmatrix.sync.aligned.m8n8.x2.shared.b16", 2, []string{"p", "r"}, []int{0, 2}},
		{"cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint", 4,
			[]string{"dstMem", "tensorMap", "mbar", "cache-policy"}, []int{0, 4, 0, 0}},
		{"cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster", 4,
			[]string{"dstMem", "tensorMap", "mbar", "ctaMask"}, []int{0, 2, 0, 0}},
		{"cp.async.ca.shared.global.L2::cache_hint", 4, []string{"dst", "src", "cp-size", "cache-policy"}, []int{0, 0, 0, 0}},
		{"cp.async.ca.shared.global.L2::cache_hint", 5, []string{"dst", "src", "cp-size", "src-size", "cache-policy"}, []int{0, 0, 0, 0, 0}},
		{"wgmma.mma_async.sync.aligned.m64n16k16.f32.bf16.bf16", 8,
			[]string{"d", "a-desc", "b-desc", "scale-d", "imm-scale-a", "imm-scale-b", "imm-trans-a", "imm-trans-b"}, []int{8, 0, 0, 0, 0, 0, 0, 0}},
		{"wgmma.mma_async.sync.aligned.m64n16k32.f16.e4m3.e5m2", 6,
			[]string{"d", "a-desc", "b-desc", "scale-d", "imm-scale-a", "imm-scale-b"}, []int{4, 0, 0, 0, 0, 0}},
	} {
		f, mods, err := Lookup(c.opcode)
		if err != nil {
			t.Error(err)
			continue
		}
		idx, ok := f.Bind(mods, c.n)
		if !ok {
			idx = nil
		}
		var got []string
		var counts []int
		for _, i := range idx {
			got = append(got, f.Operands[i].Name)
			counts = append(counts, f.Elements(&f.Operands[i], mods))
		}
		if d := cmp.Diff(c.want, got); d != "" {
			t.Errorf("%s with %d: %s", c.opcode, c.n, d)
		}
		if d := cmp.Diff(c.counts, counts); d != "" {
			t.Errorf("%s with %d: %s", c.opcode, c.n, d)
		}
	}
}

func TestAccess(t *testing.T) {
	for opcode, want := range map[string]string{
		"add.u32":                             "d=w a=r b=r",
		"st.global.u32":                       "a=w b=r cache-policy=r",
		"atom.add.u32":                        "d=w a=rw b=r",
		"setp.lt.u32":                         "p=w a=r b=r",
		"elect.sync":                          "d=w p=w membermask=r",
		"bfi.b32":                             "f=w a=r b=r c=r d=r",
		"mbarrier.arrive.shared::cluster.b64": "state=w addr=rw count=r",
		"wgmma.mma_async.sync.aligned.m64n8k32.f32.e4m3.e4m3": "d=rw a-desc=r b-desc=r scale-d=r imm-scale-a=r imm-scale-b=r",
	} {
		f, _, err := Lookup(opcode)
		if err != nil {
			t.Error(err)
			continue
		}
		var got []string
		for _, o := range f.Operands {
			got = append(got, o.Name+"="+map[Access]string{Read: "r", Write: "w", ReadWrite: "rw"}[o.Access])
		}
		if s := strings.Join(got, " "); s != want {
			t.Errorf("%s: %s, want %s", opcode, s, want)
		}
	}
}

// Mistakes in a row are found when the table is built, not by its users.
func TestGrammarErrors(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"sub.u32 d", `does not start with "add"`},
		{"add{.u32 d", "unclosed brace"},
		{"add.type d, a\n.typ = u32", "no slot .typ"},
		{"add.type d, a\n.type = u32\nb: u32", "no operand b"},
		{"add.type d, a\n.type = u32\na: u33", `unknown word "u33"`},
		{"add.op d, a\n.op = x", "operand d has no type"},
		{"add.type d, [a\n.type = u32", "unclosed bracket"},
		{"add.type.type d\n.type = u32", "slot .type twice"},
		{"add.type d\n.type = m{1:2}", "malformed range"},
		{"add.type d\nnonsense", "defines neither"},
		{"add.type d{, p}\n.type = u32\np: with=hint", `goes with slot "hint"`},
	} {
		in := instruction{name: "add", forms: []string{c.text}}
		if _, err := in.parse(); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q: %v, want %q", c.text, err, c.want)
		}
	}
}

func TestTypes(t *testing.T) {
	for ty := Pred; ty <= F64; ty++ {
		got, ok := ParseType(ty.String())
		if !ok || got != ty {
			t.Errorf("%s reads as %v", ty, got)
		}
		if n := map[bool]int{true: 1}[ty.Float()] + map[bool]int{true: 1}[ty.Signed()] + map[bool]int{true: 1}[ty.Unsigned()] + map[bool]int{true: 1}[ty.Untyped()]; n != 1 && ty != Pred {
			t.Errorf("%s is of %d classes", ty, n)
		}
	}
	if _, ok := ParseType("u33"); ok {
		t.Error("u33 is a type")
	}
}
