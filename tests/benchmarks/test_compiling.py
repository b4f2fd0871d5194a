"""The account of a compilation adds up, and leaves what it looked at as it was."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from benchmarks.cpu import compiling
from tilec.backends.cpu import jit, lower

NAIVE = Path(__file__).parents[2] / "examples" / "naive.tile"


def test_the_parts_of_a_miss_are_less_than_all_of_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("TILEC_CACHE_DIR", str(tmp_path))
    before = lower.lower, jit.compile, jit.load
    spent = compiling.measure(NAIVE.read_text(), None, "f32", {})
    assert 0 < spent.emission + spent.llvm + spent.loading < spent.miss + spent.hit
    assert spent.loading <= spent.hit
    assert spent.bytes > 1000
    assert (lower.lower, jit.compile, jit.load) == before
    assert os.environ["TILEC_CACHE_DIR"] == str(tmp_path)
    assert not list(tmp_path.iterdir())
