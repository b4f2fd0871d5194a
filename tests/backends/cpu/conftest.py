"""Objects that these tests compile are kept in a folder of their own."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture(scope="session", autouse=True)
def _cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The cache directory of this run, for subprocesses too."""
    held, folder = os.environ.get("TILEC_CACHE_DIR"), tmp_path_factory.mktemp("cache")
    os.environ["TILEC_CACHE_DIR"] = str(folder)
    yield folder
    if held is None:
        del os.environ["TILEC_CACHE_DIR"]
    else:
        os.environ["TILEC_CACHE_DIR"] = held
