"""Generated programs mean the same at every level and on every target."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings

import tilec
from tests.generated import Drawn, programs
from tilec import pipeline
from tilec.backends.reference.interpreter import run
from tilec.check import lower
from tilec.ir import Kernel
from tilec.parse import parse
from tilec.reader import read
from tilec.text import show

EXAMPLES = int(os.environ.get("TILEC_EXAMPLES", "100"))
"""How many programs each test draws; more are drawn before a change lands."""

PARTS = 6
"""Each test draws its programs in so many parts, which may run side by side."""

TILES = {"i": 8, "j": 4}
"""Tiles small enough that the drawn sizes hold several, and a ragged one."""

several = settings(
    max_examples=-(-EXAMPLES // PARTS),
    deadline=None,
    phases=[Phase.generate, Phase.shrink],
    database=None,
    suppress_health_check=[
        HealthCheck.too_slow,
        HealthCheck.data_too_large,
        HealthCheck.filter_too_much,
    ],
)


def levels(d: Drawn) -> list[tuple[str, Kernel]]:
    """The drawn program as written, and after each pass."""
    kernel = lower(parse(d.text, "drawn.tile"), "drawn", dict.fromkeys("QKV", "f32"))
    steps = pipeline.tensor_pipeline()
    out = [("lower", kernel), *pipeline.stages(kernel, steps)]
    static = pipeline.module("specialise").static_dims(out[-1][1])
    steps = pipeline.tile_pipeline({n: d.sizes[n] for n in static}, TILES)
    return [*out, *pipeline.stages(out[-1][1], steps)]


def difference(
    got: Mapping[str, np.ndarray], want: Mapping[str, np.ndarray], atol: float, rtol: float
) -> str | None:
    """The first output that differs, and how; None where none does."""
    for name, w in want.items():
        g, w = np.asarray(got[name], float), np.asarray(w, float)
        if not np.array_equal(np.isnan(g), np.isnan(w)):
            return f"{name}: {np.isnan(g).sum()} NaN, expected {np.isnan(w).sum()}"
        with np.errstate(invalid="ignore"):
            off = np.where((g == w) | np.isnan(w), 0, np.abs(g - w))
        if not (off <= atol + rtol * np.abs(np.nan_to_num(w))).all():
            return f"{name}: off by {off.max():.3g}"
    return None


def by_name(names: list[str], results: Any) -> dict[str, np.ndarray]:
    """What a call gave, by output."""
    each = cast("tuple[np.ndarray, ...]", results if isinstance(results, tuple) else (results,))
    return dict(zip(names, each, strict=True))


def each(part: int, check: Callable[[Drawn], None]) -> None:
    """Checks the programs of one part; the same ones in every run."""
    seed(part)(several(given(programs())(check)))()


@pytest.mark.parametrize("part", range(PARTS))
def test_every_pass_keeps_the_meaning(part: int) -> None:
    def check(d: Drawn) -> None:
        given_ = d.arguments()
        arrays = {n: x for n, x in given_.items() if isinstance(x, np.ndarray)}
        scalars = {n: x for n, x in given_.items() if not isinstance(x, np.ndarray)}
        (_, first), *rest = levels(d)
        want = run(first, arrays, scalars).outputs
        for name, kernel in rest:
            assert read(show(kernel)) == [kernel], name
            problem = difference(run(kernel, arrays, scalars).outputs, want, 1e-8, 1e-6)
            assert problem is None, f"after {name}: {problem}\n{d.text}{d.sizes}"

    each(part, check)


@pytest.mark.parametrize("part", range(PARTS))
def test_the_cpu_target_gives_what_the_reference_gives(part: int) -> None:
    def check(d: Drawn) -> None:
        arguments = d.arguments()
        kernel = tilec.compile(d.text, target="cpu", tile={"i": 16, "j": 8})
        want = kernel.reference(**arguments)
        got = kernel(**arguments)
        names = [o.name for o in kernel.outputs]
        results, expected = by_name(names, got), by_name(names, want)
        largest = [float(np.abs(w[np.isfinite(w)]).max(initial=0)) for w in expected.values()]
        scale = max(1.0, *largest)
        problem = difference(results, expected, 2e-4 * scale, 2e-4)
        assert problem is None, f"{problem}\n{d.text}{d.sizes}"

    each(part, check)


def test_the_programs_that_are_drawn_differ() -> None:
    texts: set[str] = set()
    for part in range(PARTS):
        each(part, lambda d: texts.add(d.text))
    assert len(texts) > EXAMPLES // 2
