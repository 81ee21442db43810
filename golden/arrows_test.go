package golden_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const (
	module    = "github.com/mlagen/mlagen"
	gorgonia  = "gorgonia.org/cu"
	jennifer  = "github.com/dave/jennifer/jen"
	cudaOwner = "runtime/cuda"
)

// listed is what `go list` says of one package.
type listed struct {
	ImportPath   string
	Imports      []string
	TestImports  []string
	XTestImports []string
	Deps         []string // all, indirect ones too
}

// below says which parts of the house a part may use, the longest matching
// name first. Its own sub-packages are always allowed.
var below = map[string][]string{
	"ptx":          {},
	"ptx/isa":      {},
	"ptx/hopper":   {},
	"ptx/manifest": {},
	"gen":          {"ptx"},
	"templates":    {"gen", "ptx"},
	// Where the kernels meet the runtime that asks for them.
	"templates/variants": {"templates", "runtime", "gen", "ptx"},
	"runtime":            {"ptx"},
	"golden":             {"templates", "runtime", "gen", "ptx"},
	// What judges the kernels must not lean on them.
	"golden/oracle": {"golden/dtype", "golden/cost"},
	"golden/cost":   {},
	"golden/dtype":  {},
	"cmd":           {"golden", "templates", "runtime", "gen", "ptx"},
	"examples":      {"templates", "runtime", "gen", "ptx"},
}

// part returns the longest name in below that holds the package pkg, a path
// inside the module.
func part(pkg string) (string, bool) {
	for p := pkg; p != "." && p != ""; p = path.Dir(p) {
		if _, ok := below[p]; ok {
			return p, true
		}
	}
	return "", false
}

// inside reports whether pkg is dir or lies below it.
func inside(pkg, dir string) bool { return pkg == dir || strings.HasPrefix(pkg, dir+"/") }

// violations returns the imports that point up, or to what only one package
// may use, one line each.
func violations(packages []listed) []string {
	var found []string
	report := func(format string, args ...any) { found = append(found, fmt.Sprintf(format, args...)) }
	for _, p := range packages {
		from, ok := strings.CutPrefix(p.ImportPath, module+"/")
		if !ok {
			continue
		}
		home, ok := part(from)
		if !ok {
			report("%s belongs to no part of the house", from)
			continue
		}
		for _, d := range p.Deps {
			to, ok := strings.CutPrefix(d, module+"/")
			if !ok || inside(to, home) {
				continue
			}
			if !slices.ContainsFunc(below[home], func(dir string) bool { return inside(to, dir) }) {
				report("%s depends on %s", from, to)
			}
		}
		for _, i := range slices.Concat(p.Imports, p.TestImports, p.XTestImports) {
			switch {
			case inside(i, gorgonia) && !inside(from, cudaOwner):
				report("%s imports %s, which only %s may", from, i, cudaOwner)
			case i == jennifer && path.Base(from) != "bind":
				report("%s imports %s, which only the binding generator may", from, i)
			case inside(i, module+"/cmd") && !inside(from, "cmd"):
				report("%s imports %s", from, strings.TrimPrefix(i, module+"/"))
			}
		}
	}
	return found
}

// list runs go list on the whole module.
func list(t *testing.T, args ...string) []listed {
	t.Helper()
	// What a child process reads is unknown to the test cache; a folder that
	// this process reads is not. So a change anywhere runs the test again.
	err := filepath.WalkDir("..", func(name string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() && name != ".." && strings.HasPrefix(d.Name(), ".") {
			return fs.SkipDir
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	args = append([]string{"list", "-deps", "-json=ImportPath,Imports,TestImports,XTestImports,Deps"}, args...)
	cmd := exec.Command("go", append(args, module+"/...")...)
	// Without cgo the files of runtime/cuda would be left out unseen.
	cmd.Env = append(os.Environ(), "CGO_ENABLED=1")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %v\n%s", cmd, err, &stderr)
	}
	var packages []listed
	for d := json.NewDecoder(bytes.NewReader(out)); ; {
		var p listed
		switch err := d.Decode(&p); {
		case errors.Is(err, io.EOF):
			return packages
		case err != nil:
			t.Fatalf("%v: %v", cmd, err)
		}
		packages = append(packages, p)
	}
}

// TestArrows: imports point down only, in both builds.
func TestArrows(t *testing.T) {
	for name, args := range map[string][]string{"default": nil, "cuda": {"-tags", "cuda"}} {
		t.Run(name, func(t *testing.T) {
			packages := list(t, args...)
			if diff := cmp.Diff([]string(nil), violations(packages)); diff != "" {
				t.Errorf("imports that do not point down:\n%s", diff)
			}
			// gorgonia.org/cu ends the process where no GPU is, so the default
			// build must not contain it; and if the cuda build lacks it, the
			// listing has not seen runtime/cuda and proves nothing.
			hasCUDA := slices.ContainsFunc(packages, func(p listed) bool { return p.ImportPath == gorgonia })
			if hasCUDA != (name == "cuda") {
				t.Errorf("%s build contains %s: %v", name, gorgonia, hasCUDA)
			}
		})
	}
}

// TestViolations: each kind of wrong arrow is found, right ones are not.
func TestViolations(t *testing.T) {
	in := func(names ...string) []string {
		for i := range names {
			names[i] = module + "/" + names[i]
		}
		return names
	}
	for _, c := range []struct {
		name string
		pkg  listed
		want []string
	}{
		{"down", listed{ImportPath: module + "/templates", Deps: in("gen", "ptx", "ptx/isa", "ptx/hopper")}, nil},
		{"top", listed{ImportPath: module + "/cmd/mlagen", Deps: in("cmd/mlagen/bench", "golden/oracle", "runtime/cuda", "templates")}, nil},
		{"own sub-package", listed{ImportPath: module + "/ptx", Deps: in("ptx/isa")}, nil},
		{"outside", listed{ImportPath: "github.com/other/mlagen", Deps: in("cmd/mlagen")}, nil},
		{"ptx to gen", listed{ImportPath: module + "/ptx/emu", Deps: in("ptx", "gen")}, []string{"ptx/emu depends on gen"}},
		{"leaf to ptx", listed{ImportPath: module + "/ptx/isa", Deps: in("ptx")}, []string{"ptx/isa depends on ptx"}},
		{"gen to templates", listed{ImportPath: module + "/gen", Deps: in("templates")}, []string{"gen depends on templates"}},
		{"runtime to gen, indirectly", listed{ImportPath: module + "/runtime/tune", Deps: in("ptx", "gen")}, []string{"runtime/tune depends on gen"}},
		{"runtime to templates", listed{ImportPath: module + "/runtime", Deps: in("templates")}, []string{"runtime depends on templates"}},
		{"oracle to emulator", listed{ImportPath: module + "/golden/oracle", Deps: in("golden/dtype", "ptx/emu")}, []string{"golden/oracle depends on ptx/emu"}},
		{"prefix is not a parent", listed{ImportPath: module + "/gen", Deps: in("ptxas")}, []string{"gen depends on ptxas"}},
		{"cu in runtime/cuda", listed{ImportPath: module + "/runtime/cuda", Imports: []string{gorgonia}}, nil},
		{"cu in a test", listed{ImportPath: module + "/runtime", TestImports: []string{gorgonia}},
			[]string{"runtime imports gorgonia.org/cu, which only runtime/cuda may"}},
		{"cu elsewhere", listed{ImportPath: module + "/cmd/mlagen", Imports: []string{gorgonia + "/dnn"}},
			[]string{"cmd/mlagen imports gorgonia.org/cu/dnn, which only runtime/cuda may"}},
		{"jennifer in bind", listed{ImportPath: module + "/gen/bind", Imports: []string{jennifer}}, nil},
		{"jennifer elsewhere", listed{ImportPath: module + "/gen", Imports: []string{jennifer}},
			[]string{"gen imports github.com/dave/jennifer/jen, which only the binding generator may"}},
		{"cmd imported by a test", listed{ImportPath: module + "/golden", XTestImports: in("cmd/mlagen")}, []string{"golden imports cmd/mlagen"}},
		{"no home", listed{ImportPath: module + "/util"}, []string{"util belongs to no part of the house"}},
	} {
		if diff := cmp.Diff(c.want, violations([]listed{c.pkg})); diff != "" {
			t.Errorf("%s: %s", c.name, diff)
		}
	}
}
