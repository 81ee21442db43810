"""Says what the client would launch, without a GPU. Standard input is a JSON list
of calls: {"manifest", "sms", "integers", "reals", "tensors", "buffers"}; standard
output a list of launches, null where there is nothing to do.

    python3 plan.py <calls.json
"""

import json
import sys

from manifest import Manifest, Memory, View


def plan(call):
    arguments = {**call["integers"], **call["reals"]}
    for name, t in call["tensors"].items():
        arguments[name] = View(t["address"], t["dtype"], tuple(t["shape"]), tuple(t["strides"]))
    for name, b in call["buffers"].items():
        arguments[name] = Memory(b["address"], b["bytes"])
    m = Manifest(call["manifest"])
    launch = m.plan(call["sms"], arguments)
    if launch is None:
        return None
    buffers = {a["name"]: m.buffer_bytes(a["name"], call["sms"], call["integers"])
               for a in m.launch["arguments"] if a["kind"] == "buffer"}
    return {**launch._asdict(), "params": launch.params.hex(), "maps": [t._asdict() for t in launch.maps], "buffers": buffers}


if __name__ == "__main__":
    json.dump([plan(call) for call in json.load(sys.stdin)], sys.stdout)
