"""Keys that are looked up by blocks: each run of positions comes by a copy of its own, on the emulated Hopper."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilec
from tests.backends.cuda.answers import EXAMPLES, off
from tests.backends.cuda.compiler import needs_cpp
from tests.backends.cuda.hopper import running
from tilec.arrays import Array
from tilec.backends.cuda.hopper.launch import in_pieces
from tilec.backends.cuda.hopper.source import Source

pytestmark = needs_cpp

LISTED = """
kernel listed(Q[B, H, M, D], K[B, N, D], V[B, N, E], list: i64[B, T]) -> O[b, h, i, e]:
    axis j < T * {block}
    k = list[b, j // {block}] * {block} + j % {block}
    S = sum[d](Q[b, h, i, d] * K[b, k, d]) / sqrt(D)
    O = sum[j](softmax[j](S) * V[b, k, e])
"""


def lengths(sources: dict[int, Source]) -> set[tuple[str, int]]:
    """The positions of the runs by which each tensor's rows come."""
    rings = [t for s in sources.values() for t in s.structure.rings]
    return {(t.tensor, t.run.length) for t in rings if t.run}


@pytest.mark.parametrize(("page", "rows", "columns"), [(16, 1, 64), (48, 3, 128), (16, 70, 64)])
def test_pages(page: int, rows: int, columns: int) -> None:
    """Some of them are out of range; keys of 80 columns end in the middle of a slab."""
    kernel = tilec.load(EXAMPLES / "paged.tile")
    sizes = {**kernel._source.sizes, "M": rows, "P": page, "MP": 11, "D": 80, "E": 64}
    arrays = kernel.sample(1, dtype="f16", **sizes)
    how: dict[str, Any] = {"columns": columns, "packed": rows < 4}
    _, sources = running.tiles(kernel, "f16", sizes, **how)
    assert lengths(sources) == {("K", 16), ("V", 16)}
    arrays["page"][1, 2], arrays["page"][2, 0] = sizes["NP"], -1
    got = running.run(kernel, arrays, "f16", sizes, **how)
    assert off(got, kernel, arrays) < 2e-3


@pytest.mark.parametrize(("block", "columns", "run"), [(16, 64, 16), (64, 64, 64), (96, 64, 32)])
def test_lists_of_blocks(block: int, columns: int, run: int) -> None:
    """What a list says may be far beyond 32 bits, or in part beyond the end."""
    kernel = tilec.compile(LISTED.format(block=block))
    sizes = {"B": 2, "H": 2, "M": 20, "N": 5 * block - 7, "T": 5, "D": 32, "E": 64}
    arrays = kernel.sample(1, dtype="f16", **{**sizes, "T": 5})
    arrays["list"] = np.array([[3, 0, 4, 1, -1], [1 << 32, 2, 4, -(1 << 40), 0]])
    _, sources = running.tiles(kernel, "f16", sizes, columns=columns)
    assert lengths(sources) == {("K", run), ("V", run)}
    got = running.run(kernel, arrays, "f16", sizes, columns=columns)
    assert off(got, kernel, arrays) < 2e-3


def test_a_call_tells_which_tensors_have_no_runs() -> None:
    kernel = tilec.load(EXAMPLES / "paged.tile")
    sizes = {**kernel._source.sizes, "D": 32, "E": 32}
    _, sources = running.tiles(kernel, "f16", sizes, packed=True)
    (facts,) = (s.facts for s in sources.values())
    for page, scattered in ((16, set[str]()), (40, {"K", "V"}), (8, {"K", "V"})):
        strides = (page * 64, 64, 32, 1)
        pool = Array(4096, "f16", (80, page, 2, 32), strides, None, "")
        rows = Array(4096, "f16", (4, 8, 1, 32), (256, 32, 32, 1), None, "")
        views = {"Q": rows, "O": rows, "K": pool, "V": pool}
        assert in_pieces(facts, views, {**sizes, "P": page}) == scattered


@pytest.mark.parametrize(
    "index",
    ["j + 1", "list[b, j // 24] * 24 + j % 24", "list[b, j // 16] + 2 * (j % 16)", "j // 16"],
)
def test_rows_that_are_no_runs(index: str) -> None:
    text = LISTED.format(block=16).replace("list[b, j // 16] * 16 + j % 16", index)
    kernel = tilec.compile(text)
    sizes = {"B": 1, "H": 2, "M": 20, "N": 100, "T": 5, "D": 32, "E": 32}
    _, sources = running.tiles(kernel, "f16", sizes)
    assert lengths(sources) <= ({("K", 16), ("V", 16)} if index == "j + 1" else set())


@pytest.mark.parametrize(("blocks", "expected"), [(16, 2), (64, 1)])
def test_few_windows_of_found_keys_share_a_multiprocessor(blocks: int, expected: int) -> None:
    kernel = tilec.load(EXAMPLES / "nsa.tile")
    sizes = {"B": 1, "H": 32, "HK": 2, "N": 4096, "T": blocks, "D": 128, "E": 128}
    (source,) = running.tiles(kernel, "f16", sizes, packed=True)[1].values()
    assert source.plan.schedule.blocks == expected
