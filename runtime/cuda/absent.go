//go:build !cuda

package cuda

import (
	"errors"

	"github.com/mlagen/mlagen/runtime"
)

// Open returns an error: this build has no GPU driver.
func Open(ordinal int) (runtime.Driver, error) {
	return nil, errors.New("this binary was built without GPU support; build it with -tags cuda")
}
