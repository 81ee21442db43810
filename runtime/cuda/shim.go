//go:build cuda

package cuda

/*
#cgo CFLAGS: -I${SRCDIR}/include
#cgo LDFLAGS: -lcuda -ldl

#define _GNU_SOURCE
#include <cuda.h>
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

// Entry points that a driver may be too old for are looked up, so that the
// binary still starts there and can say what is missing.
typedef CUresult (*launch_fn)(const CUlaunchConfig *, CUfunction, void **, void **);
typedef CUresult (*encode_fn)(CUtensorMap *, CUtensorMapDataType, cuuint32_t, void *, const cuuint64_t *,
                              const cuuint64_t *, const cuuint32_t *, const cuuint32_t *, CUtensorMapInterleave,
                              CUtensorMapSwizzle, CUtensorMapL2promotion, CUtensorMapFloatOOBfill);
typedef CUresult (*param_fn)(CUfunction, size_t, size_t *, size_t *);

static launch_fn launch_kernel;
static encode_fn encode_tiled;
static param_fn  param_info;

static void shim_init(void) {
	launch_kernel = (launch_fn)dlsym(RTLD_DEFAULT, "cuLaunchKernelEx");
	encode_tiled = (encode_fn)dlsym(RTLD_DEFAULT, "cuTensorMapEncodeTiled");
	param_info = (param_fn)dlsym(RTLD_DEFAULT, "cuFuncGetParamInfo");
}

// Every shim function makes the context current itself: a goroutine may move
// to another thread between two calls.

typedef struct {
	CUmodule module;
	char    *info;   // malloc'ed, never NULL after a call
	char    *errors; // malloc'ed, never NULL after a call
	double   seconds;
} shim_module;

enum { log_bytes = 1 << 18 };

static CUresult shim_load(CUcontext ctx, const char *ptx, shim_module *m) {
	m->info = calloc(log_bytes, 1);
	m->errors = calloc(log_bytes, 1);
	if (m->info == NULL || m->errors == NULL) return CUDA_ERROR_OUT_OF_MEMORY;
	CUresult r = cuCtxSetCurrent(ctx);
	if (r != CUDA_SUCCESS) return r;
	CUjit_option options[] = {
		CU_JIT_INFO_LOG_BUFFER, CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES,
		CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES,
		CU_JIT_LOG_VERBOSE,
	};
	void *values[] = {
		m->info, (void *)(size_t)(log_bytes - 1),
		m->errors, (void *)(size_t)(log_bytes - 1),
		(void *)(size_t)1,
	};
	struct timespec a, b;
	clock_gettime(CLOCK_MONOTONIC, &a);
	r = cuModuleLoadDataEx(&m->module, ptx, sizeof options / sizeof options[0], options, values);
	clock_gettime(CLOCK_MONOTONIC, &b);
	m->seconds = (double)(b.tv_sec - a.tv_sec) + 1e-9 * (double)(b.tv_nsec - a.tv_nsec);
	return r;
}

static CUresult shim_set_attribute(CUcontext ctx, CUfunction f, CUfunction_attribute attribute, int value) {
	CUresult r = cuCtxSetCurrent(ctx);
	return r != CUDA_SUCCESS ? r : cuFuncSetAttribute(f, attribute, value);
}

static int shim_has_param_info(void) { return param_info != NULL; }

static CUresult shim_param_info(CUcontext ctx, CUfunction f, size_t index, size_t *offset, size_t *size) {
	if (param_info == NULL) return CUDA_ERROR_NOT_SUPPORTED;
	CUresult r = cuCtxSetCurrent(ctx);
	return r != CUDA_SUCCESS ? r : param_info(f, index, offset, size);
}

typedef struct {
	unsigned int grid[3], block[3], cluster[3];
	unsigned int shared;
	int          programmatic;
} shim_config;

enum { max_params = 128 };

static CUresult shim_launch(CUcontext ctx, CUstream stream, CUfunction f, const shim_config *c, void *params,
                            const long *offsets, int count) {
	if (launch_kernel == NULL) return CUDA_ERROR_NOT_SUPPORTED;
	CUresult r = cuCtxSetCurrent(ctx);
	if (r != CUDA_SUCCESS) return r;
	void *pointers[max_params];
	for (int i = 0; i < count; i++) pointers[i] = (char *)params + offsets[i];
	CUlaunchAttribute attributes[2];
	memset(attributes, 0, sizeof attributes);
	CUlaunchConfig config;
	memset(&config, 0, sizeof config);
	if (c->cluster[0] * c->cluster[1] * c->cluster[2] > 1) {
		CUlaunchAttribute *a = &attributes[config.numAttrs++];
		a->id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION;
		a->value.clusterDim.x = c->cluster[0];
		a->value.clusterDim.y = c->cluster[1];
		a->value.clusterDim.z = c->cluster[2];
	}
	if (c->programmatic) {
		CUlaunchAttribute *a = &attributes[config.numAttrs++];
		a->id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION;
		a->value.programmaticStreamSerializationAllowed = 1;
	}
	config.gridDimX = c->grid[0], config.gridDimY = c->grid[1], config.gridDimZ = c->grid[2];
	config.blockDimX = c->block[0], config.blockDimY = c->block[1], config.blockDimZ = c->block[2];
	config.sharedMemBytes = c->shared;
	config.hStream = stream;
	config.attrs = attributes;
	return launch_kernel(&config, f, pointers, NULL);
}

typedef struct {
	unsigned int       type, rank, swizzle, promotion;
	unsigned long long address;
	cuuint64_t         sizes[5], strides[5];
	cuuint32_t         box[5];
} shim_map;

static CUresult shim_encode(CUcontext ctx, const shim_map *m, void *out) {
	if (encode_tiled == NULL) return CUDA_ERROR_NOT_SUPPORTED;
	CUresult r = cuCtxSetCurrent(ctx);
	if (r != CUDA_SUCCESS) return r;
	cuuint32_t ones[5] = {1, 1, 1, 1, 1};
	CUtensorMap map; // the driver insists on 64-byte alignment, which the caller's bytes may lack
	r = encode_tiled(&map, (CUtensorMapDataType)m->type, m->rank, (void *)m->address, m->sizes, m->strides, m->box,
	                 ones, CU_TENSOR_MAP_INTERLEAVE_NONE, (CUtensorMapSwizzle)m->swizzle,
	                 (CUtensorMapL2promotion)m->promotion, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
	if (r == CUDA_SUCCESS) memcpy(out, &map, sizeof map);
	return r;
}

static CUresult shim_begin_capture(CUcontext ctx, CUstream stream) {
	CUresult r = cuCtxSetCurrent(ctx);
	// The stricter modes tie a capture to one thread, and goroutines move.
	return r != CUDA_SUCCESS ? r : cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED);
}

static CUresult shim_end_capture(CUcontext ctx, CUstream stream, CUgraphExec *exec) {
	CUresult r = cuCtxSetCurrent(ctx);
	if (r != CUDA_SUCCESS) return r;
	CUgraph graph = NULL;
	r = cuStreamEndCapture(stream, &graph);
	if (r == CUDA_SUCCESS) r = cuGraphInstantiate(exec, graph, 0);
	if (graph != NULL) cuGraphDestroy(graph);
	return r;
}

static CUresult shim_replay(CUcontext ctx, CUstream stream, CUgraphExec exec) {
	CUresult r = cuCtxSetCurrent(ctx);
	return r != CUDA_SUCCESS ? r : cuGraphLaunch(exec, stream);
}

static CUresult shim_destroy_graph(CUcontext ctx, CUgraphExec exec) {
	CUresult r = cuCtxSetCurrent(ctx);
	return r != CUDA_SUCCESS ? r : cuGraphExecDestroy(exec);
}

// shim_locate says which allocation ptr lies in. device is -1 when ptr is not
// an address that the driver knows. whole says that the range is an allocation
// of cuMemAlloc; other memory may be mapped piece by piece.
static CUresult shim_locate(CUcontext ctx, unsigned long long ptr, unsigned int *kind, int *device,
                            unsigned long long *base, size_t *size, int *whole) {
	CUresult r = cuCtxSetCurrent(ctx);
	if (r != CUDA_SUCCESS) return r;
	CUpointer_attribute attributes[] = {
		CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
		CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, CU_POINTER_ATTRIBUTE_RANGE_SIZE,
		CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE,
	};
	unsigned long long legacy = 0; // the driver writes a boolean of whatever width
	void *data[] = {kind, device, base, size, &legacy};
	*kind = 0, *device = -1, *base = 0, *size = 0;
	r = cuPointerGetAttributes(sizeof attributes / sizeof attributes[0], attributes, data, (CUdeviceptr)ptr);
	*whole = legacy != 0;
	return r;
}

// shim_pci writes the PCI address of the ordinal-th GPU.
static CUresult shim_pci(int ordinal, char *address, int size) {
	CUdevice device;
	CUresult r = cuDeviceGet(&device, ordinal);
	return r != CUDA_SUCCESS ? r : cuDeviceGetPCIBusId(address, size, device);
}
*/
import "C"

import (
	"fmt"
	"unsafe"

	"gorgonia.org/cu"

	"github.com/mlagen/mlagen/runtime"
)

// gorgonia.org/cu wraps each C handle in a struct of that one field. The shim
// casts between the two; these lines stop compiling if that changes.
var (
	_ [unsafe.Sizeof(C.CUcontext(nil))]byte  = [unsafe.Sizeof(cu.CUContext{})]byte{}
	_ [unsafe.Sizeof(C.CUstream(nil))]byte   = [unsafe.Sizeof(cu.Stream{})]byte{}
	_ [unsafe.Sizeof(C.CUmodule(nil))]byte   = [unsafe.Sizeof(cu.Module{})]byte{}
	_ [unsafe.Sizeof(C.CUfunction(nil))]byte = [unsafe.Sizeof(cu.Function{})]byte{}
)

func cContext(c cu.CUContext) C.CUcontext { return *(*C.CUcontext)(unsafe.Pointer(&c)) }
func cStream(s cu.Stream) C.CUstream      { return *(*C.CUstream)(unsafe.Pointer(&s)) }
func cFunction(f cu.Function) C.CUfunction {
	return *(*C.CUfunction)(unsafe.Pointer(&f))
}

// Numbers that gorgonia.org/cu has no names for.
const (
	attributeSharedOptin   = cu.DeviceAttribute(C.CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN)
	attributeClusterLaunch = cu.DeviceAttribute(C.CU_DEVICE_ATTRIBUTE_CLUSTER_LAUNCH)
)

func init() { C.shim_init() }

// driverError turns a driver's result code into an error, nil for success.
func driverError(call string, code C.CUresult) error {
	if code == C.CUDA_SUCCESS {
		return nil
	}
	return newError(call, int(code))
}

// newError asks the driver for the code's name and meaning.
func newError(call string, code int) *Error {
	e := &Error{Call: call, Code: code, Name: fmt.Sprintf("CUDA error %d", code), Text: "unknown error"}
	var s *C.char
	if C.cuGetErrorName(C.CUresult(code), &s) == C.CUDA_SUCCESS {
		e.Name = C.GoString(s)
	}
	if C.cuGetErrorString(C.CUresult(code), &s) == C.CUDA_SUCCESS {
		e.Text = C.GoString(s)
	}
	return e
}

// loaded is what shimLoad made, whether it succeeded or not.
type loaded struct {
	module       cu.Module
	info, errors string
	seconds      float64
}

func shimLoad(ctx cu.CUContext, ptx []byte) (loaded, error) {
	text := C.CString(string(ptx))
	defer C.free(unsafe.Pointer(text))
	var m C.shim_module
	code := C.shim_load(cContext(ctx), text, &m)
	defer C.free(unsafe.Pointer(m.info))
	defer C.free(unsafe.Pointer(m.errors))
	l := loaded{
		module:  *(*cu.Module)(unsafe.Pointer(&m.module)),
		seconds: float64(m.seconds),
	}
	if m.info != nil {
		l.info = C.GoString(m.info)
	}
	if m.errors != nil {
		l.errors = C.GoString(m.errors)
	}
	return l, driverError("cuModuleLoadDataEx", code)
}

func shimSetDynamicShared(ctx cu.CUContext, f cu.Function, bytes int) error {
	return driverError("cuFuncSetAttribute", C.shim_set_attribute(cContext(ctx), cFunction(f),
		C.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, C.int(bytes)))
}

// shimParam returns the place of the kernel's index-th parameter, and false
// when there is none or the driver (before CUDA 12.4) cannot say.
func shimParam(ctx cu.CUContext, f cu.Function, index int) (offset, size int, ok bool) {
	var o, s C.size_t
	code := C.shim_param_info(cContext(ctx), cFunction(f), C.size_t(index), &o, &s)
	return int(o), int(s), code == C.CUDA_SUCCESS
}

func shimHasParam() bool { return C.shim_has_param_info() != 0 }

func dim(d runtime.Dim3) [3]C.uint {
	one := func(n int) C.uint { return C.uint(max(n, 1)) }
	return [3]C.uint{one(d.X), one(d.Y), one(d.Z)}
}

// shimLaunch launches f. offsets are the parameters' starts in params.
func shimLaunch(ctx cu.CUContext, s cu.Stream, f cu.Function, l *runtime.Launch) error {
	if len(l.Offsets) > C.max_params {
		return fmt.Errorf("launch has %d parameters, more than %d", len(l.Offsets), int(C.max_params))
	}
	config := C.shim_config{grid: dim(l.Grid), block: dim(l.Block), cluster: dim(l.Cluster), shared: C.uint(l.Shared)}
	if l.Programmatic {
		config.programmatic = 1
	}
	code := C.shim_launch(cContext(ctx), cStream(s), cFunction(f), &config, unsafe.Pointer(unsafe.SliceData(l.Params)),
		(*C.long)(unsafe.Pointer(unsafe.SliceData(l.Offsets))), C.int(len(l.Offsets)))
	return driverError("cuLaunchKernelEx", code)
}

// The driver's numbers of element types, swizzles and L2 promotions.
var (
	tensorMapTypes = map[string]C.uint{
		"u8": C.CU_TENSOR_MAP_DATA_TYPE_UINT8, "e4m3": C.CU_TENSOR_MAP_DATA_TYPE_UINT8,
		"s32": C.CU_TENSOR_MAP_DATA_TYPE_INT32, "u32": C.CU_TENSOR_MAP_DATA_TYPE_UINT32,
		"fp16": C.CU_TENSOR_MAP_DATA_TYPE_FLOAT16, "bf16": C.CU_TENSOR_MAP_DATA_TYPE_BFLOAT16,
		"f32": C.CU_TENSOR_MAP_DATA_TYPE_FLOAT32,
	}
	tensorMapSwizzles = map[int]C.uint{
		0: C.CU_TENSOR_MAP_SWIZZLE_NONE, 32: C.CU_TENSOR_MAP_SWIZZLE_32B,
		64: C.CU_TENSOR_MAP_SWIZZLE_64B, 128: C.CU_TENSOR_MAP_SWIZZLE_128B,
	}
	tensorMapPromotions = map[int]C.uint{
		0: C.CU_TENSOR_MAP_L2_PROMOTION_NONE, 64: C.CU_TENSOR_MAP_L2_PROMOTION_L2_64B,
		128: C.CU_TENSOR_MAP_L2_PROMOTION_L2_128B, 256: C.CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
	}
)

func shimEncode(ctx cu.CUContext, t *runtime.TensorMap) (out [128]byte, err error) {
	rank := len(t.Box)
	if rank < 1 || rank > 5 || len(t.Sizes) != rank || len(t.Strides) != rank-1 {
		return out, fmt.Errorf("tensor map %q: a box of rank %d with %d sizes and %d strides; want rank 1 to 5, as many sizes, and one stride less",
			t.Param, rank, len(t.Sizes), len(t.Strides))
	}
	var m C.shim_map
	var known [3]bool
	m._type, known[0] = tensorMapTypes[t.DType]
	m.swizzle, known[1] = tensorMapSwizzles[t.Swizzle]
	m.promotion, known[2] = tensorMapPromotions[t.Promotion]
	for i, what := range []any{t.DType, t.Swizzle, t.Promotion} {
		if !known[i] {
			return out, fmt.Errorf("tensor map %q: unknown %s %v", t.Param, [...]string{"element type", "swizzle", "L2 promotion"}[i], what)
		}
	}
	m.rank = C.uint(rank)
	m.address = C.ulonglong(t.Address)
	for i, n := range t.Sizes {
		m.sizes[i] = C.cuuint64_t(n)
		m.box[i] = C.cuuint32_t(t.Box[i])
	}
	for i, n := range t.Strides {
		m.strides[i] = C.cuuint64_t(n)
	}
	if err := driverError("cuTensorMapEncodeTiled", C.shim_encode(cContext(ctx), &m, unsafe.Pointer(&out))); err != nil {
		return out, fmt.Errorf("tensor map %q (%s, address %#x, sizes %v, strides %v bytes, box %v, swizzle %d): %w",
			t.Param, t.DType, t.Address, t.Sizes, t.Strides, t.Box, t.Swizzle, err)
	}
	return out, nil
}

// execGraph is an instantiated graph.
type execGraph C.CUgraphExec

func shimBeginCapture(ctx cu.CUContext, s cu.Stream) error {
	return driverError("cuStreamBeginCapture", C.shim_begin_capture(cContext(ctx), cStream(s)))
}

func shimEndCapture(ctx cu.CUContext, s cu.Stream) (execGraph, error) {
	var exec C.CUgraphExec
	err := driverError("cuStreamEndCapture or cuGraphInstantiate", C.shim_end_capture(cContext(ctx), cStream(s), &exec))
	return execGraph(exec), err
}

func shimReplay(ctx cu.CUContext, s cu.Stream, g execGraph) error {
	return driverError("cuGraphLaunch", C.shim_replay(cContext(ctx), cStream(s), C.CUgraphExec(g)))
}

func shimDestroyGraph(ctx cu.CUContext, g execGraph) error {
	return driverError("cuGraphExecDestroy", C.shim_destroy_graph(cContext(ctx), C.CUgraphExec(g)))
}

// shimLocate says where p lies, and whether it is memory of some GPU.
func shimLocate(ctx cu.CUContext, p runtime.Ptr) (l runtime.Location, device int, onGPU bool, err error) {
	var kind C.uint
	var ordinal, whole C.int
	var start C.ulonglong
	var bytes C.size_t
	code := C.shim_locate(cContext(ctx), C.ulonglong(p), &kind, &ordinal, &start, &bytes, &whole)
	l = runtime.Location{Base: runtime.Ptr(start), Size: int64(bytes), Open: whole == 0}
	return l, int(ordinal), kind == C.CU_MEMORYTYPE_DEVICE, driverError("cuPointerGetAttributes", code)
}

// shimPCI returns a GPU's PCI address, such as 0000:1b:00.0.
func shimPCI(ordinal int) (string, error) {
	var address [32]C.char
	err := driverError("cuDeviceGetPCIBusId", C.shim_pci(C.int(ordinal), &address[0], C.int(len(address))))
	return C.GoString(&address[0]), err
}
