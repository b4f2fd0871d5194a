"""Indices that data does not decide are checked at the call: proven by intervals, or looked at."""

from __future__ import annotations

import numpy as np
import pytest

import tilec
from tilec import bounds


def run(index, guard="", m=5, n=7, **scalars):
    """A call of Y[i, j] = T[index] with T of length n; returns nothing or raises."""
    parameters = "".join(f", {s}: int" for s in scalars)
    value = f"T[{index}]" + (f" if {guard} else 0" if guard else "")
    text = f"kernel f(X[M, P], T[N]{parameters}) -> Y[i, j]:\n    Y = X[i, j] + {value}\n"
    kernel = tilec.compile(text, target="reference")
    return kernel(np.zeros((m, m), np.float32), np.zeros(n, np.float32), **scalars)


GOOD = [
    ("i + 0", {"m": 7}),
    ("clamp(i - j, 0, N - 1)", {"m": 20}),
    ("(i + j) % N", {"m": 20}),
    ("i - j + 3", {"m": 4}),
    ("(i // 3) * 3 + i % 3", {"m": 7}),
    ("i * j - j * i", {"m": 300}),
    ("abs(i - j)", {"m": 7}),
    ("i & 3", {"m": 20}),
    ("min(i, j) >> 1", {"m": 13}),
    ("i if i < N else 0", {"m": 20}),
    ("i32(floor(i / 2))", {"m": 14}),
    ("i + s", {"m": 5, "s": 2}),
    ("i // s", {"m": 5, "s": 0}),
    ("i - 100", {"m": 0}),
]


@pytest.mark.parametrize(("index", "sizes"), GOOD)
def test_indices_in_range(index, sizes):
    run(index, **sizes)


BAD = [
    ("i + 3", {}, "7 at i = 4"),
    ("i - 1", {}, "-1 at i = 0"),
    ("i * j", {}, "at i = "),
    ("(i // 3) * 3 + i % 3 + 3", {}, "7 at i = 4"),
    ("i + s", {"s": 3}, "7 at i = 4"),
    ("i32(floor(i * 2))", {}, "8 at i = 4"),
    ("N", {}, "is 7, outside"),
    ("0", {"n": 0}, "is 0, outside"),
    ("i * 1000003 * (1 if i == 299 and j == 299 else 0)", {"m": 300}, "at i = 299, j = 299"),
]


@pytest.mark.parametrize(("index", "sizes", "words"), BAD)
def test_indices_out_of_range(index, sizes, words):
    with pytest.raises(tilec.ArgumentError, match=r"index 0 of T(, .*,)? is ") as e:
        run(index, **sizes)
    assert words in str(e.value)
    assert "<text>:2:" in str(e.value)


def test_a_guard_allows_a_miss():
    run("i - 1", guard="i > 0")
    run("i + 3", guard="i > 100")


LONGER = """
kernel f(X[N], Z[M], on: i32[B]) -> Y[b, j]:
    axis j < N + M
    Y = (X[j] if {}) + on[b]
"""


@pytest.mark.parametrize(
    ("arms", "want"),
    [
        ("j < N else Z[j - N]", [[1, 2, 5, 6], [2, 3, 6, 7]]),
        ("on[b] == 0 and j < N else 7", [[1, 2, 7, 7], [8, 8, 8, 8]]),
        ("false else 0", [[0, 0, 0, 0], [1, 1, 1, 1]]),
    ],
)
def test_an_axis_may_be_longer_than_a_dimension_where_a_guard_asks_for_it(arms, want):
    arrays = np.array([1, 2], np.float32), np.array([5, 6], np.float32), np.array([0, 1], np.int32)
    for target in ("cpu", "reference"):
        kernel = tilec.compile(LONGER.format(arms), target=target)
        assert kernel(*arrays).tolist() == want


def test_a_guard_that_asks_for_other_axes_excludes_nothing_of_this_one():
    kernel = tilec.compile(LONGER.format("on[b] == 0 else 7"), target="reference")
    arrays = np.zeros(2, np.float32), np.zeros(2, np.float32), np.zeros(2, np.int32)
    with pytest.raises(tilec.ArgumentError, match=r"axis j ranges over 4, and index 0 of X over 2"):
        kernel(*arrays)


def test_data_may_miss():
    text = "kernel f(X[M], T[N], at: i32[M]) -> Y[i]:\n    Y = X[i] + T[at[i]]\n"
    kernel = tilec.compile(text, target="reference")
    got = kernel(np.zeros(3, np.float32), np.ones(2, np.float32), np.array([-1, 1, 2], np.int32))
    assert got.tolist() == [0, 1, 0]


def test_the_check_is_made_for_each_size_anew():
    text = "kernel f(X[M], T[N]) -> Y[i]:\n    Y = X[i] + T[i + 1]\n"
    kernel = tilec.compile(text, target="reference")
    kernel(np.zeros(3, np.float32), np.zeros(4, np.float32))
    with pytest.raises(
        tilec.ArgumentError,
        match=r"index 0 of T, i \+ 1, is 3 at i = 2, outside dimension N of length 3;",
    ):
        kernel(np.zeros(3, np.float32), np.zeros(3, np.float32))


@pytest.mark.parametrize(
    ("dim", "index", "words"),
    [
        ("N", "g", "index 1 of T, g, is 4 at i = 2, outside dimension N of length 3;"),
        ("N", "(i + 1) % 5", "T, (i + 1) % 5, is 3 at i = 2, outside dimension N of length 3;"),
        ("3", "at(i)", "index 1 of T, at(i), is 3 at i = 1, outside its dimension of length 3;"),
        ("M - 1", "-i", "T, -i, is -1 at i = 1, outside dimension M - 1 of length 3 (M = 4);"),
    ],
)
def test_a_miss_names_the_index_as_written_and_the_dimension(dim, index, words):
    text = f"kernel f(X[M], T[M, {dim}]) -> Y[i]:\n    def at(x) = x * 3\n    g = 2 * i\n    Y = X[i] + T[i, {index}]\n"
    kernel = tilec.compile(text, target="reference")
    with pytest.raises(tilec.ArgumentError) as e:
        kernel(np.zeros(4, np.float32), np.zeros((4, 3), np.float32))
    assert words in str(e.value)


def test_a_slice_that_is_too_large_says_both_sizes():
    text = "kernel f(Z[N, D]) -> Y[j, c]:\n    axis c < 48\n    Y = Z[j, c]\n"
    kernel = tilec.compile(text, target="reference")
    with pytest.raises(
        tilec.ArgumentError,
        match=r"axis c ranges over 48, and index 1 of Z over 32 only \(D = 32\)",
    ):
        kernel(np.zeros((3, 32), np.float32))


@pytest.mark.parametrize(
    "fn", ["add", "sub", "mul", "floordiv", "mod", "min", "max", "bitand", "shl", "shr"]
)
def test_intervals_hold_every_value(fn):
    from tilec import scalar

    random = np.random.default_rng(1)
    for _ in range(300):
        (a, b), (c, d) = (sorted(random.integers(-9, 10, 2).tolist()) for _ in range(2))
        low, high = bounds._integer(fn, [(a, b), (c, d)])
        for x in range(a, b + 1):
            for y in range(c, d + 1):
                assert low <= scalar.evaluate((fn, x, y), {}) <= high, (fn, a, b, c, d)
