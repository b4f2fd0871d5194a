"""When a fast kernel computes exactly, and when it asks for the exact kernel, on the emulated Hopper."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilec
from tests.backends.cuda.answers import LIMIT, off, prepared
from tests.backends.cuda.compiler import needs_cpp
from tests.backends.cuda.hopper import emulator, running

pytestmark = needs_cpp


def test_a_sink_may_have_stale_maxima() -> None:
    sizes = {"B": 1, "H": 3, "M": 70, "N": 200, "D": 32, "E": 32}
    kernel, arrays = prepared("sink", "f16", sizes)
    _, sources = running.tiles(kernel, "f16", sizes, columns=32)
    assert "__builtin_expect" in sources[0].text
    for scale in (1.0, 20.0):
        arrays["s"][:] = (-np.inf, -scale, scale)
        got = running.run(kernel, arrays, "f16", sizes, columns=32)
        assert off(got, kernel, arrays) < LIMIT["f16"]


def test_growing_maxima_take_the_exact_block() -> None:
    sizes = {"B": 1, "H": 1, "M": 70, "N": 150, "D": 32, "E": 32}
    kernel, arrays = prepared("naive", "bf16", sizes)
    arrays["K"] = (arrays["K"].astype(float) * np.linspace(1, 60, 150)[:, None]).astype(
        arrays["K"].dtype
    )
    got = running.run(kernel, arrays, "bf16", sizes, columns=32)
    assert off(got, kernel, arrays) < LIMIT["bf16"]


def test_what_a_tile_cannot_hold_asks_for_the_exact_kernel() -> None:
    sizes = {"B": 1, "H": 1, "M": 40, "N": 40, "D": 16, "E": 16}
    kernel, arrays = prepared("naive", "f32", sizes)
    _, sources = running.tiles(kernel, "f32", sizes, columns=32)
    memory = {**arrays, "O": np.zeros((1, 1, 40, 16), np.float32)}
    assert not emulator.run(sources[0], memory, sizes)
    memory["K"] = arrays["K"].copy()
    memory["K"][0, 0, 7, 3] = -np.inf
    assert emulator.run(sources[0], memory, sizes)


def test_what_is_absent_asks_for_the_exact_kernel() -> None:
    sizes = {"B": 1, "H": 1, "M": 64, "N": 64, "D": 32, "E": 32}
    kernel, arrays = prepared("causal", "bf16", sizes)
    _, sources = running.tiles(kernel, "bf16", sizes, columns=32)
    memory = {**arrays, "O": np.zeros((1, 1, 64, 32), arrays["V"].dtype)}
    assert not emulator.run(sources[0], memory, sizes)
    memory["V"] = arrays["V"].copy()
    memory["V"][..., 50, 3] = np.nan
    assert emulator.run(sources[0], memory, sizes)


@pytest.mark.parametrize(
    ("sum_", "asks"), [("sum[i](P)", True), ("mean[i](P / w[i])", True), ("sum[i](exp(S))", False)]
)
def test_sums_of_rows_ask_for_it_where_a_factor_meets_what_is_absent(sum_: str, asks: bool) -> None:
    kernel = tilec.compile(f"""
kernel f(Q[M, D], K[N, D], w: f32[M]) -> C: f32[j]:
    S = sum[d](Q[i, d] * K[j, d]) if j <= i else -inf
    P = softmax[j](S)
    C = {sum_}
""")
    sizes = {"M": 40, "N": 40, "D": 16}
    arrays = kernel.sample(1, dtype="f16", **sizes)
    arrays |= {"w": np.ones(40, np.float32)}
    arrays["Q"][10] = np.nan
    placed, sources = running.tiles(kernel, "f16", sizes)
    asked: list[bool] = []

    def launch(n: int, memory: Any, known: Any) -> None:
        asked.append(emulator.run(sources[n], memory, known))

    got = running.completed(placed, sources, launch, arrays, sizes)
    assert any(asked) == asks
    assert asks or off(got, kernel, arrays) < LIMIT["f16"]
