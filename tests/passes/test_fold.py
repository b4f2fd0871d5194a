"""Heads and positions as one axis: the program means what it did, and is taken where that saves tiles."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import tilec
from tilec import pipeline, rows
from tilec.backends.cuda.hopper import compile as hopper
from tilec.backends.cuda.hopper.schedule import Schedule
from tilec.backends.reference.interpreter import run
from tilec.ir import Kernel
from tilec.passes.fold import Options, fold
from tilec.target import CUDA
from tilec.verify import verify

HEAD = "kernel f(Q[B, H, M, D], K[B, HK, N, D], V[B, HK, N, D]{more}) -> O[b, h, i, d]{out}:\n"
SCORES = "    S = sum[d](Q[b, h, i, d] * K[b, h // (H // HK), j, d]) / sqrt(D)\n"
VALUES = "    O = sum[j](softmax[j](S) * V[b, h // (H // HK), j, d])\n"


def program(middle: str, more: str = "", out: str = "", last: str = "") -> str:
    return HEAD.format(more=more, out=out) + SCORES + middle + VALUES + last


PROGRAMS = {
    "causal": program("    S = S if j <= i + N - M else -inf\n"),
    "window": program("    S = S if i + N - M - 5 < j and j <= i + N - M else -inf\n"),
    "slopes": program("    S = S + s[h] * (j - i)\n", ", s[H]"),
    "labels": program(
        "    S = S if q[b, i] == k[b, j] else -inf\n", ", q: i32[B, M], k: i32[B, N]"
    ),
    "lengths": program(
        "    S = S if j < n[b, h] else -inf\n",
        ", n: i32[B, H]",
        ", L: f32[b, h, i]",
        "    L = logsumexp[j](S)\n",
    ),
    "one for all": "kernel f(Q[B, H, M, D], K[B, N, D]) -> O[b, h, i, d]:\n"
    "    S = sum[d](Q[b, h, i, d] * K[b, j, d])\n"
    "    O = sum[j](softmax[j](S if j <= i + N - M else -inf) * K[b, j, d])\n",
    "turned": "kernel f(Q[M, H, D], K[N, HK, D]) -> O[i, h, d]:\n"
    "    S = sum[d](Q[i, h, d] * K[j, h // (H // HK), d])\n"
    "    O = sum[j](softmax[j](S) * K[j, h // (H // HK), d])\n",
}


def online(text: str) -> tuple[tilec.Kernel, Kernel]:
    """A program, and in groups."""
    kernel = tilec.compile(text)
    ir = kernel._versions.for_types(dict.fromkeys(kernel._source.untyped, "f16")).lowered
    return kernel, pipeline.run(ir, pipeline.tensor_pipeline())


def known(kernel: Kernel, **sizes: int) -> dict[str, int]:
    """The sizes that a kernel has."""
    return {d: sizes[d] for d in kernel.dims}


def chosen(kernel: Kernel, **sizes: int) -> Options | None:
    """What is made one axis for some sizes."""
    found = rows.choose(kernel, known(kernel, **sizes), CUDA)
    return found.fold if found else None


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize(("heads", "positions"), [((6, 2), 3), ((4, 1), 2), ((14, 2), 5)])
def test_the_results_are_the_same(name: str, heads: tuple[int, int], positions: int) -> None:
    kernel, groups = online(PROGRAMS[name])
    sizes = {"B": 2, "H": heads[0], "HK": heads[1], "M": positions, "N": 21, "D": 16}
    sizes = known(groups, **sizes)
    packed = rows.choose(groups, sizes, CUDA)
    assert packed is not None
    assert packed.fold is not None
    arrays: dict[str, Any] = kernel.sample(1, dtype="f16", **sizes)
    want = run(groups, arrays).outputs
    steps = hopper.steps(groups, sizes, Schedule(1, 16, relax=False), packed)
    for level, made in pipeline.stages(groups, steps, sizes=sizes):
        if level in ("fold", "place"):
            got = run(made, arrays).outputs
            for n, w in want.items():
                np.testing.assert_allclose(got[n], w, rtol=1e-6, atol=1e-6, err_msg=level)


def test_keys_are_looked_up_by_the_group() -> None:
    _, groups = online(PROGRAMS["causal"])
    fixed = pipeline.module("specialise").Options({"H": 12, "HK": 2, "D": 16})
    groups = pipeline.module("specialise").specialise(groups, fixed)
    verify(made := fold(groups, Options("h", "i", 3)))
    text = tilec.text.show(made)
    assert "load(V, b, t" in text  # heads 0 to 5 have the same keys: two groups of three
    assert "floordiv(h_u, 2)" in text
    assert "load(V, b, h_u, j, d)" in tilec.text.show(fold(groups, Options("h", "i", 6)))


@pytest.mark.parametrize(
    ("sizes", "group"),
    [
        ({"M": 4}, 4),
        ({"M": 32}, 4),
        ({"M": 33}, None),  # three tiles in place of four
        ({"M": 1}, None),  # heads are the rows
        ({"M": 4, "H": 8, "HK": 8}, None),
        ({"M": 2, "H": 14, "HK": 2}, 7),
        ({"M": 2, "H": 256, "HK": 1}, 64),
        ({"M": 4, "H": 7, "HK": 2}, None),  # a head is left
        ({"M": 0}, None),
        ({"M": 4, "H": 0}, None),
    ],
)
def test_where_it_is_taken(sizes: dict[str, int], group: int | None) -> None:
    _, groups = online(PROGRAMS["causal"])
    found = chosen(groups, **({"B": 1, "H": 8, "HK": 2, "N": 50, "D": 16} | sizes))
    assert (found and found.group) == group
    cpu = pipeline.target_of("cpu")
    on_cpu = rows.choose(groups, known(groups, B=1, H=8, HK=2, M=4, N=50, D=16), cpu)
    assert on_cpu is None or on_cpu.fold is None


@pytest.mark.parametrize(
    ("middle", "more"),
    [("    S = S + t[h, j]\n", ", t[H, N]"), ("    S = S + t[i, j]\n", ", t[M, N]")],
)
def test_rows_that_look_up_their_own_columns_stay(middle: str, more: str) -> None:
    _, groups = online(program(middle, more))
    assert chosen(groups, B=1, H=8, HK=2, M=4, N=50, D=16) is None


def test_a_chosen_tile_of_heads_is_taken() -> None:
    from tilec.cut import Cutter

    _, groups = online(PROGRAMS["causal"])
    sizes = known(groups, B=1, H=8, HK=2, M=4, N=50, D=16)
    cutter = Cutter.of(groups, "cuda:sm_90a")
    assert cutter(sizes, {}, {}, {}).packed is not None
    assert cutter(sizes, {}, {"h": 2}, {}).packed is None
    assert cutter(sizes, {}, {"j": 32}, {}).packed is not None
    assert cutter(sizes, {}, {}, {}).key != cutter(sizes | {"M": 1}, {}, {}, {}).key


def test_without_axes_nothing_changes() -> None:
    _, groups = online(PROGRAMS["causal"])
    assert fold(groups) is groups
    assert replace(Options(), group=2).heads is None
