"""What the caller of `compile` chooses, checked before anything uses it."""

from __future__ import annotations

import operator
import os
from collections.abc import Collection, Iterable, Mapping
from typing import cast

from tilec.dtypes import SIZES, DType
from tilec.errors import ArgumentError
from tilec.renaming import stem


def text(what: str, x: object) -> str:
    """A text. Raises ArgumentError for anything else."""
    if not isinstance(x, str):
        raise ArgumentError(f"{what}: expected a str, got {x!r}, of type {type(x).__name__}")
    return x


def program(x: object) -> str:
    """The text of a program. Raises ArgumentError for anything else, a path included."""
    written = text("the program's text", x)
    if written.endswith(".tile") and "\n" not in written:
        raise ArgumentError(
            f"compile: expected the text of a program, got the path {x!r}; tilec.load takes a file"
        )
    return written


def path(x: object) -> str:
    """A path as a text. Raises ArgumentError for what is none."""
    try:
        return os.fsdecode(cast("str", x))
    except TypeError:
        raise ArgumentError(
            f"path: expected a str or a pathlib.Path, got {x!r}, of type {type(x).__name__}"
        ) from None


def extents(tile: object) -> dict[str, int]:
    """Tile extents by axis, as Python's integers; whether they fit, the passes say.

    Raises ArgumentError for what is no mapping from names to integers.
    """
    return {text("tile: an axis", a): _extent(a, n) for a, n in _mapping("tile", tile).items()}


def tiled(tile: Iterable[str], kernel: str, axes: Collection[str]) -> None:
    """Raises ArgumentError for an axis to tile that a kernel, whose axes these are, cannot have.

    Passes make further axes, and name them after the program's: `i_r`.
    """
    for a in tile:
        if a not in axes and not a.startswith(tuple(f"{stem(known)}_" for known in axes)):
            there = f"its axes are {', '.join(axes)}" if axes else "it has none"
            raise ArgumentError(f"tile: {kernel} has no axis {a!r}; {there}")


def schedule(fields: object) -> dict[str, object]:
    """Schedule fields by name. Raises ArgumentError for what is no mapping from names."""
    return {text("schedule: a field", n): x for n, x in _mapping("schedule", fields).items()}


def dtype(x: object) -> DType:
    """An element type. Raises ArgumentError for what is none."""
    if not isinstance(x, str) or x not in SIZES:
        raise ArgumentError(f"dtype: expected one of {', '.join(SIZES)}, got {x!r}")
    return x


def seed(x: object) -> int:
    """The seed of sample data. Raises ArgumentError for what is no integer, or negative."""
    value = _integer(x)
    if value is None or value < 0:
        raise ArgumentError(f"seed: expected an integer of 0 or more, got {x!r}")
    return value


def sizes(given: Mapping[str, object]) -> dict[str, int]:
    """Dimension sizes as Python's integers. Raises ArgumentError for one that is no integer, or negative."""
    return {d: _size(d, n) for d, n in given.items()}


def _mapping(what: str, x: object) -> Mapping[object, object]:
    if x is None:
        return {}
    if not isinstance(x, Mapping):
        example = "{'i': 128, 'j': 64}" if what == "tile" else "{'stages': 2}"
        raise ArgumentError(f"{what}: expected a dict such as {example}, got {x!r}")
    return cast("Mapping[object, object]", x)


def _extent(axis: object, n: object) -> int:
    value = _integer(n)
    if value is None or value < 1:
        raise ArgumentError(f"tile: expected an integer of 1 or more for axis {axis}, got {n!r}")
    return value


def _size(dim: str, n: object) -> int:
    value = _integer(n)
    if value is None or not 0 <= value < 1 << 63:
        raise ArgumentError(f"size {dim}: expected an integer of 0 or more, got {n!r}")
    return value


def _integer(n: object) -> int | None:
    try:
        return operator.index(cast("int", n))
    except TypeError:
        return None
