"""The operations that no schedule saves."""

from __future__ import annotations

import pytest

import tilec
from tests.programs import CAUSAL
from tilec import ceilings, least, roofline
from tilec.traffic import budget

SIZES = {"B": 1, "H": 2, "M": 512, "N": 512, "D": 64, "E": 64}


def counted(sizes=SIZES, **tile):
    kernel = tilec.compile(CAUSAL, tile=tile)
    known, scalars = kernel.environment(sizes)
    stages = dict(kernel.stages(sizes=known))
    return least.work(stages["online"], known, scalars, {}), stages["place"], known


def test_a_causal_mask_keeps_its_triangle():
    work, _, _ = counted()
    pairs = 2 * 512 * 513 // 2
    assert 2 * pairs * (64 + 64) <= work["matrix"] <= 1.01 * 2 * pairs * (64 + 64)
    rows = 2 * 512
    assert (
        pairs <= work["special"] <= 1.01 * (pairs + rows * (64 + 1))
    )  # exponentials, divisions, scales


def test_it_does_not_depend_on_the_tiles():
    assert counted()[0] == counted(i=32, j=16)[0] == counted(i=256, j=256)[0]


@pytest.mark.parametrize("tile", [{"i": 16, "j": 16}, {"i": 128, "j": 64}, {"i": 512, "j": 512}])
def test_no_tiles_do_less(tile):
    work, tiles, known = counted(**tile)
    done = budget(tiles, known).work
    assert all(work[u] <= done.total(u) for u in work)


@pytest.mark.parametrize("length", [0, 1, 3, 37])
def test_short_lengths(length):
    work, _, _ = counted(SIZES | {"M": length, "N": length})
    pairs = 2 * length * (length + 1) // 2
    assert 2 * pairs * 128 <= work["matrix"] <= 2 * 2 * length * (length + 1) * 128


def test_the_bound_of_tiles_holds_no_more():
    work, tiles, known = counted(i=512, j=512)
    stated = budget(tiles, known)
    dense = roofline.stage("place", tiles, stated, ceilings.H200)
    kept = roofline.stage("place", tiles, stated, ceilings.H200, work)
    assert kept.work == dense.work
    assert sum(dense.kept.values()) > sum(kept.kept.values()) > 0
    assert kept.reached < sum(getattr(ceilings.H200, u) for u in work)
    assert kept.bound.seconds["matrix"] < 0.6 * dense.bound.seconds["matrix"]
    assert kept.bound.seconds["cache"] == dense.bound.seconds["cache"]
