"""The guide's program and its Python run as printed."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from tilec import pipeline
from tilec.cli import main
from tilec.kernel import compile as compile_text

ROOT = Path(__file__).parents[1]
GUIDE = (ROOT / "docs" / "guide.md").read_text()


def blocks(language: str) -> list[str]:
    """The guide's code blocks of one language."""
    return re.findall(rf"```{language}\n(.*?)```", GUIDE, re.DOTALL)


def test_python_blocks_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    assert blocks("python")
    for block in blocks("python"):
        exec(compile(block, "guide.md", "exec"), {})


def test_console_blocks_hold_what_the_tool_prints(monkeypatch, capsys) -> None:
    monkeypatch.chdir(ROOT)
    for block in blocks("console"):
        command, shown = block.split("\n", 1)
        assert main(shlex.split(command.removeprefix("$ tilec "))) == 0
        assert capsys.readouterr().out == shown


def test_what_it_says_of_prune_is_so() -> None:
    (text,) = blocks("tile")
    assert text == (ROOT / "examples" / "chunks.tile").read_text()
    kernel = compile_text(text)
    after = kernel.ir(after="prune")
    assert " = if(" in after
    assert "first(j)" in after
    assert after.count("select(") >= 1


def test_the_passes_it_names_are_there() -> None:
    named = set(re.findall(r"--after (\w+)", GUIDE)) - {"PASS", "lower"}
    assert named <= set(pipeline.PASSES)
