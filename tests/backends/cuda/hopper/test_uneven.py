"""In which order tiles are dealt out: what the bounds of their loops say about their lengths."""

from __future__ import annotations

import pytest

import tilec
from tests.backends.cuda.hopper import running
from tilec.backends.cuda.hopper import sections

MASKED = """
kernel masked(Q[B, H, M, D], K[B, H, N, D], V[B, H, N, D],
    len: i32[B], a: i32[B, M], c: i32[B, N], n: int = 40) -> O[b, h, i, d]:
    S = sum[e](Q[b, h, i, e] * K[b, h, j, e])
    O = sum[j](softmax[j](S if {mask} else -inf) * V[b, h, j, d])
"""
LATE = ("longest", 8, 264)
ORDERS = {
    "j <= i": LATE,
    "j <= i + N - M": LATE,
    "j <= 2 * i": LATE,
    "i - n < j <= i": LATE,
    "j < len[b] and j <= i": LATE,
    "i // n == j // n and j <= i": ("longest", 8, 0),
    "a[b, i] == len[b] and j <= i": ("longest", 8, 0),
    "a[b, i] == c[b, j] and j <= i": LATE,
    "a[b, i] == c[b, j]": ("longest", 8, 0),
    "j >= i": ("longest", 8, 0),
    "j < N - i": ("longest", 8, 0),
    "j < len[b] and i < len[b]": ("longest", 8, 0),
    "j < len[b]": ("longest", 1, 0),
    "j < a[b, i]": ("longest", 1, 0),
    "j < n": ("static", 8, 0),
    "j >= 0": ("static", 8, 0),
}


@pytest.mark.parametrize("mask", ORDERS)
def test_orders(mask: str) -> None:
    sizes = {"B": 2, "H": 4, "M": 4096, "N": 4096, "D": 128}
    _, sources = running.tiles(tilec.compile(MASKED.format(mask=mask)), "bf16", sizes)
    (source,) = sources.values()
    schedule = source.plan.schedule
    assert (schedule.order, schedule.section, schedule.late) == ORDERS[mask]


@pytest.mark.parametrize(("n", "late"), [(1, 0), (1024, 0), (1025, 264)])
def test_short_tiles_are_kept_for_the_end_of_long_launches(n: int, late: int) -> None:
    sizes = {"B": 2, "H": 4, "M": 4096, "N": n, "D": 128}
    _, sources = running.tiles(tilec.compile(MASKED.format(mask="j <= i")), "bf16", sizes)
    (source,) = sources.values()
    assert source.plan.schedule.late == late


BIASED = """
kernel biased(Q[B, H, M, D], K[B, H, N, D], V[B, H, N, D], P[{dims}]) -> O[b, h, i, d]:
    S = sum[e](Q[b, h, i, e] * K[b, h, j, e]) + P[{index}]
    O = sum[j](softmax[j](S) * V[b, h, j, d])
"""


@pytest.mark.parametrize(
    ("dims", "index", "shared"),
    [
        ("B, H, M, N", "b, h, i, j", ()),
        ("H, M, N", "h, i, j", ("b",)),
        ("B, M, N", "b, i, j", ("h",)),
        ("M, N", "i, j", ("b", "h")),
        ("G, M, N", "h // 2, i, j", ("b",)),
        ("B, H, N", "b, h, j", ()),
        ("H, G", "h, i - j", ()),
    ],
)
def test_tiles_that_share_a_bias_follow_each_other(
    dims: str, index: str, shared: tuple[str, ...]
) -> None:
    sizes = {"B": 2, "H": 4, "M": 4096, "N": 4096, "D": 64, "G": 2}
    kernel = tilec.compile(BIASED.format(dims=dims, index=index))
    _, sources = running.tiles(kernel, "f16", sizes)
    (source,) = sources.values()
    assert sections.shared_along(source.structure) == shared
    assert source.plan.schedule.order == ("longest" if shared else "static")
    if shared == ("b",):
        assert source.text.index("b = head % (B_)") < source.text.index("h = head;")
