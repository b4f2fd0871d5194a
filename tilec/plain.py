"""Frozen dataclasses as JSON and back: of a closed list of classes, so that a file can say nothing else.

A list begins with what it is: `["Axis", "i", "M"]` is an `Axis`, `["", 1, 2]` a tuple, `["{", "i", 8]` a dictionary.
Numbers, texts, truth values and None stand for themselves.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import math
from typing import Any, cast

Classes = dict[str, type]


def classes(*found: type) -> Classes:
    """The classes that a text may be made of."""
    return {c.__name__: c for c in found}


def write(x: object) -> str:
    """As text."""
    return json.dumps(_listed(x), separators=(",", ":"))


def read(text: str, known: Classes) -> Any:
    """The inverse of `write`. Raises KeyError for a class that is not among those known."""
    return _made(json.loads(text, parse_constant=_CONSTANTS.__getitem__), known)


_CONSTANTS = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
"""Floats; a NaN is the one that the IR has."""


def _listed(x: object) -> object:
    match x:
        case tuple():
            return ["", *map(_listed, cast("tuple[object, ...]", x))]
        case dict():
            pairs = cast("dict[object, object]", x).items()
            return ["{", *(_listed(y) for pair in pairs for y in pair)]
        case None | str() | int() | float():
            return x
        case _:
            names = _fields(type(x))
            return [type(x).__name__, *(_listed(getattr(x, n)) for n in names)]


def _made(x: Any, known: Classes) -> Any:
    if type(x) is not list:
        return x
    parts = cast("list[Any]", x)
    word = parts[0]
    rest = [_made(y, known) if type(y) is list else y for y in parts[1:]]
    if word == "":
        return tuple(rest)
    if word == "{":
        return dict(zip(rest[::2], rest[1::2], strict=True))
    made = known[word]
    return made(**dict(zip(_fields(made), rest, strict=True)))


@functools.cache
def _fields(kind: Any) -> tuple[str, ...]:
    return tuple(f.name for f in dataclasses.fields(kind) if f.init)
