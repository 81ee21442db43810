//go:build cuda

package cuda

/*
#define _GNU_SOURCE
#include <cuda.h>
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

typedef struct {
	void  *code;   // malloc'ed; NULL after a failure
	size_t bytes;
	char  *info;   // malloc'ed
	char  *errors; // malloc'ed
	double seconds;
	const char *call; // the one that failed
} shim_image;

enum { link_log_bytes = 1 << 18 };

// shim_link compiles and links in one call, so that all of it happens on one
// thread, with the context current and the logs' memory in place until the link
// is destroyed. target 0 leaves the target to the context.
static CUresult shim_link(CUcontext ctx, const char *ptx, size_t bytes, int target, shim_image *m) {
	m->info = calloc(link_log_bytes, 1);
	m->errors = calloc(link_log_bytes, 1);
	m->call = "calloc";
	if (m->info == NULL || m->errors == NULL) return CUDA_ERROR_OUT_OF_MEMORY;
	m->call = "cuCtxSetCurrent";
	CUresult r = cuCtxSetCurrent(ctx);
	if (r != CUDA_SUCCESS) return r;
	CUjit_option options[] = {
		CU_JIT_INFO_LOG_BUFFER, CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES,
		CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES,
		CU_JIT_LOG_VERBOSE, CU_JIT_TARGET,
	};
	void *values[] = {
		m->info, (void *)(size_t)(link_log_bytes - 1),
		m->errors, (void *)(size_t)(link_log_bytes - 1),
		(void *)(size_t)1, (void *)(size_t)target,
	};
	unsigned int count = sizeof options / sizeof options[0] - (target == 0);
	struct timespec a, b;
	clock_gettime(CLOCK_MONOTONIC, &a);
	CUlinkState state = NULL;
	m->call = "cuLinkCreate";
	r = cuLinkCreate(count, options, values, &state);
	if (r != CUDA_SUCCESS) return r;
	m->call = "cuLinkAddData";
	r = cuLinkAddData(state, CU_JIT_INPUT_PTX, (void *)ptx, bytes, "kernel.ptx", 0, NULL, NULL);
	void *code = NULL; // the link's own
	if (r == CUDA_SUCCESS) {
		m->call = "cuLinkComplete";
		r = cuLinkComplete(state, &code, &m->bytes);
	}
	if (r == CUDA_SUCCESS) {
		m->call = "malloc";
		m->code = malloc(m->bytes);
		if (m->code == NULL) r = CUDA_ERROR_OUT_OF_MEMORY;
		else memcpy(m->code, code, m->bytes);
	}
	cuLinkDestroy(state);
	clock_gettime(CLOCK_MONOTONIC, &b);
	m->seconds = (double)(b.tv_sec - a.tv_sec) + 1e-9 * (double)(b.tv_nsec - a.tv_nsec);
	return r;
}

static CUresult shim_load_image(CUcontext ctx, const void *code, CUmodule *module) {
	CUresult r = cuCtxSetCurrent(ctx);
	return r != CUDA_SUCCESS ? r : cuModuleLoadData(module, code);
}

// shim_library returns the file that the driver's library was loaded from, NULL
// when the loader cannot tell.
static const char *shim_library(void) {
	Dl_info info;
	void *f = dlsym(RTLD_DEFAULT, "cuInit");
	return f != NULL && dladdr(f, &info) != 0 ? info.dli_fname : NULL;
}
*/
import "C"

import (
	"unsafe"

	"gorgonia.org/cu"

	"github.com/mlagen/mlagen/runtime"
)

// Targets of a link. Zero is the context's, in which the letter of sm_90a is
// not.
const (
	targetOfContext = 0
	targetSM90a     = int(C.CU_TARGET_COMPUTE_90A)
)

// shimLink compiles PTX text with the driver's linker. The image's log is what
// it said, whether it succeeded or not.
func shimLink(ctx cu.CUContext, ptx []byte, target int) (runtime.Image, error) {
	text := C.CString(string(ptx))
	defer C.free(unsafe.Pointer(text))
	var m C.shim_image
	// The length includes the final NUL, as the driver wants it of text.
	code := C.shim_link(cContext(ctx), text, C.size_t(len(ptx)+1), C.int(target), &m)
	defer C.free(m.code)
	defer C.free(unsafe.Pointer(m.info))
	defer C.free(unsafe.Pointer(m.errors))
	image := runtime.Image{Seconds: float64(m.seconds)}
	var info, errors string
	if m.info != nil {
		info = C.GoString(m.info)
	}
	if m.errors != nil {
		errors = C.GoString(m.errors)
	}
	image.Log = joinLogs(info, errors)
	if m.code != nil {
		image.Code = unsafe.Slice((*byte)(m.code), m.bytes)
		image.Code = append([]byte(nil), image.Code...)
	}
	return image, driverError(C.GoString(m.call), code)
}

func shimLoadImage(ctx cu.CUContext, image []byte) (cu.Module, error) {
	var m C.CUmodule
	code := C.shim_load_image(cContext(ctx), unsafe.Pointer(unsafe.SliceData(image)), &m)
	return *(*cu.Module)(unsafe.Pointer(&m)), driverError("cuModuleLoadData", code)
}

// shimLibrary returns the file of the driver's library, "" when it is unknown.
func shimLibrary() string {
	if s := C.shim_library(); s != nil {
		return C.GoString(s)
	}
	return ""
}
