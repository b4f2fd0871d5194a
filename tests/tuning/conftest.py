"""Searches that leave nothing behind, on a machine whose ceilings are known: measuring them takes longer than a search."""

from __future__ import annotations

import dataclasses

import pytest

from tilec import ceilings

MACHINE = dataclasses.replace(
    ceilings.H200,
    machine="a small one",
    memory=1e10,
    cache=4e10,
    matrix=1e11,
    fma=5e10,
    special=5e9,
    shared=True,
    workers=2,
    near=512 << 10,
    far=32 << 20,
)


@pytest.fixture(autouse=True)
def _folder(tmp_path, monkeypatch):
    monkeypatch.setenv("TILEC_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(ceilings, "measured", lambda target: MACHINE)
