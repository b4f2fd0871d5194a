"""The grammars of the language and of the IR text."""

from __future__ import annotations

from importlib.resources import files


def source(name: str) -> str:
    """The text of a grammar: `tile` or `ir`."""
    return files("tilec.grammar").joinpath(f"{name}.lark").read_text(encoding="utf-8")
