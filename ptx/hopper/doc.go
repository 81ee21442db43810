// Package hopper holds the machine facts of sm_90a as pure functions: swizzle
// patterns, shared-memory matrix descriptors, register fragments of wgmma and
// the matrix moves, limits of tensor maps, and the register pool.
//
// Generator and emulator share these functions, so one wrong formula would be
// wrong on both sides and go unseen. The tests therefore compare with figures
// copied from the PTX manual and with vectors recorded on hardware (golden),
// never with the functions themselves.
package hopper

import "fmt"

// wrong is the error of every check: it names the argument, what it was and
// what it must be.
func wrong(argument string, was any, must string, args ...any) error {
	return fmt.Errorf("%s: was %v, must be %s", argument, was, fmt.Sprintf(must, args...))
}
