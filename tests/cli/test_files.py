"""What commands leave on the disk: files as a whole or not at all, and a cache that processes share."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tilec.cli import files
from tilec.errors import ArgumentError
from tilec.tuning import store

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def test_a_file_is_written_whole_or_not_at_all():
    Path("old").mkdir()
    old = Path("old/page.html")
    old.write_text("before")
    old.chmod(0o640)
    link = Path("link.html")
    link.symlink_to(old)

    def stopped(by: type[BaseException]) -> None:
        with files.writing(str(link)) as f:
            f.write(b"half")
            raise by

    for by in (KeyboardInterrupt, ArgumentError, OSError):
        with pytest.raises(ArgumentError if by is OSError else by):
            stopped(by)
        assert (old.read_text(), os.listdir("old")) == ("before", ["page.html"])
    files.write(str(link), "after: ü")
    assert (old.read_text(encoding="utf-8"), os.listdir("old")) == ("after: ü", ["page.html"])
    assert (link.is_symlink(), old.stat().st_mode & 0o777) == (True, 0o640)


def test_a_disk_that_is_full_halfway(tmp_path):
    (tmp_path / "add.tile").write_text("kernel f(X[N]) -> Y[i]:\n    Y = X[i] + 1\nsizes N=9999\n")
    command = f"ulimit -f 4; exec {sys.executable} -m tilec run add.tile --output add.npz"
    path = f"{ROOT}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"
    env = os.environ | {"PYTHONPATH": path, "TILEC_CACHE_DIR": "/nowhere"}
    done = subprocess.run(
        ["bash", "-c", command], cwd=tmp_path, env=env, capture_output=True, text=True, check=False
    )
    assert (done.returncode, "error: cannot write add.npz" in done.stderr) == (1, True), done.stderr
    assert os.listdir(tmp_path) == ["add.tile"]


def test_processes_that_share_a_new_cache(tmp_path):
    causal = str(ROOT / "examples" / "causal.tile")
    env = os.environ | {"TILEC_CACHE_DIR": str(tmp_path / "cache")}
    command = [
        sys.executable,
        "-m",
        "tilec",
        "run",
        causal,
        "--size",
        "M=64,N=64",
        "--target",
        "cpu",
    ]
    both = [
        subprocess.Popen(command, cwd=ROOT, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        for _ in range(2)
    ]
    for said, p in [(p.communicate(), p) for p in both]:
        assert (p.returncode, said[1]) == (0, b"")


def test_a_store_that_a_full_disk_left_empty_holds_nothing(monkeypatch, tmp_path):
    monkeypatch.setenv("TILEC_CACHE_DIR", str(tmp_path))
    store.path().parent.mkdir(parents=True)
    store.path().touch()
    assert not store.exists()
