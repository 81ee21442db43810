package runtime

import (
	"fmt"

	"github.com/mlagen/mlagen/ptx/manifest"
)

// ABI2 says that this runtime loads bindings of generation 2. Generated code
// mentions it, so that code made for another generation does not compile
// instead of failing where it runs: whoever changes what bindings embed or call
// removes it and adds the next.
const ABI2 = 2

// ParseVariant makes a variant of PTX and manifest as generated files hold
// them. name is for people. That the two belong together, and to this runtime,
// is found out when the variant is loaded.
func ParseVariant(name, ptx, manifestJSON string) (Variant, error) {
	m, err := manifest.Parse([]byte(manifestJSON))
	if err != nil {
		return Variant{}, fmt.Errorf("%s: %w", name, err)
	}
	return Variant{Name: name, PTX: []byte(ptx), Manifest: m}, nil
}
