"""Runs decode and prefill on a GPU from PTX and manifests alone and holds the results
against a float64 reference:

    examples/python/emit.sh DIR          # where Go is
    python3 examples/python/check.py DIR # where the GPU is: PyTorch, cuda-python

Prints a line for each call, the worst distance of a row from the reference, relative
to the row's norm, and of an LSE. Exit status 1 when one is too far, when outputs are
not the same bits in a second run, or when something else was written.
"""

import argparse
import math
import pathlib
import sys

import torch

import reference
from client import Operation

OUT_TOLERANCE, LSE_TOLERANCE = 5e-3, 1e-3

SCALE = 1 / math.sqrt(128 + 64)
GARBAGE = 2**31 - 7  # entries of a block table that nobody may follow
GAP = 16  # elements between rows of out that nobody may write
SENTINEL = -7.0


class Wrong(Exception):
    """A result that is not what it must be."""


def compare(out, lse, want_out, want_lse):
    """Returns the worst distances of out and lse."""
    if not torch.isfinite(out).all():
        raise Wrong("out has infinite or NaN elements")
    empty = torch.isneginf(want_lse)
    if not torch.equal(torch.isneginf(lse), empty):
        raise Wrong("lse is −∞ at other rows than those without a key")
    if not torch.isfinite(lse[~empty]).all():
        raise Wrong("lse has infinite or NaN elements")
    if out[empty].any():
        raise Wrong("out is not 0 where a row has no key")
    norm = want_out.norm(dim=-1)[~empty]
    out_error = ((out.double() - want_out).norm(dim=-1)[~empty] / norm).max().item() if norm.numel() else 0.0
    lse_error = (lse.double() - want_lse)[~empty].abs().max().item() if norm.numel() else 0.0
    if not out_error <= OUT_TOLERANCE:
        raise Wrong(f"out is off by {out_error:.2e} of its norm, more than {OUT_TOLERANCE:.0e}")
    if not lse_error <= LSE_TOLERANCE:
        raise Wrong(f"lse is off by {lse_error:.2e}, more than {LSE_TOLERANCE:.0e}")
    return out_error, lse_error


def gapped(*shape, dtype):
    """Returns a tensor whose rows lie apart, and the memory around it."""
    memory = torch.full((*shape[:-1], shape[-1] + GAP), SENTINEL, dtype=dtype, device="cuda")
    return memory[..., :shape[-1]], memory[..., shape[-1]:]


def room(operation, **integers):
    """Returns the buffers that an operation asks for."""
    return {name: torch.empty(max(1, size), dtype=torch.uint8, device="cuda") for name, size in operation.buffers(**integers).items()}


class Decode:
    """A decode step and its memory: capacity for as many requests as there are lengths."""

    def __init__(self, operation, lengths, splits, joint, dtype=torch.bfloat16):
        self.operation = operation
        heads, s_q, self.latent, rope, page = (operation.constant(n) for n in ("heads", "s_q", "latent", "rope", "page"))
        batch, width = len(lengths), self.latent + rope
        self.pages = sum(math.ceil(n / page) for n in lengths) + 3
        # Whatever is not a request's own row is NaN, and pages have a gap between them.
        self.kv = torch.full((self.pages, page * width + 8 * GAP), math.nan, dtype=dtype, device="cuda")[:, :page * width].unflatten(1, (page, width))
        self.table = torch.full((batch, max(1, math.ceil(max(lengths) / page))), GARBAGE, dtype=torch.int32, device="cuda")
        self.kv_len = torch.zeros(batch, dtype=torch.int32, device="cuda")
        self.q = torch.empty(batch, s_q, heads, width, dtype=dtype, device="cuda")
        parts = self.q[..., :self.latent], self.q[..., self.latent:]
        self.parts = parts if joint else tuple(p.contiguous() for p in parts)
        self.out, self.gap = gapped(batch, s_q, heads, self.latent, dtype=dtype)
        self.lse = torch.empty(batch, s_q, heads, dtype=torch.float32, device="cuda")
        self.arguments = {
            "batch": batch, "splits": splits, "new_tokens": 0, "scale": SCALE, "lse_factor": math.log(2), "q_latent": self.parts[0], "q_rope": self.parts[1],
            "kv": self.kv, "block_table": self.table, "kv_len": self.kv_len, "out": self.out, "lse": self.lse,
            **room(operation, batch=batch, splits=splits, new_tokens=0),
        }
        self.fill(lengths)

    def fill(self, lengths):
        """Puts other requests into the same memory."""
        page = self.kv.shape[1]
        self.q.normal_()
        for part, own in zip((self.q[..., :self.latent], self.q[..., self.latent:]), self.parts):
            own.copy_(part)
        self.kv.fill_(math.nan)
        self.table.fill_(GARBAGE)
        self.kv_len.copy_(torch.tensor(lengths, dtype=torch.int32))
        free = torch.randperm(self.pages, dtype=torch.int32).cuda()
        for r, n in enumerate(lengths):
            own, free = free.split((math.ceil(n / page), len(free) - math.ceil(n / page)))
            self.table[r, :len(own)] = own
            rows = torch.full((len(own) * page, self.kv.shape[2]), math.nan, dtype=self.kv.dtype, device="cuda")
            rows[:n].normal_()
            self.kv[own.long()] = rows.unflatten(0, (len(own), page))

    def launch(self):
        stream = torch.cuda.current_stream().cuda_stream
        self.operation.run("step", stream, **self.arguments)
        self.operation.run("layer", stream, **self.arguments)

    def compare(self):
        torch.cuda.synchronize()
        if not (self.gap == SENTINEL).all():
            raise Wrong("something was written between the rows of out")
        return compare(self.out, self.lse, *reference.decode(self.q, self.kv, self.table, self.kv_len, SCALE, self.latent))


def decode(operation, lengths, splits=0, joint=True, dtype=torch.bfloat16):
    """Runs a decode step twice."""
    d = Decode(operation, lengths, splits, joint, dtype)
    return twice(d)


def twice(d):
    """Runs a call twice, which must give the same bits, and compares it."""
    d.launch()
    errors = d.compare()
    out, lse = d.out.clone(), d.lse.clone()
    d.out.fill_(math.nan)
    d.lse.fill_(math.nan)
    d.launch()
    torch.cuda.synchronize()
    if not torch.equal(out, d.out) or not torch.equal(lse, d.lse):
        raise Wrong("a second run has other bits")
    return errors


def decode_graph(operation, lengths, others):
    """Captures a step in a CUDA graph and replays it with other requests, fewer among
    them: lengths of 0."""
    d = Decode(operation, lengths, splits=0, joint=True)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        d.launch()
    worst = (0.0, 0.0)
    for now in (lengths, others, lengths):
        d.fill(now)
        d.out.fill_(math.nan)
        graph.replay()
        worst = tuple(map(max, worst, d.compare()))
    return worst


class Prefill:
    """A prefill call and its memory."""

    def __init__(self, operation, sequences, causal=True, joint=True, spare=0):
        """sequences are pairs of query and key tokens; as many spare query tokens lie
        past the last."""
        self.operation, self.causal = operation, causal
        heads, self.nope, rope, value = (operation.constant(n) for n in ("heads", "nope", "rope", "value"))
        queries, keys = sum(q for q, _ in sequences) + spare, sum(k for _, k in sequences)
        make = dict(dtype=torch.bfloat16, device="cuda")
        self.q = torch.randn(queries, heads, self.nope + rope, **make)
        parts = self.q[..., :self.nope], self.q[..., self.nope:]
        parts = parts if joint else tuple(p.contiguous() for p in parts)
        # Rows past the last sequence are NaN; the rope keys lie in rows of a cache.
        self.kv_up = torch.full((keys + 70, heads, self.nope + value), math.nan, **make)
        cache = torch.full((keys + 70, 512 + rope), math.nan, **make)
        self.k_rope = cache[:, 512:]
        self.kv_up[:keys].normal_()
        self.k_rope[:keys].normal_()
        starts = [[0], [0]]
        for pair in sequences:
            for start, n in zip(starts, pair):
                start.append(start[-1] + n)
        self.cu = [torch.tensor(s, dtype=torch.int32, device="cuda") for s in starts]
        self.out, self.gap = gapped(queries, heads, value, dtype=torch.bfloat16)
        self.lse = torch.empty(queries, heads, dtype=torch.float32, device="cuda")
        integers = {"sequences": len(sequences), "query_tokens": queries, "key_tokens": keys + 70, "causal": int(causal)}
        self.arguments = {
            **integers, "scale": SCALE, "lse_factor": math.log(2), "q_nope": parts[0], "q_rope": parts[1], "kv_up": self.kv_up,
            "k_rope": self.k_rope, "cu_q": self.cu[0], "cu_k": self.cu[1], "out": self.out, "lse": self.lse, **room(operation, **integers),
        }

    launch = Decode.launch

    def compare(self):
        torch.cuda.synchronize()
        if not (self.gap == SENTINEL).all():
            raise Wrong("something was written between the rows of out")
        return compare(self.out, self.lse, *reference.prefill(self.q, self.kv_up, self.k_rope, *self.cu, SCALE, self.causal, self.nope))


def prefill(operation, sequences, **options):
    """Runs a prefill call twice."""
    return twice(Prefill(operation, sequences, **options))


RAGGED = [1, 64, 65, 1000, 0, 4097, 333, 8192, 63, 128, 2047, 5]

CASES = [
    *((f"decode-h{heads}-sq1", what, run) for heads in (16, 128) for what, run in (
        ("ragged", lambda op: decode(op, RAGGED)),
        ("q in two tensors, one request", lambda op: decode(op, [20000], joint=False)),
        ("batch-invariant, 3 pieces", lambda op: decode(op, RAGGED, splits=3)),
        ("graph, other lengths", lambda op: decode_graph(op, RAGGED, [700, 0, 0, 8000, 12, 3, 0, 1, 0, 64, 500, 0])),
    )),
    *((f"decode-h{heads}-sq2", what, run) for heads in (16, 128) for what, run in (
        ("causal, ragged, one token of two", lambda op: decode(op, RAGGED)),
        ("q in two tensors", lambda op: decode(op, [3000, 2, 64, 65], joint=False)),
    )),
    ("decode-h16-fp16", "fp16, ragged", lambda op: decode(op, RAGGED, dtype=torch.float16)),
    *((f"prefill-h{heads}", what, run) for heads in (16, 128) for what, run in (
        ("causal, ragged", lambda op: prefill(op, [(1, 1), (200, 200), (0, 0), (129, 129), (1000, 1000), (64, 64)])),
        ("causal on a prefix, spare rows", lambda op: prefill(op, [(5, 300), (130, 1030), (1, 777), (40, 10)], spare=9)),
        ("not causal, q in two tensors", lambda op: prefill(op, [(100, 300), (3, 0), (257, 65)], causal=False, joint=False)),
    )),
]


def main():
    parser = argparse.ArgumentParser(description="holds generated kernels against a float64 reference")
    parser.add_argument("folder", type=pathlib.Path, help="what emit.sh has written")
    folder = parser.parse_args().folder
    torch.cuda.init()
    torch.zeros(1, device="cuda")  # makes PyTorch's context, which the client uses, current
    print(f"{torch.cuda.get_device_name()}, PyTorch {torch.__version__}")
    operations, failed = {}, 0
    for number, (name, what, run) in enumerate(CASES):
        torch.manual_seed(number)
        try:
            if name not in operations:
                operations[name] = Operation(folder / name)
            out_error, lse_error = run(operations[name])
            print(f"ok    {name}: {what}: out off by {out_error:.1e} of its norm, lse by {lse_error:.1e}", flush=True)
        except Wrong as err:
            failed += 1
            print(f"WRONG {name}: {what}: {err}", flush=True)
    print(f"{len(CASES) - failed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
