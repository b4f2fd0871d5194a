"""How many rows tiles have: more where each converts what it reads, fewer where threads would wait for the last ones."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import tilec
from tilec.backend import pieces
from tilec.dtypes import DType
from tilec.ir import Grid
from tilec.rows import choose
from tilec.target import CPU, CUDA, REFERENCE, Target

EXAMPLES = Path(__file__).parents[1] / "examples"
SIZES = {"B": 1, "H": 8, "HK": 8, "M": 1024, "N": 1024, "D": 64, "E": 64}


def extents(
    name: str, dtype: DType = "f16", target: Target = CPU, workers: int = 4, **sizes: int
) -> dict[str, int] | None:
    """What is chosen for an example."""
    kernel = tilec.load(EXAMPLES / f"{name}.tile")
    known = {d: n for d, n in SIZES.items() if d in kernel.dims}
    online = dict(kernel.stages(dtype=dtype, sizes=known))["online"]
    scalars = {n: a.default for n, a in online.arguments.items() if isinstance(a.default, int)}
    found = choose(online, {**SIZES, **scalars, **sizes}, target, workers)
    return None if found is None else dict(found.extents)


TALL = {"i": 256}


@pytest.mark.parametrize(
    ("name", "want"),
    [
        ("naive", TALL),
        ("causal", TALL),
        ("sink", TALL),
        ("document", None),  # data say which blocks there are
        ("prefix", None),  # one comparison or the other: no panel is trimmed
        ("chunked", None),
        ("rope", TALL),
        ("paged", None),
    ],
)
def test_which_programs_have_tall_tiles(name: str, want: dict[str, int] | None) -> None:
    assert extents(name) == want


@pytest.mark.parametrize(
    ("dtype", "target", "workers", "sizes", "want"),
    [
        ("bf16", CPU, 4, {}, TALL),
        ("f32", CPU, 4, {}, None),
        ("bf16", CUDA, 4, {}, None),
        ("bf16", REFERENCE, 4, {}, None),
        ("bf16", CPU, 8, {}, None),  # 32 of them are too few for four threads
        ("bf16", CPU, 8, {"H": 16}, TALL),
        ("bf16", CPU, 1, {"M": 128}, None),  # one tile of the usual rows does
        ("bf16", CPU, 1, {"M": 129}, TALL),
        ("bf16", CPU, 4, {"D": 256, "E": 256}, TALL),
        ("bf16", CPU, 4, {"D": 257, "E": 64}, None),  # the cache does not hold it
    ],
)
def test_when_tiles_are_tall(
    dtype: DType, target: Target, workers: int, sizes: dict[str, int], want: dict[str, int] | None
) -> None:
    assert extents("causal", dtype, target, workers, **sizes) == want


@pytest.mark.parametrize(
    ("threads", "sizes", "want"),
    [
        (16, {"M": 1024, "H": 8}, 64),
        (16, {"M": 1024, "H": 4}, 64),
        (16, {"M": 4096, "H": 8}, None),
        (16, {"M": 4096, "H": 4}, None),
        (16, {"M": 1024, "H": 1}, None),  # fewer than threads: the keys are cut in pieces
        (64, {"M": 1024, "H": 8}, 32),
        (2, {"M": 1024, "H": 4}, None),
        (1, {"M": 256, "H": 1}, None),
        (16, {"M": 1024, "H": 4, "D": 768}, None),  # smaller anyway: the cache does not hold more
    ],
)
def test_threads_that_would_wait_have_smaller_tiles(threads, sizes, want) -> None:
    found = extents("causal", "f32", workers=pieces(threads) or 1, **sizes)
    assert found == (None if want is None else {"i": want})


BLOCKS = """
kernel blocks(Q[B, H, M, D], K[B, H, N, D], V[B, H, N, E], map: i32[X, Y]) -> O[b, h, i, e]:
    S = sum[d](Q[b, h, i, d] * K[b, h, j, d])
    O = sum[j](softmax[j](S if map[i // 64, j // 64] > 0 else -inf) * V[b, h, j, e])
"""


def test_blocks_that_data_looks_up_decide_on_the_rows() -> None:
    kernel = tilec.compile(BLOCKS)
    sizes = {d: n for d, n in SIZES.items() if d != "HK"} | {"X": 16, "Y": 16}
    online = dict(kernel.stages(dtype="f32", sizes=sizes))["online"]
    assert choose(online, sizes, CPU, 256) is None


def test_calls_with_many_rows_take_tall_tiles() -> None:
    kernel = tilec.load(EXAMPLES / "causal.tile", target="cpu", schedule={"workers": 1})
    rng = np.random.default_rng(0)
    for m, want in ((128, 128), (300, 256)):
        q, k, v = (rng.standard_normal((1, 2, m, 16)).astype(np.float16) for _ in range(3))
        grids = [op for op in kernel.plan(q, k, v).ir.body if isinstance(op, Grid)]
        assert [dict(g.axes)["i"] for g in grids] == [want]
        np.testing.assert_allclose(kernel(q, k, v), kernel.reference(q, k, v), 2e-3, 2e-3)
