"""Every golden case: the text is what the pass makes, both sides are valid, and both compute the same."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.passes import cases
from tilec.verify import verify

FILES = sorted(Path(__file__).parent.glob("*.ir"))
CASES = [
    pytest.param(path, n, id=f"{path.stem}-{n}-{case.title}")
    for path in FILES
    for n, case in enumerate(cases.load(path))
]


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.stem)
def test_text(path, golden):
    made = (c.text(cases.shown(c.passed())) for c in cases.load(path))
    golden(path, "====\n".join(made))


@pytest.mark.parametrize(("path", "n"), CASES)
def test_meaning(path, n):
    case = cases.load(path)[n]
    before, after = case.kernel(), case.passed()
    verify(before)
    verify(after)
    assert cases.finite(before)
    assert all(cases.same(before, after, seed) for seed in range(3))
