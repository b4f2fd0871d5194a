"""Few rows on the emulated Hopper: keys in pieces, and heads that share their keys in the rows of a tile."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilec
from tests.backends.cuda.answers import EXAMPLES, off
from tests.backends.cuda.compiler import needs_cpp
from tests.backends.cuda.hopper import running
from tilec.backends.cuda.fast import Refused

pytestmark = needs_cpp

GQA = """
kernel gqa(Q[B, H, M, D], K[B, HK, N, D], V[B, HK, N, E]) -> O[b, h, i, e], L: f32[b, h, i]:
    S = sum[d](Q[b, h, i, d] * K[b, h // (H // HK), j, d]) / sqrt(D)
    S = S if {mask} else -inf
    O = sum[j](softmax[j](S) * V[b, h // (H // HK), j, e])
    L = logsumexp[j](S)
"""
MASKS = {
    "full": "j >= 0",
    "causal": "j <= i + N - M",
    "window": "i + N - M - 300 < j and j <= i + N - M",
    "none": "j < i - M",
}


def data(sizes: dict[str, int]) -> dict[str, Any]:
    random = np.random.default_rng(7)
    s = sizes
    shapes = {
        "Q": (s["B"], s["H"], s["M"], s["D"]),
        "K": (s["B"], s["HK"], s["N"], s["D"]),
        "V": (s["B"], s["HK"], s["N"], s["E"]),
    }
    return {n: random.standard_normal(shape).astype(np.float16) for n, shape in shapes.items()}


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("rows", [1, 3, 130])
def test_pieces(rows: int, mask: str) -> None:
    sizes = {"B": 1, "H": 2, "HK": 1, "M": rows, "N": 700, "D": 16, "E": 32}
    kernel = tilec.compile(GQA.format(mask=MASKS[mask]))
    arrays = data(sizes)
    got = running.run(
        kernel, arrays, "f16", sizes, scalars={"j_pieces": 3}, workers=132, columns=32
    )
    assert off(got, kernel, arrays) < 1e-3


@pytest.mark.parametrize("group", [2, 5, 8])
@pytest.mark.parametrize("pieces", [None, 1, 7])
def test_heads_in_rows(group: int, pieces: int | None) -> None:
    sizes = {"B": 2, "H": 2 * group, "HK": 2, "M": 1, "N": 300, "D": 32, "E": 32}
    kernel = tilec.compile(GQA.format(mask=MASKS["causal"]))
    arrays = data(sizes)
    got = running.run(
        kernel,
        arrays,
        "f16",
        sizes,
        columns=32,
        packed=True,
        workers=None if pieces is None else 132,
        scalars=None if pieces is None else {"j_pieces": pieces},
    )
    assert off(got, kernel, arrays) < 1e-3


@pytest.mark.parametrize(
    ("group", "rows", "pieces", "mask"),
    [(4, 2, None, "causal"), (7, 3, None, "window"), (4, 19, None, "none"), (5, 3, 3, "causal")],
)
def test_heads_and_positions_in_rows(group: int, rows: int, pieces: int | None, mask: str) -> None:
    """Also in two tiles, the second of which is ragged."""
    sizes = {"B": 2, "H": 2 * group, "HK": 2, "M": rows, "N": 300, "D": 32, "E": 32}
    kernel = tilec.compile(GQA.format(mask=MASKS[mask]))
    arrays = data(sizes)
    got = running.run(
        kernel,
        arrays,
        "f16",
        sizes,
        columns=32,
        packed=True,
        workers=None if pieces is None else 132,
        scalars=None if pieces is None else {"j_pieces": pieces},
    )
    assert off(got, kernel, arrays) < 1e-3


@pytest.mark.parametrize("group", [1, 3])
def test_each_query_has_blocks_of_its_own(group: int) -> None:
    kernel = tilec.load(EXAMPLES / "nsa.tile")
    sizes = {"B": 1, "H": 2 * group, "HK": 2, "N": 40, "T": 3, "D": 32, "E": 16}
    arrays = kernel.sample(1, dtype="f16", **sizes)
    if group == 1:
        with pytest.raises(Refused, match="no contraction of rows with columns"):
            running.tiles(kernel, "f16", sizes)
        return
    got = running.run(kernel, arrays, "f16", sizes, columns=16, packed=True)
    assert off(got, kernel, arrays) < 2e-3


@pytest.mark.parametrize("columns", [16, 64])
def test_short_rows_of_a_cache(columns: int) -> None:
    """A warp copies more of them at a time than are its own in a turn."""
    kernel = tilec.load(EXAMPLES / "paged.tile")
    sizes = {**kernel._source.sizes, "D": 32, "E": 16}
    arrays = kernel.sample(1, dtype="f16", **sizes)
    pieces = frozenset({"K", "V"})
    got = running.run(kernel, arrays, "f16", sizes, columns=columns, packed=True, pieces=pieces)
    assert off(got, kernel, arrays) < 2e-3


@pytest.mark.parametrize(("name", "rows"), [("paged", 3), ("int8_cache", 16)])
def test_heads_and_positions_over_a_cache(name: str, rows: int) -> None:
    kernel = tilec.compile((EXAMPLES / f"{name}.tile").read_text(encoding="utf-8"))
    sizes = {**kernel._source.sizes, "M": rows, "D": 32, "E": 32}
    arrays = kernel.sample(1, dtype="f16", **sizes)
    got = running.run(kernel, arrays, "f16", sizes, columns=32, packed=True)
    assert off(got, kernel, arrays) < 2e-3
