"""Expressions that are compiled mean what `evaluate` says, and what is kept of a kernel serves calls of other lengths."""

from __future__ import annotations

import math
import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tilec
from tests.programs import CAUSAL
from tilec import pipeline
from tilec.errors import ArgumentError
from tilec.scalar import compiled, evaluate

TWO = ["add", "sub", "mul", "div", "floordiv", "mod", "min", "max", "lt", "le", "gt", "ge", "eq"]
LEAVES = st.one_of(
    st.sampled_from(["M", "N", "x"]), st.integers(-9, 9), st.sampled_from([0.5, -0.0, math.nan])
)
EXPRESSIONS = st.recursive(
    LEAVES,
    lambda e: st.one_of(
        st.tuples(st.sampled_from(TWO), e, e),
        st.tuples(st.sampled_from(["neg", "abs", "not"]), e),
        st.tuples(st.just("select"), e, e, e),
    ),
    max_leaves=12,
)


@given(EXPRESSIONS, st.integers(0, 300), st.integers(-3, 3), st.floats(-4, 4))
def test_compiled_expressions(e, m, n, x):
    env = {"M": m, "N": n, "x": x}
    want, got = evaluate(e, env), compiled(e)(env)
    assert (type(got), repr(got)) == (type(want), repr(want))


def test_equal_literals_of_different_types_stay_apart():
    e = ("select", ("lt", "M", 1), ("add", "M", 1), ("add", "M", 1.0))
    assert [repr(compiled(e)({"M": n})) for n in (0, 2)] == ["1", "3.0"]


def test_a_deep_expression_and_a_name_that_is_missing():
    e = "M"
    for _ in range(300):
        e = ("add", e, 1)
    assert compiled(e)({"M": 2}) == 302
    with pytest.raises(KeyError, match="M"):
        compiled(e)({"N": 2})


@pytest.mark.parametrize("rows", [1, 20])
def test_no_pass_runs_for_a_new_length(rows, monkeypatch):
    kernel = tilec.compile(CAUSAL, target="cpu")
    sets = {n: kernel.sample(n, M=rows, N=n) for n in (0, 1, 7, 64, 300, 301, 517)}
    wants = {n: kernel.reference(**arrays) for n, arrays in sets.items()}
    other = tilec.compile(CAUSAL, target="cpu")
    for n, arrays in sets.items():
        np.testing.assert_allclose(other(**arrays), wants[n], 1e-4, 1e-6)

    def run(*args, **kwargs):
        raise AssertionError

    monkeypatch.setattr(pipeline, "run", run)
    monkeypatch.setattr(pipeline, "tile_pipeline", run)
    for n in range(302, 310):
        arrays = kernel.sample(n, M=rows, N=n)
        np.testing.assert_allclose(other(**arrays), kernel.reference(**arrays), 1e-4, 1e-6)
    wrong = kernel.sample(0, M=rows, N=311)
    with pytest.raises(ArgumentError, match=re.escape("dimension N is 310, but 311 in K")):
        other(**{**wrong, "V": wrong["V"][:, :, :310]})
