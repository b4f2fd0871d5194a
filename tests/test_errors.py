"""What a user reads for each mistake: one tiny program per mistake, with the whole message."""

from __future__ import annotations

from pathlib import Path

import pytest

from tilec.check import check
from tilec.errors import Diagnostic, SourceError, Span
from tilec.parse import parse
from tilec.source import decode

FOLDER = Path(__file__).parent / "errors"
PROGRAMS = sorted(FOLDER.glob("*.tile"))


def mistakes(text: str) -> SourceError:
    with pytest.raises(SourceError) as caught:
        check(parse(text, "a.tile"))
    return caught.value


@pytest.mark.parametrize("path", PROGRAMS, ids=lambda p: p.stem)
def test_message(path, golden):
    with pytest.raises(SourceError) as caught:
        check(parse(path.read_text(encoding="utf-8"), path.name))
    golden(path.with_suffix(".expected"), f"{caught.value}\n")


def test_every_program_has_its_message_and_none_is_left_over():
    assert len(PROGRAMS) >= 60
    assert {p.stem for p in PROGRAMS} == {p.stem for p in FOLDER.glob("*.expected")}


@pytest.mark.parametrize("path", PROGRAMS, ids=lambda p: p.stem)
def test_messages_never_speak_of_the_parser(path):
    text = path.with_suffix(".expected").read_text(encoding="utf-8")
    for word in ("Expected", "Token", "lark", "Traceback", "$END", "RPAR", "LSQB", "None"):
        assert word not in text or word in path.read_text(encoding="utf-8")


HEAD = "kernel f(X[N], Y: i32[N], n: int) -> O[i]:\n"


@pytest.mark.parametrize(
    ("line", "columns"),
    [
        ("    O = X[i] * skale", (16, 21)),
        ("    O = X[i, i]", (9, 16)),
        ("    O = X[i] if Y[i] else 0", (17, 21)),
        ("    O = X[i / 2] + X[i]", (11, 16)),
        ("    O = sigmod(X[i])", (9, 15)),
        ("    O = exp(X[i]", (12, 13)),
        ("    O = X[i] ! 2", (14, 15)),
        ("    O = X[i] *", (15, 16)),
        ("    O = exp(X[i], 2)   # twice", (9, 21)),
        ("    O = (X[i] + sum[n](X[i]))", (21, 22)),
    ],
)
def test_columns(line, columns):
    (one,) = mistakes(HEAD + line + "\n").diagnostics
    assert (one.span.line, one.span.column, one.span.end_line, one.span.end_column) == (
        2,
        columns[0],
        2,
        columns[1],
    )


def test_place_in_a_statement_of_several_lines():
    text = HEAD + "    O = X[i] + (1 +\n        # why\n        skale * 2)\n"
    (one,) = mistakes(text).diagnostics
    assert (one.span.line, one.span.column, one.span.end_column) == (4, 9, 14)


def test_attributes_are_those_of_the_first_mistake():
    error = mistakes(HEAD + "    a = exp(X[i], 1)\n    O = X[i] * skale + n2\n")
    assert (error.file, error.line, error.column) == ("a.tile", 2, 9)
    assert [d.span.line for d in error.diagnostics] == [2, 3, 3]
    assert error.hint == "write exp(x)"
    assert str(error).count("error: ") == 3


def test_a_wrong_value_is_reported_once():
    error = mistakes(
        HEAD + "    a = sigmod(X[i])\n    b = a + 1 if a > 0 else exp(a)\n    O = b + X[a]\n"
    )
    assert len(error.diagnostics) == 1


def test_a_line_that_cannot_be_read_hides_no_mistake_elsewhere():
    error = mistakes(HEAD + "    a = (X[i]\n    b = X[i] *\n    O = a + b + sigmod(X[i])\n")
    assert [d.span.line for d in error.diagnostics] == [2, 3, 4]


def test_all_kernels_are_checked():
    error = mistakes(HEAD + "    O = X[i] * k\n\nkernel g(X[N]) -> O[i]:\n    O = X[i] + X\n")
    assert [d.span.line for d in error.diagnostics] == [2, 5]


def test_a_long_line_is_cropped():
    text = "x" * 1000 + "yy" + "z" * 1000
    lines = Diagnostic(Span("a", 1, 1001, 1, 1003), "m").render(text).split("\n")
    assert len(lines[1]) <= 162
    assert lines[1][lines[2].index("^") :].startswith("yy")
    assert lines[2].count("^") == 2


def test_bytes_that_are_not_utf8():
    with pytest.raises(SourceError) as caught:
        decode(b"# caf\xc3\xa9\nker\xffnel", "a.tile")
    assert (caught.value.line, caught.value.column) == (2, 4)
    assert "0xff" in str(caught.value)
    assert decode(b"\xef\xbb\xbfa", "a.tile") == "a"
