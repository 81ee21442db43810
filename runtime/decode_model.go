package runtime

import (
	"encoding/json"
	"fmt"

	"github.com/mlagen/mlagen/ptx/manifest"
)

// DecodeModel is what a decode kernel was generated for, read from the
// manifest's spec.
type DecodeModel struct {
	Heads   int   `json:"heads"`
	SQ      int   `json:"s_q"`     // query tokens per request
	Latent  int   `json:"latent"`  // width of the latent, and of the output
	Rope    int   `json:"rope"`    // width of the rope key
	Page    int   `json:"page"`    // tokens per page
	BlockH  int   `json:"block_h"` // query rows per block
	BlockN  int   `json:"block_n"` // tokens per step
	Stages  int   `json:"stages"`
	Cluster int   `json:"cluster"`
	Teams   int   `json:"teams"` // warpgroups that take a row block's tiles in turn; 0 = one
	DType   DType `json:"dtype"` // of q and kv
	Out     DType `json:"-"`     // of out, from the manifest's parameter
}

// Rows returns the query rows per request.
func (m *DecodeModel) Rows() int { return m.Heads * m.SQ }

// Key returns the width of a cache row.
func (m *DecodeModel) Key() int { return m.Latent + m.Rope }

// readSpec decodes a manifest's spec, which is a struct when the kernel was
// generated in this process and a map when it comes from a file.
func readSpec(m *manifest.Manifest) (DecodeModel, error) {
	var model DecodeModel
	text, err := json.Marshal(m.Spec)
	if err == nil {
		err = json.Unmarshal(text, &model)
	}
	if err != nil {
		return model, fmt.Errorf("spec of %s: %w", m.Kernel, err)
	}
	return model, nil
}

// readModel takes the model from the decode kernel and makes sure that the
// combine kernel, and the schedule where it says so, were made for the same.
func readModel(decode, combine, schedule *manifest.Manifest) (DecodeModel, error) {
	model, err := readSpec(decode)
	if err != nil {
		return model, err
	}
	if model.Heads < 1 || model.SQ < 1 || model.Latent < 1 || model.Rope < 0 || model.Page < 1 || model.BlockH < 1 || model.DType.Bytes() == 0 {
		return model, fmt.Errorf("spec of %s has heads %d, s_q %d, latent %d, rope %d, page %d, block_h %d, dtype %q: not a decode kernel's",
			decode.Kernel, model.Heads, model.SQ, model.Latent, model.Rope, model.Page, model.BlockH, string(model.DType))
	}
	for _, other := range []*manifest.Manifest{combine, schedule} {
		o, err := readSpec(other)
		if err != nil {
			return model, err
		}
		for _, field := range []struct {
			name     string
			got, own int
		}{
			{"heads", o.Heads, model.Heads}, {"s_q", o.SQ, model.SQ}, {"latent", o.Latent, model.Latent}, {"page", o.Page, model.Page},
			{"block_h", o.BlockH, model.BlockH}, // the layout of partial results and of the arrival counts
		} {
			if field.got != 0 && field.got != field.own {
				return model, fmt.Errorf("%s was made for %s %d, %s for %d", other.Kernel, field.name, field.got, decode.Kernel, field.own)
			}
		}
	}
	if model.Out, err = outType(decode, model.DType); err != nil {
		return model, err
	}
	merged, err := readSpec(combine)
	if err != nil {
		return model, err
	}
	if merged.Heads > 0 && max(merged.Teams, 1) != max(model.Teams, 1) { // the layout of partial results, too
		return model, fmt.Errorf("%s was made for %d teams, %s for %d", combine.Kernel, max(merged.Teams, 1), decode.Kernel, max(model.Teams, 1))
	}
	otherwise := model.Out
	if merged.DType != "" {
		otherwise = merged.DType
	}
	other, err := outType(combine, otherwise)
	if err == nil && other != model.Out {
		err = fmt.Errorf("%s writes %s, %s %s", combine.Kernel, other, decode.Kernel, model.Out)
	}
	return model, err
}

// outType reads the element type of the parameter out. A kernel that stores
// packed elements says only how many bits; those are elements of type
// otherwise.
func outType(m *manifest.Manifest, otherwise DType) (DType, error) {
	for _, p := range m.Params {
		if p.Name != "out" {
			continue
		}
		switch p.Type {
		case "bf16":
			return BF16, nil
		case "f16":
			return FP16, nil
		case "b16", "b32", "b64", "b128": // packed stores
			return otherwise, nil
		}
		return "", fmt.Errorf("%s writes out as %s; this runtime knows bf16 and f16", m.Kernel, p.Type)
	}
	return "", fmt.Errorf("%s has no parameter out", m.Kernel)
}
