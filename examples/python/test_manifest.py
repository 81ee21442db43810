"""Tests of the parts that need no GPU: python3 -m unittest, in this folder."""

import hashlib
import json
import pathlib
import struct
import tempfile
import unittest

from expression import RuleError, evaluate
from manifest import ArgumentError, Manifest, Memory, View


class Expressions(unittest.TestCase):
    def test_values(self):
        values = {"a": 7, "t.stride.batch": 48, "zero": 0}
        for text, want in {
            "1 + 2 * 3": 7, "(1 + 2) * 3": 9, "10 - 3 - 2": 5, "100 / 7 / 2": 7, "a*t.stride.batch": 336, " 4 ": 4,
            "ceildiv(a, 2)": 4, "roundup(a, 4)": 8, "min(3, 1, 2)": 1, "max(a)": 7, "if(zero, 1 / zero, 5)": 5, "if(a, 1, 1 / zero)": 1,
            "1 - 2": -1, "9223372036854775807": (1 << 63) - 1,
        }.items():
            self.assertEqual(evaluate(text, values), want, text)

    def test_refused(self):
        for text in ("", "1 +", "(1", "1 2", "b", "1 / 0", "(1 - 2) / 3", "f(1)", "ceildiv(1)", "A", "1 $ 2", "9223372036854775808",
                     "9223372036854775807 + 1", "a.", "if(1, 2)", "roundup(9223372036854775807, 2)", ")"):
            with self.assertRaises(RuleError, msg=text):
                evaluate(text, {"a": 1})


def kernel(folder, **changes):
    """Writes a kernel that takes one of everything."""
    ptx = b"// PTX\n"
    manifest = {
        "schema": 2, "kernel": "k", "ptx_sha256": hashlib.sha256(ptx).hexdigest(), "threads": 32, "cluster": 1, "shared": 7,
        "params": [
            {"name": "map", "type": "b8", "size": 128, "offset": 0},
            {"name": "x", "type": "b32", "size": 8, "offset": 128, "fill": {"address": "x"}},
            {"name": "n", "type": "u32", "size": 4, "offset": 136, "fill": {"value": "n"}},
            {"name": "scale", "type": "f32", "size": 4, "offset": 140, "fill": {"real": "scale", "factor": 2}},
            {"name": "step", "type": "s64", "size": 8, "offset": 144, "fill": {"value": "x.stride.row"}},
            {"name": "part", "type": "b32", "size": 8, "offset": 152, "fill": {"address": "room", "offset": "64 * n"}},
        ],
        "tensor_maps": [{"param": "map", "dtype": "bf16", "box": [64, 1], "swizzle": 128, "promotion": 128,
                         "source": {"address": "x", "sizes": ["width", "x.size.row"], "strides": ["x.stride.row"]}}],
        "launch": {
            "operation": "test", "steps": [{"kernel": "k", "once": "layer"}],
            "constants": [{"name": "width", "value": 64}],
            "arguments": [
                {"name": "n", "kind": "integer", "min": "0", "max": "9"},
                {"name": "x", "kind": "tensor", "dtype": "bf16", "align": 16, "shape": [{"name": "row"}, {"name": "column", "size": "width"}]},
                {"name": "room", "kind": "buffer", "align": 16, "bytes": "64 * n"},
                {"name": "scale", "kind": "real"},
            ],
            "when": "n", "grid": ["min(sms, n)", "1", "1"], "programmatic": True,
        },
    }
    manifest.update(changes)
    path = pathlib.Path(folder) / "k.json"
    path.write_text(json.dumps(manifest))
    path.with_suffix(".ptx").write_bytes(ptx)
    return path


class Manifests(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def arguments(self, **changes):
        return {"n": 3, "x": View(0x1000, "bf16", (5, 64), (72, 1)), "room": Memory(0x2000, 192), "scale": 0.3, **changes}

    def test_plan(self):
        launch = Manifest(kernel(self.folder)).plan(2, self.arguments())
        self.assertEqual((launch.grid, launch.threads, launch.shared, launch.programmatic), ((2, 1, 1), 32, 7, True))
        self.assertEqual(launch.params, bytes(128) + struct.pack("<QIfqQ", 0x1000, 3, 0.6, 144, 0x2000 + 192))
        only, = launch.maps
        self.assertEqual((only.offset, only.address, only.sizes, only.strides), (0, 0x1000, [64, 5], [144]))

    def test_one_row(self):
        """The stride of a single row means nothing: a parameter gets 0, a map what is dense."""
        launch = Manifest(kernel(self.folder)).plan(2, self.arguments(x=View(0x1000, "bf16", (1, 64), (3, 1))))
        self.assertEqual(launch.params[144:152], bytes(8))
        self.assertEqual(launch.maps[0].strides, [128])

    def test_nothing_to_do(self):
        self.assertIsNone(Manifest(kernel(self.folder)).plan(2, self.arguments(n=0)))

    def test_misuse(self):
        m = Manifest(kernel(self.folder))
        for name, value, text in (
            ("n", 10, "n: was 10, must be at most 9"), ("n", -1, "at least 0"),
            ("x", View(0x1000, "fp16", (5, 64), (72, 1)), "x: dtype was fp16, must be bf16"),
            ("x", View(0x1000, "bf16", (5, 63), (72, 1)), "column was 63, must be 64"),
            ("x", View(0x1000, "bf16", (64,), (1,)), "shape was [64], must be [row, column]"),
            ("x", View(0x1000, "bf16", (5, 64), (65, 1)), "row stride was 130 bytes, must be a multiple of 16"),
            ("x", View(0x1000, "bf16", (5, 64), (1, 5)), "column stride was 5, must be 1 element"),
            ("x", View(0x1008, "bf16", (5, 64), (72, 1)), "address was 0x1008"),
            ("room", Memory(0x2000, 191), "room: was 191 bytes at 0x2000, must be at least 192"),
            ("scale", 1e39, "scale: was 1e+39"),
        ):
            with self.assertRaises(ArgumentError) as raised:
                m.plan(2, self.arguments(**{name: value}))
            self.assertIn(text, str(raised.exception))
        with self.assertRaisesRegex(ArgumentError, "scale is missing"):
            m.plan(2, {name: value for name, value in self.arguments().items() if name != "scale"})
        for ask in (lambda: m.plan(2, {"scale": 0.3}), lambda: m.buffer_bytes("room", 2, {})):
            with self.assertRaisesRegex(ArgumentError, "k: n is missing"):
                ask()

    def test_files(self):
        for changes, text in (({"schema": 1}, "schema is 1"), ({"ptx_sha256": "0" * 64}, "another text")):
            with self.assertRaisesRegex(ValueError, text):
                Manifest(kernel(self.folder, **changes))


if __name__ == "__main__":
    unittest.main()
