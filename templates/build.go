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
	family family
	build  func(Spec) (*gen.Output, error)
	host   func(Spec) hostRules // nil: package runtime alone knows how to launch it
}

// family is what kernels of one operation have in common: which fields of a
// spec they use, with what defaults, and what of them can be built.
type family struct {
	defaults func(Spec) Spec
	validate func(Spec) error
}

var (
	decodeFamily = family{Spec.WithDefaults, Spec.Validate}
	mergeFamily  = family{mergeDefaults, validateMerge}
	appendFamily = family{appendDefaults, validateAppend}
	layerFamily  = family{layerDefaults, validateLayer}
)

var all = []template{
	{Info{"absorb-decode", "attends one or several query tokens per request to a paged latent cache (absorbed weights)"}, decodeFamily, absorbDecode, decodeHost},
	{Info{"decode-combine", "merges the partial outputs of requests that were split over several CTAs"}, decodeFamily, decodeCombine, decodeHost},
	{Info{"decode-schedule", "deals the requests' tiles to CTAs, on the device"}, decodeFamily, decodeSchedule, decodeHost},
	{Info{"stream", "reads pages through the copy engine as fast as it can: the bandwidth that decode is held against"}, decodeFamily, stream, streamHost},
	{Info{"expand-prefill", "attends query tokens to expanded keys and values of the same head, for sequences end to end"}, prefillFamily, expandPrefill, prefillHost},
	{Info{"expand-schedule", "lists expand-prefill's blocks of query tokens, longest first, on the device"}, prefillFamily, prefillSchedule, prefillHost},
	{Info{"extend-attend", "expand-prefill over keys that come in chunks: a launch goes on where the one before stopped"}, prefillFamily, extendAttend, extendAttendHost},
	{Info{"extend-schedule", "cuts sequences' keys into chunks and lists each chunk's tokens and blocks of query tokens, on the device"}, prefillFamily, extendSchedule, extendScheduleHost},
	{Info{"merge-states", "merges partial attention outputs over disjoint keys, weighted by their log-sum-exp"}, mergeFamily, mergeStates, mergeHost},
	{Info{"append-kv", "writes latents and rope keys, rotated on request, into the paged cache by slot"}, appendFamily, appendKV, appendHost},
	{Info{"up-project", "expands latents, paged or dense, to the keys and values of all heads"}, upProjectFamily, upProject, upProjectHost},
	{Info{"absorb-q", "multiplies queries by the key weights: into the latent space"}, absorbQueryFamily, absorbQuery, absorbQueryHost},
	{Info{"absorb-o", "multiplies attended latents by the value weights: out of the latent space"}, absorbOutFamily, absorbOut, absorbOutputHost},
	{Info{"layer-groups", "lists groups of query tokens, with the tokens that each sees, for calls that take them as sequences"}, layerFamily, layerGroups, layerHost},
	{Info{"layer-rows", "copies rows of tokens into the order in which they are computed, and back"}, layerFamily, layerRows, layerHost},
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
// defaults, fields that it has no use for (see Fields) are ignored; a spec that cannot be built gives a *SpecError.
func Build(name string, s Spec) (*gen.Output, error) {
	t, err := find(name)
	if err != nil {
		return nil, err
	}
	s = t.family.defaults(t.clear(s))
	if err := t.family.validate(s); err != nil {
		return nil, err
	}
	out, err := t.build(s)
	if err != nil {
		return nil, err
	}
	out.Manifest.TuningKey = s.tuningKey(name)
	if t.host != nil {
		rules := t.host(s)
		if err := rules.attach(out.Manifest); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// tuningKey is what a choice among variants is stored under: the kernel and
// what the model fixes of its spec, in place of the block sizes and the like
// that are chosen.
func (s Spec) tuningKey(kernel string) string {
	key := kernel + " " + s.DType
	for _, f := range []struct {
		name  string
		value int
	}{
		{"heads", s.Heads}, {"s_q", s.SQ}, {"latent", s.Latent}, {"rope", s.Rope}, {"nope", s.Nope}, {"value", s.Value}, {"page", s.Page},
	} {
		if f.value != 0 {
			key += fmt.Sprintf(" %s=%d", f.name, f.value)
		}
	}
	for _, f := range []struct{ name, value string }{{"partial", s.Partial}, {"rotate", s.Rotate}} {
		if f.value != "" {
			key += fmt.Sprintf(" %s=%s", f.name, f.value)
		}
	}
	return key
}

// Defaults fills the zero fields of a spec that the kernel called name uses.
func Defaults(name string, s Spec) (Spec, error) {
	t, err := find(name)
	if err != nil {
		return s, err
	}
	return t.family.defaults(t.clear(s)), nil
}

func find(name string) (template, error) {
	var names []string
	for _, t := range all {
		if t.Name == name {
			return t, nil
		}
		names = append(names, t.Name)
	}
	return template{}, fmt.Errorf("kernel %q does not exist: want one of %s", name, strings.Join(names, ", "))
}

// Validate says what of a spec, its zero fields included, the kernel called name
// cannot be built with.
func Validate(name string, s Spec) error {
	t, err := find(name)
	if err != nil {
		return err
	}
	return t.family.validate(s)
}
