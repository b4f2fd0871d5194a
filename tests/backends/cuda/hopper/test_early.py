"""Masks that are made while products are under way."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import tilec
from tests.backends.cuda.hopper import running
from tilec.backends.cuda.hopper.early import early
from tilec.backends.cuda.hopper.steps import Loop, Mask, Settle, Step, Stream

MASKED = """
kernel masked(Q[B, H, M, D], K[B, H, N, D], V[B, H, N, D], w: i32[M], z: i32[N], n: int = 7) -> O[b, h, i, d]:
    S = sum[e](Q[b, h, i, e] * K[b, h, j, e])
    O = sum[j](softmax[j](S if {mask} else -inf) * V[b, h, j, d])
"""
MASKS = {
    "uniform(n, b, h, i, j) > 0.1": 1,
    "(i * j) % n == 3": 1,
    "(i * j) % n == 3 or uniform(n, i, j) > 0.5": 1,
    "(i * j) % n == 3 and j != 5 * i": 1,
    "uniform(n, i, j) > S": 0,  # which a product decides about
    "j != 5 * i": 0,  # cheap
    "w[i] == z[j]": 0,  # labels arrive with the keys
}


@pytest.mark.parametrize("mask", MASKS)
def test_only_dear_masks_without_products(mask: str) -> None:
    sizes = {"B": 1, "H": 2, "M": 300, "N": 300, "D": 64}
    kernel = tilec.compile(MASKED.format(mask=mask))
    (source,) = running.tiles(kernel, "f16", sizes)[1].values()
    s = source.structure
    counts = [len(early(s, block)) for block in s.blocks]
    assert max(counts) == MASKS[mask]
    found = [before_products(x) for x in windows(source.plan.steps)]
    assert sorted(found) == sorted(n > 0 for n in counts)


def windows(steps: tuple[Step, ...]) -> Iterator[tuple[Step, ...]]:
    """What is done for a window, for each block."""
    for x in steps:
        if isinstance(x, Loop):
            yield x.steps
        elif isinstance(x, Stream):
            yield from x.blocks


def before_products(steps: tuple[Step, ...]) -> bool:
    """Whether masks are made, and products are waited for after that."""
    found = [k for k, x in enumerate(steps) if isinstance(x, Mask)]
    first = next(k for k, x in enumerate(steps) if isinstance(x, Settle))
    assert all(k < first for k in found)
    return bool(found)
