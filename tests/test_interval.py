"""What is said of a condition over a window against all its positions: sound always, exact where intervals can be."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.generated import PARAMETERS, Drawn, masks
from tilec.backends.reference.interpreter import run
from tilec.check import check, lower
from tilec.dataflow import definitions
from tilec.folding import FoldingBuilder
from tilec.interval import Intervals
from tilec.ir import Grid, Group, Kernel, Op, Operand, Output, Store, Type, Value, Yield
from tilec.parse import parse
from tilec.passes.simplify import simplify
from tilec.passes.tile import Options, tile
from tilec.renaming import fresh, used_names

TILES = {"b": 1, "h": 1, "i": 4, "j": 4}
AXES = ("b", "h", "i", "j")


def classified(mask: str, stream: str | None = None) -> Kernel:
    """A kernel that gives a mask, and what the analysis says of it over each tile of 4 by 4 positions.

    With `stream="j"` values along j may not be looked at, as in a loop for which there are no summaries.
    """
    text = f"{PARAMETERS} -> C: bool[b, h, i, j]:\n    axis h < H\n    axis b < B\n    axis i < M\n    axis j < N\n"
    program = parse(text + f"    C = {mask}\n")
    check(program)
    kernel = lower(program, "drawn", dict.fromkeys("QKV", "f32"))
    kernel = tile(_grouped(simplify(kernel)), Options(TILES))
    return replace(
        kernel,
        outputs=(*kernel.outputs, Output("must", "bool", AXES), Output("may", "bool", AXES)),
        body=tuple(
            _with_truth(kernel, op, stream) if isinstance(op, Grid) and _stores(op) else op
            for op in kernel.body
        ),
    )


def _grouped(kernel: Kernel) -> Kernel:
    """All of it as one group over b, h, i and j."""
    *ops, store = kernel.body
    assert isinstance(store, Store)
    whole = Value(fresh("C", used_names(kernel)), Type("bool", AXES, (), "hbm"))
    group = Group((whole,), axes=AXES, body=(*ops, Yield((), (store.value,))))
    return replace(kernel, body=(group, replace(store, value=whole.name)))


def _stores(grid: Grid) -> bool:
    return any(isinstance(op, Store) and op.tensor == "C" for op in grid.body)


def _with_truth(kernel: Kernel, grid: Grid, stream: str | None) -> Grid:
    outside = definitions(kernel.body)
    emit = FoldingBuilder(kernel, used_names(kernel), dict(grid.axes))
    windows = {a for a, n in grid.axes if n > 1}
    intervals = Intervals(
        emit, {**outside, **definitions(grid.body)}, set(outside), windows, stream
    )
    value: Operand = next(
        op.value for op in grid.body if isinstance(op, Store) and op.tensor == "C"
    )
    truth = intervals.truth(value)
    stores: list[Op] = [
        Store((), n, AXES, x) for n, x in (("must", truth.must), ("may", truth.may))
    ]
    return replace(grid, body=(*grid.body, *emit.ops, *stores))


def tiles_of(kernel: Kernel, drawn: Drawn) -> list[tuple[bool, bool, bool, bool]]:
    """(true everywhere, true somewhere, must, may) of each tile."""
    given = drawn.arguments()
    arrays = {n: np.asarray(given[n]) for n in kernel.tensors}
    outputs = run(kernel, arrays, {n: given[n] for n in kernel.arguments}).outputs
    c, must, may = (np.asarray(outputs[n], bool) for n in ("C", "must", "may"))
    found = []
    for b, h in np.ndindex(c.shape[:2]):
        for i in range(0, c.shape[2], 4):
            for j in range(0, c.shape[3], 4):
                at = (b, h, slice(i, i + 4), slice(j, j + 4))
                found.append((c[at].all(), c[at].any(), must[b, h, i, j], may[b, h, i, j]))
    return found


def data(seed: int, m: int = 13, n: int = 18) -> Drawn:
    sizes = {"B": 2, "H": 1, "HK": 1, "M": m, "N": n, "D": 1, "E": 1, "R": 11}
    return Drawn("", sizes, seed)


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(masks(3), st.integers(0, 2**31), st.sampled_from([None, "j"]))
def test_sound(mask, seed, stream):
    for everywhere, somewhere, must, may in tiles_of(classified(mask, stream), data(seed)):
        assert everywhere or not must
        assert may or not somewhere


@st.composite
def comparisons(draw: st.DrawFn) -> str:
    """A comparison that is linear in i and j."""
    a, b = draw(st.integers(-3, 3)), draw(st.integers(-3, 3))
    rest = draw(st.sampled_from(["3", "w", "N - M", "len[b]", "-7"]))
    sign = draw(st.sampled_from(["<", "<=", ">", ">="]))
    return f"{a} * i + {rest} {sign} {b} * j"


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(comparisons(), st.integers(0, 2**31))
def test_exact_for_linear_comparisons(mask, seed):
    for everywhere, somewhere, must, may in tiles_of(classified(mask, "j"), data(seed)):
        assert (everywhere, somewhere) == (must, may)


@settings(max_examples=30, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(comparisons(), min_size=2, max_size=3), st.integers(0, 2**31))
def test_conjunctions_of_linear_comparisons_are_seen_to_hold(parts, seed):
    for everywhere, _, must, _ in tiles_of(
        classified(" and ".join(f"({p})" for p in parts), "j"), data(seed)
    ):
        assert everywhere == must


@pytest.mark.parametrize(
    "mask",
    [
        "j <= i and i - w < j",
        "i // 4 == j // 4",
        "i // 2 <= j // 2",
        "j % 8 < 4",
        "i % w == i % w",
        "i - i + j < 7",
        "abs(i - j) < 4",
        "min(i, 8) >= j",
        "(i >> 2) == (j >> 2)",
        "(j & 4) == 0",
        "(i ^ j) < 4",
        "(i | 3) < 12",
        "row[b, i] >= 0",
        "row[b, i] >= 0 and wide[i]",
        "i < len[b]",
        "any[t](order[t] == i and t <= i)",
        "i * 0.5 < j",
        "len[b] * 1.0 > j",
        "doc[b, i // 4 * 0 + j // 4] >= 2",
        "false",
    ],
)
def test_exact(mask):
    """Conditions that the analysis decides wherever the tile does."""
    for seed in range(3):
        for everywhere, somewhere, must, may in tiles_of(classified(mask), data(seed, 16, 16)):
            assert (everywhere, somewhere) == (must, may)
