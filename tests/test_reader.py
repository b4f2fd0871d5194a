"""Mistakes in an IR text: each is reported with its place, and none as a Python error."""

from __future__ import annotations

import contextlib
import random

import pytest

from tests.kernels import LENGTHS
from tilec.errors import SourceError
from tilec.reader import read

MISTAKES = {
    "kernel": (1, 7, "ends too early"),
    "kernel f() -> {": (1, 16, "ends inside a kernel"),
    "kernel f() -> {\n  x: f33 = add(a)\n}": (2, 6, "'f33' is no element type"),
    "kernel f(x: flaot) -> {\n}": (1, 13, "no type of a scalar"),
    "kernel f() -> {\n  x: f32 @vram = add(a, b)\n}": (2, 11, "no memory space"),
    "kernel f() -> {\n  x: f32 = adds(a, b)\n}": (2, 12, "no op is called 'adds'"),
    "kernel f() -> {\n  x: f32 = mean(a)\n}": (2, 12, "mean needs over="),
    "kernel f() -> {\n  x: f32 = contract(a, over=d)\n}": (2, 12, "needs one more operand, its y"),
    "kernel f() -> {\n  x: f32 = contract(a, b)\n}": (2, 12, "needs over="),
    "kernel f() -> {\n  x: f32 = contract(a, b, c, over=d)\n}": (2, 12, "takes fewer operands"),
    "kernel f() -> {\n  x: f32 = contract(a, b, over=[d:1])\n}": (
        2,
        27,
        "must be an axis or a list",
    ),
    "kernel f() -> {\n  x: f32 = contract(a, b, over=d, over=e)\n}": (2, 12, "given twice"),
    "kernel f() -> {\n  x: f32 = load(1, b)\n}": (2, 12, "must be a name"),
    "kernel f() -> {\n  x: f32 = load(T, b, guarded=3)\n}": (2, 23, "must be true or false"),
    "kernel f() -> {\n  x: f32 = cast(b, to=f33)\n}": (2, 20, "must be one of"),
    "kernel f() -> {\n  x: f32 = cast(b, to=f32, of=3)\n}": (2, 28, "no attribute of"),
    "kernel f() -> {\n  for(axis=j, tile=x) as () {\n  }\n}": (2, 15, "must be an integer"),
    "kernel f() -> {\n  for(axis=j, note=x) as () {\n  }\n}": (2, 15, "text between quotes"),
    'kernel f() -> {\n  for(axis="j") as () {\n  }\n}': (2, 7, "a name or a literal"),
    "kernel f() -> {\n  x: f32 = for(0, axis=j) as (a, b) {\n  }\n}": (
        2,
        12,
        "1 results and 2 arguments",
    ),
    "kernel f() -> {\n  grid(axes=b) {\n  }\n}": (2, 8, "with their tile extents"),
    "kernel f() -> {\n  if(c) {\n  }\n}": (2, 3, "needs one more region"),
    "kernel f() -> {\n  x: f32 = add(a, b) {\n  }\n}": (2, 12, "fewer regions"),
    "kernel f() -> {\n  x: f32 = add(a, b) as (c) {\n  }\n}": (2, 12, "add has no arguments"),
    "kernel f() -> {\n  x: f32 = neg(-y)\n}": (2, 17, "is no operand"),
    "kernel f() -> {\n  axis b < 3 $\n}": (2, 14, "unexpected character '$'"),
    "kernel f() -> {\n  axis b < sqrtt(3)\n}": (2, 12, "no scalar function"),
    'kernel f() -> {\n  assert x, "a\n}': (2, 13, "unexpected character"),
    'kernel f() -> {\n  assert x, "\\q"\n}': (2, 13, "escape"),
    "kernel f(x: int = " + "-" * 999 + "x) -> {\n}": (1, 767, "nested more than 250 deep"),
    "kernel f() -> {\n  x: f32 = neg(" + "1" * 5000 + ")\n}": (2, 16, "more than 4000 digits"),
    "kernel f() -> {\n" + "grid(axes=[]) {\n" * 10_000: (65, 1, "nested more than 64 deep"),
}


@pytest.mark.parametrize("text", MISTAKES, ids=lambda t: t[-40:])
def test_mistakes_have_a_place(text: str) -> None:
    line, column, message = MISTAKES[text]
    with pytest.raises(SourceError) as e:
        read(text, "a.ir")
    assert (e.value.file, e.value.line, e.value.column) == ("a.ir", line, column)
    assert message in str(e.value)


def test_any_damage_is_reported() -> None:
    rng = random.Random(1)
    reported = 0
    for _ in range(150):
        at = rng.randrange(len(LENGTHS))
        damaged = (
            LENGTHS[:at]
            + rng.choice(["", "(", "}", "=", "\n", "j", "9", ",", "\0", "`", '"'])
            + LENGTHS[at + 1 :]
        )
        # either it is still a text, or the mistake has a place; nothing else is raised
        with contextlib.suppress(SourceError):
            read(damaged)
            continue
        reported += 1
    assert reported > 50
