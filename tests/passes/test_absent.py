"""Integers that are absent zeros stay so among floats: a masked NaN or infinity does not come through."""

from __future__ import annotations

import numpy as np
import pytest

import tilec

V = np.array([1, np.nan, np.inf, -np.inf, 2], np.float32)
K = np.array([3, 1, 2, -1, 5], np.int32)


@pytest.mark.parametrize("target", ["reference", "cpu"])
@pytest.mark.parametrize(
    ("weight", "expected"),
    [
        ("1 if j == 0 else 0", 1),
        ("0 if 0 < j < 4 else 2", 6),
        ("k[j] if j == 0 else k[j] if j == 4 else 0", 13),
        ("(1 if j < 1 else 0) if n < 3 else (0 if j < 4 else 3)", 1),
        ("2 * (k[j] if j == 4 else 0)", 20),
        ("(k[j] if j == 0 else 0) + (0 if j != 4 else 7)", 17),
        ("(k[j] if j == 0 else 0) + 0 * k[j]", np.nan),
        ("abs(-(k[j] if j == 0 else 0))", 3),
        ("f32(1 if j == 0 else 0)", 1),
        ("i32(1 if j == 0 else 0)", 1),
        ("1 if j == 0 and uniform(n, 0 if n < 3 else k[j]) < 1 else 0", 1),
        ("(1 if j == 0 else 0) / 2", 0.5),
        ("((1 if j == 0 else 0) if j < 4 else 0.5)", 2),
    ],
)
def test_integers_that_may_be_absent(target: str, weight: str, expected: float) -> None:
    text = "kernel f(V[N], k: i32[N], n: int = 2) -> A[]:\n"
    kernel = tilec.compile(f"{text}    A = sum[j](({weight}) * V[j])\n", target=target)
    np.testing.assert_allclose(kernel(V, K), expected)
