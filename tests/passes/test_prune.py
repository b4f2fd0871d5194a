"""Which windows a pruned loop visits, and in which of them it looks at the condition."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

import tilec
from tilec import pipeline
from tilec.backends.reference.interpreter import run
from tilec.check import check, lower
from tilec.ir import Body, Buffer, For, Grid, If, Kernel, Load, Map, regions, walk
from tilec.parse import parse
from tilec.verify import verify

TILE = 8
PROGRAM = """
kernel masked(Q[B, H, M, D], K[B, H, N, D], V[B, H, N, E], len: i32[B], row: i32[B, M], doc: i32[B, N],
              off: i32[T], wide: bool[N], map: bool[H, R, R], pick: i32[B, H, R, 2], page: i32[B, P],
              w: int = 11, big: float = 9.5) -> O[b, h, i, e]:
    S = sum[d](Q[b, h, i, d] * K[b, h, j, d])
    O = sum[j](softmax[j](S if {mask} else -inf) * V[b, h, j, e])
"""

Visits = tuple[int, int, int, int, int]


def pruned(mask: str, tile: int = TILE, *, apart: bool = False) -> tuple[Kernel, Kernel]:
    """The program before it is tiled, and pruned tiles."""
    program = parse(PROGRAM.format(mask=mask))
    check(program)
    whole = lower(program, "masked", dict.fromkeys("QKV", "f32"))
    whole = pipeline.run(whole, pipeline.tensor_pipeline())
    steps = f"specialise:D=2:E=96,tile:i={tile}:j={tile},prune:apart={apart},place"
    return whole, pipeline.run(whole, pipeline.parse(steps))


def arguments(
    kernel: Kernel, m: int = 44, n: int = 48
) -> tuple[dict[str, np.ndarray], dict[str, float]]:
    """Data of which the output is the weights themselves: no score differs, and V is the unit matrix."""
    rng = np.random.default_rng(1)
    blocks = -(-max(m, n) // 16)
    arrays = {
        "Q": np.zeros((2, 2, m, 2), np.float32),
        "K": np.zeros((2, 2, n, 2), np.float32),
        "V": np.broadcast_to(np.eye(n, 96, dtype=np.float32), (2, 2, n, 96)),
        "len": np.array([n - 9, 5], np.int32),
        "row": np.sort(rng.integers(0, 5, (2, m)), 1).astype(np.int32),
        "doc": np.sort(rng.integers(0, 5, (2, n)), 1).astype(np.int32),
        "off": np.array([0, 7, 8, 31], np.int32),
        "wide": np.arange(n) == 17,
        "map": rng.random((2, blocks, blocks)) < 0.2,
        "pick": rng.integers(-1, blocks, (2, 2, blocks, 2)).astype(np.int32),
        "page": rng.permutation(np.arange(-3, 9))[None].repeat(2, 0).astype(np.int32),
    }
    return {t: arrays[t] for t in kernel.tensors}, {"w": 11, "big": 9.5}


def visits(mask: str, m: int = 44, n: int = 48, tile: int = TILE) -> Visits:
    """Keys of the windows that hold a key which counts, of those visited, of the full ones, of those run as such.

    The last number is of all windows.
    """
    whole, tiles = pruned(mask, tile)
    arrays, scalars = arguments(whole, m, n)
    want = run(whole, arrays, scalars).outputs["O"]
    outcome = run(tiles, arrays, scalars)
    np.testing.assert_allclose(outcome.outputs["O"], want, 1e-12, 1e-12)
    seen = np.asarray(want)[..., :n] > 0
    live = full = all = 0
    for i in range(0, m, tile):
        for j in range(0, n, tile):
            block = seen[:, :, i : i + tile, j : j + tile]
            live += block.any((2, 3)).sum() * block.shape[3]
            full += block.all((2, 3)).sum() * block.shape[3]
            all += 4 * block.shape[3]
    reads = {k: v // 8 for k, v in outcome.traffic.reads.items()}  # two floats for each key
    bodies = [
        (name, plain) for op in tiles.body if isinstance(op, Grid) for name, plain in loads(op.body)
    ]
    visited = sum(reads.get(name, 0) for name, _ in bodies)
    return live, visited, full, sum(reads.get(name, 0) for name, plain in bodies if not plain), all


def loads(body: Body) -> Iterator[tuple[str, bool]]:
    """The loads of keys in a body, and whether that body masks its scores."""
    masks = any(
        isinstance(op, Map) and op.fn == "select" and float("-inf") in op.args for op in body
    )
    for op in body:
        if isinstance(op, Load) and op.tensor == "K":
            yield op.result.name, masks
        for region in regions(op):
            yield from loads(region)


EXACT = [
    "j <= i",
    "j <= i + N - M",
    "j > i",
    "i - w < j <= i",
    "i - w <= j <= i + w",
    "abs(i - j) <= w",
    "j < len[b]",
    "i < len[b] and j < len[b]",
    "j <= i or j < len[b]",
    "i // 12 == j // 12",
    "i // w == j // w",
    "j // 8 <= i // 8",
    "j < (i + 1) // 2",
    "min(i, 20) >= j",
    "j <= max(i, 9)",
    "row[b, i] == doc[b, j]",
    "row[b, i] == doc[b, j] and j <= i",
    "off[row[b, i] % 4] <= j <= i",
    "wide[j] or abs(i - j) < 4",
    "not wide[j] and j <= i",
    "map[h, i // 16, j // 16]",
    "map[h, i // 16, j // 16] and j < len[b]",
    "any[t](pick[b, h, i // 16, t] == j // 16)",
    "page[b, j // 4] >= 0",
    "(i ^ j) < 16",
    "i * 0.5 < j - big",
    "false",
    "true",
]


@pytest.mark.parametrize("mask", EXACT)
def test_visits_what_counts_and_no_more(mask):
    live, visited, full, plain, _ = visits(mask)
    assert visited == live
    assert plain == full


LOOKED_UP = [
    "map[h, i // 16, j // 16]",
    "map[h, (i + 5) // 17, (j + 3) // 19]",
    "map[h, i >> 4, j >> 4] or i // 16 == j // 16",
    "any[t](pick[b, h, i // 16, t] == j // 16)",
    "map[h, i // (w + 5), j // (w + 5)]",
]


@pytest.mark.parametrize("mask", LOOKED_UP)
def test_blocks_of_data_smaller_than_the_tiles(mask):
    live, visited, full, plain, all = visits(mask, 90, 90, tile=24)
    assert visited == live < all
    assert plain == full


def test_blocks_too_short_to_be_sampled_are_visited():
    for mask in (
        "map[h, i // w, j // w]",
        "map[h, i // 7 % 3, j // 7 % 3]",
        "map[h, i // 16, j // 16 + j % 2]",
    ):
        _, visited, _, _, all = visits(mask, 90, 90, tile=24)
        assert visited > all // 2


@pytest.mark.parametrize("n", [0, 1, 7, 8, 9, 47])
def test_ragged_ends(n):
    live, visited, _, _, _ = visits("j <= i + 2 and (wide[j] or j < len[b])", 5, n)
    assert visited == live


@pytest.mark.parametrize(
    "mask",
    [
        "i % 3 == j % 3 and j <= i",
        "abs(i - j) % 2 == 0 and abs(i - j) < 9",
        "uniform(w, i, j) < 0.5 and j <= i",
    ],
)
def test_what_no_window_decides_leaves_the_rest_pruned(mask):
    live, visited, _, _, all = visits(mask)
    assert visited == live < all


def code(mask: str) -> tuple[int, int]:
    """How many loops over keys there are, and how many bodies that load keys."""
    _, tiles = pruned(mask)
    loops = sum(isinstance(op, For) and op.axis == "j" for op in walk(tiles.body))
    return loops, sum(isinstance(op, Load) and op.tensor == "K" for op in walk(tiles.body))


@pytest.mark.parametrize(
    ("mask", "loops", "bodies"),
    [
        ("true", 2, 2),
        ("j <= i", 2, 2),
        ("i - w < j <= i", 3, 3),
        ("row[b, i] == doc[b, j]", 2, 3),
        ("wide[j]", 2, 3),
    ],
)
def test_how_much_code_there_is(mask, loops, bodies):
    assert code(mask) == (loops, bodies)


LABELS = "row[b, i] == doc[b, j]"


@pytest.mark.parametrize("apart", [False, True])
def test_windows_whose_labels_are_alike_are_apart(apart: bool) -> None:
    """They do not look at them, also where they look at positions."""
    whole, tiles = pruned(f"{LABELS} and j <= i", apart=apart)
    arrays, scalars = arguments(whole)
    outcome, want = run(tiles, arrays, scalars), run(whole, arrays, scalars).outputs["O"]
    np.testing.assert_allclose(outcome.outputs["O"], want, 1e-12, 1e-12)
    same = arrays["row"][:, :, None] == arrays["doc"][:, None]
    count = same & np.tri(*same.shape[1:], dtype=bool)
    looking = 0
    for i in range(0, 44, TILE):
        for j in range(0, 48, TILE):
            some, all = count[:, i : i + TILE, j : j + TILE], (same if apart else count)
            alike = all[:, i : i + TILE, j : j + TILE].all((1, 2))
            looking += int((some.any((1, 2)) & ~alike).sum())
    loads = [op.result for op in walk(tiles.body) if isinstance(op, Load) and op.tensor == "doc"]
    reads = sum(outcome.traffic.reads[v.name] for v in loads if v.type.axes == ("j",))
    assert reads == looking * 2 * TILE * 4  # heads, positions, bytes


@pytest.mark.parametrize(
    ("mask", "bodies"),
    [
        (f"{LABELS} and j <= i", 4),
        (f"(j <= i or doc[b, j] == 2) and {LABELS}", 3),
        (LABELS, 3),
        ("j <= i", 2),
    ],
)
def test_nothing_is_apart_but_data_and_positions(mask: str, bodies: int) -> None:
    _, tiles = pruned(mask, apart=True)
    assert sum(isinstance(op, Load) and op.tensor == "K" for op in walk(tiles.body)) == bodies


def test_bounds_alone_need_no_test_in_the_loop():
    for mask in ("j <= i", "i - w < j <= i", "i < len[b] and j < len[b]"):
        _, tiles = pruned(mask)
        assert not any(isinstance(op, If) for op in walk(tiles.body))


def test_data_along_the_keys_is_summarised_once():
    """Two loops and two conditions, one grid of summaries."""
    _, tiles = pruned("row[b, i] == doc[b, j] and j <= i or doc[b, j] == 0 and i < 3")
    buffers = [op for op in tiles.body if not isinstance(op, Grid)]
    assert len(buffers) <= 4
    verify(tiles)


def test_summaries_are_no_larger_than_the_data():
    """With single rows a condition on a row and a key is not worked out for all of them beforehand."""
    program = parse(PROGRAM.format(mask="wide[j] or j <= i and row[b, i] > 0"))
    check(program)
    whole = lower(program, "masked", dict.fromkeys("QKV", "f32"))
    steps = "expand,simplify,contract,fuse,online,specialise:D=2:E=96,tile:i=1:j=8,prune"
    tiles = pipeline.run(whole, pipeline.parse(steps))
    assert {op.result.type.axes for op in tiles.body if isinstance(op, Buffer)} == {("j_w",)}


@pytest.mark.parametrize(
    "mask", ["(wide[j] or j <= i) and 2 < 2", "false and doc[b, j] == 1 or wide[j]"]
)
def test_conditions_that_are_known(mask):
    live, visited, _, _, _ = visits(mask, 9, 9)
    assert visited == live


def test_a_nan_that_is_masked_for_good_is_not_looked_at():
    """Blocks that are left out are not read, so that their NaN cannot matter."""
    whole, tiles = pruned("j < len[b]")
    arrays, scalars = arguments(whole)
    arrays["V"] = arrays["V"].copy()
    arrays["K"][:, :, -9:] = np.nan
    arrays["V"][:, :, -9:] = np.nan
    assert np.isfinite(run(tiles, arrays, scalars).outputs["O"]).all()


def test_a_nan_that_counts_is_kept():
    whole, tiles = pruned("j <= i")
    arrays, scalars = arguments(whole)
    arrays["K"][:, :, 20] = np.nan
    got = run(tiles, arrays, scalars).outputs["O"]
    assert np.isfinite(got[:, :, :20]).all()
    assert np.isnan(got[:, :, 20:]).all()
    np.testing.assert_array_equal(got, run(whole, arrays, scalars).outputs["O"])


def test_a_score_that_is_not_minus_infinity_where_masked_is_not_skipped():
    """Softcap after the mask makes -inf a finite score: every key counts."""
    text = PROGRAM.replace(
        "softmax[j](S if {mask} else -inf)", "softmax[j](5 * tanh((S if j <= i else -inf) / 5))"
    )
    program = parse(text)
    check(program)
    whole = pipeline.run(
        lower(program, "masked", dict.fromkeys("QKV", "f32")), pipeline.tensor_pipeline()
    )
    tiles = pipeline.run(whole, pipeline.parse(f"specialise:D=2:E=96,tile:i={TILE}:j={TILE},prune"))
    arrays, scalars = arguments(whole)
    want, got = (run(k, arrays, scalars).outputs["O"] for k in (whole, tiles))
    np.testing.assert_allclose(got, want, 1e-12, 1e-12)
    assert (want > 0).all(where=np.arange(96) < 48)


@pytest.mark.parametrize(
    "mask", ["e <= j", "e + 3 > j and j <= i", "e == j % E", "j // 8 == e // 2"]
)
@pytest.mark.parametrize("e", [96, 0])
def test_a_mask_of_columns_bounds_the_loop_for_all_of_them(mask: str, e: int) -> None:
    """A tile has all columns of V: a bound is there for the first or the last of them."""
    text = PROGRAM.replace("{mask}", "j <= i").replace(
        "V[b, h, j, e]", f"(V[b, h, j, e] if {mask} else 0)"
    )
    program = parse(text)
    check(program)
    types = dict.fromkeys("QKV", "f32")
    whole = pipeline.run(lower(program, "masked", types), pipeline.tensor_pipeline())
    steps = pipeline.parse(f"specialise:D=2:E={e},tile:i={TILE}:j={TILE},prune")
    arrays, scalars = arguments(whole)
    arrays["V"] = arrays["V"][..., :e]
    want, got = (run(k, arrays, scalars).outputs["O"] for k in (whole, pipeline.run(whole, steps)))
    np.testing.assert_allclose(got, want, 1e-12, 1e-12)


def test_a_condition_made_of_a_reduction_over_the_axis_that_is_streamed() -> None:
    text = "kernel f(s: i8[K], X[M]) -> O[i]:\n    axis p < M\n"
    text += "    O = X[i] if any[p](all[k, p](p != s[k]) ^ p > 3) else 0\n"
    kernel = tilec.compile(text, target="cpu", tile={"p": 2})
    for absent in (2, 9):
        arrays = np.full(3, absent, np.int8), np.arange(5.0)
        np.testing.assert_array_equal(kernel(*arrays), kernel.reference(*arrays))


def test_weights_whose_reference_is_loaded_are_skipped_where_they_are_masked():
    """The mean weight of each key: the second grid streams the rows, whose references are never NaN."""
    program = parse("""
kernel watched(Q[M, D], K[N, D]) -> W[j]:
    W = mean[i](softmax[j](sum[d](Q[i, d] * K[j, d]) if j <= i else -inf))
""")
    check(program)
    whole = lower(program, "watched", dict.fromkeys("QK", "f32"))
    steps = "specialise:D=2,tile:i=8:j=8,prune,place"
    kernel = pipeline.run(pipeline.run(whole, pipeline.tensor_pipeline()), pipeline.parse(steps))
    loops = [op for op in walk(kernel.body) if isinstance(op, For) and op.axis == "i"]
    assert loops
    assert all(f.start is not None for f in loops)
