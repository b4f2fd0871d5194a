"""A command line in a folder of its own, with programs and a cache."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.programs import CAUSAL, GROUPED, TABLE
from tilec.cli import main


@pytest.fixture
def tile(tmp_path, capsys, monkeypatch):
    """Runs a command on files of a folder of its own; gives the exit status, the output and the errors."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TILEC_CACHE_DIR", str(tmp_path / "cache"))
    for name, text in {"causal": CAUSAL, "grouped": GROUPED, "table": TABLE}.items():
        Path(f"{name}.tile").write_text(text)

    def call(*argv: str) -> tuple[int, str, str]:
        status = main(list(argv))
        out, err = capsys.readouterr()
        return status, out, err

    return call
