"""What tilec is timed beside: each peer as a function without arguments that computes a problem.

A peer that cannot compute it raises; so does one whose library is not there. Masks that a peer needs as data are made here,
outside the timing, and so is its compiling.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable
from typing import Any

from benchmarks.gpu.cells import SDPA
from benchmarks.gpu.problem import Problem

Run = Callable[[], Any]
SECONDS = {"fa4": 90.0, "flex": 150.0}
"""How long the first call may take: these compile."""


def make(name: str, p: Problem) -> Run:
    """A peer by name; its result is like that of tilec, [b, h, m, e]."""
    if name in SDPA:
        return _sdpa(p, SDPA[name])
    return {"fa4": _flash4, "flex": _flex}[name](p)


def _module(name: str) -> Any:
    return importlib.import_module(name)


def _sdpa(p: Problem, backend: str) -> Run:
    """PyTorch's scaled_dot_product_attention with one of its kernels."""
    attention, functional = _module("torch.nn.attention"), _module("torch.nn.functional")
    c, mask = p.cell, None
    if c.kind not in ("full", "causal"):
        raise ValueError(f"it has no {c.kind}")
    square = c.rows == c.n
    if c.kind == "causal" and not square:
        # the masks of these two are aligned at the last key where they are told so; others take one as data
        bias = _module("torch.nn.attention.bias")
        aligned = backend in ("FLASH_ATTENTION", "EFFICIENT_ATTENTION")
        mask = bias.causal_lower_right(c.rows, c.n) if aligned else p.seen()
    which = getattr(attention.SDPBackend, backend)
    more = {"attn_mask": mask, "is_causal": c.kind == "causal" and square}
    if c.hk:
        more["enable_gqa"] = True

    def run() -> Any:
        with attention.sdpa_kernel(which):
            return functional.scaled_dot_product_attention(p.q, p.k, p.v, **more)

    return run


def _flash4(p: Problem) -> Run:
    """FlashAttention-4, whose tensors are [b, n, h, d]."""
    cute, c = _module("flash_attn.cute"), p.cell
    if c.formula.segments is not None:
        return _flash4_segments(p)
    if c.formula.flash4 is None:
        raise ValueError(f"it has no {c.kind}")
    more = {n: p.extra[x] if isinstance(x, str) else x for n, x in c.formula.flash4.items()}
    if "learnable_sink" in more:
        more["learnable_sink"] = more["learnable_sink"].to(p.q.dtype)
    q, k, v = (x.transpose(1, 2).contiguous() for x in (p.q, p.k, p.v))
    return lambda: _output(cute.flash_attn_func(q, k, v, num_splits=c.splits, **more))


def _flash4_segments(p: Problem) -> Run:
    """FlashAttention-4 on sequences of several lengths, one after the other."""
    torch, cute, c = _module("torch"), _module("flash_attn.cute"), p.cell
    assert c.formula.segments is not None
    lengths = c.formula.segments(c.n, p.extra) * c.b
    ends = torch.tensor([0, *lengths], device=p.q.device).cumsum(0).int()
    q, k, v = (x.transpose(1, 2).reshape(-1, *x.shape[1:2], x.shape[3]) for x in (p.q, p.k, p.v))
    longest = max(lengths)

    def run() -> Any:
        made = cute.flash_attn_varlen_func(
            q,
            k,
            v,
            cu_seqlens_q=ends,
            cu_seqlens_k=ends,
            max_seqlen_q=longest,
            max_seqlen_k=longest,
            causal=True,
        )
        made = made[0] if isinstance(made, tuple) else made
        return made.view(c.b, c.n, c.h, -1).transpose(1, 2)

    return run


def _output(made: Any) -> Any:
    """The output of FlashAttention-4 as [b, h, m, e]."""
    return (made[0] if isinstance(made, tuple) else made).transpose(1, 2)


def _flex(p: Problem) -> Run:
    """FlexAttention, compiled, with the block mask that its user makes."""
    torch, flex, c = _module("torch"), _module("torch.nn.attention.flex_attention"), p.cell
    torch._dynamo.reset()
    blocks, keep, change = None, p.keep(), p.change()
    if keep is not None:
        blocks = flex.create_block_mask(keep, None, None, c.rows, c.n, device=str(p.q.device))
    call = functools.partial(
        flex.flex_attention, score_mod=change, block_mask=blocks, enable_gqa=bool(c.hk)
    )
    sink = p.extra.get("s")

    def whole(q: Any, k: Any, v: Any) -> Any:
        if sink is None:
            return call(q, k, v)
        o, sums = call(q, k, v, return_lse=True)
        return (o * torch.sigmoid(sums - sink[:, None])[..., None]).to(q.dtype)

    compiled = torch.compile(whole, dynamic=False)

    def run() -> Any:
        with torch.no_grad():
            return compiled(p.q, p.k, p.v)

    return run
