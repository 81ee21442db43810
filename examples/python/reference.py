"""Multi-head latent attention in float64, written from the formulas: for a query q and
the keys k_1 … k_n and values v_1 … v_n that it sees,

    s_i = scale · q·k_i        lse = ln Σ exp(s_i)        out = Σ exp(s_i − lse) v_i

and out = 0, lse = −∞ without keys. Query j of m sees the first n − m + 1 + j of n keys
where attention is causal.
"""

import math

import torch


def _seen(queries, keys, causal, device):
    """Returns which keys each query sees, [queries, keys]."""
    j = torch.arange(queries, device=device)[:, None]
    i = torch.arange(keys, device=device)[None, :]
    return i < keys - queries + 1 + j if causal else (i >= 0).expand(queries, keys)


def _softmax(scores, seen):
    """Returns weights and lse of scores [heads, queries, keys]."""
    if scores.shape[-1] == 0:
        return scores, scores.new_full(scores.shape[:-1], -math.inf)
    lse = torch.logsumexp(scores.masked_fill(~seen, -math.inf), dim=-1)
    # A query without keys has weights of NaN before the selection, 0 after it.
    return torch.where(seen, torch.exp(scores - lse[..., None]), 0.0), lse


def decode(q, kv, block_table, kv_len, scale, latent):
    """Absorbed decode: one key for all heads, [latent | rope], whose latent part is the
    value. q [batch, s_q, heads, latent+rope], kv [pages, page, latent+rope]; returns
    out [batch, s_q, heads, latent] and lse [batch, s_q, heads]."""
    batch, s_q, heads, _ = q.shape
    page = kv.shape[1]
    out = torch.zeros(batch, s_q, heads, latent, dtype=torch.float64, device=q.device)
    lse = torch.full((batch, s_q, heads), -math.inf, dtype=torch.float64, device=q.device)
    for r, n in enumerate(kv_len.tolist()):
        pages = block_table[r, :(n + page - 1) // page].long()
        keys = kv[pages].reshape(-1, kv.shape[2])[:n].double()
        scores = scale * torch.einsum("shd,nd->hsn", q[r].double(), keys)
        weights, l = _softmax(scores, _seen(s_q, n, True, q.device))
        out[r] = torch.einsum("hsn,nc->shc", weights, keys[:, :latent])
        lse[r] = l.T
    return out, lse


def prefill(q, kv_up, k_rope, cu_q, cu_k, scale, causal, nope, heads_at_once=8):
    """Expanded attention: a head's key is [k_nope | k_rope], the rope part for all
    heads. q [tokens, heads, nope+rope], kv_up [tokens, heads, nope+value], k_rope
    [tokens, rope]; returns out [tokens, heads, value] and lse [tokens, heads]. Tokens
    past the last sequence have no keys."""
    tokens, heads, _ = q.shape
    out = torch.zeros(tokens, heads, kv_up.shape[2] - nope, dtype=torch.float64, device=q.device)
    lse = torch.full((tokens, heads), -math.inf, dtype=torch.float64, device=q.device)
    begin_q, begin_k = cu_q.tolist(), cu_k.tolist()
    for s in range(len(begin_q) - 1):
        of_q, of_k = slice(begin_q[s], begin_q[s + 1]), slice(begin_k[s], begin_k[s + 1])
        rope = k_rope[of_k].double()
        seen = _seen(of_q.stop - of_q.start, of_k.stop - of_k.start, causal, q.device)
        for first in range(0, heads, heads_at_once):  # scores of all heads take much memory
            of_h = slice(first, first + heads_at_once)
            queries, expanded = q[of_q, of_h].double(), kv_up[of_k, of_h].double()
            scores = torch.einsum("qhd,khd->hqk", queries[..., :nope], expanded[..., :nope])
            scores = scale * (scores + torch.einsum("qhd,kd->hqk", queries[..., nope:], rope))
            weights, l = _softmax(scores, seen)
            out[of_q, of_h] = torch.einsum("hqk,khv->qhv", weights, expanded[..., nope:])
            lse[of_q, of_h] = l.T
    return out, lse
