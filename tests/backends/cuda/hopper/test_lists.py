"""Rows with lists of their own: small tiles where a list names short runs of positions, few of all."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilec
from tests.backends.cuda.answers import off
from tests.backends.cuda.compiler import needs_cpp
from tests.backends.cuda.hopper import running
from tilec.backends.cuda.hopper.lists import Lists, lists
from tilec.backends.cuda.hopper.structure import Structure

LISTED = """
kernel listed(Q[B, H, N, D], K[B, H, N, D], V[B, H, N, E], list: i32[H, NB, {count}]) -> O[b, h, i, e]:
    seen = any[t](list[h, i // 16, t] == j // {block})
    S = sum[d](Q[b, h, i, d] * K[b, h, j, d])
    O = sum[j](softmax[j](S if seen else -inf) * V[b, h, j, e])
"""
MAPPED = """
kernel mapped(Q[B, H, N, D], K[B, H, N, D], V[B, H, N, E], seen: bool[H, NB, NB]) -> O[b, h, i, e]:
    S = sum[d](Q[b, h, i, d] * K[b, h, j, d])
    O = sum[j](softmax[j](S if seen[h, i // 16, j // 16] else -inf) * V[b, h, j, e])
"""


def structure(text: str, n: int) -> tuple[Structure, tuple[int, int, int], Lists | None]:
    """The structure of a program, the warpgroups, columns and blocks of its default schedule, and its lists."""
    sizes = {"B": 2, "H": 16, "N": n, "NB": n // 16, "D": 128, "E": 128}
    (source,) = running.tiles(tilec.compile(text), "f16", sizes)[1].values()
    s, found = source.structure, source.plan.schedule
    return s, (found.warpgroups, found.columns, found.blocks), lists(s, sizes)


@pytest.mark.parametrize(
    ("count", "block", "n", "small"),
    [(3, 16, 8192, True), (3, 16, 1024, False), (8, 16, 4096, False), (3, 64, 8192, False)],
)
def test_small_tiles(count: int, block: int, n: int, small: bool) -> None:
    """Not where lists name much of all, or whole windows."""
    text = LISTED.format(count=count, block=block)
    s, found, there = structure(text, n)
    assert (found == (1, 32, 2)) == small
    stretches = s.rows // 16 + 1  # one more where a tile does not begin with a stretch
    assert there == Lists(count * stretches, block)


def test_a_map_is_no_list() -> None:
    """How much of a map is set is not known."""
    s, found, there = structure(MAPPED, 8192)
    assert s.surveyed
    assert there is None
    assert found == (2, 64, 1)


@needs_cpp
def test_small_tiles_are_right() -> None:
    """What long rows get, for short ones."""
    kernel = tilec.compile(LISTED.format(count=2, block=16))
    sizes = {"B": 1, "H": 1, "N": 250, "NB": 16, "D": 16, "E": 16}
    arrays = kernel.sample(1, dtype="f16", **sizes)
    arrays["list"][0] = np.stack([7 * np.arange(16) % 16, np.arange(16)], axis=1)
    small: dict[str, Any] = {
        "warpgroups": 1,
        "columns": 32,
        "stages": 4,
        "blocks": 2,
        "store": "direct",
    }
    assert off(running.run(kernel, arrays, "f16", sizes, **small), kernel, arrays) < 2e-3
