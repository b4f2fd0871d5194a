"""Sums of products are contractions however they are spelled, and mean the same."""

from __future__ import annotations

import numpy as np
import pytest

import tilec
from tilec.backends.reference.interpreter import run
from tilec.ir import Contract, Map, Reduce, walk

HEAD = (
    "kernel f(Q[M, D], K[N, D], P[M, N], V[N, E], R[M, N], l[M], w[N], a: float = 3) -> O[i, e]:\n"
)
SCORES = HEAD.replace("O[i, e]", "O[i, j]")
M, N, D, E = 5, 7, 3, 4


def stages(text: str) -> dict[str, object]:
    kernel = tilec.compile(text)
    return dict(kernel.stages(sizes={"M": M, "N": N, "D": D, "E": E}))


VALUES = [
    "sum[j](P[i, j] * V[j, e] / l[i])",
    "sum[j](P[i, j] / a * V[j, e] / w[j])",
    "sum[j](P[i, j] * V[j, e] / R[i, j])",
    "sum[j](P[i, j] * V[j, e] if j <= i else 0)",
    "sum[j](P[i, j] * V[j, e] * l[i] if w[j] > 0 else 0)",
    "sum[j]((P[i, j] * V[j, e] if j <= i else 0) * w[j])",
    "sum[j](w[j] * (P[i, j] * V[j, e] / l[i] if R[i, j] > 0 and l[i] > 0 else 0.0))",
    "sum[j](-(P[i, j] * V[j, e]))",
    "sum[j](-(P[i, j] * V[j, e]) * -w[j])",
    "sum[j](P[i, j] * V[j, e] - R[i, j] * V[j, e] * a)",
    "sum[j](-(P[i, j] * V[j, e]) + R[i, j] * V[j, e])",
    "sum[j](P[i, j] * V[j, e] if l[i] > 0 else 0)",
]
PRODUCTS = [
    "sum[d](Q[i, d] * K[j, d] / sqrt(D))",
    "sum[d](Q[i, d] * K[j, d] if j <= i else 0)",
    "sum[d](Q[i, d] * K[j, d] + Q[i, (d + 1) % D] * K[j, (d + 1) % D])",
]


@pytest.mark.parametrize("body", [*VALUES, *PRODUCTS])
@pytest.mark.parametrize("odd", [None, np.nan, np.inf, 0.0])
def test_a_spelling(body: str, odd: float | None) -> None:
    text = (HEAD if body in VALUES else SCORES) + f"    O = {body}\n"
    steps = stages(text)
    before, after = steps["exp2"], steps["contract"]
    assert any(isinstance(op, Contract) for op in walk(after.body))
    assert not any(isinstance(op, Reduce) for op in walk(after.body))
    largest = max(len(v.type.axes) for op in walk(after.body) for v in op.results)
    assert largest == 2, "nothing varies over the rows, the columns and the summed axis"
    arrays = drawn(odd)
    want, got = (run(k, arrays, {"a": 3.0}).outputs["O"] for k in (before, after))
    np.testing.assert_allclose(got, want, atol=1e-12)


def drawn(odd: float | None) -> dict[str, np.ndarray]:
    """Arrays, with some odd values at places that masks hide from some rows only."""
    rng = np.random.default_rng(0)
    shapes = {"Q": (M, D), "K": (N, D), "P": (M, N), "V": (N, E), "R": (M, N), "l": (M,), "w": (N,)}
    arrays = {n: rng.standard_normal(s) for n, s in shapes.items()}
    if odd is not None:
        arrays["V"][3, 1] = odd
        arrays["P"][1, 4] = odd
        arrays["K"][4, 0] = odd
    return arrays


def test_a_mask_is_beside_the_weights() -> None:
    """So that the blocks it empties are left out, as with weights that are masked themselves."""
    counted = []
    for body in (
        "sum[j]((P[i, j] if j <= i else 0) * V[j, e])",
        "sum[j](P[i, j] * V[j, e] if j <= i else 0)",
    ):
        kernel = tilec.compile(HEAD + f"    O = {body}\n", tile={"i": 32, "j": 32})
        budgets = dict(kernel.traffic(M=256, N=256, D=1, E=16))
        counted.append(budgets["prune"].work.total("matrix"))
    assert counted[0] == counted[1] <= 2 * 256 * (256 + 32) // 2 * 16


@pytest.mark.parametrize("body", ["sum[j](P[i, j] / l[i] if j <= i else 0) * V[0, e]"])
def test_what_is_no_product_stays_a_sum(body: str) -> None:
    after = stages(HEAD + f"    O = {body}\n")["contract"]
    assert any(isinstance(op, Reduce) for op in walk(after.body))


@pytest.mark.parametrize(
    ("body", "leaves"),
    [
        ("sum[j](P[i, j] * V[j, e] / 2.5 if j <= i else 0)", True),
        ("sum[j](P[i, j] * V[j, e] / sqrt(N) if j <= i else 0)", True),
        ("sum[j](P[i, j] * V[j, e] * sqrt(D) if j <= i else 0)", True),
        ("sum[j](P[i, j] * V[j, e] / sqrt(D) if j <= i else 0)", False),  # of a size that may be 0
        ("sum[j](P[i, j] * V[j, e] * rsqrt(D) if j <= i else 0)", False),
        ("sum[j](P[i, j] * V[j, e] * a if j <= i else 0)", False),
        ("sum[j](P[i, j] * V[j, e] * l[i] if j <= i else 0)", False),
        ("sum[j](P[i, j] * V[j, e] * a if l[i] > 0 else 0)", True),  # no term is absent
        ("sum[j](P[i, j] * V[j, e] * a)", True),
        ("sum[j](exp(P[i, j]) * V[j, e] * a)", False),
    ],
)
def test_what_leaves_a_sum(body: str, leaves: bool) -> None:
    """Numbers, where terms may be absent: each other operand may be NaN, or a zero to divide by."""
    after = stages(HEAD + f"    O = {body}\n")["contract"].body
    at = next(k for k, op in enumerate(after) if isinstance(op, Contract))
    behind = [op for op in after[at:] if isinstance(op, Map) and op.fn in ("mul", "div")]
    assert bool(behind) == leaves


def test_weights_that_one_loop_normalises_are_opened_for_their_own_sum() -> None:
    weights = "W = exp(sum[d](Q[i, d] * K[j, d]))\n    "
    for body, opened in {
        "sum[j](W * V[j, e] / sum[j](W))": True,
        "sum[j](W * V[j, e] / sum[j](W + 1))": False,
        "sum[j](W * V[j, e] / sum[j](W) if j <= i else 0)": False,
    }.items():
        after = stages(HEAD + f"    {weights}O = {body}\n")["contract"].body
        assert opened == any(isinstance(o, Contract) and o.over == ("j",) for o in after), body
