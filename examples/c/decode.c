/* A decode step in C, on the driver's API alone: schedule, absorb-decode and
   combine for a small batch, compared with a loop in double precision. What it
   knows of the kernels is in three headers that mlagen emit -c wrote. */

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "absorb_decode.h"
#include "decode_combine.h"
#include "decode_schedule.h"

enum {
	BATCH = 5,
	HEADS = ABSORB_DECODE_HEADS,
	LATENT = ABSORB_DECODE_LATENT,
	WIDTH = ABSORB_DECODE_WIDTH, /* of a query and of a cache row: latent and rope key */
	PAGE = ABSORB_DECODE_PAGE,
	PAGES = 64,
	TABLE = 40, /* pages of a request, at most */
};

static const int kv_len[BATCH] = {100, 37, 0, 2500, 64};
static const double scale = 0.07216878364870322; /* 1/sqrt(128+64): of the head before absorption */

static void check(CUresult r, const char *what) {
	const char *name = "unknown";
	if (r == CUDA_SUCCESS)
		return;
	cuGetErrorName(r, &name);
	fprintf(stderr, "%s: %s\n", what, name);
	exit(1);
}

/* launched takes the place of why: its value may be read before the launch sets it. */
static void launched(CUresult r, const char *kernel, const char *const *why) {
	if (r == CUDA_ERROR_INVALID_VALUE && *why) {
		fprintf(stderr, "%s: %s\n", kernel, *why);
		exit(1);
	}
	check(r, kernel);
}

static CUfunction load(const char *ptx, const char *kernel) {
	static char log[8192];
	CUjit_option options[] = {CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES};
	void *values[] = {log, (void *)sizeof log};
	CUmodule module;
	CUfunction function;
	CUresult r = cuModuleLoadDataEx(&module, ptx, 2, options, values);
	if (r != CUDA_SUCCESS)
		fprintf(stderr, "%s\n", log);
	check(r, kernel);
	check(cuModuleGetFunction(&function, module, kernel), kernel);
	return function;
}

static CUdeviceptr room(int64_t bytes) {
	CUdeviceptr p;
	check(cuMemAlloc(&p, (size_t)bytes), "allocate");
	check(cuMemsetD8(p, 0xff, (size_t)bytes), "fill"); /* NaN: nothing relies on what was there */
	return p;
}

static CUdeviceptr put(const void *data, size_t bytes) {
	CUdeviceptr p = room((int64_t)bytes);
	check(cuMemcpyHtoD(p, data, bytes), "upload");
	return p;
}

/* bf16 is the upper half of a float; the values here are exact. */
static uint16_t to_bf16(float x) {
	uint32_t bits;
	memcpy(&bits, &x, sizeof bits);
	return (uint16_t)(bits >> 16);
}

static double from_bf16(uint16_t x) {
	uint32_t bits = (uint32_t)x << 16;
	float f;
	memcpy(&f, &bits, sizeof f);
	return f;
}

static uint16_t *random_bf16(size_t n, uint32_t seed) {
	uint16_t *x = malloc(n * sizeof *x);
	if (!x)
		exit(1);
	for (size_t i = 0; i < n; i++) {
		seed = seed * 1664525u + 1013904223u;
		x[i] = to_bf16((float)((int)(seed >> 25) - 64) / 64);
	}
	return x;
}

static const uint16_t *query, *cache;
static int table[BATCH][TABLE];

/* reference attends one head of one request in double precision. */
static void reference(int request, int head, double out[LATENT], double *lse) {
	static double score[TABLE * PAGE];
	const uint16_t *q = query + ((size_t)request * HEADS + head) * WIDTH;
	double top = -INFINITY, sum = 0;
	int n = kv_len[request];
	for (int t = 0; t < n; t++) {
		const uint16_t *k = cache + ((size_t)table[request][t / PAGE] * PAGE + t % PAGE) * WIDTH;
		double s = 0;
		for (int i = 0; i < WIDTH; i++)
			s += from_bf16(q[i]) * from_bf16(k[i]);
		score[t] = s * scale;
		top = fmax(top, score[t]);
	}
	memset(out, 0, LATENT * sizeof *out);
	for (int t = 0; t < n; t++) {
		const uint16_t *v = cache + ((size_t)table[request][t / PAGE] * PAGE + t % PAGE) * WIDTH;
		double p = exp(score[t] - top);
		sum += p;
		for (int i = 0; i < LATENT; i++)
			out[i] += p * from_bf16(v[i]);
	}
	for (int i = 0; i < LATENT && n > 0; i++)
		out[i] /= sum;
	*lse = n > 0 ? top + log(sum) : -INFINITY;
}

int main(void) {
	CUdevice device;
	CUcontext context;
	char name[128];
	int sms, next = 0;
	check(cuInit(0), "cuInit");
	check(cuDeviceGet(&device, 0), "device 0");
	check(cuDeviceGetName(name, sizeof name, device), "name");
	check(cuDeviceGetAttribute(&sms, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, device), "multiprocessors");
	check(cuDevicePrimaryCtxRetain(&context, device), "context");
	check(cuCtxSetCurrent(context), "context");

	CUfunction schedule = load(decode_schedule_ptx, DECODE_SCHEDULE_KERNEL);
	CUfunction attend = load(absorb_decode_ptx, ABSORB_DECODE_KERNEL);
	CUfunction combine = load(decode_combine_ptx, DECODE_COMBINE_KERNEL);

	query = random_bf16((size_t)BATCH * HEADS * WIDTH, 1);
	cache = random_bf16((size_t)PAGES * PAGE * WIDTH, 2);
	for (int r = 0; r < BATCH; r++)
		for (int i = 0; i < TABLE; i++)
			table[r][i] = i * PAGE < kv_len[r] ? (7 * next++ + 3) % PAGES : -1; /* 7 and 64 have no common factor: each page once */

	/* Sizes of buffers follow from batch and splits. */
	absorb_decode_args a = {.sms = sms, .batch = BATCH, .splits = 0};
	absorb_decode_quantities sizes;
	const char *why = absorb_decode_compute(&a, &sizes);
	if (why) {
		fprintf(stderr, "%s\n", why);
		return 1;
	}
	const int64_t row = 2 * WIDTH, out_row = 2 * LATENT;
	CUdeviceptr q = put(query, BATCH * HEADS * row);
	a.q_latent = (mlagen_tensor){q, {BATCH, 1, HEADS, LATENT}, {HEADS * row, HEADS * row, row, 2}};
	a.q_rope = (mlagen_tensor){q + 2 * LATENT, {BATCH, 1, HEADS, WIDTH - LATENT}, {HEADS * row, HEADS * row, row, 2}};
	a.kv = (mlagen_tensor){put(cache, PAGES * PAGE * row), {PAGES, PAGE, WIDTH}, {PAGE * row, row, 2}};
	a.block_table = (mlagen_tensor){put(table, sizeof table), {BATCH, TABLE}, {4 * TABLE, 4}};
	a.kv_len = (mlagen_tensor){put(kv_len, sizeof kv_len), {BATCH}, {4}};
	a.schedule = (mlagen_buffer){room(sizes.schedule_bytes), sizes.schedule_bytes};
	a.workspace = (mlagen_buffer){room(sizes.workspace_bytes), sizes.workspace_bytes};
	a.out = (mlagen_tensor){room(BATCH * HEADS * out_row), {BATCH, 1, HEADS, LATENT}, {HEADS * out_row, HEADS * out_row, out_row, 2}};
	a.lse = (mlagen_tensor){room(4 * BATCH * HEADS), {BATCH, 1, HEADS}, {4 * HEADS, 4 * HEADS, 4}};
	a.scale = scale;
	a.lse_factor = 0.6931471805599453; /* to base e */

	CUstream stream;
	check(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), "stream");
	/* One schedule serves every layer of a model; the other two are once per layer. */
	decode_schedule_args s = {.sms = sms, .batch = BATCH, .splits = 0, .kv_len = a.kv_len, .schedule = a.schedule};
	launched(decode_schedule_launch(schedule, stream, &s, &why), DECODE_SCHEDULE_KERNEL, &why);
	launched(absorb_decode_launch(attend, stream, &a, &why), ABSORB_DECODE_KERNEL, &why);
	decode_combine_args c = {.sms = sms, .batch = BATCH, .splits = 0, .schedule = a.schedule, .workspace = a.workspace, .out = a.out, .lse = a.lse, .lse_factor = a.lse_factor};
	launched(decode_combine_launch(combine, stream, &c, &why), DECODE_COMBINE_KERNEL, &why);
	check(cuStreamSynchronize(stream), "run");

	static uint16_t out[BATCH][HEADS][LATENT];
	static float lse[BATCH][HEADS];
	check(cuMemcpyDtoH(out, a.out.address, sizeof out), "download");
	check(cuMemcpyDtoH(lse, a.lse.address, sizeof lse), "download");
	double worst = 0, worst_lse = 0, want[LATENT], want_lse;
	for (int r = 0; r < BATCH; r++)
		for (int h = 0; h < HEADS; h++) {
			reference(r, h, want, &want_lse);
			double d = kv_len[r] == 0 && lse[r][h] == want_lse ? 0 : fabs(lse[r][h] - want_lse);
			worst_lse = d > worst_lse || isnan(d) ? d : worst_lse;
			for (int i = 0; i < LATENT; i++) {
				d = fabs(from_bf16(out[r][h][i]) - want[i]);
				worst = d > worst || isnan(d) ? d : worst;
			}
		}
	printf("%s, %d SMs: decode of %d requests, %d heads: output within %.2e of double precision, LSE within %.2e\n", name, sms, BATCH, HEADS, worst, worst_lse);
	check(cuStreamDestroy(stream), "stream");
	check(cuDevicePrimaryCtxRelease(device), "context");
	/* Weights and output are rounded to bf16, 8 bits. */
	if (!(worst <= 0.01 && worst_lse <= 1e-4)) {
		fprintf(stderr, "too far\n");
		return 1;
	}
	return 0;
}
