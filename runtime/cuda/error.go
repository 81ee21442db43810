//go:build cuda

package cuda

import (
	"fmt"
	"reflect"
)

// outOfMemory is CUDA_ERROR_OUT_OF_MEMORY.
const outOfMemory = 2

// Error is a failed call of the CUDA driver.
type Error struct {
	Call string // "cuMemAlloc"
	Code int    // CUresult
	Name string // "CUDA_ERROR_OUT_OF_MEMORY"
	Text string // "out of memory"
}

func (e *Error) Error() string {
	return fmt.Sprintf("%s: %s (%s, %d)", e.Call, e.Text, e.Name, e.Code)
}

// wrap turns an error of gorgonia.org/cu, whose text is only the code's name,
// into an Error. Its type is unexported but is an int, the driver's own code.
func wrap(call string, err error) error {
	if err == nil {
		return nil
	}
	if e, ok := err.(*Error); ok {
		return e
	}
	if v := reflect.ValueOf(err); v.Kind() == reflect.Int {
		return newError(call, int(v.Int()))
	}
	return fmt.Errorf("%s: %w", call, err)
}
