package runtime

import (
	"fmt"
	"regexp"
	"strings"
)

// WarningKind classifies what there is to say of a kernel's loading.
type WarningKind string

// Kinds of warnings.
const (
	Serialised       WarningKind = "serialised"         // wgmma waits for each other (C7510 and its kin): right but slow
	IgnoredRegisters WarningKind = "setmaxnreg ignored" // warps keep the registers of the launch: right but slow
	Spill            WarningKind = "spill"              // registers go to local memory
	Other            WarningKind = "other"              // else of the compiler
	Uncached         WarningKind = "uncached"           // the next process compiles anew
)

// Warning is something about a kernel that asks for attention, such as a line
// of the compiler's log.
type Warning struct {
	Kernel string // the variant's name
	Kind   WarningKind
	Text   string
}

func (w Warning) String() string { return fmt.Sprintf("%s: %s: %s", w.Kernel, w.Kind, w.Text) }

var (
	spillLine    = regexp.MustCompile(`(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads`)
	registerLine = regexp.MustCompile(`(?i)setmaxnreg\b.*\bignored`)
	serialLine   = regexp.MustCompile(`(?i)\(C75\d\d\)|wgmma.*serializ|Potential Performance Loss`)
	otherLine    = regexp.MustCompile(`(?i)\bwarning\b`)
)

// readLog picks the lines of a compiler's log that ask for attention.
func readLog(kernel, log string) []Warning {
	var warnings []Warning
	for line := range strings.Lines(log) {
		line = strings.TrimSpace(line)
		kind := WarningKind("")
		if m := spillLine.FindStringSubmatch(line); m != nil {
			if m[1] != "0" || m[2] != "0" || m[3] != "0" {
				kind = Spill
			}
		} else if registerLine.MatchString(line) {
			kind = IgnoredRegisters
		} else if serialLine.MatchString(line) {
			kind = Serialised
		} else if otherLine.MatchString(line) {
			kind = Other
		}
		if kind != "" {
			warnings = append(warnings, Warning{kernel, kind, line})
		}
	}
	return warnings
}

// quote returns the warnings of a kind, for an error message.
func (k *Kernel) quote(kind WarningKind) string {
	var b strings.Builder
	for _, w := range k.Warnings {
		if w.Kind == kind {
			b.WriteString("\n  " + w.Text)
		}
	}
	return b.String()
}

// warn adds a warning.
func (k *Kernel) warn(kind WarningKind, text string) Warning {
	w := Warning{k.label(), kind, text}
	k.Warnings = append(k.Warnings, w)
	return w
}
