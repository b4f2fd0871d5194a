"""The language reference: every program in it compiles."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tilec.check import check, lower
from tilec.errors import SourceError
from tilec.parse import LONGEST, LONGEST_LINE, parse
from tilec.scope import BUILT_IN, CONSTANTS, REDUCTIONS
from tilec.verify import verify

TEXT = (Path(__file__).resolve().parents[1] / "docs" / "language.md").read_text(encoding="utf-8")
PROGRAMS = re.findall(r"^```\n(.*?)^```$", TEXT, flags=re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("text", PROGRAMS, ids=lambda t: re.findall(r"kernel (\w+)", t)[0])
def test_program(text):
    program = parse(text)
    check(program)
    for name in program.kernels:
        verify(lower(program, name, {}))


def test_there_are_programs():
    assert len(PROGRAMS) >= 8


def test_every_function_and_constant_is_named():
    words = set(re.findall(r"\w+", TEXT))
    assert words >= {*BUILT_IN, *REDUCTIONS, *CONSTANTS}


def test_the_message_shown_is_the_message():
    (shown,) = re.findall(r"^```text\n(.*?)^```$", TEXT, flags=re.MULTILINE | re.DOTALL)
    text = (
        "kernel causal(Q[B, H, M, D], K[B, H, N, E]) -> S[b, h, i, j]:\n"
        "    S = sum[d](Q[b, h, i, d] * K[b, h, j, d]) / sqrt(D)\n"
    )
    with pytest.raises(SourceError) as caught:
        check(parse(text, "causal.tile"))
    assert str(caught.value) == shown.rstrip("\n")


def test_limits_are_those_of_the_code():
    assert f"{LONGEST:_}".replace("_", " ") in TEXT
    assert f"{LONGEST_LINE:_}".replace("_", " ") in TEXT
