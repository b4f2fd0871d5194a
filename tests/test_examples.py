"""Every example: right on every target, the same after each pass, its text complete, its bytes as stated."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import tilec
from tests.test_differential import by_name, difference
from tilec.backends.reference.interpreter import run
from tilec.kernel import Kernel
from tilec.passes.split import Options, split
from tilec.reader import read
from tilec.text import show
from tilec.traffic import budget

EXAMPLES = sorted((Path(__file__).parents[1] / "examples").glob("*.tile"))

SMALL = {"M": 40, "N": 72, "C": 24, "R": 8, "D": 16, "E": 12}
"""Sizes for the levels at which the interpreter runs window by window; examples with sizes of their own keep those."""

OWN_SIZES = {
    "swin",
    "natten2d",
    "t5",
    "paged",
    "bigbird",
    "nsa",
    "jagged",
    "mla_sparse",
    "int8_cache",
    "merge",
}


def sizes(path: Path, kernel: Kernel) -> dict[str, int]:
    """Small sizes, where the example's data does not depend on them."""
    if path.stem in OWN_SIZES:
        return {}
    dims = {n for p in kernel.parameters for n in str(p)}
    return {n: s for n, s in SMALL.items() if n in kernel.environment({})[0] and dims}


def test_there_are_at_least_twenty() -> None:
    assert len(EXAMPLES) >= 20


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda p: p.stem)
def test_it_is_right_on_the_cpu(path: Path) -> None:
    kernel = tilec.load(path, target="cpu")
    data = kernel.sample()
    got, want = kernel(**data), kernel.reference(**data)
    names = [o.name for o in kernel.outputs]
    assert difference(by_name(names, got), by_name(names, want), 3e-5, 3e-5) is None


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda p: p.stem)
def test_every_level_means_the_same_and_moves_the_bytes_it_states(path: Path) -> None:
    kernel = tilec.load(path)
    small: dict[str, Any] = sizes(path, kernel)
    data = kernel.sample(**small)
    known, scalars = kernel.environment(small)
    (_, first), *rest = kernel.stages(sizes=known)
    rest.append(("split", split(dict(rest)["prune"], Options(pieces=3))))
    want = run(first, data, scalars)
    assert budget(first, known, scalars, data).total == want.traffic.total
    for name, level in rest:
        assert read(show(level)) == [level], name
        got = run(level, data, scalars)
        assert difference(got.outputs, want.outputs, 1e-9, 1e-7) is None, name
        stated = budget(level, known, scalars, data)
        assert stated.total == got.traffic.total, name


def test_fusion_keeps_the_scores_out_of_hbm() -> None:
    """Causal, M = N = 4096, D = 64: several times N² values before fusion, none of that size after."""
    kernel = tilec.load(next(p for p in EXAMPLES if p.stem == "causal"))
    known, scalars = kernel.environment({"B": 1, "H": 1, "M": 4096, "N": 4096, "D": 64, "E": 64})
    stated = {
        name: budget(level, known, scalars).total for name, level in kernel.stages(sizes=known)
    }
    matrix = 4 * 4096 * 4096
    assert stated["lower"] > 6 * matrix
    assert stated["fuse"] == 4 * 6 * 4096 * 64  # Q, K, V in, the result out and stored
    assert stated["place"] < 0.6 * matrix  # K and V again for each block of rows, no scores
