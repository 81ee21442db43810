package manifest

import (
	"fmt"
	"regexp"
	"slices"
)

// Bounds on what a manifest says, those of PTX and of the hardware where it has
// some, generous otherwise.
const (
	maxNameBytes   = 64
	maxTextBytes   = 400
	maxListed      = 256
	maxThreads     = 1024
	maxCluster     = 16
	maxShared      = 256 << 10
	maxRegisters   = 255
	maxParamBytes  = 32764 // from PTX 8.1 on; 4352 before
	maxParamAlign  = 128
	maxTensorRank  = 5
	maxBox         = 256
	tensorMapBytes = 128
)

var (
	identifier = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)
	hash       = regexp.MustCompile(`^[0-9a-f]{64}$`)
	version    = regexp.MustCompile(`^[0-9]{1,2}\.[0-9]$`)
	target     = regexp.MustCompile(`^sm_[0-9]{2,3}[af]?$`)
	ptxType    = regexp.MustCompile(`^(b8|b16|b32|b64|b128|u8|u16|u32|u64|s8|s16|s32|s64|f16|f16x2|f32|f64|bf16|bf16x2)$`)
)

// FieldError is a field of a manifest that cannot be right.
type FieldError struct {
	Field string // as in the JSON: params[2].offset
	Was   string
	Must  string
}

// Error implements error.
func (e *FieldError) Error() string {
	return fmt.Sprintf("manifest: %s %s, must be %s", e.Field, e.Was, e.Must)
}

// refuse makes a FieldError; was is the value.
func refuse(field string, was any, must string, args ...any) error {
	text := fmt.Sprintf("was %v", was)
	if s, ok := was.(string); ok {
		text = fmt.Sprintf("was %q", clip(s))
	}
	return &FieldError{field, text, fmt.Sprintf(must, args...)}
}

// clip keeps messages short whatever is quoted in them.
func clip(s string) string {
	if len(s) > maxNameBytes {
		return s[:maxNameBytes] + "…"
	}
	return s
}

// between refuses a number out of bounds.
func between(field string, v, low, high int) error {
	if v < low || v > high {
		return refuse(field, v, "%d to %d", low, high)
	}
	return nil
}

// named refuses a name that is no identifier or too long.
func named(field, name string) error {
	if len(name) > maxNameBytes || !identifier.MatchString(name) {
		return refuse(field, name, "an identifier of at most %d characters", maxNameBytes)
	}
	return nil
}

// matches refuses text of another form.
func matches(field, text string, form *regexp.Regexp, must string) error {
	if len(text) > maxNameBytes || !form.MatchString(text) {
		return refuse(field, text, "%s", must)
	}
	return nil
}

// listed refuses a list that is too long.
func listed(field string, n int) error {
	if n > maxListed {
		return &FieldError{field, fmt.Sprintf("has %d entries", n), fmt.Sprintf("at most %d", maxListed)}
	}
	return nil
}

// first returns the first error.
func first(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// Validate returns the first field that cannot be right, as a *FieldError. It
// takes time and memory in proportion to the manifest, whatever it says. A
// manifest made by hand may lack what Parse asks for, and the launch rules.
func (m *Manifest) Validate() error {
	if m.Schema != Schema {
		return refuse("schema", m.Schema, "%d", Schema)
	}
	if m.PTXSHA256 != "" {
		if err := matches("ptx_sha256", m.PTXSHA256, hash, "64 hexadecimal digits"); err != nil {
			return err
		}
	}
	if len(m.TuningKey) > maxTextBytes {
		return refuse("tuning_key", m.TuningKey, "at most %d bytes", maxTextBytes)
	}
	if len(m.Tool) > maxNameBytes {
		return refuse("tool", m.Tool, "at most %d bytes", maxNameBytes)
	}
	err := first(
		named("kernel", m.Kernel),
		matches("ptx_version", m.PTXVersion, version, "a version such as 8.0"),
		matches("target", m.Target, target, "a target such as sm_90a"),
		between("min_driver", m.MinDriver, 0, 1<<20),
		between("threads", m.Threads, 1, maxThreads),
		between("cluster", m.Cluster, 1, maxCluster),
		between("shared", m.Shared, 0, maxShared),
		between("max_registers", m.MaxNReg, 0, maxRegisters),
		m.validateRoles(), m.validateParams(), m.validateTensorMaps())
	if err != nil || m.Launch == nil {
		return err
	}
	return m.validateLaunch()
}

func (m *Manifest) validateRoles() error {
	if err := listed("roles", len(m.Roles)); err != nil {
		return err
	}
	warps, end := (m.Threads+31)/32, 0
	for i := range m.Roles {
		r := &m.Roles[i]
		at := fmt.Sprintf("roles[%d].", i)
		if err := named(at+"name", r.Name); err != nil {
			return err
		}
		if r.FirstWarp < end || r.FirstWarp > warps {
			return refuse(at+"first_warp", r.FirstWarp, "%d to %d: after the role before, within %d threads", end, warps, m.Threads)
		}
		if err := first(between(at+"warps", r.Warps, 1, warps-r.FirstWarp), between(at+"registers", r.Registers, 0, maxRegisters)); err != nil {
			return err
		}
		end = r.FirstWarp + r.Warps
	}
	return nil
}

func (m *Manifest) validateParams() error {
	if err := listed("params", len(m.Params)); err != nil {
		return err
	}
	names := map[string]bool{}
	end := 0
	for i := range m.Params {
		p := &m.Params[i]
		at := fmt.Sprintf("params[%d].", i)
		if err := named(at+"name", p.Name); err != nil {
			return err
		}
		if names[p.Name] {
			return refuse(at+"name", p.Name, "another than those of the parameters before")
		}
		names[p.Name] = true
		size := 0
		switch p.Kind {
		case PointerParam:
			size = 8
		case TensorMapParam:
			size = tensorMapBytes
		case ScalarParam, TableParam:
		default:
			return refuse(at+"kind", string(p.Kind), "pointer, scalar, tensor_map or table")
		}
		if err := matches(at+"type", p.Type, ptxType, "a PTX type such as s32"); err != nil {
			return err
		}
		switch {
		case size != 0 && p.Size != size:
			return refuse(at+"size", p.Size, "%d, as a %s has", size, p.Kind)
		case p.Kind == ScalarParam && p.Size != 1 && p.Size != 2 && p.Size != 4 && p.Size != 8:
			return refuse(at+"size", p.Size, "1, 2, 4 or 8, as a scalar has")
		case p.Size < 1 || p.Size > maxParamBytes:
			return refuse(at+"size", p.Size, "1 to %d", maxParamBytes)
		case p.Align < 1 || p.Align > maxParamAlign || p.Align&(p.Align-1) != 0:
			return refuse(at+"align", p.Align, "a power of two up to %d", maxParamAlign)
		case p.Offset < end || p.Offset%p.Align != 0 || p.Offset > maxParamBytes-p.Size:
			return refuse(at+"offset", p.Offset, "a multiple of %d, at least %d, where the parameter before ends, and end at %d at most", p.Align, end, maxParamBytes)
		}
		end = p.Offset + p.Size
	}
	return nil
}

func (m *Manifest) validateTensorMaps() error {
	if err := listed("tensor_maps", len(m.TensorMaps)); err != nil {
		return err
	}
	described := map[string]bool{}
	for i := range m.TensorMaps {
		t := &m.TensorMaps[i]
		at := fmt.Sprintf("tensor_maps[%d].", i)
		if p := m.param(t.Param); p == nil || p.Kind != TensorMapParam || described[t.Param] {
			return refuse(at+"param", t.Param, "the name of a parameter that is a tensor_map, each once")
		}
		described[t.Param] = true
		if t.DType != "bf16" && t.DType != "fp16" && t.DType != "f32" {
			return refuse(at+"dtype", t.DType, "bf16, fp16 or f32")
		}
		if n := len(t.Box); n < 1 || n > maxTensorRank {
			return &FieldError{at + "box", fmt.Sprintf("has %d dimensions", n), fmt.Sprintf("1 to %d", maxTensorRank)}
		}
		if len(t.Dims) != len(t.Box) {
			return &FieldError{at + "dims", fmt.Sprintf("has %d names", len(t.Dims)), fmt.Sprintf("%d, as box has", len(t.Box))}
		}
		for j, n := range t.Box {
			if err := first(between(fmt.Sprintf("%sbox[%d]", at, j), n, 1, maxBox), named(fmt.Sprintf("%sdims[%d]", at, j), t.Dims[j])); err != nil {
				return err
			}
		}
		if !slices.Contains([]int{0, 32, 64, 128}, t.Swizzle) {
			return refuse(at+"swizzle", t.Swizzle, "0, 32, 64 or 128")
		}
		if !slices.Contains([]int{0, 64, 128, 256}, t.Promotion) {
			return refuse(at+"promotion", t.Promotion, "0, 64, 128 or 256")
		}
	}
	return nil
}

// described refuses tensor maps that tensor_maps says nothing of.
func (m *Manifest) described() error {
	known := map[string]bool{}
	for i := range m.TensorMaps {
		known[m.TensorMaps[i].Param] = true
	}
	for i := range m.Params {
		if p := &m.Params[i]; p.Kind == TensorMapParam && !known[p.Name] {
			return refuse(fmt.Sprintf("params[%d].name", i), p.Name, "described in tensor_maps")
		}
	}
	return nil
}

func (m *Manifest) param(name string) *Param {
	for i := range m.Params {
		if m.Params[i].Name == name {
			return &m.Params[i]
		}
	}
	return nil
}
