package cases

// Relations between runs of an operation on related inputs. None needs the
// oracle: they find what its tolerance hides, and hold it against the kernels'
// own results.
const (
	// PagesPermuted: where pages lie in the pool changes no bit.
	PagesPermuted = "pages-permuted"
	// RequestsPermuted: the order of the requests permutes the results, bit for
	// bit where the mode promises it: prefill, extend, and decode with forced
	// splits.
	RequestsPermuted = "requests-permuted"
	// HeadsPermuted: the order of the heads permutes the results, bit for bit
	// in prefill and extend, whose heads do not meet.
	HeadsPermuted = "heads-permuted"
	// ForeignNaN: a request whose cache holds NaN changes no bit of the others.
	ForeignNaN = "foreign-nan"
	// SplitMerged: attention to a context's parts, merged, is attention to all.
	SplitMerged = "split-merged"
	// AbsorbExpand: both ways of computing a layer agree.
	AbsorbExpand = "absorb-expand"
	// LogitsShifted: a constant added to a row's logits changes its LSE by as
	// much and nothing else.
	LogitsShifted = "logits-shifted"
	// WeightlessKey: a further key whose weight is too small for any float
	// changes nothing.
	WeightlessKey = "weightless-key"
)

// Relations are those that an operation's cases may ask for.
var Relations = map[string][]string{
	"decode":  {PagesPermuted, RequestsPermuted, HeadsPermuted, ForeignNaN, SplitMerged, LogitsShifted, WeightlessKey},
	"prefill": {RequestsPermuted, HeadsPermuted, ForeignNaN, SplitMerged, LogitsShifted, WeightlessKey},
	"extend":  {PagesPermuted, RequestsPermuted, HeadsPermuted, ForeignNaN},
	"layer":   {PagesPermuted, ForeignNaN, AbsorbExpand},
}
