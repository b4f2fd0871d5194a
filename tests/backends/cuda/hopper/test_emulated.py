"""Hopper kernels, run on the CPU with copies and products as late as they may be, against the interpreter."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilec
from tests.backends.cuda.answers import LIMIT, off, prepared
from tests.backends.cuda.compiler import needs_cpp
from tests.backends.cuda.hopper import emulator, running

pytestmark = needs_cpp

SHARED: dict[str, object] = {
    "warpgroups": 2,
    "slices": 2,
    "share": True,
    "pingpong": False,
    "store": "direct",
    "columns": 32,
}
"""Two groups with the same rows, each of which computes a half of the scores' products."""


CASES: list[tuple[str, str, dict[str, int], dict[str, object]]] = [
    ("causal", "bf16", {"B": 1, "H": 3, "M": 150, "N": 190, "D": 48, "E": 80}, {"columns": 32}),
    ("causal", "f16", {"B": 2, "H": 1, "M": 70, "N": 40, "D": 32, "E": 32}, {"columns": 16}),
    ("document", "bf16", {"B": 2, "H": 2, "N": 300, "D": 32, "E": 32}, {"columns": 32}),
    (
        "gemma2",
        "bf16",
        {"B": 1, "H": 4, "HK": 2, "M": 140, "N": 150, "D": 32, "E": 32},
        {"columns": 32},
    ),
    ("chunks", "f16", {"B": 1, "H": 2, "M": 150, "N": 190, "D": 16, "E": 16}, {"columns": 32}),
    (
        "differential",
        "bf16",
        {"B": 1, "H": 2, "M": 100, "N": 100, "D": 16, "E": 32},
        {"columns": 32},
    ),
    ("alibi", "bf16", {"B": 1, "H": 3, "M": 150, "N": 190, "D": 32, "E": 32}, {"columns": 32}),
    ("alibi", "bf16", {"B": 1, "H": 2, "M": 300, "N": 300, "D": 32, "E": 32}, {"columns": 64}),
    ("mla", "bf16", {"B": 1, "H": 2, "M": 64, "N": 100, "C": 64, "R": 32}, {"columns": 32}),
    ("sink", "bf16", {"B": 1, "H": 3, "M": 150, "N": 190, "D": 32, "E": 32}, {"columns": 32}),
    ("pair_bias", "bf16", {"B": 2, "H": 1, "N": 70, "D": 32, "E": 32}, {"columns": 32}),
    (
        "paged",
        "bf16",
        {"B": 2, "H": 2, "HK": 1, "M": 3, "NP": 40, "P": 8, "MP": 20, "D": 64, "E": 64},
        {"columns": 32},
    ),
    (
        "paged",
        "f16",
        {"B": 1, "H": 2, "HK": 1, "M": 3, "NP": 9, "P": 8, "MP": 9, "D": 16, "E": 8},
        {},
    ),
    (
        "int8_cache",
        "bf16",
        {"B": 2, "H": 2, "HK": 1, "M": 8, "N": 100, "D": 64, "E": 40},
        {"columns": 32},
    ),
    ("int8_cache", "f16", {"B": 1, "H": 2, "HK": 1, "M": 8, "N": 70, "D": 16, "E": 16}, {}),
    (
        "mla_sparse",
        "bf16",
        {"B": 1, "H": 4, "M": 8, "N": 50, "C": 64, "R": 16, "T": 40},
        {"columns": 32},
    ),
    (
        "mla_sparse",
        "bf16",
        {"B": 1, "H": 8, "M": 1, "N": 150, "C": 320, "R": 16, "T": 70},
        {"columns": 64, "stages": 2},
    ),
    ("mla", "f16", {"B": 1, "H": 1, "M": 70, "N": 100, "C": 300, "R": 32}, {"columns": 32}),
    ("causal", "bf16", {"B": 1, "H": 1, "M": 40, "N": 70, "D": 304, "E": 576}, {}),
    ("differential", "bf16", {"B": 1, "H": 2, "M": 40, "N": 70, "D": 32, "E": 192}, {}),
    ("naive", "bf16", {"B": 1, "H": 1, "M": 70, "N": 70, "D": 192, "E": 128}, SHARED),
    ("mla", "f16", {"B": 1, "H": 1, "M": 70, "N": 100, "C": 128, "R": 64}, SHARED),
    (
        "differential",
        "bf16",
        {"B": 1, "H": 2, "M": 100, "N": 100, "D": 64, "E": 96},
        {**SHARED, "warpgroups": 4, "columns": 16},
    ),
    ("mla_sparse", "f16", {"B": 1, "H": 4, "M": 4, "N": 200, "C": 64, "R": 16, "T": 24}, {}),
    (
        "mla_sparse",
        "f16",
        {"B": 1, "H": 4, "M": 4, "N": 200, "C": 64, "R": 16, "T": 24},
        {"columns": 16},
    ),
    ("qk_norm", "f16", {"B": 1, "H": 2, "HK": 1, "M": 70, "N": 100, "D": 32, "E": 32}, {}),
    ("rope", "bf16", {"B": 1, "H": 2, "HK": 1, "M": 70, "N": 90, "D": 32, "E": 32}, {}),
    ("rope", "f16", {"B": 1, "H": 2, "HK": 1, "M": 70, "N": 90, "D": 20, "E": 32}, {}),
    ("rope", "f32", {"B": 1, "H": 2, "HK": 1, "M": 70, "N": 90, "D": 32, "E": 32}, {}),
    ("causal", "f32", {"B": 1, "H": 2, "M": 70, "N": 100, "D": 40, "E": 24}, {"columns": 32}),
    ("causal", "f32", {"B": 1, "H": 1, "M": 40, "N": 60, "D": 264, "E": 40}, {"columns": 16}),
    ("bigbird", "f16", {"B": 2, "H": 2, "N": 200, "NB": 13, "D": 32, "E": 32}, {"columns": 32}),
    ("t5", "f16", {"B": 2, "H": 2, "M": 150, "N": 190, "D": 16, "E": 32}, {"columns": 32}),
    ("swin", "bf16", {"W": 2, "H": 2, "D": 16, "E": 32}, {}),
    ("natten2d", "bf16", {"B": 1, "H": 1, "N": 480, "D": 16, "E": 16}, {}),
    ("variance", "bf16", {"B": 1, "H": 2, "M": 70, "N": 100, "D": 32, "E": 32}, {"columns": 32}),
    ("dropout", "f16", {"B": 1, "H": 1, "M": 70, "N": 100, "D": 32, "E": 32}, {"columns": 32}),
    (
        "differential",
        "f16",
        {"B": 1, "H": 1, "M": 70, "N": 150, "D": 16, "E": 32},
        {"columns": 48, "warpgroups": 2},
    ),
    (
        "pair_bias",
        "f16",
        {"B": 3, "H": 2, "N": 100, "D": 16, "E": 16},
        {"columns": 48, "order": "longest", "section": 2},
    ),
]


@pytest.mark.parametrize(("name", "dtype", "sizes", "schedule"), CASES)
def test_examples(
    name: str, dtype: str, sizes: dict[str, int], schedule: dict[str, object]
) -> None:
    kernel, arrays = prepared(name, dtype, sizes)
    got = running.run(kernel, arrays, dtype, sizes, **schedule)
    assert off(got, kernel, arrays) < LIMIT[dtype]


@pytest.mark.parametrize(
    ("name", "dtype"), [("int8_cache", "f16"), ("causal", "f32"), ("causal", "bf16")]
)
def test_rows_that_are_not_dense(name: str, dtype: str) -> None:
    sizes = {"B": 1, "H": 2, "HK": 2, "M": 30, "N": 70, "D": 17, "E": 24}
    sizes = {n: k for n, k in sizes.items() if name == "int8_cache" or n != "HK"}
    kernel, arrays = prepared(name, dtype, sizes)
    arrays |= {n: np.asfortranarray(arrays[n]) for n in "KV"}
    got = running.run(kernel, arrays, dtype, sizes, columns=32, pieces=frozenset("QKV"))
    assert off(got, kernel, arrays) < LIMIT[dtype]


SMALL_FLOATS = """
kernel f(Q[M, D], K: {dtype}[N, D], V: {dtype}[N, E], s: f32[N]) -> O[i, e]:
    S = sum[d](Q[i, d] * K[j, d] * s[j])
    O = sum[j](softmax[j](S) * V[j, e])
"""


def small_floats(dtype: Any) -> tuple[tilec.Kernel, dict[str, Any], dict[str, int]]:
    """A cache of 8-bit floats with all finite values among the keys, and a scale for each."""
    sizes = {"M": 4, "N": 70, "D": 16, "E": 24}
    kernel = tilec.compile(SMALL_FLOATS.format(dtype=dtype))
    arrays = kernel.sample(1, dtype="f16", **sizes)
    values = np.arange(256, dtype=np.uint8).view(arrays["K"].dtype)
    values = values[np.isfinite(values.astype(np.float32))]
    arrays["K"] = np.resize(values, (70, 16))
    largest = np.abs(arrays["K"].astype(np.float32)).max(-1)
    return kernel, arrays | {"s": 1 / largest.clip(1)}, sizes


@pytest.mark.parametrize("columns", [16, 32, 64])
@pytest.mark.parametrize("dtype", ["f8e4m3", "f8e5m2"])
def test_caches_of_small_floats(dtype: str, columns: int) -> None:
    kernel, arrays, sizes = small_floats(dtype)
    placed, sources = running.tiles(kernel, "f16", sizes, columns=columns)

    def launch(n: int, memory: Any, known: Any) -> None:
        assert not emulator.run(sources[n], memory, known)

    got = running.completed(placed, sources, launch, arrays, sizes)
    assert off(got, kernel, arrays) < LIMIT["f16"]


def test_small_problems_have_a_warpgroup_each() -> None:
    sizes = {"B": 2, "H": 3, "M": 49, "N": 49, "D": 32, "E": 32}
    kernel, arrays = prepared("naive", "bf16", sizes)
    _, sources = running.tiles(kernel, "bf16", sizes)
    assert sources[0].plan.schedule.warpgroups == 1
    got = running.run(kernel, arrays, "bf16", sizes, processors=1)
    assert off(got, kernel, arrays) < LIMIT["bf16"]


def test_a_product_with_positions_is_no_product_of_tiles() -> None:
    kernel = tilec.compile("""
kernel f(Q[M, D], K[N, D], V[N, D]) -> O[i, d], mean: f32[i]:
    P = softmax[j](sum[d](Q[i, d] * K[j, d]))
    O = sum[j](P * V[j, d])
    mean = sum[j](P * j)
""")
    code = kernel.gpu_code(M=64, N=64, D=32)
    assert code.emitter == "simt"
    assert "contract where only pointwise" in code.note
