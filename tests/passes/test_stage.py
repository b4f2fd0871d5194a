"""Operands that are made once, in programs of several grids."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilec
from tilec import pipeline
from tilec.backends.cuda.hopper import compile as hopper
from tilec.backends.cuda.hopper.schedule import Schedule
from tilec.backends.reference.interpreter import run

NORMED = """
kernel f(Q[B, H, M, D], K[B, HK, N, D], V[B, HK, N, D]) -> O[b, h, i, d]{outputs}:
    g = h // (H // HK)
    q = Q[b, h, i, d] * rsqrt(mean[d](Q[b, h, i, d] ** 2) + 1e-6)
    k = K[b, g, j, d] * rsqrt(mean[d](K[b, g, j, d] ** 2) + 1e-6)
    S = sum[d](q * k)
    P = softmax[j](S if j <= i else -inf)
    O = sum[j](P * V[b, g, j, d])
{more}
"""
OTHERS = {
    "a sum over the rows": (", T: f32[b, h, j]", "    T = sum[i](P)"),
    "a maximum over heads": (", T: f32[b, i]", "    T = max[h, j](S)"),
    "a sum over heads and rows": (", T: f32[b, j]", "    T = sum[h, i](P)"),
}


@pytest.mark.parametrize("other", OTHERS)
def test_each_grid_has_its_own(other: str) -> None:
    outputs, more = OTHERS[other]
    kernel = tilec.compile(NORMED.format(outputs=outputs, more=more))
    ir = kernel._versions.for_types(dict.fromkeys(kernel._source.untyped, "f16")).online
    sizes = {"B": 2, "H": 4, "HK": 2, "M": 20, "N": 21, "D": 16}
    arrays: dict[str, Any] = kernel.sample(1, dtype="f16", **sizes)
    want = run(ir, arrays).outputs
    steps = hopper.steps(ir, sizes, Schedule(1, 16, relax=False), None)
    (staged,) = (
        made for level, made in pipeline.stages(ir, steps, sizes=sizes) if level == "stage"
    )
    assert "_all" in tilec.text.show(staged)
    got = run(staged, arrays).outputs
    for n, w in want.items():
        np.testing.assert_allclose(got[n], w, rtol=2e-3, atol=2e-3)
