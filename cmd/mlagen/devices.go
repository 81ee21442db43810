package main

import (
	"strings"

	"github.com/mlagen/mlagen/runtime"
	"github.com/mlagen/mlagen/runtime/cuda"
	"github.com/mlagen/mlagen/runtime/emu"
)

// device is something that executes kernels, by its name on the command line.
type device struct {
	name string
	open func() (runtime.Driver, error)

	maxFLOP float64 // largest conformance case, 0 = no limit
	hazards bool    // it reports reads of memory that nobody wrote
}

// devices are those that -device names, the default first.
var devices = []device{
	{name: "emu", open: func() (runtime.Driver, error) { return emu.Open(emu.Options{}) }, maxFLOP: 20e9, hazards: true},
	{name: "cuda", open: func() (runtime.Driver, error) { return cuda.Open(0) }},
}

// findDevice returns the device called name.
func findDevice(name string) (device, error) {
	var names []string
	for _, d := range devices {
		if d.name == name {
			return d, nil
		}
		names = append(names, d.name)
	}
	return device{}, usagef("device %q does not exist; the devices are %s", name, strings.Join(names, ", "))
}
