"""Kernels without what no call looks at: the header, and of tiles the buffers and grids."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from tilec import plain
from tilec.errors import Span
from tilec.ir import (
    Absent,
    Argument,
    Assertion,
    Axis,
    Buffer,
    Cast,
    Grid,
    Kernel,
    Map,
    Op,
    Output,
    Tensor,
    Type,
    Value,
)
from tilec.scalar import Compiled, Number, Scalar, compiled
from tilec.shelf import Shelf
from tilec.wide import counted

HEADER = plain.classes(Kernel, Tensor, Argument, Output, Axis, Assertion, Span)
"""What the header of a kernel is made of."""
OPS = HEADER | plain.classes(Buffer, Grid, Map, Cast, Value, Type, Absent)
"""And the ops that an outline may hold."""


def header(kernel: Kernel) -> Kernel:
    """The kernel without its ops."""
    return replace(kernel, body=())


def placed(kernel: Kernel, file: str) -> Kernel:
    """The kernel as the program in a file of this name says it: the file may have had another one when it was read."""
    axes = tuple(replace(a, span=moved(a.span, file)) for a in kernel.axes)
    assertions = tuple(replace(a, span=moved(a.span, file)) for a in kernel.assertions)
    return replace(kernel, axes=axes, assertions=assertions)


def moved(span: Span | None, file: str) -> Span | None:
    """A place in a file of this name."""
    return span and replace(span, file=file)


@dataclass(frozen=True)
class Outline:
    """What a call looks at of a kernel in tiles. `kernel`: it, with nothing in its grids; `digest`: a hash of its text;
    `counted`: the scalars that it takes as numbers, and not as seeds; `pieces`: into how many pieces its streamed axes would
    be cut."""

    kernel: Kernel
    digest: str
    counted: tuple[str, ...]
    pieces: tuple[Scalar, ...] = ()

    @functools.cached_property
    def _pieces(self) -> tuple[Compiled, ...]:
        return tuple(map(compiled, self.pieces))

    def cut(self, known: Mapping[str, Number]) -> bool:
        """Whether some axis would be cut: fewer tiles than workers, and enough to do for several of them."""
        return any(int(n(known)) > 1 for n in self._pieces)


KNOWN = OPS | plain.classes(Outline)


def outline(kernel: Kernel, pieces: tuple[Scalar, ...] = ()) -> Outline:
    """The outline of a kernel in tiles."""
    return Outline(bare(kernel), digest(kernel), numbers(kernel), pieces)


def bare(kernel: Kernel) -> Kernel:
    """A kernel in tiles with nothing in its grids."""
    body = tuple(kept for op in kernel.body if (kept := _bare(op)) is not None)
    return replace(kernel, body=body)


def numbers(kernel: Kernel) -> tuple[str, ...]:
    """The scalar arguments that some op takes as a number, and not as a seed."""
    return tuple(sorted(counted(kernel).intersection(kernel.arguments))) if kernel.arguments else ()


def _bare(op: Op) -> Op | None:
    match op:
        case Grid():
            return replace(op, body=(), span=None)
        case Buffer():
            return replace(op, span=None)
        case _:
            return None


def digest(kernel: Kernel) -> str:
    """A hash of the text of a kernel."""
    from tilec import text

    return hashlib.sha256(text.show(kernel).encode()).hexdigest()


class Tiles:
    """A kernel in tiles: its outline is known, all of it is made when somebody looks. `shelf`: for what is known of it."""

    def __init__(
        self, outline: Outline, make: Callable[[], Kernel], shelf: Shelf | None = None
    ) -> None:
        self.outline, self._make, self.shelf = outline, make, shelf

    @staticmethod
    def of(kernel: Kernel) -> Tiles:
        """One that is made already."""
        return Tiles(outline(kernel), lambda: kernel)

    @functools.cached_property
    def kernel(self) -> Kernel:
        """All of it."""
        return self._make()
