package runtime

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestParseVariant: what was written loads as what it was made from.
func TestParseVariant(t *testing.T) {
	want := decodeVariants(16, 2, 16)
	got := want
	for _, v := range []*Variant{&got.Decode, &got.Schedule, &got.Combine} {
		text, err := v.Manifest.Text()
		if err != nil {
			t.Fatal(err)
		}
		if *v, err = ParseVariant(v.Name, string(v.PTX), string(text)); err != nil {
			t.Fatal(err)
		}
	}
	if d := cmp.Diff(want.Decode.Manifest.Params, got.Decode.Manifest.Params); d != "" || string(got.Decode.PTX) != string(want.Decode.PTX) {
		t.Error(d)
	}
	var models []DecodeModel
	for _, v := range []DecodeVariants{want, got} {
		d, err := LoadDecode(newFake(), v)
		if err != nil {
			t.Fatal(err)
		}
		models = append(models, d.Model())
	}
	if d := cmp.Diff(models[0], models[1]); d != "" {
		t.Error(d)
	}
	for _, text := range []string{"", "{", `{"threads": "many"}`, "{} {}"} {
		if _, err := ParseVariant("k", "", text); err == nil || !strings.Contains(err.Error(), "k: manifest: ") {
			t.Errorf("%q: %v", text, err)
		}
	}
}
