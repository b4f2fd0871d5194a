"""Broken programs get errors: never a traceback, a hang or a crash."""

from __future__ import annotations

import contextlib
import random
import time
from pathlib import Path

import pytest

import tilec
from tilec.errors import SourceError
from tilec.kernel import compile as compile_text

SOURCES = [p.read_text() for p in sorted((Path(__file__).parents[1] / "examples").glob("*.tile"))]
TOKENS = [
    "(",
    ")",
    "[",
    "]",
    ",",
    ":",
    "=",
    "->",
    "+",
    "-",
    "*",
    "/",
    "//",
    "%",
    "**",
    "<",
    "<=",
    "==",
    "!=",
    "if",
    "else",
    "and",
    "or",
    "not",
    "sum",
    "max",
    "softmax",
    "kernel",
    "def",
    "axis",
    "assert",
    "sizes",
]
MORE = [
    "sample",
    "inf",
    "i",
    "j",
    "D",
    "Q",
    "0",
    "1e400",
    '"',
    "#",
    "\t",
    "\n",
    "    ",
    "\x00",
    "é",
    "f32",
    "!",
    "@",
    "$",
]
SECONDS = 2.0


def mutate(text: str, rng: random.Random) -> str:
    """One to four changes: of characters, tokens, lines or indentation."""
    for _ in range(rng.randint(1, 4)):
        at = rng.randrange(len(text) + 1)
        to = min(len(text), at + rng.randint(0, 12))
        lines = text.split("\n")
        k = rng.randrange(len(lines))
        match rng.randrange(7):
            case 0:
                text = text[:at] + text[to:]
            case 1:
                text = text[:at] + rng.choice([*TOKENS, *MORE]) + text[at:]
            case 2:
                text = text[:at] + chr(rng.randrange(1, 0x300)) + text[at + 1 :]
            case 3:
                text = "\n".join(
                    [*lines[:k], " " * rng.randint(0, 9) + lines[k].strip(), *lines[k + 1 :]]
                )
            case 4:
                text = "\n".join([*lines[:k], *lines[k + 1 :]])
            case 5:
                text = "\n".join(
                    [*lines[: k + 1], lines[rng.randrange(len(lines))], *lines[k + 1 :]]
                )
            case _:
                text = text[:at] + text[at:to] * rng.randint(2, 30) + text[to:]
    return text


def outcome(text: str) -> None:
    """Compiles a program as far as it goes without data. Raises only what a user may see."""
    with contextlib.suppress(SourceError, tilec.ArgumentError, tilec.UnsupportedError):
        compile_text(text).ir(after="online")


@pytest.mark.parametrize("part", range(10))
def test_mutated_examples(part: int) -> None:
    rng = random.Random(part)
    for _ in range(200):
        text = mutate(rng.choice(SOURCES), rng)
        start = time.monotonic()
        outcome(text)
        assert time.monotonic() - start < 5 * SECONDS, text


DEEP = 10_000


@pytest.mark.parametrize(
    "expression",
    [
        "(" * DEEP,
        "(" * DEEP + "1" + ")" * DEEP,
        "[" * DEEP,
        "f(" * DEEP,
        "-" * DEEP + "1",
        "not " * DEEP + "true",
        "1 + " * DEEP + "1",
        "1 ** " * DEEP + "1",
        "1 if true else " * DEEP + "1",
        "X[" * DEEP + "i" + "]" * DEEP,
        "9" * DEEP,
        "2 ** 9999999999",
        "1 << 9999999999",
        "0x" + "f" * DEEP,
    ],
    ids=lambda e: e[:8].strip(),
)
def test_deep_and_huge_expressions(expression: str) -> None:
    start = time.monotonic()
    outcome(f"kernel k(X[N]) -> Y[i]:\n    Y = X[i] + {expression}\n")
    assert time.monotonic() - start < 5 * SECONDS


def test_definitions_that_double_at_each_step() -> None:
    lines = ["def f0(x) = x + x", *(f"def f{k}(x) = f{k - 1}(f{k - 1}(x))" for k in range(1, 40))]
    text = "\n".join([*lines, "kernel k(X[N]) -> Y[i]:", "    Y = f39(X[i])", ""])
    with pytest.raises(SourceError):
        compile_text(text)
