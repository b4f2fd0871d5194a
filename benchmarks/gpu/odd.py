"""Odd calls on a GPU: strides, sizes of 0, streams, graphs, arrays of other libraries. Each returns what to print."""

from __future__ import annotations

import importlib
import time
from typing import Any

import torch

import tilec
from benchmarks.gpu.plain import CAUSAL

DEVICE = torch.device("cuda")


def inputs(b: int, h: int, m: int, n: int, d: int) -> list[Any]:
    """Queries, keys and values; the same for each call."""
    g = torch.Generator(device=DEVICE).manual_seed(1)
    shapes = [(b, h, m, d), (b, h, n, d), (b, h, n, d)]
    return [torch.randn(s, device=DEVICE, generator=g) for s in shapes]


def expect(q: Any, k: Any, v: Any) -> Any:
    """Causal attention in float64; the last query sees every key."""
    q, k, v = (x.double() for x in (q, k, v))
    s = q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5
    m, n = s.shape[-2:]
    s = s.masked_fill(torch.ones(m, n, device=DEVICE).triu(1 + n - m).bool(), -torch.inf)
    return torch.nan_to_num(torch.softmax(s, -1)) @ v


def close(got: Any, want: Any, tolerance: float) -> str:
    """What to print of a result that is near enough; raises AssertionError for another."""
    error = (got.double() - want).abs().max().item() if want.numel() else 0.0
    if not error <= tolerance or tuple(got.shape) != tuple(want.shape):
        raise AssertionError(f"error {error} > {tolerance}, shape {tuple(got.shape)}")
    return f"error {error:.2g}"


KERNEL = tilec.compile(CAUSAL)


def strided() -> str:
    """Tensors whose heads are not side by side."""
    q, k, v = (x.transpose(1, 2).contiguous().transpose(1, 2) for x in inputs(2, 3, 65, 130, 64))
    return close(KERNEL(q, k, v), expect(q, k, v), 1e-5)


def expanded() -> str:
    """Heads that share their keys by a stride of 0."""
    q, k, v = inputs(2, 3, 65, 130, 64)
    k, v = (x[:, :1].expand(-1, 3, -1, -1) for x in (k, v))
    return close(KERNEL(q, k, v), expect(q, k, v), 1e-5)


def offset() -> str:
    """Views that begin inside a tensor."""
    q, k, v = inputs(2, 3, 67, 131, 64)
    q, k, v = (x[:, :, 1:] for x in (q, k, v))
    return close(KERNEL(q, k, v), expect(q, k, v), 1e-5)


def empty() -> str:
    """Sizes of 0: nothing to do, or rows without keys."""
    shapes = [(0, 1, 4, 4, 8), (1, 1, 0, 4, 8), (1, 2, 4, 0, 8)]
    for s in shapes:
        q, k, v = inputs(*s)
        got = KERNEL(q, k, v)
        assert got.shape == q.shape
        assert not got.abs().sum().item()
    return "zeros"


def many_blocks() -> str:
    """More heads than a grid has in its second dimension."""
    q, k, v = inputs(1, 1 << 17, 3, 5, 8)
    return close(KERNEL(q, k, v), expect(q, k, v), 1e-5)


def nan_and_infinity() -> str:
    """NaN and infinity in rows that a part of the queries sees."""
    q, k, v = inputs(1, 2, 80, 80, 64)
    v[:, :, 40] = torch.nan
    v[:, :, 60, 3] = torch.inf
    got, want = KERNEL(q, k, v), expect(*inputs(1, 2, 80, 80, 64))
    assert got[:, :, 40:].isnan().all()
    return close(got[:, :, :40], want[:, :, :40], 1e-5)


def out() -> str:
    """The caller's own array."""
    q, k, v = inputs(1, 2, 33, 40, 64)
    o = torch.empty_like(q)
    assert KERNEL(q, k, v, out=o) is o
    return close(o, expect(q, k, v), 1e-5)


def side_stream() -> str:
    """A stream of the caller's."""
    q, k, v = inputs(1, 2, 33, 40, 64)
    s = torch.cuda.Stream()
    s.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(s):
        o = KERNEL(q, k, v)
    s.synchronize()
    return close(o, expect(q, k, v), 1e-5)


def graph() -> str:
    """A call in a CUDA graph, replayed on other data."""
    q, k, v = inputs(1, 2, 33, 40, 64)
    o = KERNEL(q, k, v)
    g = torch.cuda.CUDAGraph()
    with torch.cuda.graph(g):
        o = KERNEL(q, k, v)
    for x, y in zip((q, k, v), inputs(1, 2, 33, 40, 64), strict=True):
        x.copy_(2 * y)
    g.replay()
    torch.cuda.synchronize()
    return close(o, expect(q, k, v), 1e-5)


def cupy_arrays() -> str:
    """Arrays of another library."""
    cupy: Any = importlib.import_module("cupy")
    q, k, v = inputs(1, 2, 33, 40, 64)
    o = KERNEL(*(cupy.from_dlpack(x) for x in (q, k, v)))
    assert isinstance(o, cupy.ndarray)
    return close(torch.from_dlpack(o), expect(q, k, v), 1e-5)


def mixed_devices() -> str:
    """A tensor of the CPU among those of the GPU is refused."""
    q, k, v = inputs(1, 2, 33, 40, 64)
    try:
        KERNEL(q.cpu(), k, v)
    except tilec.ArgumentError as e:
        return str(e)
    raise AssertionError("accepted")


def bits() -> str:
    """Runs that give the same bits."""
    q, k, v = inputs(2, 4, 300, 300, 64)
    first = KERNEL(q, k, v)
    assert all(torch.equal(first, KERNEL(q, k, v)) for _ in range(20))
    return "equal bits in 20 runs"


def overhead() -> str:
    """What a call costs beside its kernel."""
    q, k, v = inputs(1, 1, 1, 1, 8)
    for _ in range(20):
        KERNEL(q, k, v)
    torch.cuda.synchronize()
    start = time.perf_counter()
    for _ in range(200):
        KERNEL(q, k, v)
    spent = (time.perf_counter() - start) / 200
    torch.cuda.synchronize()
    return f"{spent * 1e6:.1f} us per call"


CALLS = (
    strided,
    expanded,
    offset,
    empty,
    many_blocks,
    nan_and_infinity,
    out,
    side_stream,
    graph,
    cupy_arrays,
    mixed_devices,
    bits,
    overhead,
)
