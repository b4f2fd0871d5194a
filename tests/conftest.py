"""What the tests share: the same surroundings on every machine, and the flag that renews golden files."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
# for this process, before it loads NumPy, CUDA or JAX, and for those that tests start
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # small matrices do not gain by more
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
# commands take the GPU that answers: here none does, so that they print and do the same on every machine
os.environ["CUDA_VISIBLE_DEVICES"] = ""
os.environ["JAX_PLATFORMS"] = "cpu"
# a shell's background jobs ignore Ctrl-C, and what they start does, too
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--update-golden",
        action="store_true",
        help="write the golden files anew instead of comparing",
    )


class Golden:
    """Compares a text with a file; with --update-golden, writes the file."""

    def __init__(self, update: bool) -> None:
        self.update = update

    def __call__(self, path: Path, text: str) -> None:
        if self.update:
            path.write_text(text, encoding="utf-8")
            return
        assert path.exists(), f"{path.name} is missing: pytest --update-golden writes it"
        assert text == path.read_text(encoding="utf-8")


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Golden:
    """`golden(path, text)`: text must be what the file holds."""
    return Golden(request.config.getoption("--update-golden"))
