"""Recognising standard variants by what they compute."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import tilec
from tilec import formula
from tilec.formula import Formula

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"


def recognised(kernel):
    sizes, _ = kernel.environment({})
    found = formula.recognise(kernel, sizes)
    return None if found is None else found[0]


@pytest.mark.parametrize(
    ("name", "want"),
    [
        ("naive", Formula()),
        ("causal", Formula(mask="causal", aligned=True)),
        ("alibi", Formula(mask="causal", slopes="slope")),
        ("gemma2", Formula(mask="causal window", window="window", cap="cap", aligned=True)),
        ("chunked", Formula(mask="chunked causal", window="chunk")),
        ("document", None),
        ("paged", None),
        ("differential", None),
        ("retention", None),
    ],
)
def test_examples(name, want):
    assert recognised(tilec.load(EXAMPLES / f"{name}.tile")) == want


HEAD = "kernel f(Q[B, H, M, D], K[B, H, N, D], V[B, H, N, E]) -> O[b, h, i, e]:\n"
TAIL = "    O = sum[j](softmax[j](S) * V[b, h, j, e])\nsizes B=1, H=2, M=8, N=8, D=4, E=4\n"


@pytest.mark.parametrize(
    ("score", "want"),
    [
        ("    S = sum[d](Q[b, h, i, d] * K[b, h, j, d])\n", Formula(scale=1.0)),
        ("    S = 0.25 * sum[d](Q[b, h, i, d] * K[b, h, j, d])\n", Formula(scale=0.25)),
        (
            "    S = 30 * tanh(sum[d](Q[b, h, i, d] * K[b, h, j, d]) / sqrt(D) / 30)\n",
            Formula(cap=30.0),
        ),
        (
            "    S = sum[d](Q[b, h, i, d] * K[b, h, j, d]) / sqrt(D)\n"
            "    S = S if i - 3 <= j <= i + 3 else -inf\n",
            Formula(mask="window", window=3.0),
        ),
        ("    S = -sum[d](Q[b, h, i, d] * K[b, h, j, d]) / sqrt(D)\n", None),
    ],
)
def test_numbers_of_the_text_are_found(score, want):
    assert recognised(tilec.compile(HEAD + score + TAIL)) == want


def test_a_formula_computes_what_the_program_means():
    kernel = tilec.load(EXAMPLES / "gemma2.tile")
    data = kernel.sample(M=20, N=33, H=4, HK=2)
    f = recognised(kernel).fixed({"window": 9, "cap": 3.0})
    want = kernel.reference(**data, window=9, cap=3.0)
    np.testing.assert_allclose(formula.evaluate(f, data, ("Q", "K", "V")), want, atol=1e-12)
