package main

import (
	"flag"
	"strings"

	"github.com/mlagen/mlagen/golden/check"
	ptxemu "github.com/mlagen/mlagen/ptx/emu"
	"github.com/mlagen/mlagen/runtime"
	"github.com/mlagen/mlagen/runtime/cuda"
	"github.com/mlagen/mlagen/runtime/emu"
)

// device is something that executes kernels, by its name on the command line.
type device struct {
	name string
	// open starts the device. With keepGoing a proven hazard does not fail the
	// launch, so that the result can be looked at too.
	open func(keepGoing bool) (runtime.Driver, error)

	maxFLOP  float64 // largest conformance case, 0 = no limit
	emulated bool    // it is an emulated one
}

// emulated is what an emulated device can do and others cannot: time its
// work by a seed, and tell what kernels did and which hazards they held.
type emulated interface {
	check.Seeder
	Reports() []*ptxemu.Report
}

// devices are those that -device names, the default first.
var devices = []device{
	{name: "emu", open: openEmulator, maxFLOP: 20e9, emulated: true},
	{name: "cuda", open: func(bool) (runtime.Driver, error) { return cuda.Open(0) }},
}

var _ emulated = (*emu.Driver)(nil)

func openEmulator(keepGoing bool) (runtime.Driver, error) {
	return emu.Open(emu.Options{KeepGoing: keepGoing})
}

// schedules refuses seeds for a device that does not take them.
func (d *device) schedules(seeds int, seed uint64) error {
	switch {
	case seeds < 1:
		return usagef("-seeds %d: at least one schedule must run", seeds)
	case !d.emulated && (seeds > 1 || seed != 0):
		return usagef("-seeds and -seed are for emulated devices; on %s the hardware decides the schedule", d.name)
	}
	return nil
}

// seedFlags defines the flags of schedules.
func seedFlags(fs *flag.FlagSet) (seeds *int, seed *uint64) {
	return fs.Int("seeds", 1, "`number` of schedules on the emulator, which must all be right and give the same bits"),
		fs.Uint64("seed", 0, "`seed` of the first schedule; the others follow it")
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
