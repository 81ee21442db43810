package templates

import (
	"fmt"
	"strings"

	"github.com/mlagen/mlagen/gen"
)

// Info describes a kernel that Build can make.
type Info struct {
	Name    string `json:"name"` // as the command line names it
	Summary string `json:"summary"`
}

type template struct {
	Info
	build func(Spec) (*gen.Output, error)
}

var all = []template{
	{Info{"absorb-decode", "attends one or several query tokens per request to a paged latent cache (absorbed weights)"}, absorbDecode},
	{Info{"decode-combine", "merges the partial outputs of requests that were split over several CTAs"}, decodeCombine},
	{Info{"decode-schedule", "deals the requests' tiles to CTAs, on the device"}, decodeSchedule},
	{Info{"stream", "reads pages through the copy engine as fast as it can: the bandwidth that decode is held against"}, stream},
}

// Kernels lists the kernels in a fixed order.
func Kernels() []Info {
	infos := make([]Info, len(all))
	for i, t := range all {
		infos[i] = t.Info
	}
	return infos
}

// Build generates the kernel called name. Zero fields of the spec take their
// defaults; a spec that cannot be built gives a *SpecError.
func Build(name string, s Spec) (*gen.Output, error) {
	var names []string
	for _, t := range all {
		if t.Name == name {
			s = s.WithDefaults()
			if err := s.Validate(); err != nil {
				return nil, err
			}
			return t.build(s)
		}
		names = append(names, t.Name)
	}
	return nil, fmt.Errorf("kernel %q does not exist: want one of %s", name, strings.Join(names, ", "))
}
