"""Tiles of few rows, where lanes lie along what is streamed: against the interpreter."""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

import ctypes
import threading
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tilec
from tilec import accuracy
from tilec.backends.cpu import jit, pool
from tilec.backends.cpu import llvmir as ir
from tilec.backends.cpu.context import Context
from tilec.backends.cpu.facts import Facts
from tilec.backends.cpu.lower import TASK, lower
from tilec.backends.cpu.task import Task
from tilec.backends.cpu.vector import KINDS, Emit, function
from tilec.ir import Grid

RNG = np.random.default_rng(0)
TYPES: dict[str, Any] = {"f32": np.float32, "f64": np.float64, "f16": np.float16}
TYPES["bf16"] = ml_dtypes.bfloat16

GROUPS = """kernel f(Q[B, H, M, D], K[B, HK, N, D], V[B, HK, N, E]) -> O[b, h, i, e], L[b, h, i]:
    S = sum[d](Q[b, h, i, d] * K[b, h // (H // HK), j, d]) / sqrt(D)
    S = S if j <= i + N - M else -inf
    O = sum[j](softmax[j](S) * V[b, h // (H // HK), j, e])
    L = logsumexp[j](S)
"""
MASKED = """kernel f(Q[B, H, M, D], K[B, H, N, D], V[B, H, N, E], s: f32[H], len: i32[B]) -> O[b, h, i, e], L[b, h, i]:
    S = 5 * tanh(sum[d](Q[b, h, i, d] * K[b, h, j, d]) / 5)
    S = S if j < len[b] and j > len[b] - 40 else -inf
    O = sum[j](softmax[j](S, s[h]) * V[b, h, j, e])
    L = logsumexp[j](S, s[h])
"""
SLIDING = """kernel f(Q[B, H, M, D], K[B, HK, N, D], V[B, HK, N, E], at: i32[B], W: int) -> O[b, h, i, e], L[b, h, i]:
    S = sum[d](Q[b, h, i, d] * K[b, h // (H // HK), j, d]) / sqrt(D)
    S = S if j <= at[b] and j > at[b] - W else -inf
    O = sum[j](softmax[j](S) * V[b, h // (H // HK), j, e])
    L = logsumexp[j](S)
"""
PAGED = """kernel f(Q[B, H, M, D], K[NP, P, HK, D], V[NP, P, HK, E], page: i32[B, MP], len: i32[B]) -> O[b, h, i, e]:
    axis j < MP * P
    S = sum[d](Q[b, h, i, d] * K[page[b, j // P], j % P, h // (H // HK), d])
    A = softmax[j](S if j < len[b] else -inf)
    O = sum[j](A * V[page[b, j // P], j % P, h // (H // HK), e])
"""
COMPUTED = """kernel f(Q[H, M, D], K: i8[H, N, D], r: f32[H, N], c: f32[N, D], V[H, N, E], g: f32[N, E]) -> O[h, i, e]:
    S = sum[d](Q[h, i, d] * (f32(K[h, j, d]) * r[h, j] * cos(c[j, d]) + f32(K[h, j, (d + 1) % D])))
    O = sum[j](softmax[j](S) * ((V[h, j - 1, e] if j > 0 else 0) + g[j, e]))
"""
NORMED = """kernel f(Q[H, M, D], K[H, N, D], V[H, E, N]) -> O[h, i, e]:
    k = K[h, j, d] / sqrt(sum[d](K[h, j, d] * K[h, j, d]) + 1)
    S = sum[d](Q[h, i, d] * k)
    O = sum[j](softmax[j](S) * V[h, e, j])
"""
OWN = """kernel f(Q[B, H, M, D], K[B, HK, N, D], V[B, HK, N, E], g: f32[H, D], w: f32[H, E]) -> O[b, h, i, e]:
    S = sum[d](Q[b, h, i, d] * relu(K[b, h // (H // HK), j, d] + g[h, d]))
    O = sum[j](softmax[j](S) * relu(V[b, h // (H // HK), j, e] + w[h, e]))
"""
TWICE = """kernel f(Q[H, M, D], C[N, D], P[H, M, E], R[N, E]) -> O[h, i, d]:
    S = sum[d](Q[h, i, d] * C[j, d]) + sum[t](P[h, i, t] * R[j, t])
    O = sum[j](softmax[j](S) * C[j, d])
"""


def drawn(shape: tuple[int, ...], dtype: str = "f32") -> Any:
    return RNG.standard_normal(shape).astype(TYPES[dtype])


def check(kernel: Any, *arguments: Any, **named: Any) -> None:
    """Asserts that a kernel gives what the interpreter does."""
    got, want = kernel(*arguments, **named), kernel.reference(*arguments, **named)
    got, want = ([*x] if isinstance(x, tuple) else [x] for x in (got, want))
    tolerance = accuracy.tolerance([*arguments, *got])
    for x, y in zip(got, want, strict=True):
        error = accuracy.error(x, y, tolerance)
        assert error.ok, error


def groups(heads: int, keys: int, n: int, d: int, e: int, m: int = 1, dtype: str = "f32") -> Any:
    """Arguments for GROUPS."""
    shapes = [(2, heads, m, d), (2, keys, n, d), (2, keys, n, e)]
    return [drawn(s, dtype) for s in shapes]


@pytest.mark.parametrize("dtype", ["f32", "f64", "f16", "bf16"])
@pytest.mark.parametrize(("d", "e"), [(64, 64), (5, 3), (1, 9), (72, 300)])
def test_heads_of_any_size(dtype: str, d: int, e: int) -> None:
    kernel = tilec.compile(GROUPS, target="cpu")
    for n in (0, 1, 300, 1061):
        check(kernel, *groups(2, 2, n, d, e, dtype=dtype))


@pytest.mark.parametrize("heads", [2, 3, 4, 5, 8, 12])
@pytest.mark.parametrize("dtype", ["f32", "bf16"])
def test_groups_of_any_size(heads: int, dtype: str) -> None:
    check(tilec.compile(GROUPS, target="cpu"), *groups(heads, 1, 1130, 20, 24, dtype=dtype))


@pytest.mark.parametrize("heads", [2, 3, 4, 8])
def test_heads_that_make_something_of_their_own_of_shared_keys(heads: int) -> None:
    """Each row of a tile then has an operand of its own."""
    more = drawn((heads, 20)), drawn((heads, 24))
    check(tilec.compile(OWN, target="cpu"), *groups(heads, 1, 150, 20, 24), *more)


@pytest.mark.parametrize("m", [2, 6, 7])
def test_a_few_queries(m: int) -> None:
    kernel = tilec.compile(GROUPS, target="cpu")
    for n in (3, 200):
        check(kernel, *groups(2, 2, n, 20, 12, m))


def test_any_strides() -> None:
    kernel = tilec.compile(GROUPS, target="cpu")
    q, k, v = groups(4, 2, 45, 20, 12)
    check(kernel, q, np.asfortranarray(k), v)
    check(kernel, q, k, v[..., ::-1])
    check(kernel, q[..., ::-1], k[:, :, ::-1], np.broadcast_to(v[:, :1], v.shape))
    apart = [x.transpose(0, 2, 1, 3).copy().transpose(0, 2, 1, 3) for x in (k, v)]
    check(kernel, q, *apart)


@pytest.mark.parametrize("dtype", ["f32", "f16"])
@pytest.mark.parametrize("place", [7, 299])
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite(dtype: str, place: int, value: float) -> None:
    kernel = tilec.compile(GROUPS, target="cpu")
    for n, spoilt in enumerate("qkv"):
        q, k, v = groups(4, 2, 300, 12, 12, dtype=dtype)
        a = {"q": q, "k": k, "v": v}
        a[spoilt][0, 1, place if n else 0, -1 if n else 3] = value
        check(kernel, q, k, v)


@pytest.mark.parametrize("lengths", [(300, 0), (1, 290), (33, 256)])
def test_masked_rows_windows_sinks_and_values_that_are_masked_and_nan(
    lengths: tuple[int, int],
) -> None:
    q, k, v = (drawn((2, 3, n, d)) for n, d in ((1, 20), (300, 20), (300, 12)))
    v[:, :, max(lengths) + 1 :] = np.nan
    k[:, :, max(lengths) + 1 :] = np.inf
    kernel = tilec.compile(MASKED, target="cpu")
    for sink in (0.5, -np.inf):
        s = np.full(3, sink, np.float32)
        check(kernel, q, k, v, s, np.array(lengths, np.int32))


@pytest.mark.parametrize("dtype", ["f32", "bf16"])
@pytest.mark.parametrize("heads", [1, 2, 8])
def test_windows_that_begin_and_end_anywhere(heads: int, dtype: str) -> None:
    kernel = tilec.compile(SLIDING, target="cpu")
    q, k, v = (drawn(s, dtype) for s in ((4, heads, 1, 20), (4, 1, 2100, 20), (4, 1, 2100, 12)))
    ends = np.array([2099, 1030, 70, 0], np.int32)
    for length in (0, 1, 31, 1000, 1024, 2000):
        check(kernel, q, k, v, ends, W=length)


def test_pages_beyond_the_cache_are_zeros() -> None:
    kernel = tilec.compile(PAGED, target="cpu")
    pages = RNG.permutation(24).reshape(2, 12).astype(np.int32)
    k, v = drawn((24, 16, 2, 20)), drawn((24, 16, 2, 12))
    for heads in (2, 8):
        check(kernel, drawn((2, heads, 1, 20)), k, v, pages, np.array([180, 17], np.int32))


@pytest.mark.parametrize("m", [1, 3])
@pytest.mark.parametrize("d", [16, 11])
def test_operands_are_computed_on_the_way(m: int, d: int) -> None:
    k = RNG.integers(-100, 100, (2, 70, d)).astype(np.int8)
    r, c, v, g = drawn((2, 70)) / 100, drawn((70, d)), drawn((2, 70, 9)), drawn((70, 9))
    check(tilec.compile(COMPUTED, target="cpu"), drawn((2, m, d)), k, r, c, v, g)


def test_operands_that_wait_for_a_sum_and_values_in_columns() -> None:
    check(
        tilec.compile(NORMED, target="cpu"),
        *(drawn(s) for s in ((2, 1, 20), (2, 300, 20), (2, 12, 300))),
    )


@pytest.mark.parametrize("heads", [2, 8, 20])
@pytest.mark.parametrize("value", [0, np.inf, -np.inf, np.nan])
def test_two_products_and_keys_that_are_values(heads: int, value: float) -> None:
    q, c, p, r = (drawn(s) for s in ((heads, 1, 40), (270, 40), (heads, 1, 12), (270, 12)))
    r[7, 3] = c[266, 1] = value
    check(tilec.compile(TWICE, target="cpu"), q, c, p, r)


def streamed(text: str, *arguments: Any) -> set[str]:
    """The tensors that the code for a call of few rows loads row by row where it uses them."""
    kernel, found = tilec.compile(text, target="cpu").plan(*arguments).ir, set[str]()
    facts = Facts(kernel)
    for n, grid in enumerate(op for op in kernel.body if isinstance(op, Grid)):
        e = Emit(function(ir.Module(), "f", TASK, KINDS["i64"]), jit.host())
        task = Task(facts, Context(kernel), e, grid, n, exact=False, watch=True, few=True)
        task.emit()
        streams = task.nests.streams
        for s in streams.found.values():
            found |= {op.tensor for op in streams.loads(s.operand)}
    return found


def test_keys_and_values_are_read_without_a_copy() -> None:
    assert streamed(GROUPS, *groups(4, 2, 300, 16, 16, dtype="f16")) == {"K", "V"}
    assert streamed(GROUPS, *groups(2, 2, 300, 16, 16, 3)) == {"K", "V"}
    q, k, v = drawn((2, 2, 1, 20)), drawn((24, 16, 2, 20)), drawn((24, 16, 2, 12))
    assert streamed(TWICE, *(drawn(s) for s in ((8, 1, 4), (9, 4), (8, 1, 3), (9, 3)))) == {
        "C",
        "R",
    }
    pages = np.zeros((2, 12), np.int32)
    assert streamed(PAGED, q, k, v, pages, np.array([180, 17], np.int32)) == {"K", "V"}


@pytest.mark.parametrize(
    ("heads", "dtype", "rows"),
    [(1, "f32", 4 + 4 + 1), (4, "f32", 4 + 4 + 1), (1, "f16", 0)],
)
def test_lines_of_values_in_four_places_are_asked_for_at_once(
    heads: int, dtype: str, rows: int
) -> None:
    """By four rows in a whole window, and in one that a mask cuts, whose last rows are taken one by one."""
    kernel = tilec.compile(GROUPS, target="cpu", schedule={"workers": 1})
    ir = kernel.plan(*groups(heads, 1, 8192, 32, 32, dtype=dtype)).ir
    text = lower(ir, jit.host()).text
    lines = sum("call" in x and "prefetch" in x for x in text.split("\n"))
    assert lines == 2 * rows  # 32 values are two lines


def poison(size: int = 1 << 20) -> None:
    """Leaves NaN in the scratch memory of every thread."""
    together = threading.Barrier(pool.threads())

    @ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)
    def worker(_: int, scratch: int) -> None:
        ctypes.memset(scratch, 0xFF, size)
        together.wait(10)

    pool.run(ctypes.cast(worker, ctypes.c_void_p).value or 0, 0, size)


@pytest.mark.parametrize("n", [77, 8192])
@pytest.mark.parametrize("heads", [2, 3])
def test_what_earlier_work_left_in_scratch_does_not_count_as_nan(
    heads: int, n: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    poison()
    monkeypatch.setenv("TILEC_CACHE_DIR", str(tmp_path))
    monkeypatch.setenv("TILEC_NUM_THREADS", "2")
    kernel, (q, k, v) = tilec.compile(GROUPS, target="cpu"), groups(heads, 1, n, 16, 20)
    check(kernel, q, k, v)
    assert len(list(tmp_path.rglob("*.o"))) == 1
    v[0, 0, n - 1, 0] = np.nan
    check(kernel, q, k, v)
    assert len(list(tmp_path.rglob("*.o"))) == 2
