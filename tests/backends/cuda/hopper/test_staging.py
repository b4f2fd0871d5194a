"""Who loads which rows of a tile."""

from __future__ import annotations

import itertools

import pytest

from tilec.backends.cuda.hopper.staging import share


@pytest.mark.parametrize("warps", [1, 2, 3])
def test_every_row_is_taken_once_or_more_and_looked_up_by_the_warp_that_takes_it(
    warps: int,
) -> None:
    for rows, width in itertools.product([8, 16, 24, 64, 112, 128, 256], [1, 16, 17, 40, 64, 256]):
        its = share(rows, width, warps)
        assert its.steps * 32 == its.lines * its.lanes
        assert its.lines <= 32
        assert its.lines * its.turns * warps >= rows
        assert its.lines % 8 == 0
