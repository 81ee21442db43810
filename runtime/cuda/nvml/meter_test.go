//go:build cuda

package nvml

import (
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/mlagen/mlagen/runtime"
)

// library stands in for NVIDIA's. Its devices are numbers: 1 tells everything,
// 2 is of a driver that knows no power of the instant, 3 tells the clock only,
// 4 is lost.
const library = `
#include <string.h>
typedef struct { unsigned int id, scope; long long time, latency; unsigned int type; int status; unsigned long long value; } field;
static int users;
int nvmlInit_v2(void) { users++; return 0; }
int nvmlShutdown(void) { return --users < 0 ? 1 : 0; }
const char *nvmlErrorString(int r) { return r == 6 ? "Not Found" : r == 15 ? "GPU is lost" : "other"; }
int nvmlDeviceGetHandleByUUID(const char *uuid, void **d) {
	if (strncmp(uuid, "GPU-", 4) != 0 || uuid[4] < '1' || uuid[4] > '4') return 6;
	*d = (void *)(long)(uuid[4] - '0');
	return 0;
}
int nvmlDeviceGetHandleByPciBusId_v2(const char *bus, void **d) {
	if (strcmp(bus, "0000:1b:00.0") != 0) return 6;
	*d = (void *)1L;
	return 0;
}
int nvmlDeviceGetFieldValues(void *d, int n, field *f) {
	if (n != 1 || f->id != 186 || f->scope != 0) return 2;
	f->status = (long)d == 1 ? 0 : 3;
	f->type = 1;
	f->value = 0xffffffff00000000ull | 650500;
	return 0;
}
int nvmlDeviceGetPowerUsage(void *d, unsigned int *v) { *v = 400000; return (long)d == 4 ? 15 : (long)d == 3 ? 3 : 0; }
int nvmlDeviceGetClockInfo(void *d, unsigned int type, unsigned int *v) { *v = type == 1 ? 1755 : 0; return (long)d == 4 ? 15 : 0; }
int nvmlDeviceGetTotalEnergyConsumption(void *d, unsigned long long *v) { *v = 12345678901234; return (long)d == 4 ? 15 : (long)d == 3 ? 3 : 0; }
`

// TestMeter takes the cases in order: the process loads one library.
func TestMeter(t *testing.T) {
	libraryName = "libthere-is-none.so.1"
	if m, err := Open("GPU-1", ""); m != nil || err == nil || !strings.Contains(err.Error(), libraryName) {
		t.Fatalf("without the library: %v, %v", m, err)
	}

	if _, err := exec.LookPath("gcc"); err != nil {
		t.Skip("needs gcc")
	}
	dir := t.TempDir()
	source := filepath.Join(dir, "nvml.c")
	libraryName = filepath.Join(dir, "libnvidia-ml.so.1")
	if err := os.WriteFile(source, []byte(library), 0o644); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("gcc", "-shared", "-fPIC", "-o", libraryName, source).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}

	none := math.NaN()
	for _, c := range []struct {
		uuid, pci string
		want      runtime.Reading
	}{
		{"GPU-1", "", runtime.Reading{Watts: 650.5, ClockMHz: 1755, Joules: 12345678901.234}},
		{"GPU-2", "", runtime.Reading{Watts: 400, ClockMHz: 1755, Joules: 12345678901.234}},
		{"GPU-3", "", runtime.Reading{Watts: none, ClockMHz: 1755, Joules: none}},
		{"MIG-9", "0000:1b:00.0", runtime.Reading{Watts: 650.5, ClockMHz: 1755, Joules: 12345678901.234}},
	} {
		m, err := Open(c.uuid, c.pci)
		if err != nil {
			t.Errorf("%s: %v", c.uuid, err)
			continue
		}
		got, err := m.Read()
		if d := cmp.Diff(c.want, got, cmpopts.EquateNaNs(), cmpopts.EquateApprox(1e-12, 0)); d != "" || err != nil {
			t.Errorf("%s: %v\n%s", c.uuid, err, d)
		}
		if err := m.Close(); err != nil {
			t.Error(err)
		}
		if _, err := m.Read(); err == nil {
			t.Error("a closed meter reads")
		}
		if err := m.Close(); err != nil { // again: nvmlShutdown would fail
			t.Error(err)
		}
	}
	if _, err := Open("GPU-9", "0000:00:00.0"); err == nil || !strings.Contains(err.Error(), "Not Found") || !strings.Contains(err.Error(), "0000:00:00.0") {
		t.Errorf("an unknown device: %v", err)
	}
	m, err := Open("GPU-4", "")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := m.Read(); err == nil || !strings.Contains(err.Error(), "GPU is lost") {
		t.Errorf("a lost device: %v", err)
	}
	if err := m.Close(); err != nil {
		t.Error(err)
	}
}
