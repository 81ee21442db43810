"""Loads generated kernels on a GPU and launches them by their manifests, with
cuda-python and without Go. Tensors are PyTorch's, or of any class that has data_ptr,
dtype, shape and stride.
"""

import ctypes
import json
import pathlib

from cuda.bindings import driver

from manifest import ArgumentError, Manifest, Memory, View

_DTYPES = {"torch.bfloat16": "bf16", "torch.float16": "fp16", "torch.float32": "f32", "torch.int32": "s32", "torch.int64": "s64"}

_MAP = driver.CUtensorMapDataType
_MAP_TYPES = {
    "bf16": _MAP.CU_TENSOR_MAP_DATA_TYPE_BFLOAT16,
    "fp16": _MAP.CU_TENSOR_MAP_DATA_TYPE_FLOAT16,
    "f32": _MAP.CU_TENSOR_MAP_DATA_TYPE_FLOAT32,
}
_SWIZZLES = {
    0: driver.CUtensorMapSwizzle.CU_TENSOR_MAP_SWIZZLE_NONE,
    32: driver.CUtensorMapSwizzle.CU_TENSOR_MAP_SWIZZLE_32B,
    64: driver.CUtensorMapSwizzle.CU_TENSOR_MAP_SWIZZLE_64B,
    128: driver.CUtensorMapSwizzle.CU_TENSOR_MAP_SWIZZLE_128B,
}
_PROMOTIONS = {
    0: driver.CUtensorMapL2promotion.CU_TENSOR_MAP_L2_PROMOTION_NONE,
    64: driver.CUtensorMapL2promotion.CU_TENSOR_MAP_L2_PROMOTION_L2_64B,
    128: driver.CUtensorMapL2promotion.CU_TENSOR_MAP_L2_PROMOTION_L2_128B,
    256: driver.CUtensorMapL2promotion.CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
}


class CUDAError(RuntimeError):
    """What the driver refused."""


def _ok(what, result):
    """Returns what a driver's call returned, without its status."""
    status, *values = result
    if status != driver.CUresult.CUDA_SUCCESS:
        _, text = driver.cuGetErrorString(status)
        raise CUDAError(f"{what}: {status.name}: {text.decode() if text else ''}")
    return values[0] if len(values) == 1 else values


class Kernel:
    """A loaded kernel."""

    def __init__(self, manifest, device):
        self.manifest = m = manifest
        version = _ok("cuDriverGetVersion", driver.cuDriverGetVersion())
        if version < m.json["min_driver"]:
            raise CUDAError(f"{m.kernel} needs a driver of CUDA {m.json['min_driver']}; this one is of {version}")
        attribute = driver.CUdevice_attribute
        major, minor = (_ok("cuDeviceGetAttribute", driver.cuDeviceGetAttribute(a, device)) for a in (
            attribute.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, attribute.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR))
        if m.json["target"] == "sm_90a" and (major, minor) != (9, 0):
            raise CUDAError(f"{m.kernel} is for compute capability 9.0; the device has {major}.{minor}")
        text = ctypes.create_string_buffer(m.ptx)  # ends in a zero
        self.module = _ok(f"load {m.kernel}", driver.cuModuleLoadData(ctypes.addressof(text)))
        self.function = _ok("cuModuleGetFunction", driver.cuModuleGetFunction(self.module, m.kernel.encode()))
        _ok("cuFuncSetAttribute", driver.cuFuncSetAttribute(
            self.function, driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, m.json["shared"]))

    def launch(self, stream, plan):
        """Launches what Manifest.plan returned."""
        align = 128
        memory = ctypes.create_string_buffer(len(plan.params) + align)
        base = (ctypes.addressof(memory) + align - 1) // align * align
        ctypes.memmove(base, bytes(plan.params), len(plan.params))
        for t in plan.maps:
            encoded = _encode(t)
            ctypes.memmove(base + t.offset, encoded.getPtr(), 128)
        pointers = (ctypes.c_void_p * len(plan.offsets))(*(base + offset for offset in plan.offsets))

        config = driver.CUlaunchConfig()
        config.gridDimX, config.gridDimY, config.gridDimZ = plan.grid
        config.blockDimX, config.blockDimY, config.blockDimZ = plan.threads, 1, 1
        config.sharedMemBytes = plan.shared
        config.hStream = driver.CUstream(stream)
        attributes = []
        if plan.programmatic:
            a = driver.CUlaunchAttribute()
            a.id = driver.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION
            a.value.programmaticStreamSerializationAllowed = 1
            attributes.append(a)
        if plan.cluster > 1:
            a = driver.CUlaunchAttribute()
            a.id = driver.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION
            a.value.clusterDim.x, a.value.clusterDim.y, a.value.clusterDim.z = plan.cluster, 1, 1
            attributes.append(a)
        config.attrs, config.numAttrs = attributes, len(attributes)
        _ok(f"launch {plan.kernel}", driver.cuLaunchKernelEx(config, self.function, ctypes.addressof(pointers), 0))

    def close(self):
        _ok("cuModuleUnload", driver.cuModuleUnload(self.module))


def _encode(t):
    """Returns a CUtensorMap. No interleave, no element strides, zeros out of bounds."""
    rank = len(t.sizes)
    return _ok("cuTensorMapEncodeTiled", driver.cuTensorMapEncodeTiled(
        _MAP_TYPES[t.dtype], rank, t.address,
        [driver.cuuint64_t(n) for n in t.sizes], [driver.cuuint64_t(n) for n in t.strides],
        [driver.cuuint32_t(n) for n in t.box], [driver.cuuint32_t(1)] * rank,
        driver.CUtensorMapInterleave.CU_TENSOR_MAP_INTERLEAVE_NONE, _SWIZZLES[t.swizzle], _PROMOTIONS[t.promotion],
        driver.CUtensorMapFloatOOBfill.CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE))


class Operation:
    """The kernels of an operation, launched one after the other."""

    def __init__(self, folder):
        """Loads every kernel in a folder, KERNEL.ptx with KERNEL.json, on the device
        of the current context."""
        manifests = {m.kernel: m for m in map(Manifest, sorted(pathlib.Path(folder).glob("*.json")))}
        if not manifests:
            raise ValueError(f"{folder}: there are no kernels")
        self.steps = next(iter(manifests.values())).launch["steps"]
        said = {}  # of an argument, a constant or a quantity, by name
        self.kinds = {}
        for m in manifests.values():
            for e in [e for part in ("arguments", "constants", "quantities") for e in m.launch.get(part, [])]:
                if said.setdefault(e["name"], e) != e:
                    raise ValueError(f"{folder}: {m.kernel} was made for {json.dumps(e)}, another for {json.dumps(said[e['name']])}")
            if m.launch["steps"] != self.steps:
                raise ValueError(f"{folder}: {m.kernel} is of another operation than the other kernels")
            self.kinds.update((a["name"], a["kind"]) for a in m.launch["arguments"])
        if {s["kernel"] for s in self.steps} != set(manifests):
            raise ValueError(f"{folder}: has {', '.join(manifests)}; must have {', '.join(s['kernel'] for s in self.steps)}")
        device = _ok("cuCtxGetDevice", driver.cuCtxGetDevice())
        self.sms = _ok("cuDeviceGetAttribute", driver.cuDeviceGetAttribute(
            driver.CUdevice_attribute.CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, device))
        self.kernels = {name: Kernel(m, device) for name, m in manifests.items()}

    def constant(self, name):
        """Returns a number that the kernels were generated for."""
        return next(c["value"] for k in self.kernels.values() for c in k.manifest.launch.get("constants", []) if c["name"] == name)

    def buffers(self, **integers):
        """Returns the least sizes in bytes of the buffers, by name."""
        return {name: k.manifest.buffer_bytes(name, self.sms, integers)
                for k in self.kernels.values() for name, a in k.manifest.arguments.items() if a["kind"] == "buffer"}

    def run(self, once, stream, **arguments):
        """Launches the kernels that run once per "step" or once per "layer". A tensor
        is a PyTorch tensor, a buffer one of bytes."""
        for name in arguments:
            if name not in self.kinds:
                raise ArgumentError(f"{name}: there is no such argument; there are {', '.join(self.kinds)}")
        given = {name: self._argument(name, value) for name, value in arguments.items()}
        for step in self.steps:
            if step["once"] != once:
                continue
            kernel = self.kernels[step["kernel"]]
            plan = kernel.manifest.plan(self.sms, given)
            if plan is not None:
                kernel.launch(stream, plan)

    def _argument(self, name, value):
        kind = self.kinds[name]
        if kind in ("integer", "real"):
            return value
        if kind == "buffer":
            return Memory(value.data_ptr(), value.numel() * value.element_size())
        return View(value.data_ptr(), _DTYPES.get(str(value.dtype), str(value.dtype)), tuple(value.shape), tuple(value.stride()))

    def close(self):
        for kernel in self.kernels.values():
            kernel.close()
