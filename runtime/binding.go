package runtime

import (
	"encoding/json"
	"fmt"

	"github.com/mlagen/mlagen/ptx/manifest"
)

// ABI1 says that this runtime loads bindings of generation 1. Generated code
// mentions it, so that code made for another generation does not compile
// instead of failing where it runs: whoever changes what bindings embed or call
// removes it and adds the next.
const ABI1 = 1

// ParseVariant makes a variant of PTX and manifest as generated files hold
// them. name is for people. That the two belong together, and to this runtime,
// is found out when the variant is loaded.
func ParseVariant(name, ptx, manifestJSON string) (Variant, error) {
	v := Variant{Name: name, PTX: []byte(ptx), Manifest: new(manifest.Manifest)}
	if err := json.Unmarshal([]byte(manifestJSON), v.Manifest); err != nil {
		return Variant{}, fmt.Errorf("manifest of %s: %w", name, err)
	}
	return v, nil
}
