"""Kernels on mma.sync, run on the CPU with copies as late as they may be, against the interpreter."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

import tilec
from tests.backends.cuda.ampere import emulator, running
from tests.backends.cuda.answers import EXAMPLES, LIMIT, error, expected, off, prepared
from tests.backends.cuda.compiler import needs_cpp

pytestmark = needs_cpp

Sizes = dict[str, int]

CASES: list[tuple[str, str, Sizes, dict[str, object]]] = [
    ("bigbird", "f16", {"B": 1, "H": 2, "N": 100, "NB": 7, "D": 32, "E": 32}, {}),
    ("nsa", "f16", {"B": 1, "H": 6, "HK": 2, "N": 40, "T": 3, "D": 32, "E": 32}, {"packed": True}),
    ("causal", "bf16", {"B": 1, "H": 3, "M": 75, "N": 95, "D": 48, "E": 80}, {}),
    ("causal", "f16", {"B": 2, "H": 1, "M": 70, "N": 40, "D": 24, "E": 40}, {"stages": 1}),
    (
        "causal",
        "bf16",
        {"B": 1, "H": 1, "M": 70, "N": 150, "D": 128, "E": 128},
        {"height": 32, "columns": 64, "stages": 1, "blocks": 4},
    ),
    (
        "naive",
        "bf16",
        {"B": 1, "H": 1, "M": 20, "N": 130, "D": 64, "E": 64},
        {"warps": 1, "columns": 48, "stages": 3, "query": "registers"},
    ),
    (
        "causal",
        "bf16",
        {"B": 1, "H": 1, "M": 40, "N": 70, "D": 200, "E": 72},
        {"columns": 48, "stages": 1, "query": "half"},
    ),
    ("document", "bf16", {"B": 2, "H": 1, "N": 150, "D": 32, "E": 32}, {}),
    ("document", "bf16", {"B": 2, "H": 1, "N": 150, "D": 32, "E": 32}, {"stages": 1}),
    ("gemma2", "bf16", {"B": 1, "H": 4, "HK": 2, "M": 70, "N": 80, "D": 32, "E": 32}, {}),
    ("differential", "bf16", {"B": 1, "H": 2, "M": 50, "N": 60, "D": 16, "E": 32}, {}),
    ("alibi", "bf16", {"B": 1, "H": 2, "M": 75, "N": 95, "D": 32, "E": 32}, {}),
    ("mla", "bf16", {"B": 1, "H": 2, "M": 40, "N": 70, "C": 64, "R": 32}, {"stages": 2}),
    (
        "mla",
        "f16",
        {"B": 1, "H": 1, "M": 40, "N": 70, "C": 304, "R": 32},
        {"warps": 4, "slices": 2, "stages": 2},
    ),
    (
        "causal",
        "bf16",
        {"B": 1, "H": 1, "M": 20, "N": 70, "D": 304, "E": 576},
        {"warps": 8, "slices": 4, "stages": 1},
    ),
    ("pair_bias", "bf16", {"B": 2, "H": 1, "N": 50, "D": 32, "E": 32}, {}),
    ("sink", "f16", {"B": 1, "H": 4, "HK": 2, "M": 50, "N": 70, "D": 32, "E": 32}, {}),
    ("qk_norm", "bf16", {"B": 1, "H": 2, "HK": 1, "M": 40, "N": 50, "D": 32, "E": 32}, {}),
    ("int8_cache", "f16", {"B": 1, "H": 2, "HK": 1, "M": 8, "N": 60, "D": 32, "E": 32}, {}),
    ("causal", "f32", {"B": 1, "H": 1, "M": 40, "N": 50, "D": 20, "E": 33}, {"stages": 1}),
    ("sigmoid", "bf16", {"B": 1, "H": 1, "M": 50, "N": 70, "D": 32, "E": 32}, {}),
]


@pytest.mark.parametrize(("name", "dtype", "sizes", "schedule"), CASES)
def test_examples(name: str, dtype: str, sizes: Sizes, schedule: dict[str, object]) -> None:
    kernel, arrays = prepared(name, dtype, sizes)
    got, again = running.run(kernel, arrays, dtype, sizes, **{**running.SMALL, **schedule})
    assert off(got, kernel, arrays) < LIMIT[dtype]
    assert not again


ATTEND = """
kernel attend(Q[B, M, D], K[B, N, D], V[B, N, E]) -> O[b, i, e]:
    S = sum[d](Q[b, i, d] * K[b, j, d]) / sqrt(D)
    O = sum[j](softmax[j](S if j <= i + N - M else -inf) * V[b, j, e])
"""


def laid_out(shape: tuple[int, ...], order: str, seed: int) -> np.ndarray:
    """Random bf16 elements of a shape, in memory in another order of its dimensions."""
    from tilec.arrays import numpy_dtype

    places = [order.index(x) for x in "bnd"]
    stored = np.random.default_rng(seed).standard_normal([shape["bnd".index(x)] for x in order])
    return stored.astype(numpy_dtype("bf16")).transpose(places)


@pytest.mark.parametrize(
    ("order", "d", "pieces"),
    [("nbd", 24, ""), ("ndb", 24, "KV"), ("bdn", 17, "QKV"), ("bnd", 1, "QKV")],
)
def test_any_strides_and_head_sizes(order: str, d: int, pieces: str) -> None:
    """Rows of 16-byte pieces are copied as such wherever they begin; any others element by element."""
    sizes = {"B": 2, "M": 37, "N": 45, "D": d, "E": d}
    kernel = tilec.compile(ATTEND)
    arrays: dict[str, Any] = {
        n: laid_out((2, sizes[rows], d), order, k)
        for k, (n, rows) in enumerate({"Q": "M", "K": "N", "V": "N"}.items())
    }
    if pieces == "KV":
        arrays["Q"] = laid_out((2, 37, d), "bnd", 0)
    scattered = frozenset(pieces)
    got, _ = running.run(kernel, arrays, "bf16", sizes, pieces=scattered, **running.SMALL)
    assert off(got, kernel, arrays) < LIMIT["bf16"]


@pytest.mark.parametrize("lengths", [(1, 1), (33, 1), (1, 70), (40, 0)])
def test_few_rows_and_keys(lengths: tuple[int, int]) -> None:
    """Also rows that see no key: their results are 0."""
    m, n = lengths
    sizes = {"B": 1, "M": m, "N": n, "D": 16, "E": 16}
    kernel = tilec.compile(ATTEND)
    arrays = kernel.sample(2, dtype="bf16", **sizes)
    got, _ = running.run(kernel, arrays, "bf16", sizes, **running.SMALL)
    assert off(got, kernel, arrays) < LIMIT["bf16"]


DECODE = """
kernel decode(Q[B, H, M, D], K[B, HK, N, D], V[B, HK, N, E]) -> O[b, h, i, e], L: f32[b, h, i]:
    assert H % HK == 0, "query heads must be a multiple of key heads"
    S = sum[d](Q[b, h, i, d] * K[b, h // (H // HK), j, d]) / sqrt(D)
    O = sum[j](softmax[j](S) * V[b, h // (H // HK), j, e])
    L = logsumexp[j](S)
"""


def test_caches_of_small_floats() -> None:
    kernel = tilec.compile("""
kernel f(Q[M, D], K: f8e4m3[N, D], V: f8e5m2[N, E], s: f32[N]) -> O[i, e]:
    S = sum[d](Q[i, d] * K[j, d] * s[j])
    O = sum[j](softmax[j](S) * V[j, e])
""")
    sizes = {"M": 4, "N": 70, "D": 16, "E": 24}
    arrays = kernel.sample(1, dtype="f16", **sizes)
    got, asked = running.run(kernel, arrays, "f16", sizes, **running.SMALL)
    assert not asked
    assert error(got["O"], kernel.reference(**arrays)) < LIMIT["f16"]


@pytest.mark.parametrize(
    ("m", "n", "workers"), [(1, 90, None), (1, 1100, 4), (3, 90, None), (5, 1100, 4)]
)
def test_heads_that_share_their_keys_are_rows(m: int, n: int, workers: int | None) -> None:
    """Tiles of 4 rows in blocks of 32; keys in pieces; and positions of 4 heads as rows."""
    sizes = {"B": 1, "H": 8, "HK": 2, "M": m, "N": n, "D": 16, "E": 16}
    kernel = tilec.compile(DECODE)
    arrays = kernel.sample(3, dtype="bf16", **sizes)
    got, _ = running.run(
        kernel, arrays, "bf16", sizes, packed=True, workers=workers, **running.SMALL
    )
    assert off(got, kernel, arrays) < LIMIT["bf16"]


@pytest.mark.parametrize(("query", "d"), [("shared", 32), ("half", 80), ("registers", 32)])
def test_growing_maxima_take_the_exact_program(query: str, d: int) -> None:
    sizes = {"B": 1, "H": 1, "M": 40, "N": 150, "D": d, "E": 32}
    kernel, arrays = prepared("naive", "bf16", sizes)
    arrays["K"] = (arrays["K"].astype(float) * np.linspace(1, 60, 150)[:, None]).astype(
        arrays["K"].dtype
    )
    got, _ = running.run(kernel, arrays, "bf16", sizes, **{**running.SMALL, "query": query})
    assert off(got, kernel, arrays) < LIMIT["bf16"]


def test_long_elements_of_the_exact_program_are_a_loop() -> None:
    """A bias by buckets: blocks of columns come to the beginning of the scores one after another."""
    sizes = {"B": 1, "H": 1, "M": 40, "N": 150, "D": 16, "E": 32}
    kernel, arrays = prepared("t5", "bf16", sizes)
    arrays["K"] = (arrays["K"].astype(float) * np.linspace(1, 60, 150)[:, None]).astype(
        arrays["K"].dtype
    )
    made = tilec.load(EXAMPLES / "t5.tile", target="cuda:sm_80")
    assert "turn_by<" in made.source("cuda", dtype="bf16", **sizes)
    got, _ = running.run(kernel, arrays, "bf16", sizes, **running.SMALL)
    assert off(got, kernel, arrays) < LIMIT["bf16"]


def test_guesses_know_where_the_axis_ends() -> None:
    """Scores far below 0, and fewer keys than a window has columns: zeros beyond the end are no maxima."""
    sizes = {"B": 1, "H": 1, "M": 20, "N": 5, "D": 16, "E": 16}
    kernel, arrays = prepared("naive", "bf16", sizes)
    arrays["Q"] = np.full_like(arrays["Q"], 10)
    arrays["K"] = (-np.abs(arrays["K"].astype(float)) - 10).astype(arrays["K"].dtype)
    got, _ = running.run(kernel, arrays, "bf16", sizes, **running.SMALL)
    assert off(got, kernel, arrays) < LIMIT["bf16"]


def test_what_is_absent_asks_for_the_exact_kernel() -> None:
    sizes = {"B": 1, "H": 1, "M": 40, "N": 40, "D": 16, "E": 16}
    kernel, arrays = prepared("causal", "bf16", sizes)
    _, asked = running.run(kernel, arrays, "bf16", sizes, **running.SMALL)
    assert not asked
    arrays["V"] = arrays["V"].copy()
    arrays["V"][..., 30, 3] = np.nan
    got, asked = running.run(kernel, arrays, "bf16", sizes, **running.SMALL)
    assert asked
    assert np.isnan(got["O"].astype(float)[..., 30:, 3]).all()


MISTAKES = {
    "a tile is read before it is there": "copies_wait<0>();",
    "a tile is overwritten while it is read": "__syncthreads();",
    "rows end where the tensor does": " - position;",
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_mistakes_are_noticed(mistake: str) -> None:
    sizes = {"B": 1, "H": 1, "M": 64, "N": 200, "D": 16, "E": 16}
    kernel, arrays = prepared("naive", "bf16", sizes)
    begun = running.online(kernel, "bf16", sizes)
    _, sources, _ = running.tiles(begun, **{**running.SMALL, "stages": 2})
    _, begin, text = sources[0].text.partition('extern "C" __global__')
    assert MISTAKES[mistake] in text
    header = sources[0].text[: -len(begin + text)]
    wrong = header + begin + text.replace(MISTAKES[mistake], ";")
    broken = dataclasses.replace(sources[0], text=wrong)
    want = expected(kernel, arrays)[0]
    room = np.full((1, 1, 264, 16), np.nan, arrays["V"].dtype)  # beyond 200 rows it is another's
    room[:, :, :200] = arrays["V"]
    for seed in range(5):
        memory = {**arrays, "V": room[:, :, :200], "O": np.zeros_like(arrays["Q"])}
        emulator.run(broken, memory, sizes, seed=seed + 1)
        if error(memory["O"], want) > LIMIT["bf16"]:
            return
    pytest.fail("nothing was noticed")
