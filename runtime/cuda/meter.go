//go:build cuda

package cuda

import (
	"github.com/mlagen/mlagen/runtime"
	"github.com/mlagen/mlagen/runtime/cuda/nvml"
)

var _ runtime.Metered = (*Driver)(nil)

// Meter opens the GPU's own instruments, by way of NVIDIA's management library.
func (d *Driver) Meter() (runtime.Meter, error) {
	if err := d.usable("meter"); err != nil {
		return nil, err
	}
	pci, err := shimPCI(d.ordinal)
	if err != nil {
		pci = "" // the UUID will do
	}
	return nvml.Open(d.attributes.UUID, pci)
}
