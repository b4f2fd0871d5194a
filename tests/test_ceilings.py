"""The ceilings of this machine: plausible, kept, and never read from a file that is something else."""

from __future__ import annotations

import dataclasses
import json

import pytest

from tilec import ceilings
from tilec.errors import UnsupportedError


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("TILEC_CACHE_DIR", str(tmp_path))
    return tmp_path


def test_measured_once_and_plausible(folder):
    assert ceilings.of("cpu") is None
    found = ceilings.measured("cpu")
    assert 1e8 < found.memory < 1e13
    assert found.matrix > 1.2 * found.fma > found.special > 0
    assert found.near <= found.far
    assert ceilings.of("cpu") == found == ceilings.measured("cpu")


@pytest.mark.parametrize(
    "change",
    [
        {"memory": -1.0},
        {"memory": "fast"},
        {"extra": 1},
        {"matrix": float("nan")},
        {"workers": None},
    ],
)
def test_a_file_of_other_things_counts_as_none(folder, change):
    figures = dataclasses.asdict(ceilings.H200) | change
    file = folder / "x.json"
    file.write_text(json.dumps(figures))
    assert ceilings.read(file) is None
    ceilings.write(file, ceilings.H200)
    assert ceilings.read(file) == ceilings.H200


def test_unknown_target_says_which_are_known():
    with pytest.raises(UnsupportedError, match="cuda:sm_120.*cpu, cuda"):
        ceilings.of("cuda:sm_120")
