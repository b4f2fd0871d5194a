"""The cost model: it prefers what is cheaper for a reason that the model knows."""

from __future__ import annotations

import pytest

import tilec
from tests.programs import CAUSAL
from tilec import ceilings, cost
from tilec.work import Unit

ROOF = ceilings.H200


def predicted(tile, **sizes):
    kernel = tilec.compile(CAUSAL, tile=tile)
    known, scalars = kernel.environment(
        {"B": 1, "H": 4, "M": 512, "N": 512, "D": 64, "E": 64} | sizes
    )
    *_, (_, tiles) = kernel.stages(sizes=known)
    return cost.predict(tiles, known, scalars, {}, ROOF)


def test_more_windows_cost_more():
    assert predicted({"i": 64, "j": 16}) > predicted({"i": 64, "j": 64})


def test_tiles_that_leave_workers_idle_cost_more():
    # 4 heads on 132 workers: tiles of 512 rows keep 4 of them busy, tiles of 64 keep 32
    assert predicted({"i": 512, "j": 64}) > 2 * predicted({"i": 64, "j": 64})


def test_longer_takes_longer():
    assert predicted({}, N=2048, M=2048) > 2 * predicted({})


def test_trimming_takes_masked_work_away():
    kernel = tilec.compile(CAUSAL, tile={"i": 256, "j": 256})
    known, scalars = kernel.environment({"B": 1, "H": 4, "M": 512, "N": 512, "D": 64, "E": 64})
    *_, (_, tiles) = kernel.stages(sizes=known)
    full = cost.predict(tiles, known, scalars, {}, ROOF)
    none: dict[Unit, int] = {"matrix": 0, "fma": 0, "special": 0}
    assert cost.predict(tiles, known, scalars, {}, ROOF, none) < full
    assert cost.predict(tiles, known, scalars, {}, ROOF, {"matrix": 1 << 62}) == pytest.approx(full)
