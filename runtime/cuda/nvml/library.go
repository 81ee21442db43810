//go:build cuda

package nvml

/*
#cgo LDFLAGS: -ldl

#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

// The few types of the library's stable C interface that are needed; its
// header is not part of the driver.
typedef int   result; // nvmlReturn_t, 0 = success
typedef void *device; // nvmlDevice_t

typedef struct { // nvmlFieldValue_t
	unsigned int id, scope;
	long long    timestamp, latency;
	unsigned int type; // nvmlValueType_t
	result       status;
	union {
		double             f64;
		unsigned int       u32;
		unsigned long      ul;
		unsigned long long u64;
		long long          s64;
		int                s32;
		unsigned short     u16;
	} value;
} field;

enum {
	success       = 0,
	not_supported = 3,   // NVML_ERROR_NOT_SUPPORTED
	not_there     = 13,  // NVML_ERROR_FUNCTION_NOT_FOUND
	clock_sm      = 1,   // NVML_CLOCK_SM
	power_instant = 186, // NVML_FI_DEV_POWER_INSTANT, milliwatts
};

static struct {
	void *handle;
	result (*init)(void);
	result (*shutdown)(void);
	const char *(*error_string)(result);
	result (*by_uuid)(const char *, device *);
	result (*by_pci)(const char *, device *);
	result (*field_values)(device, int, field *);
	result (*power_usage)(device, unsigned int *);
	result (*clock_info)(device, unsigned int, unsigned int *);
	result (*energy)(device, unsigned long long *);
} nvml;

// nvml_load finds the library and its functions; NULL, or what is wrong.
static const char *nvml_load(const char *name) {
	if (nvml.handle != NULL) return NULL;
	void *h = dlopen(name, RTLD_LAZY | RTLD_LOCAL);
	if (h == NULL) return dlerror();
	*(void **)&nvml.init         = dlsym(h, "nvmlInit_v2");
	*(void **)&nvml.shutdown     = dlsym(h, "nvmlShutdown");
	*(void **)&nvml.error_string = dlsym(h, "nvmlErrorString");
	*(void **)&nvml.by_uuid      = dlsym(h, "nvmlDeviceGetHandleByUUID");
	*(void **)&nvml.by_pci       = dlsym(h, "nvmlDeviceGetHandleByPciBusId_v2");
	*(void **)&nvml.field_values = dlsym(h, "nvmlDeviceGetFieldValues");
	*(void **)&nvml.power_usage  = dlsym(h, "nvmlDeviceGetPowerUsage");
	*(void **)&nvml.clock_info   = dlsym(h, "nvmlDeviceGetClockInfo");
	*(void **)&nvml.energy       = dlsym(h, "nvmlDeviceGetTotalEnergyConsumption");
	if (nvml.init == NULL || nvml.shutdown == NULL || nvml.by_uuid == NULL) {
		dlclose(h);
		return "it lacks nvmlInit_v2, nvmlShutdown or nvmlDeviceGetHandleByUUID";
	}
	nvml.handle = h;
	return NULL;
}

static result nvml_init(void)     { return nvml.init(); }
static result nvml_shutdown(void) { return nvml.shutdown(); }

static const char *nvml_error(result r) { return nvml.error_string != NULL ? nvml.error_string(r) : NULL; }

static result nvml_by_uuid(const char *uuid, device *d) { return nvml.by_uuid(uuid, d); }
static result nvml_by_pci(const char *bus, device *d)   { return nvml.by_pci != NULL ? nvml.by_pci(bus, d) : not_there; }

// nvml_power reads the power of this instant. Where the driver does not tell
// it, it reads the usual figure, which is the mean of a second.
static result nvml_power(device d, unsigned int *milliwatts) {
	if (nvml.field_values != NULL) {
		field f;
		memset(&f, 0, sizeof f);
		f.id = power_instant;
		if (nvml.field_values(d, 1, &f) == success && f.status == success) {
			*milliwatts = f.value.u32;
			return success;
		}
	}
	return nvml.power_usage != NULL ? nvml.power_usage(d, milliwatts) : not_there;
}

static result nvml_clock(device d, unsigned int *megahertz) {
	return nvml.clock_info != NULL ? nvml.clock_info(d, clock_sm, megahertz) : not_there;
}

static result nvml_energy(device d, unsigned long long *millijoules) {
	return nvml.energy != NULL ? nvml.energy(d, millijoules) : not_there;
}
*/
import "C"

import (
	"fmt"
	"sync"
	"unsafe"
)

// libraryName is the file that the GPU driver installs; tests put another in its place.
var libraryName = "libnvidia-ml.so.1"

// Error is a failed call of the library.
type Error struct {
	Call string // "nvmlInit_v2"
	Code int    // nvmlReturn_t
	Text string
}

func (e *Error) Error() string { return fmt.Sprintf("%s: %s (%d)", e.Call, e.Text, e.Code) }

// absent reports that this device or library does not tell what was asked.
func (e *Error) absent() bool { return e.Code == C.not_supported || e.Code == C.not_there }

func check(call string, r C.result) *Error {
	if r == C.success {
		return nil
	}
	e := &Error{call, int(r), "unknown error"}
	if s := C.nvml_error(r); s != nil {
		e.Text = C.GoString(s)
	}
	return e
}

var loading sync.Mutex

// load finds the library once for the process.
func load() error {
	loading.Lock()
	defer loading.Unlock()
	name := C.CString(libraryName)
	defer C.free(unsafe.Pointer(name))
	if s := C.nvml_load(name); s != nil {
		return fmt.Errorf("%s: %s", libraryName, C.GoString(s))
	}
	return nil
}

// handle is a device as the library knows it.
type handle C.device

// find returns the device with a UUID ("GPU-…") or, where the library knows
// none, at a PCI address ("0000:1b:00.0").
func find(uuid, pci string) (handle, error) {
	var d C.device
	u := C.CString(uuid)
	defer C.free(unsafe.Pointer(u))
	err := check("nvmlDeviceGetHandleByUUID "+uuid, C.nvml_by_uuid(u, &d))
	if err == nil {
		return handle(d), nil
	}
	if pci == "" {
		return nil, err
	}
	p := C.CString(pci)
	defer C.free(unsafe.Pointer(p))
	if other := check("nvmlDeviceGetHandleByPciBusId "+pci, C.nvml_by_pci(p, &d)); other != nil {
		return nil, fmt.Errorf("%w; %w", err, other)
	}
	return handle(d), nil
}

func initialise() error {
	if err := check("nvmlInit_v2", C.nvml_init()); err != nil {
		return err
	}
	return nil
}

func shutdown() error {
	if err := check("nvmlShutdown", C.nvml_shutdown()); err != nil {
		return err
	}
	return nil
}

func power(h handle) (milliwatts float64, err *Error) {
	var v C.uint
	err = check("nvmlDeviceGetPowerUsage", C.nvml_power(C.device(h), &v))
	return float64(v), err
}

func clock(h handle) (megahertz float64, err *Error) {
	var v C.uint
	err = check("nvmlDeviceGetClockInfo", C.nvml_clock(C.device(h), &v))
	return float64(v), err
}

func energy(h handle) (millijoules float64, err *Error) {
	var v C.ulonglong
	err = check("nvmlDeviceGetTotalEnergyConsumption", C.nvml_energy(C.device(h), &v))
	return float64(v), err
}
