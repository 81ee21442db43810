package golden_test

import (
	"encoding/json"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/mlagen/mlagen/ptx"
	"github.com/mlagen/mlagen/ptx/emu"
	"github.com/mlagen/mlagen/ptx/manifest"
	"github.com/mlagen/mlagen/ptx/verify"
)

var mutations = flag.Int("mutations", 40, "mutants of every golden kernel")

// token is what a mutation takes as one: a name with its dots, a number, or a
// sign.
var token = regexp.MustCompile(`[%$.\w:]+|[^\s\w]`)

// overflowing are numbers at which something overflows.
var overflowing = []string{"0", "-1", "1", "63", "2147483647", "2147483648", "-2147483648", "4294967295", "4294967296", "9223372036854775807",
	"-9223372036854775808", "18446744073709551615", "99999999999999999999", "0f7FC00000", "0x", "%r0", "%p0", "%rd0", "%nothing", "smem", "L1", "{", "}"}

// TestMutatedKernels changes golden PTX here and there: parsing gives an error
// or a module that prints and parses to the same again; verifying it and
// compiling it for the emulator may find fault but neither panics nor hangs.
func TestMutatedKernels(t *testing.T) {
	files, err := filepath.Glob("ptx/*.ptx")
	must(t, err)
	n, accepted := *mutations, 0
	for _, file := range files {
		text, err := os.ReadFile(file)
		must(t, err)
		described, err := os.ReadFile(strings.TrimSuffix(file, "ptx") + "json")
		must(t, err)
		var man manifest.Manifest
		must(t, json.Unmarshal(described, &man))
		t.Run(filepath.Base(file), func(t *testing.T) {
			before := accepted
			for seed := range n {
				mutant, how := mutate(rand.New(rand.NewPCG(uint64(seed+*firstTrial), 3)), string(text))
				if survives(t, fmt.Sprintf("mutation %d, %s", seed+*firstTrial, how), mutant, &man) {
					accepted++
				}
			}
			t.Logf("%d of %d mutants parse", accepted-before, n)
		})
	}
	if accepted == 0 || accepted == n*len(files) {
		t.Errorf("%d of %d mutants parse: the mutations are too strong or too weak", accepted, n*len(files))
	}
}

// survives reports whether the text parses.
func survives(t *testing.T, name, text string, man *manifest.Manifest) (parses bool) {
	t.Helper()
	defer func() {
		if e := recover(); e != nil {
			t.Errorf("%s: panic: %v\n%s", name, e, debug.Stack())
		}
	}()
	start := time.Now()
	m, err := ptx.Parse("mutant.ptx", []byte(text))
	if err != nil {
		return false
	}
	printed := m.String()
	again, err := ptx.Parse("printed.ptx", []byte(printed))
	if err != nil {
		t.Errorf("%s: what was printed does not parse: %v", name, err)
		return true
	}
	if d := cmp.Diff(printed, again.String()); d != "" {
		t.Errorf("%s: printing again differs: %s", name, d)
	}
	for _, d := range verify.Module("mutant.ptx", m, man) {
		if d.Rule == "" || d.Text == "" {
			t.Errorf("%s: empty finding %+v", name, d)
		}
	}
	if _, err := emu.Compile(m); err != nil && err.Error() == "" {
		t.Errorf("%s: an error that says nothing", name)
	}
	if took := time.Since(start); took > 20*time.Second {
		t.Errorf("%s: took %v", name, took)
	}
	return true
}

// mutate changes the text in one to three places.
func mutate(r *rand.Rand, text string) (mutant, how string) {
	lines := strings.Split(text, "\n")
	for range 1 + r.IntN(3) {
		i := r.IntN(len(lines))
		if r.IntN(4) == 0 {
			i = r.IntN(min(len(lines), 60)) // declarations
		}
		tokens := token.FindAllStringIndex(lines[i], -1)
		at := func() []int {
			if len(tokens) == 0 {
				return []int{0, 0}
			}
			return tokens[r.IntN(len(tokens))]
		}
		other := func() string {
			line := lines[r.IntN(len(lines))]
			if found := token.FindAllString(line, -1); len(found) > 0 {
				return found[r.IntN(len(found))]
			}
			return "ret"
		}
		replace := func(with string) {
			a := at()
			how += fmt.Sprintf("line %d: %q → %q; ", i+1, lines[i][a[0]:a[1]], with)
			lines[i] = lines[i][:a[0]] + with + lines[i][a[1]:]
		}
		switch r.IntN(9) {
		case 0:
			how += fmt.Sprintf("without line %d; ", i+1)
			lines = append(lines[:i:i], lines[i+1:]...)
		case 1:
			j := r.IntN(len(lines))
			how += fmt.Sprintf("lines %d and %d exchanged; ", i+1, j+1)
			lines[i], lines[j] = lines[j], lines[i]
		case 2:
			how += fmt.Sprintf("line %d twice; ", i+1)
			lines = append(lines[:i+1:i+1], lines[i:]...)
		case 3, 4:
			replace(other())
		case 5, 6:
			replace(pick(r, overflowing...))
		case 7:
			if len(lines[i]) > 0 {
				b := []byte(lines[i])
				b[r.IntN(len(b))] = byte(r.IntN(256))
				how += fmt.Sprintf("line %d: a byte of %q; ", i+1, lines[i])
				lines[i] = string(b)
			}
		case 8:
			if r.IntN(8) == 0 {
				how += fmt.Sprintf("cut off in line %d; ", i+1)
				lines = lines[:i+1]
				lines[i] = lines[i][:at()[0]]
			} else {
				replace("")
			}
		}
	}
	return strings.Join(lines, "\n"), how
}
