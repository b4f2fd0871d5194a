"""How loading warps share out the rows of a tile."""

from __future__ import annotations

import pytest

from tilec.backends.cuda.hopper.staging import share


@pytest.mark.parametrize("warps", [1, 2, 3])
@pytest.mark.parametrize("width", [8, 16, 24, 32, 64, 136, 256])
def test_each_row_is_somebodys(width: int, warps: int) -> None:
    for rows in range(8, 257, 8):
        its = share(rows, width, warps)
        assert warps * its.turns * its.lines >= rows
        assert its.steps * 32 == its.lines * its.lanes  # in whole steps
        assert its.lines <= 32  # a thread looks up one of them
