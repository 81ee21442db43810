package golden_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/mlagen/mlagen/gen/bind"
	"github.com/mlagen/mlagen/templates"
)

// idleDriver is a driver library whose memory is the host's and whose kernels do
// nothing but tell their names. A function's handle is its name.
const idleDriver = `
#include <cuda.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TOLD(...) { __VA_ARGS__; return CUDA_SUCCESS; }
CUresult CUDAAPI cuInit(unsigned f) TOLD((void)f)
CUresult CUDAAPI cuDeviceGet(CUdevice *d, int n) TOLD(*d = n)
CUresult CUDAAPI cuDeviceGetName(char *name, int n, CUdevice d) TOLD((void)d; snprintf(name, (size_t)n, "idle"))
CUresult CUDAAPI cuDeviceGetAttribute(int *v, CUdevice_attribute a, CUdevice d) TOLD((void)a; (void)d; *v = 132)
CUresult CUDAAPI cuDevicePrimaryCtxRetain(CUcontext *c, CUdevice d) TOLD((void)d; *c = NULL)
CUresult CUDAAPI cuDevicePrimaryCtxRelease(CUdevice d) TOLD((void)d)
CUresult CUDAAPI cuCtxSetCurrent(CUcontext c) TOLD((void)c)
CUresult CUDAAPI cuGetErrorName(CUresult r, const char **name) TOLD((void)r; *name = "error")
CUresult CUDAAPI cuModuleLoadDataEx(CUmodule *m, const void *image, unsigned n, CUjit_option *o, void **v) TOLD((void)n; (void)o; (void)v; *m = (CUmodule)(uintptr_t)image)
CUresult CUDAAPI cuModuleGetFunction(CUfunction *f, CUmodule m, const char *name)
	TOLD(if (!strstr((const char *)m, name)) return CUDA_ERROR_NOT_FOUND; *f = (CUfunction)(uintptr_t)name)
CUresult CUDAAPI cuMemAlloc(CUdeviceptr *p, size_t n) TOLD(*p = (CUdeviceptr)(uintptr_t)aligned_alloc(256, (n + 511) / 256 * 256) + (getenv("IDLE_ASKEW") ? 8 : 0))
CUresult CUDAAPI cuMemsetD8(CUdeviceptr p, unsigned char v, size_t n) TOLD(memset((void *)(uintptr_t)p, v, n))
CUresult CUDAAPI cuMemcpyHtoD(CUdeviceptr to, const void *from, size_t n) TOLD(memcpy((void *)(uintptr_t)to, from, n))
CUresult CUDAAPI cuMemcpyDtoH(void *to, CUdeviceptr from, size_t n) TOLD(memcpy(to, (void *)(uintptr_t)from, n))
CUresult CUDAAPI cuStreamCreate(CUstream *s, unsigned f) TOLD((void)f; *s = NULL)
CUresult CUDAAPI cuStreamSynchronize(CUstream s) TOLD((void)s)
CUresult CUDAAPI cuStreamDestroy(CUstream s) TOLD((void)s)
CUresult CUDAAPI cuFuncSetAttribute(CUfunction f, CUfunction_attribute a, int v) TOLD((void)f; (void)a; (void)v)
CUresult CUDAAPI cuTensorMapEncodeTiled(CUtensorMap *map, CUtensorMapDataType type, cuuint32_t rank, void *address, const cuuint64_t *sizes, const cuuint64_t *strides,
	const cuuint32_t *box, const cuuint32_t *steps, CUtensorMapInterleave interleave, CUtensorMapSwizzle swizzle, CUtensorMapL2promotion promotion, CUtensorMapFloatOOBfill fill)
	TOLD((void)type; (void)rank; (void)address; (void)sizes; (void)strides; (void)box; (void)steps; (void)interleave; (void)swizzle; (void)promotion; (void)fill; memset(map, 0, sizeof *map))
CUresult CUDAAPI cuLaunchKernelEx(const CUlaunchConfig *c, CUfunction f, void **p, void **x)
	TOLD((void)p; (void)x; printf("%s in %u blocks\n", (const char *)f, c->gridDimX))
`

// TestCExample: examples/c launches its three kernels with arguments that they
// take. What they compute only a GPU can tell: here it is nothing.
func TestCExample(t *testing.T) {
	gcc, include := cCompiler(t)
	dir := t.TempDir()
	for _, kernel := range []string{"decode-schedule", "absorb-decode", "decode-combine"} {
		built, err := templates.Build(kernel, templates.Spec{Heads: 16})
		must(t, err)
		h := bind.Header{Stem: strings.ReplaceAll(kernel, "-", "_"), Name: kernel, PTX: built.PTX, Manifest: built.Manifest}
		text, err := h.Text()
		must(t, err)
		must(t, os.WriteFile(filepath.Join(dir, h.Stem+".h"), text, 0o600))
	}
	driver, program := filepath.Join(dir, "driver.c"), filepath.Join(dir, "decode")
	must(t, os.WriteFile(driver, []byte(idleDriver), 0o600))
	if out, err := exec.Command(gcc, "-std=c11", "-O1", "-Wall", "-Wextra", "-Werror", "-I", dir, "-isystem", include,
		"-o", program, "../examples/c/decode.c", driver, "-lm").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%.4000s", err, out)
	}
	var stderr strings.Builder
	run := exec.Command(program)
	run.Stderr = &stderr
	stdout, err := run.Output()
	lines := strings.Split(string(stdout), "\n")
	if err == nil || stderr.String() != "too far\n" || len(lines) < 4 {
		t.Fatalf("%v\n%s%s", err, stdout, &stderr)
	}
	for i, want := range []string{"decode_schedule in 1 blocks", "absorb_decode in 132 blocks", "decode_combine in "} {
		if !strings.HasPrefix(lines[i], want) {
			t.Errorf("launch %d: %q, want %q", i, lines[i], want)
		}
	}
	// What a launch refuses is told with the reason.
	run = exec.Command(program)
	run.Env = append(os.Environ(), "IDLE_ASKEW=1")
	told, err := run.CombinedOutput()
	if want := "decode_schedule: schedule: "; err == nil || !strings.HasPrefix(string(told), want) {
		t.Errorf("memory that is not aligned: %v, %q, want %q", err, told, want)
	}
}
