package templates

import (
	"bytes"
	"reflect"
	"slices"
	"testing"
)

// TestFieldsAreAll: every field of a spec but LineInfo is in the list once.
func TestFieldsAreAll(t *testing.T) {
	var s Spec
	seen := map[any]bool{}
	for _, f := range fields {
		seen[f.of(&s)] = true
	}
	if all := reflect.TypeOf(s).NumField() - 1; len(seen) != all || len(fields) != all {
		t.Errorf("%d fields, %d of them different, of %d", len(fields), len(seen), all)
	}
}

// TestUnusedFields: what a kernel has no use for is neither in its text nor in its
// manifest, and would not be if it were not ignored.
func TestUnusedFields(t *testing.T) {
	for _, k := range all {
		used, err := Fields(k.Name)
		if err != nil || len(used) == 0 {
			t.Fatal(k.Name, used, err)
		}
		plain, err := Build(k.Name, Spec{})
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range fields {
			if slices.Contains(used, f.name) {
				continue
			}
			var s Spec
			switch p := f.of(&s).(type) {
			case *int:
				*p = 2
			case *string:
				*p = "normal"
			}
			built, err := Build(k.Name, s)
			if err != nil {
				t.Errorf("%s with %s: %v", k.Name, f.name, err)
				continue
			}
			wantText, _ := plain.Manifest.Text()
			text, err := built.Manifest.Text()
			if err != nil || !bytes.Equal(built.PTX, plain.PTX) || !bytes.Equal(text, wantText) {
				t.Errorf("%s with %s is another: %v", k.Name, f.name, err)
			}
			if raw, err := k.build(k.family.defaults(s)); err != nil || !bytes.Equal(raw.PTX, plain.PTX) {
				t.Errorf("%s is generated from %s: %v", k.Name, f.name, err)
			}
		}
	}
}
