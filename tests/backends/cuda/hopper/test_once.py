"""Ends of stretches that depend on a tile's rows alone: made once for all of its windows, while there are registers."""

from __future__ import annotations

import pytest

import tilec
from tests.backends.cuda.hopper import running

NEAR = """
kernel near(Q[B, H, N, D], K[B, H, N, D], V[B, H, N, E], W: int = 24, n: i64[N]) -> O[b, h, i, e]:
    x = {limit}
    S = sum[d](Q[b, h, i, d] * K[b, h, j, d])
    O = sum[j](softmax[j](S if {mask} else -inf) * V[b, h, j, e])
"""
SQUARE = "abs(i // W - j // W) <= x and abs(i % W - j % W) <= x"


def text(mask: str, limit: str, width: int = 64) -> str:
    """What the kernel for a mask does, after its device functions."""
    sizes = {"B": 1, "H": 2, "N": 600, "D": width, "E": width}
    kernel = tilec.compile(NEAR.format(mask=mask, limit=limit))
    (source,) = running.tiles(kernel, "f16", sizes, columns=64)[1].values()
    return source.text[source.text.index('extern "C"') :]


@pytest.mark.parametrize(
    ("mask", "limit", "once"),
    [
        (SQUARE, "3", True),
        (SQUARE, "n[i]", True),
        ("abs(i // W - j // W) <= x", "3", False),  # not worth the registers
    ],
)
def test_ends_of_rows(mask: str, limit: str, once: bool) -> None:
    body = text(mask, limit)
    tile = body.index("while (origin >= 0)")
    first = body.index("rows_by_rows", tile)
    found = body.count("quotients_from(", tile)
    assert found > 0
    assert (found == 1 and body.index("quotients_from(", tile) < first) == once
