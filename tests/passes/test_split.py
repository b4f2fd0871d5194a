"""Split keys: the pieces and their merge give what the whole loop gives."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, seed, settings

import tilec
from tests.backends.cpu.lowering import on_cpu
from tests.generated import Drawn, programs
from tests.passes.cases import load
from tests.test_differential import EXAMPLES, difference, levels, several
from tilec import pipeline
from tilec.backends.reference.interpreter import run
from tilec.errors import ArgumentError, UnsupportedError
from tilec.ir import For, Grid, Kernel, Yield, walk
from tilec.outline import outline
from tilec.passes.place import place
from tilec.passes.split import Options, split
from tilec.reader import read
from tilec.renaming import substitute
from tilec.scalar import evaluate
from tilec.text import show
from tilec.traffic import budget
from tilec.verify import verify

GQA = """kernel gqa(Q[B, H, M, D], K[B, HK, N, D], V[B, HK, N, E], len: i32[B]) -> O[b, h, i, e], L: f32[b, h, i]:
    S = sum[d](Q[b, h, i, d] * K[b, h // (H // HK), j, d]) / sqrt(D)
    S = S if j < len[b] else -inf
    O = sum[j](softmax[j](S) * V[b, h // (H // HK), j, e])
    L = logsumexp[j](S)
"""


def pruned(text: str, tile: Mapping[str, int], **sizes: int) -> Kernel:
    """A program in small tiles."""
    kernel = tilec.compile(text, target="cpu", tile=tile)
    return dict(kernel.stages(sizes=sizes))["prune"]


def parts(arguments: Mapping[str, Any]) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """Arrays and scalars apart."""
    arrays = {n: x for n, x in arguments.items() if isinstance(x, np.ndarray)}
    return arrays, {n: x for n, x in arguments.items() if n not in arrays}


def gqa(seed: int = 0, **sizes: int) -> dict[str, np.ndarray]:
    """Data for GQA with lengths from none to all."""
    s = {"B": 3, "H": 4, "HK": 2, "M": 2, "N": 37, "D": 3, "E": 5, **sizes}
    rng = np.random.default_rng(seed)
    shapes = {"Q": "BHMD", "K": ("B", "HK", "N", "D"), "V": ("B", "HK", "N", "E")}
    out = {n: rng.standard_normal([s[d] for d in dims]) for n, dims in shapes.items()}
    out["len"] = np.array([0, s["N"] // 2, s["N"] + 3], np.int32)[: s["B"]]
    return out


def is_split(kernel: Kernel) -> bool:
    """Whether some axis of a kernel counts pieces."""
    return any(a.extent in kernel.arguments and "_p" in a.name for a in kernel.axes)


# ---- the same results


@pytest.mark.parametrize("part", range(3))
def test_pieces_give_what_the_whole_gives(part: int) -> None:
    several_splits = (
        Options(pieces=3),
        Options(pieces=3, products=True),
        Options(workers=16, least=1, window=1),
    )

    def check(d: Drawn) -> None:
        arrays, scalars = parts(d.arguments())
        spoilt = {n: x.copy() for n, x in arrays.items()}
        for n, bad in (("K", np.nan), ("V", np.nan), ("Q", np.inf)):
            flat = spoilt[n].reshape(-1)
            flat[d.seed % 7 :: 11] = bad
        kernel = dict(levels(d))["prune"]
        for options in several_splits:
            cut = split(kernel, options)
            verify(cut)
            assert read(show(cut)) == [cut]
            assert is_split(cut), show(cut)
            for given_ in (arrays, spoilt):
                want = run(kernel, given_, scalars).outputs
                got = run(cut, given_, scalars).outputs
                problem = difference(got, want, 1e-8, 1e-6)
                assert problem is None, f"{problem}\n{d.text}{d.sizes}"

    seed(100 + part)(several(given(programs())(check)))()


@pytest.mark.parametrize("n", [0, 1, 3, 4, 37])
def test_any_number_of_pieces(n: int) -> None:
    kernel = pruned(GQA, {"i": 2, "j": 4}, D=3, E=5)
    cut = split(kernel, Options(pieces=2))
    arrays = gqa(N=n)
    want = run(kernel, arrays).outputs
    for pieces in (1, 2, 3, 7, 40):
        got = run(cut, arrays, {"j_pieces": pieces}).outputs
        assert difference(got, want, 1e-12, 1e-12) is None
    assert np.isneginf(want["L"][0]).all()
    assert not want["O"][0].any()


def test_no_rows() -> None:
    kernel = pruned(GQA, {"i": 2, "j": 4}, D=3, E=5)
    got = run(split(kernel, Options(workers=8)), gqa(M=0)).outputs
    assert got["O"].shape == (3, 4, 0, 5)


def test_the_order_of_pieces_does_not_matter() -> None:
    """Pieces of very different size of score: the reference of the first one is far below that of the last, and back."""
    kernel = pruned(GQA, {"i": 2, "j": 4}, D=3, E=5)
    cut = split(kernel, Options(pieces=5))
    arrays = gqa()
    for sign in (1, -1):
        arrays["K"] = gqa()["K"] * np.linspace(1, 400, 37)[::sign, None]
        want = run(kernel, arrays).outputs
        assert difference(run(cut, arrays).outputs, want, 1e-9, 1e-9) is None


# ---- what it costs


def test_no_window_is_visited_twice_and_bytes_are_as_stated() -> None:
    kernel = pruned(GQA, {"i": 2, "j": 4}, D=3, E=5)
    cut = split(kernel, Options(pieces=3))
    arrays = gqa()
    sizes = {"B": 3, "H": 4, "HK": 2, "M": 2, "N": 37}
    whole, pieces = run(kernel, arrays).traffic, run(cut, arrays).traffic
    names = {v.name for op in walk(cut.body) for v in op.results if v.name.startswith(("k", "v"))}
    assert sum(pieces.reads[n] for n in names) == sum(whole.reads[n] for n in names)
    stated = budget(cut, sizes, {}, arrays).traffic
    assert stated == pieces


@pytest.mark.parametrize("length", [0, 5, 16, 37])
def test_pieces_share_what_is_left_of_the_axis(length: int) -> None:
    """Each piece of a short sequence gets the same number of windows, though the axis is long."""
    kernel = pruned(GQA, {"i": 2, "j": 4}, D=3, E=5)
    cut = split(kernel, Options(pieces=3))
    arrays = gqa(B=1, H=1, HK=1)
    arrays["len"][:] = length
    alone = [_only(cut, arrays, p) for p in range(3)]
    windows = -(-length // 4)
    most = -(-windows // 3)
    assert sum(alone) == windows
    assert max(alone) == most


def _only(cut: Kernel, arrays: Mapping[str, np.ndarray], piece: int) -> int:
    """The windows that one piece visits: its grid, with the position of the piece a number."""
    grid = next(op for op in cut.body if isinstance(op, Grid))
    axes = tuple((a, n) for a, n in grid.axes if a != "j_p")
    once = replace(grid, axes=axes, body=substitute(grid.body, {"j_p": piece}))
    ends = [op.body[-1] for op in once.body if isinstance(op, For)]
    kept = tuple(op for op in once.body if op.results)
    above = tuple(op for op in cut.body if not isinstance(op, Grid))
    kernel = replace(cut, outputs=(), body=(*above, replace(once, body=kept)))
    steps = run(kernel, arrays).work.steps
    return sum(steps[str(e.values[0])] for e in ends if isinstance(e, Yield))


# ---- when


@pytest.mark.parametrize(
    ("rows", "keys", "workers", "pieces"),
    [
        (1, 65536, 8, 4),
        (1, 9000, 8, 2),
        (1, 100, 8, 1),
        (256, 4096, 8, 2),
        (512, 4096, 8, 1),
        (128, 64, 8, 1),
        (0, 4096, 8, 1),
        (1, 0, 8, 1),
    ],
)
def test_how_many_pieces(rows: int, keys: int, workers: int, pieces: int) -> None:
    """As many as give each worker a tile, of at least 4096 pairs each; with one, the kernel is left whole."""
    kernel = pruned(GQA, {"i": 128, "j": 128}, D=3, E=5)
    argument = split(kernel, Options(workers=workers)).arguments["j_pieces"]
    assert argument.default is not None
    sizes = {"B": 1, "H": 2, "HK": 1, "M": rows, "N": keys}
    assert evaluate(argument.default, sizes) == pieces
    found = pipeline.module("split").pieces(kernel, Options(workers=workers))
    assert outline(kernel, found).cut(sizes) == (pieces > 1)


def test_a_loop_that_does_not_combine_says_why() -> None:
    (case,) = [c for c in load(Path(__file__).parent / "split.ir") if "forgets" in c.title]
    notes = [op.note for op in walk(case.passed().body) if isinstance(op, For)]
    assert notes == ["not split: what is carried is multiplied by 0.5, which is no exponential"]


def test_without_options_nothing_happens() -> None:
    kernel = pruned(GQA, {"i": 2, "j": 4}, D=3, E=5)
    assert split(kernel) is kernel
    assert pipeline.parse("split:pieces=3") == (pipeline.step("split", pieces=3),)


# ---- on the CPU


@pytest.mark.parametrize("part", range(2))
def test_the_cpu_gives_what_the_reference_gives(part: int) -> None:
    def check(d: Drawn) -> None:
        arrays, scalars = parts(d.arguments())
        stages = dict(levels(d))
        want = run(stages["lower"], arrays, scalars).outputs
        cut = place(split(stages["prune"], Options(pieces=3)))
        largest = [float(np.abs(w[np.isfinite(w)]).max(initial=0)) for w in want.values()]
        scale = max(1.0, *largest)
        problem = difference(on_cpu(cut, arrays, scalars, None), want, 2e-4 * scale, 2e-4)
        assert problem is None, f"{problem}\n{d.text}{d.sizes}"

    some = settings(several, max_examples=-(-EXAMPLES // 60))
    seed(200 + part)(some(given(programs())(check)))()


def test_the_cpu_splits_few_rows_and_compiles_once() -> None:
    kernel = tilec.compile(GQA, target="cpu", schedule={"workers": 16})
    first = {**gqa(N=9000), "len": np.array([0, 5000, 9000], np.int32)}
    second = {**gqa(N=20011), "len": np.array([20011, 1, 9000], np.int32)}
    plans = []
    for arguments in (first, second):
        arguments = {n: x.astype("f4") if n != "len" else x for n, x in arguments.items()}
        plans.append(kernel.plan(**arguments))
        got, want = kernel(**arguments), kernel.reference(**arguments)
        for g, w in zip(got, want, strict=True):
            np.testing.assert_allclose(g, w, 2e-5, 2e-5)
    assert is_split(plans[0].ir)
    assert plans[0].ir is plans[1].ir
    assert plans[0].run is plans[1].run


def test_the_cpu_leaves_many_tiles_and_short_axes_whole() -> None:
    kernel = tilec.compile(GQA, target="cpu", schedule={"workers": 12})
    for length in (9000, 300):
        arguments = {n: x.astype("f4") if n != "len" else x for n, x in gqa(N=length).items()}
        assert not is_split(kernel.plan(**arguments).ir)
        kernel = tilec.compile(GQA, target="cpu", schedule={"workers": 99})


@pytest.mark.parametrize(
    ("schedule", "error", "words"),
    [
        ({"stages": 2}, ArgumentError, "target cpu has no field 'stages'; it has workers"),
        ({"workers": 0}, ArgumentError, "workers is 0, expected a number from 1"),
        ({"workers": True}, ArgumentError, "workers is True"),
    ],
)
def test_what_a_schedule_may_say(
    schedule: dict[str, Any], error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=words):
        tilec.compile(GQA, target="cpu", schedule=schedule)


def test_the_reference_has_no_schedule() -> None:
    with pytest.raises(UnsupportedError, match="no schedule fields"):
        tilec.compile(GQA, target="reference", schedule={"workers": 2})
