"""Tile extents: which axis gets the rows, what options may say, how far defaults shrink."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.passes.cases import same
from tilec import pipeline
from tilec.check import check, lower
from tilec.errors import ArgumentError, UnsupportedError
from tilec.ir import Buffer, For, Grid, Kernel, walk
from tilec.parse import parse
from tilec.passes.place import budget
from tilec.passes.specialise import Options as Sizes
from tilec.passes.specialise import specialise, static_dims
from tilec.passes.tile import Options, tile
from tilec.reader import read
from tilec.target import CPU, REFERENCE
from tilec.verify import verify

ATTENTION = """
kernel f(Q[B, H, M, D], K[B, H, N, D], V[B, H, N, E]) -> O[b, h, i, e]:
    S = sum[d](Q[b, h, i, d] * K[b, h, j, d])
    O = sum[j](softmax[j](S) * V[b, h, j, e])
"""
PICKED = """
kernel f(Q[B, H, M, D], Z[B, N, D], pick: i32[B, M, T]) -> O[b, h, i, d]:
    S = sum[c](Q[b, h, i, c] * Z[b, pick[b, i, t], c])
    O = sum[t](softmax[t](S) * Z[b, pick[b, i, t], d])
"""
LATENT = """
kernel f(Q[B, H, M, D], Z[B, N, D]) -> O[b, h, i, d]:
    S = sum[c](Q[b, h, i, c] * Z[b, j, c])
    O = sum[j](softmax[j](S) * Z[b, j, d])
"""


def groups(text: str, **sizes: int) -> Kernel:
    program = parse(text)
    check(program)
    kernel = lower(program, "f", dict.fromkeys("QKVXYZ", "f32"))
    return specialise(pipeline.run(kernel, pipeline.tensor_pipeline()), Sizes(sizes))


def grids(kernel: Kernel) -> list[dict[str, int]]:
    return [dict(op.axes) for op in kernel.body if isinstance(op, Grid)]


def streams(kernel: Kernel) -> list[tuple[str, int | None]]:
    return [(op.axis, op.tile) for op in walk(kernel.body) if isinstance(op, For)]


@pytest.mark.parametrize(
    ("text", "grid"),
    [
        (ATTENTION, {"b": 1, "h": 1, "i": 128}),
        (LATENT, {"b": 1, "h": 1, "i": 128}),  # heads share Z as queries do; the later axis wins
        (
            PICKED,
            {"b": 1, "h": 128, "i": 1},
        ),  # each query has keys of its own, its heads share them
        ("kernel f(X[M, N], Y[N]) -> O[i, j]:\n    O = X[i, j] + Y[j]\n", {"i": 1, "j": 1024}),
        ("kernel f(X[M]) -> O[]:\n    O = sum[i](X[i])\n", {}),
    ],
)
def test_the_row_axis_is_the_one_that_shares_most(text, grid):
    kernel = groups(text)
    assert grids(tile(kernel)) == [grid]


def test_extents_can_be_chosen():
    kernel = tile(groups(ATTENTION), Options({"i": 32, "h": 2, "j": 48}))
    assert grids(kernel) == [{"b": 1, "h": 2, "i": 32}]
    assert streams(kernel) == [("j", 48)]


@pytest.mark.parametrize(
    ("extents", "error", "words"),
    [
        ({"x": 4}, ArgumentError, "f has no axis 'x' to tile; choose from b, h, i, j"),
        ({"d": 4}, UnsupportedError, "axis d is held whole in every tile; choose from b, h, i, j"),
        ({"i": 0}, ArgumentError, "the tile extent of axis i cannot be 0"),
    ],
)
def test_wrong_extents(extents, error, words):
    with pytest.raises(error, match=words):
        tile(groups(ATTENTION), Options(extents))


def test_default_extents_shrink_until_the_tiles_fit_the_cache():
    small, large = groups(ATTENTION, D=128, E=128), groups(ATTENTION, D=1024, E=1024)
    assert streams(tile(small)) == [("j", 128)]
    shrunk = tile(large)
    (held,) = budget(shrunk)
    assert held is not None
    assert held.total <= (CPU.cache or 0) + CPU.over
    assert streams(shrunk) != [("j", 128)]
    assert grids(shrunk) == [{"b": 1, "h": 1, "i": 64}]
    assert streams(tile(large, Options(target=REFERENCE))) == [("j", 128)]
    assert grids(tile(large, Options({"i": 128, "j": 128}))) == [{"b": 1, "h": 1, "i": 128}]


def test_rows_are_halved_only_where_tiles_are_much_too_large():
    """With half the rows, all keys are read twice as often."""
    wide = groups(ATTENTION, D=576, E=576)
    assert grids(tile(wide)) == [{"b": 1, "h": 1, "i": 128}]
    assert streams(tile(wide)) == [("j", 64)]
    strict = replace(CPU, over=0)
    assert grids(tile(wide, Options(target=strict))) == [{"b": 1, "h": 1, "i": 64}]


@pytest.mark.parametrize(
    ("d", "e", "columns"),
    [(32, 48, 128), (64, 64, 64), (16, 64, 64), (100, 100, 64), (128, 64, 128)],
)
def test_half_the_columns_where_a_window_of_an_operand_is_then_near(d, e, columns):
    kernel = groups(ATTENTION, D=d, E=e)
    assert streams(tile(kernel)) == [("j", columns)]
    assert streams(tile(kernel, Options(target=REFERENCE))) == [("j", 128)]
    assert streams(tile(kernel, Options({"j": 96}))) == [("j", 96)]


def test_a_short_literal_axis_is_one_window_and_the_outer_stream_a_scalar():
    text = "kernel f(X[M, T, 16]) -> O[i]:\n    O = sum[t, u](X[i, t, u])\n"
    assert streams(tile(groups(text))) == [("t", 1), ("u", None)]


def test_buffers_are_for_other_groups_alone():
    text = (
        ATTENTION.replace("O[b, h, i, e]:", "O[b, h, i, e], A: f32[b, h, j]:")
        + "    A = sum[i](softmax[j](S))\n"
    )
    kernel = tile(groups(text))
    stored = {op.result.name for op in kernel.body if isinstance(op, Buffer)}
    assert len(stored) == 2  # the maximum and the sum of each row
    assert not any(isinstance(op, Buffer) for op in tile(groups(ATTENTION)).body)


@pytest.mark.parametrize(
    ("text", "dims"),
    [
        (ATTENTION, ("D", "E")),
        ("kernel f(X[M, N]) -> O[i, j]:\n    O = X[i, j] + 1\n", ()),
        ("kernel f(X[M, N], Y[M + N]) -> O[i]:\n    O = sum[j](X[i, j] * Y[i + j])\n", ()),
        ("kernel f(X[M, N], y: int) -> O[i, j]:\n    O = X[i, j] + sum[t](X[i, t])\n", ()),
    ],
)
def test_static_dims(text, dims):
    assert static_dims(groups(text)) == dims


def test_specialise_knows_its_dimensions():
    with pytest.raises(
        ArgumentError, match="f has no dimension 'X'; its dimensions are B, H, M, D, N, E"
    ):
        groups(ATTENTION, X=3)
    with pytest.raises(ArgumentError, match="dimension D cannot be -1"):
        groups(ATTENTION, D=-1)
    assert groups(ATTENTION, D=64).dims == ("B", "H", "M", "N", "E")


@pytest.mark.parametrize(
    ("size", "columns"),
    [("64", 64), ("size", 64), ("32", 32), ("16", 128), ("512", 128), ("other", 128)],
)
def test_tiles_follow_blocks_of_data(size, columns):
    text = ATTENTION.replace("E]) ->", "E], map: bool[H, R, R], other: int, size: int = 64) ->")
    text = text.replace(
        "softmax[j](S)", f"softmax[j](S if map[h, i // {size}, j // {size}] else -inf)"
    )
    kernel = tile(groups(text))
    assert streams(kernel) == [("j", columns)]
    assert grids(kernel) == [{"b": 1, "h": 1, "i": columns}]


def test_what_was_made_for_a_whole_axis_is_made_again_in_the_window():
    text = """
kernel f(X: f32[M, N], order: i32[N]) -> O: f32[i] {
  axis i < M
  axis j < N
  O_1: f32[i] @hbm = group(axes=i) {
    p: i32[j] = load(order, j)
    q: i64[j] = add(p, 1)
    a: f32[i] = for(0.0, axis=j) as (a_0) {
      x: f32[i, j] = load(X, i, q)
      s: f32[i] = sum(x, over=j)
      a_1: f32[i] = add(a_0, s)
      yield(a_1)
    }
    yield(a)
  }
  store(O, i, value=O_1)
}
"""
    (kernel,) = read(text)
    tiled = tile(kernel, Options({"i": 4, "j": 4}))
    verify(tiled)
    assert same(kernel, tiled)
