"""Arguments that do not fit: each mistake names the argument, what was expected and what came."""

from __future__ import annotations

import numpy as np
import pytest

import tilec
from tests.programs import CAUSAL, GROUPED, TABLE, inputs


@pytest.fixture(params=["reference", "cpu"])
def causal(request):
    return tilec.compile(CAUSAL, target=request.param)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"V": np.zeros((1, 2, 20, 12), np.float32)}, ["argument V", "N", "20", "24", "K"]),
        ({"K": np.zeros((1, 3, 24, 8), np.float32)}, ["argument K", "H", "3", "2", "Q"]),
        ({"K": np.zeros((1, 1, 24, 8), np.float32)}, ["argument K", "repeat K", "broadcast_to"]),
        ({"Q": np.zeros((1, 1, 20, 8), np.float32)}, ["argument K", "repeat Q", "broadcast_to"]),
        (
            {"Q": np.zeros((2, 20, 8), np.float32)},
            ["argument Q", "4 dimensions", "(2, 20, 8)", "Q[B, H, M, D]"],
        ),
        ({"Q": [[1.0]]}, ["argument Q", "list", "numpy.asarray"]),
        ({"scale": "big"}, ["argument scale", "a number", "'big'"]),
        ({"scale": None}, ["argument scale", "a number", "got None"]),
        ({"scale": np.zeros(3)}, ["argument scale", "a number", "(3,)"]),
        ({"scale": 10**400}, ["argument scale", "range"]),
        ({"scales": 1.0}, ["'scales'", "did you mean scale?"]),
    ],
)
def test_arguments_that_do_not_fit(causal, change, words):
    q, k, v = inputs()
    with pytest.raises(tilec.ArgumentError) as e:
        causal(**{"Q": q, "K": k, "V": v, **change})
    assert all(w in str(e.value) for w in words), str(e.value)


def test_arguments_missing_twice_and_too_many(causal):
    q, k, v = inputs()
    with pytest.raises(
        tilec.ArgumentError, match=r"argument V is missing: causal takes V\[B, H, N, E\]"
    ):
        causal(q, k)
    with pytest.raises(tilec.ArgumentError, match="argument Q is given twice"):
        causal(q, k, v, Q=q)
    with pytest.raises(tilec.ArgumentError, match=r"takes 3 tensors \(Q, K, V\), got 4; .*scale="):
        causal(q, k, v, 0.5)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"len": np.zeros(2, np.int64)}, ["argument len", "i32", "i64"]),
        ({"len": np.zeros(2, np.float32)}, ["argument len", "i32", "f32"]),
        ({"window": 2.5}, ["argument window", "an integer", "2.5"]),
        ({"window": np.float32(2.5)}, ["argument window", "an integer"]),
        ({"window": float("nan")}, ["argument window", "an integer", "nan"]),
        ({"window": 2.0**63}, ["argument window", "64 bits"]),
        ({"window": 1 << 63}, ["argument window", "64 bits"]),
        ({"K": np.zeros((2, 3, 9, 4), np.float32), "V": np.zeros((2, 3, 9, 4), np.float32)},
         ["<text>:4:12: query heads must be a multiple of key heads (H = 4, HK = 3)"]),
    ],
)  # fmt: skip
def test_types_and_assertions(change, words):
    kernel = tilec.compile(GROUPED, target="reference")
    with pytest.raises(tilec.ArgumentError) as e:
        kernel(**{**kernel.sample(), **change})
    assert all(w in str(e.value) for w in words), str(e.value)


def test_whole_numbers_are_integers():
    kernel = tilec.compile(GROUPED, target="reference")
    x = kernel.sample()
    want = kernel(**x, window=3)[0]
    for window in (np.int32(3), np.uint8(3), np.array(3), 3.0, np.float32(3)):
        np.testing.assert_array_equal(kernel(**x, window=window)[0], want)


def test_booleans_are_booleans():
    kernel = tilec.compile(TABLE, target="reference")
    x = kernel.sample()
    for flag in (np.bool_(True), 1, 0.0):
        kernel(**x, flag=flag)
    with pytest.raises(tilec.ArgumentError, match="argument flag: expected True or False .*got 2"):
        kernel(**x, flag=2)


@pytest.mark.parametrize(
    ("body", "values", "sampled", "want"),
    [
        ("Q[p[i]]", [3, 2, 1, 0], "int32", [3, 2, 1, 0]),
        ("Q[min(p[i], 2) + 1]", [-1, 0, 1, 2], "int32", [0, 1, 2, 3]),
        ("Q[i] if p[i] else 9", [True, False, True, False], "bool", [0, 9, 2, 9]),
        ("Q[i] if not p[i] and i > 0 else 9", [True, False, True, False], "bool", [9, 1, 9, 3]),
        ("Q[i] if p[i] & 1 == 1 else 9", [3, 2, 1, 0], "int32", [0, 9, 2, 9]),
    ],
)
def test_tensors_without_a_type_may_hold_integers_and_booleans(body, values, sampled, want):
    text = f"kernel f(p[N], Q[N]) -> O[i]:\n    O = {body}\n\nsizes N=4\n"
    for target in ("reference", "cpu"):
        kernel = tilec.compile(text, target=target)
        got = kernel(np.array(values), np.arange(4, dtype=np.float32))
        assert got.dtype == np.float32
        assert got.tolist() == want
    x = kernel.sample(dtype="f16")
    assert (x["p"].dtype, x["Q"].dtype) == (sampled, "float16")
    with pytest.raises(tilec.SourceError, match="and this is a float"):
        kernel(np.ones(4, np.float32), x["Q"])


def test_dimensions_that_are_expressions():
    kernel = tilec.compile(TABLE, target="reference")
    x, t = np.zeros((3, 4), np.float32), np.arange(6, dtype=np.float32)
    np.testing.assert_array_equal(kernel(x, t), t[np.arange(3)[:, None] - np.arange(4) + 3])
    with pytest.raises(tilec.ArgumentError) as e:
        kernel(x, np.zeros(7, np.float32))
    assert all(w in str(e.value) for w in ["argument T", "7", "6", "M + N - 1", "M = 3, N = 4"])


def test_refusals_say_what_to_do():
    kernel = tilec.compile(
        "kernel f(X[N], Z: i32[N], n: int) -> Y[i]:\n    assert n * 2 > N\n    Y = X[i] * Z[i]\n"
    )
    x, z = np.ones(4, np.float32), np.ones(4, np.int32)
    for given, words in (
        ((x, z[:1], 4), "dimension N is 1, but 4 in X.*pass an expanded view"),
        ((x, x, 4), "expected elements of type i32, got f32: convert it"),
        ((x, z[None], 4), r"expected 1 dimension, Z\[N\], got 2"),
        ((x, z, 2), r"n \* 2 > N does not hold \(n = 2, N = 4\)"),
    ):
        with pytest.raises(tilec.ArgumentError, match=words):
            kernel(*given[:2], n=given[2])


def test_a_negative_axis_is_refused():
    kernel = tilec.compile(
        "kernel f(X[M], Z[N]) -> Y[c]:\n    axis c < M - N\n    Y = X[c]\n", target="reference"
    )
    assert kernel(np.ones(3, np.float32), np.ones(3, np.float32)).shape == (0,)
    with pytest.raises(
        tilec.ArgumentError,
        match="^<text>:2:14: axis c ranges over M - N, which is -1 for M = 2, N = 3",
    ):
        kernel(np.ones(2, np.float32), np.ones(3, np.float32))


def test_outputs_too_large_for_memory():
    kernel = tilec.compile(
        "kernel f(X[M], n: int) -> Y[i, c]:\n    axis c < n\n    Y = X[i] + c\n", target="reference"
    )
    assert kernel(np.ones(2, np.float32), n=3).tolist() == [[1, 2, 3], [1, 2, 3]]
    with pytest.raises(tilec.ResourceError, match="output Y of shape"):
        kernel(np.ones(2, np.float32), n=1 << 60)
