package main

import (
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// sample is how cuda.h declares and redirects functions.
const sample = `
#define __CUDA_API_PTSZ(api) api ## _ptsz
#define cuMemAlloc                          cuMemAlloc_v2
    #define cuGraphLaunch                   __CUDA_API_PTSZ(cuGraphLaunch)
#define cuuint32_t_is_no_function           7
#define CUDA_VERSION 13000
/** See ::cuCtxCreate() and cuNothing(1). */
CUresult CUDAAPI cuInit(unsigned int Flags);
CUresult CUDAAPI cuMemAlloc(CUdeviceptr *dptr, size_t bytesize);
    CUresult CUDAAPI cuCtxCreate_v2 (CUcontext *pctx);
typedef void (CUDA_CB *CUhostFn)(void *userData);
`

func TestFunctions(t *testing.T) {
	want := []string{"cuCtxCreate_v2", "cuGraphLaunch", "cuInit", "cuMemAlloc", "cuMemAlloc_v2"}
	if diff := cmp.Diff(want, functions([]byte(sample))); diff != "" {
		t.Errorf("names (-want +got):\n%s", diff)
	}
}

func TestRun(t *testing.T) {
	if _, err := exec.LookPath("gcc"); err != nil {
		t.Skip("needs gcc")
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "cuda.h"), []byte(sample), 0o644); err != nil {
		t.Fatal(err)
	}
	output := filepath.Join(dir, "lib", "libcuda.so")
	for range 2 { // over the file of the time before
		if err := run([]string{"-headers", dir, "-o", output}, io.Discard); err != nil {
			t.Fatal(err)
		}
	}
	library, err := os.ReadFile(output)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"libcuda.so.1\x00", "cuMemAlloc_v2\x00", "cuInit\x00"} {
		if !strings.Contains(string(library), want) {
			t.Errorf("the library does not contain %q", want)
		}
	}
	entries, err := os.ReadDir(filepath.Dir(output))
	if err != nil || len(entries) != 1 {
		t.Errorf("left behind: %v, %v", entries, err)
	}
}

func TestRunRefuses(t *testing.T) {
	empty := t.TempDir()
	if err := os.WriteFile(filepath.Join(empty, "cuda.h"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	for want, args := range map[string][]string{
		"usage: stub -headers DIR [-o FILE]": {},
		"usage: ":                            {"-headers", empty, "more"},
		"cuda.h: no such file":               {"-headers", t.TempDir()},
		"cuda.h declares no function":        {"-headers", empty},
	} {
		if err := run(args, io.Discard); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: got %v, want %q", args, err, want)
		}
	}
}
