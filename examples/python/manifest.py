"""From a kernel's manifest and a call's arguments to the launch: grid, block and
the bytes of every parameter. It knows no kernel; all rules are the manifest's (see
package ptx/manifest). Standard library only, so that it runs without a GPU.
"""

import hashlib
import json
import pathlib
import struct
from typing import NamedTuple

from expression import evaluate

SCHEMA = 2
BYTES = {"bf16": 2, "fp16": 2, "f32": 4, "s32": 4, "s64": 8}


class View(NamedTuple):
    """A tensor in device memory; strides are in elements."""

    address: int
    dtype: str
    shape: tuple
    strides: tuple


class Memory(NamedTuple):
    """A range of device memory without a structure."""

    address: int
    bytes: int


class TensorMap(NamedTuple):
    """What cuTensorMapEncodeTiled is given; dimensions are innermost first."""

    offset: int  # of its parameter in the parameters' bytes
    address: int
    sizes: list  # elements
    strides: list  # bytes, of every dimension but the innermost
    dtype: str
    box: list
    swizzle: int  # bytes
    promotion: int  # bytes


class Launch(NamedTuple):
    """A launch, but for the tensor maps, whose places in params are zero."""

    kernel: str
    grid: tuple
    threads: int
    cluster: int
    shared: int
    programmatic: bool
    params: bytearray
    offsets: list
    maps: list


class ArgumentError(ValueError):
    """An argument that the kernel cannot take."""


class Manifest:
    """One kernel's PTX and what its manifest says."""

    def __init__(self, path):
        """Reads KERNEL.json and, beside it, KERNEL.ptx."""
        path = pathlib.Path(path)
        self.json = json.loads(path.read_text(encoding="utf-8"))
        if self.json.get("schema") != SCHEMA:
            raise ValueError(f"{path}: schema is {self.json.get('schema')}; this client reads {SCHEMA}")
        if "launch" not in self.json:
            raise ValueError(f"{path}: it has no launch rules")
        self.ptx = path.with_suffix(".ptx").read_bytes()
        if hashlib.sha256(self.ptx).hexdigest() != self.json["ptx_sha256"]:
            raise ValueError(f"{path}: it describes another text than {path.with_suffix('.ptx')}")
        self.kernel = self.json["kernel"]
        self.launch = self.json["launch"]
        self.arguments = {a["name"]: a for a in self.launch["arguments"]}

    def buffer_bytes(self, name, sms, integers):
        """Returns the least size of a buffer."""
        values = self._integers(sms, integers)
        # Sizes follow from integers alone; a rule that needs a tensor says so.
        for q in self.launch.get("quantities", []):
            values[q["name"]] = evaluate(q["value"], values)
        return evaluate(self.arguments[name]["bytes"], values)

    def plan(self, sms, arguments):
        """Returns the Launch for arguments by name (int, float, View or Memory), or
        None where there is nothing to do. Arguments of other kernels are ignored."""
        values = self._integers(sms, arguments)
        for name in self.arguments:
            if name not in arguments:
                raise ArgumentError(f"{self.kernel}: {name} is missing")
        for a in self._kind("tensor"):
            self._tensor(a, arguments[a["name"]], values)
        for q in self.launch.get("quantities", []):
            values[q["name"]] = evaluate(q["value"], values)
        if "when" in self.launch and evaluate(self.launch["when"], values) == 0:
            return None
        for a in self._kind("buffer"):
            self._buffer(a, arguments[a["name"]], values)
        params = bytearray(max(p["offset"] + p["size"] for p in self.json["params"]))
        for p in self.json["params"]:
            if "fill" in p:
                params[p["offset"]:p["offset"] + p["size"]] = self._fill(p, arguments, values)
        return Launch(
            kernel=self.kernel,
            grid=tuple(evaluate(g, values) for g in self.launch["grid"]),
            threads=self.json["threads"],
            cluster=self.json["cluster"],
            shared=self.json["shared"],
            programmatic=self.launch["programmatic"],
            params=params,
            offsets=[p["offset"] for p in self.json["params"]],
            maps=[self._map(t, arguments, values) for t in self.json.get("tensor_maps", [])],
        )

    def _kind(self, kind):
        return [a for a in self.launch["arguments"] if a["kind"] == kind]

    def _integers(self, sms, arguments):
        """Returns the values that are known before the tensors."""
        values = {"sms": sms}
        for constant in self.launch.get("constants", []):
            values[constant["name"]] = constant["value"]
        for a in self._kind("integer"):
            name = a["name"]
            if name not in arguments:
                raise ArgumentError(f"{self.kernel}: {name} is missing")
            value = arguments[name]
            for bound, wrong, text in (("min", int.__lt__, "at least"), ("max", int.__gt__, "at most")):
                if bound in a:
                    limit = evaluate(a[bound], values)
                    if wrong(value, limit):
                        raise ArgumentError(f"{self.kernel}: {name}: was {value}, must be {text} {limit}")
            values[name] = value
        return values

    def _tensor(self, a, view, values):
        """Holds a tensor against its description and takes sizes and strides."""
        name, size, align = a["name"], BYTES[a["dtype"]], a.get("align", 1)

        def refuse(was, must):
            raise ArgumentError(f"{self.kernel}: {name}: {was}, must be {must}")

        if view.dtype != a["dtype"]:
            refuse(f"dtype was {view.dtype}", a["dtype"])
        if len(view.shape) != len(a["shape"]):
            refuse(f"shape was {list(view.shape)}", f"[{', '.join(d['name'] for d in a['shape'])}]")
        for d, n in zip(a["shape"], view.shape):
            if "size" in d and n != evaluate(d["size"], values):
                refuse(f"{d['name']} was {n}", evaluate(d["size"], values))
        dense, last = 1, len(view.shape) - 1
        for i in range(last, -1, -1):
            n, stride, dimension = view.shape[i], view.strides[i], a["shape"][i]["name"]
            if n > 1 and 0 not in view.shape:
                if i == last and stride != 1:
                    refuse(f"{dimension} stride was {stride}", "1 element")
                if a.get("dense") and stride != dense:
                    refuse(f"{dimension} stride was {stride}", f"{dense}: dense")
                if stride < 0 or i != last and stride * size % align:
                    refuse(f"{dimension} stride was {stride * size} bytes", f"a multiple of {align}")
            dense *= n
            values[f"{name}.size.{dimension}"] = n
            # The stride of a dimension without neighbours means nothing.
            values[f"{name}.stride.{dimension}"] = stride * size if n > 1 else 0
        if 0 not in view.shape and (view.address == 0 or view.address % align):
            refuse(f"address was {view.address:#x}", f"device memory, aligned to {align} bytes")

    def _buffer(self, a, memory, values):
        least = evaluate(a["bytes"], values)
        if memory.bytes < least or memory.address == 0 or memory.address % a.get("align", 1):
            raise ArgumentError(f"{self.kernel}: {a['name']}: was {memory.bytes} bytes at {memory.address:#x}, "
                                f"must be at least {least}, aligned to {a.get('align', 1)}")

    def _place(self, rule, arguments, values):
        """Returns the address of an argument and an offset to it."""
        return arguments[rule["address"]].address + evaluate(rule.get("offset", "0"), values)

    def _fill(self, p, arguments, values):
        """Returns the bytes of a parameter that is no tensor map."""
        fill, kind, size = p["fill"], p["type"], p["size"]
        if "address" in fill:
            return self._place(fill, arguments, values).to_bytes(size, "little")
        if "real" in fill:
            try:
                return struct.pack({"f32": "<f", "f64": "<d"}[kind], arguments[fill["real"]] * fill.get("factor", 1))
            except OverflowError:
                raise ArgumentError(f"{self.kernel}: {fill['real']}: was {arguments[fill['real']]}, must be smaller") from None
        value = evaluate(fill["value"], values)
        try:
            return value.to_bytes(size, "little", signed=kind.startswith("s"))
        except OverflowError:
            raise ArgumentError(f"{self.kernel}: parameter {p['name']} was {value}, which {kind} does not hold") from None

    def _map(self, t, arguments, values):
        """Returns what a tensor map describes."""
        sizes = [evaluate(s, values) for s in t["source"]["sizes"]]
        source = t["source"]
        if 0 in sizes and "if_empty" in t:
            source = t["if_empty"]
            sizes = [evaluate(s, values) for s in source["sizes"]]
        strides, dense = [], BYTES[arguments[source["address"]].dtype]
        for size, rule in zip(sizes, source["strides"]):
            # One that is 0 belongs to a dimension of one element, and is made up.
            dense = evaluate(rule, values) or dense * size
            strides.append(dense)
        offset, = (p["offset"] for p in self.json["params"] if p["name"] == t["param"])
        return TensorMap(offset, self._place(source, arguments, values), sizes, strides,
                         t["dtype"], t["box"], t["swizzle"], t["promotion"])
