package bind

// cCommon is what all headers share.
const cCommon = `#ifndef MLAGEN_COMMON
#define MLAGEN_COMMON

/* A view of device memory. Dimensions are outermost first, strides in bytes; the
   innermost stride is one element. The stride of a dimension of one element means
   nothing and may be 0. */
typedef struct {
	CUdeviceptr address;
	int64_t size[5];
	int64_t stride[5];
} mlagen_tensor;

/* Device memory without a structure for the caller. */
typedef struct {
	CUdeviceptr address;
	int64_t bytes;
} mlagen_buffer;

/* Arithmetic of launch rules; what does not fit sets bad. */
static inline int64_t mlagen_add(int *bad, int64_t a, int64_t b) { int64_t r; *bad |= __builtin_add_overflow(a, b, &r); return r; }
static inline int64_t mlagen_sub(int *bad, int64_t a, int64_t b) { int64_t r; *bad |= __builtin_sub_overflow(a, b, &r); return r; }
static inline int64_t mlagen_mul(int *bad, int64_t a, int64_t b) { int64_t r; *bad |= __builtin_mul_overflow(a, b, &r); return r; }
static inline int64_t mlagen_div(int *bad, int64_t a, int64_t b) { if (a < 0 || b <= 0) { *bad = 1; return 0; } return a / b; }
static inline int64_t mlagen_ceildiv(int *bad, int64_t a, int64_t b) { if (a < 0 || b <= 0) { *bad = 1; return 0; } return a / b + (a % b > 0); }
static inline int64_t mlagen_roundup(int *bad, int64_t a, int64_t b) { return mlagen_mul(bad, mlagen_ceildiv(bad, a, b), b); }
static inline int64_t mlagen_min(int64_t a, int64_t b) { return a < b ? a : b; }
static inline int64_t mlagen_max(int64_t a, int64_t b) { return a > b ? a : b; }

/* Whether a tensor lies as it must: aligned, and dense where element says how
   large one is. */
static inline int mlagen_placed(const mlagen_tensor *t, int rank, int align, int64_t element) {
	int64_t dense = element;
	for (int i = 0; i < rank; i++)
		if (t->size[i] == 0)
			return 1; /* nothing of it is read or written */
	if (!t->address || t->address % (CUdeviceptr)align)
		return 0;
	for (int i = rank - 2; i >= 0; i--) {
		dense *= t->size[i + 1];
		if (t->size[i] > 1 && (t->stride[i] < 0 || t->stride[i] % align || (element && t->stride[i] != dense)))
			return 0;
	}
	return 1;
}

static inline CUresult mlagen_encode(CUtensorMap *map, CUtensorMapDataType type, int rank, CUdeviceptr address, int64_t *size, int64_t *stride, int64_t element,
                                     const uint32_t *box, CUtensorMapSwizzle swizzle, CUtensorMapL2promotion promotion) {
	cuuint64_t sizes[5], strides[5];
	cuuint32_t boxes[5], steps[5];
	int64_t dense = element;
	for (int i = 0; i < rank; i++) {
		if (i > 0) {
			if (stride[i - 1] == 0)
				stride[i - 1] = dense; /* a dimension of one element */
			dense = stride[i - 1];
			strides[i - 1] = (cuuint64_t)dense;
		}
		dense *= size[i];
		sizes[i] = (cuuint64_t)size[i];
		boxes[i] = box[i];
		steps[i] = 1;
	}
	return cuTensorMapEncodeTiled(map, type, (cuuint32_t)rank, (void *)address, sizes, strides, boxes, steps, CU_TENSOR_MAP_INTERLEAVE_NONE, swizzle, promotion,
	                              CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
}

#endif /* MLAGEN_COMMON */

`
