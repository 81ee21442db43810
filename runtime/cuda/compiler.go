//go:build cuda

package cuda

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/mlagen/mlagen/runtime"
)

var _ runtime.Compiler = (*Driver)(nil)

// linkOptions names what Compile asks of the linker. A change of it makes the
// images of before another toolchain's.
const linkOptions = "cuLink unless setmaxnreg, verbose log, sm_90a"

// Toolchain names the GPU's model and the exact driver: its version number is
// that of CUDA, which many drivers have in common, so the library's file is
// named too.
func (d *Driver) Toolchain() runtime.Toolchain {
	a := d.attributes
	return runtime.Toolchain{
		Card:    fmt.Sprintf("%s, compute capability %d.%d", d.name, a.ComputeMajor, a.ComputeMinor),
		Driver:  fmt.Sprintf("CUDA %d, %s", a.DriverVersion, describeLibrary(shimLibrary())),
		Options: linkOptions, Kept: true,
	}
}

// describeLibrary names a library by its file, links followed: the real one mostly
// has the version in its name; where it has not, size and time tell.
func describeLibrary(file string) string {
	if real, err := filepath.EvalSymlinks(file); err == nil {
		file = real
	}
	info, err := os.Stat(file)
	if err != nil {
		return filepath.Base(file)
	}
	return fmt.Sprintf("%s, %d bytes, %s", filepath.Base(file), info.Size(), info.ModTime().UTC().Format(time.RFC3339Nano))
}

// Compile compiles PTX text with the driver's linker, which keeps nothing in
// the driver's own cache. A text that must be compiled as a whole program is
// loaded, since the driver hands out no code of such; that its own cache keeps.
func (d *Driver) Compile(ptx []byte) (runtime.Image, error) {
	if err := d.usable("compile"); err != nil {
		return runtime.Image{}, err
	}
	if runtime.WholeProgram(ptx) {
		// In one C call, on whatever thread: it makes the context current itself.
		m, err := d.Load(ptx)
		if err != nil {
			return runtime.Image{}, err
		}
		return runtime.Image{Module: m, Log: m.Log(), Seconds: m.CompileSeconds()}, nil
	}
	target := targetOfContext
	if bytes.Contains(ptx, []byte(".target sm_90a")) {
		target = targetSM90a
	}
	m, err := shimLink(d.context, ptx, target)
	if err != nil && target != targetOfContext {
		// It may have nothing against the text, but not know the target's name.
		if other, e := shimLink(d.context, ptx, targetOfContext); e == nil {
			m, err = other, nil
		}
	}
	if err != nil {
		return runtime.Image{}, d.compileError(err, m.Log)
	}
	return m, nil
}

// compileError says what the compiler said, and how much memory there was where
// that was the matter.
func (d *Driver) compileError(err error, log string) error {
	err = d.short(err)
	if log != "" {
		return fmt.Errorf("compile PTX: %w\n%s", err, log)
	}
	return fmt.Errorf("compile PTX: %w", err)
}

// LoadImage loads what Compile made.
func (d *Driver) LoadImage(code []byte) (runtime.Module, error) {
	if err := d.usable("load image"); err != nil {
		return nil, err
	}
	if len(code) == 0 {
		return nil, errors.New("load image: it was empty, must be what Compile made")
	}
	m, err := shimLoadImage(d.context, code)
	if err != nil {
		return nil, fmt.Errorf("load image of %d bytes: %w", len(code), d.short(err))
	}
	return &module{driver: d, module: m}, nil
}

// joinLogs puts what the compiler said in one text, without blank lines around.
func joinLogs(info, errors string) string {
	return strings.TrimSpace(strings.TrimSpace(info) + "\n" + strings.TrimSpace(errors))
}
