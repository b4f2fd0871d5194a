"""Blocks that differ in their masks alone, and what becomes of their first windows."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

import tilec
from tests.backends.cuda.hopper import running
from tilec.backends.cuda.hopper.alike import alike
from tilec.backends.cuda.hopper.source import Source
from tilec.backends.cuda.hopper.structure import Structure
from tilec.ir import Map

EXAMPLES = Path(__file__).parents[4] / "examples"
SIZES = {"B": 1, "H": 2, "HK": 2, "M": 300, "N": 300, "D": 32, "E": 32}


def source(name: str) -> Source:
    """The fast kernel of an example."""
    _, sources = running.tiles(tilec.load(EXAMPLES / f"{name}.tile"), "f16", SIZES)
    (out,) = sources.values()
    return out


@pytest.mark.parametrize(
    ("name", "guesses"),
    [
        ("chunks", 1),
        ("gemma2", 1),
        ("document", 3),  # elements decide
        ("causal", 2),  # two blocks only
    ],
)
def test_first_windows_are_one_program_where_masks_are_words(name: str, guesses: int) -> None:
    s = source(name)
    assert s.text.count("float guess") == guesses
    assert ("int at_first" in s.text) == (guesses == 1)


@pytest.mark.parametrize("name", ["chunks", "gemma2"])
def test_what_a_block_masks(name: str) -> None:
    found = alike(source(name).structure)
    assert found is not None
    assert sorted(m for block in found.masked for m in block.values()) == [False, True, True]


@pytest.mark.parametrize("block", range(3))
@pytest.mark.parametrize(("fn", "other"), [("tanh", "exp"), ("exp2", "exp"), ("max", "min")])
def test_blocks_that_compute_something_else_are_not_alike(block: int, fn: str, other: str) -> None:
    s = source("chunks").structure
    changed = with_function(s, block, fn, other)
    assert changed != s
    assert alike(s) is not None
    assert alike(changed) is None


def with_function(s: Structure, number: int, fn: str, other: str) -> Structure:
    """A structure with another function in one of its blocks."""
    b = s.blocks[number]
    middle = tuple(
        replace(op, fn=other) if isinstance(op, Map) and op.fn == fn else op for op in b.middle
    )
    blocks = [replace(b, middle=middle) if k == number else x for k, x in enumerate(s.blocks)]
    return replace(s, blocks=tuple(blocks))
