"""README's blocks run. Console blocks hold what the tool prints; `--update-golden` writes them anew."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from tilec.cli import main

ROOT = Path(__file__).resolve().parents[1]
README = ROOT / "README.md"
BLOCK = re.compile(r"```(\w*)\n(.*?)```\n", re.DOTALL)


def blocks(language: str) -> list[str]:
    found = [body for kind, body in BLOCK.findall(README.read_text()) if kind == language]
    assert found
    return found


def test_the_opening_program_is_the_example():
    assert blocks("tile")[0] == (ROOT / "examples" / "causal.tile").read_text()


def test_python_blocks_run_and_print_what_is_shown(monkeypatch, capsys):
    monkeypatch.chdir(ROOT)
    scope: dict[str, object] = {}
    for block in blocks("python"):
        exec(compile(block, str(README), "exec"), scope)
    assert capsys.readouterr().out == blocks("")[0]


@pytest.mark.parametrize("number", range(len(blocks("console"))))
def test_console_blocks_hold_what_the_tool_prints(number, monkeypatch, capsys, request):
    monkeypatch.chdir(ROOT)
    block = blocks("console")[number]
    command = block.splitlines()[0].removeprefix("$ tilec ")
    assert main(shlex.split(command)) == 0
    shown = f"$ tilec {command}\n{capsys.readouterr().out}"
    if request.config.getoption("--update-golden", default=False):
        README.write_text(
            README.read_text().replace(f"```console\n{block}```", f"```console\n{shown}```")
        )
    else:
        assert block == shown


def test_commands_to_install_and_test():
    install, test = blocks("sh")
    assert "pip install . " in install
    assert "run examples/causal.tile --check" in install
    assert "pip install -e '.[test]'" in test
    assert "-m pytest" in test


def test_links_lead_somewhere():
    prose = BLOCK.sub("", README.read_text())
    for target in re.findall(r"\]\(([^)#]+)\)", prose):
        assert (ROOT / target).exists(), target
