"""Diagonals: elements of a tensor by the difference of a position and a row, such as a bias by distance.

A thread has two rows, 8 apart, and columns in blocks of 8. So what its first row has in one block, its second row has in the
next one: of each diagonal an element is loaded once, about half as many as there are.
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from dataclasses import dataclass

from tilec.backends.cuda.hopper.expression import POSITION, Expression, loaded
from tilec.backends.cuda.hopper.pointwise import pointwise
from tilec.backends.cuda.hopper.scope import Scope
from tilec.backends.cuda.hopper.structure import Structure
from tilec.dtypes import kind
from tilec.ir import Load, Map, Op, Operand, walk

TYPES = {"f32": "float", "f16": "u16", "bf16": "u16"}
"""The element types, in C."""


@dataclass(frozen=True)
class Diagonals:
    """`place`: which index is the difference. `sign`: that of the position in it. `defs`: what it is computed from."""

    load: Load
    place: int
    sign: int
    defs: Mapping[str, Map]

    def words(self, s: Structure) -> int:
        """The words of a thread's elements of a window."""
        return s.columns // 4 + 2

    def fetched(self, scope: Scope, ragged: bool) -> str:
        """Asks for the elements of a window; gives the array that they come to."""
        s, out, load = scope.structure, scope.out, self.load
        name, dtype = scope.names.of(load.tensor), load.result.type.dtype
        array, at, first = (scope.names.fresh(name + x) for x in ("_diagonals", "_at", "_first"))
        scope.used_pointers[load.tensor] = None
        terms: list[str] = []
        checks: list[str] = []
        dims = scope.dims(load.tensor)
        for k, (x, dim) in enumerate(zip(load.index, dims, strict=True)):
            text = self.index(scope, x).whole().text
            e = first if k == self.place else f"(i64)({text})"
            if k == self.place:
                out.add(f"const i64 {first} = (i64)({text}) - {8 * self.sign};")
            terms.append(f"{e} * {scope.stride(load.tensor, k)}")
            if k != self.place and not scope.in_range(x, dim):
                checks.append(f"(u64){e} < (u64){scope.scalar_expression(dim).text}")
        element = TYPES[dtype]
        out.add(f"const {element}* const {at} = (const {element}*){name} + ({' + '.join(terms)});")
        ctype = "float" if dtype == "f32" else "u32"
        out.add(f"{ctype} {array}[{self.words(s)}];{scope.comment(load)}")
        stride = f"{self.sign} * {scope.stride(load.tensor, self.place)}"
        length = scope.scalar_expression(dims[self.place]).text
        call = f"diagonals_of<{s.columns // 8}, {self.sign}>"
        there = " && ".join(checks) or "true"
        out.add(f"{call}({array}, {at}, {stride}, {first}, {length}, {there});")
        return array

    def index(self, scope: Scope, x: Operand) -> Expression:
        """An index at a thread's first row and column."""
        s = scope.structure
        if x == s.stream:
            return Expression("stream_lane", "int", POSITION)
        if x == s.row:
            return Expression("row_i[0]", "int", POSITION)
        op = self.defs.get(x) if isinstance(x, str) else None
        if op is None:
            return scope.operand(x)
        return pointwise(op.fn, [self.index(scope, y) for y in op.args], op.result.type.dtype)

    def element(self, array: str) -> Expression:
        """An element of what was asked for, in a loop over blocks of columns `c` and their elements `x`."""
        dtype = self.load.result.type.dtype
        place = f"{array}[2 * (c + 1 - (x >> 1)) + (x & 1)]"
        return loaded(place if dtype == "f32" else f"(u16){place}", dtype)


def diagonals(s: Structure, load: Load, own: Mapping[str, Op]) -> Diagonals | None:
    """A load by a difference, where it is one. `own`: what is defined in its loop."""
    if load.result.type.dtype not in TYPES:
        return None
    around = {v.name: op for op in walk(s.prologue) for v in op.results if s.row in v.type.axes}
    defs = {x: op for x, op in {**around, **own}.items() if isinstance(op, Map)}
    other = (own.keys() | around.keys()) - defs.keys()
    slopes = [_slopes(s, x, defs, other) for x in load.index]
    places = [k for k, slope in enumerate(slopes) if slope != (0, 0)]
    match [slopes[k] for k in places]:
        case [(-1, 1) | (1, -1) as slope]:
            return Diagonals(load, places[0], slope[1], defs)
        case _:
            return None


def _slopes(
    s: Structure, x: Operand, defs: Mapping[str, Map], other: Container[str]
) -> tuple[int, int] | None:
    """By how much an integer grows with the row, and with the position; None where that is not known before the loop.

    `defs`: what is computed from others. `other`: what is not there, or differs from row to row.
    """
    if x in (s.row, s.stream):
        return (1, 0) if x == s.row else (0, 1)
    op = defs.get(x) if isinstance(x, str) else None
    if op is None:
        return None if str(x) in other else (0, 0)
    slopes = [_slopes(s, y, defs, other) for y in op.args]
    if kind(op.result.type.dtype) != "int" or None in slopes:
        return None
    pairs = [p for p in slopes if p is not None]
    match op.fn:
        case "neg":
            return -pairs[0][0], -pairs[0][1]
        case "add":
            return pairs[0][0] + pairs[1][0], pairs[0][1] + pairs[1][1]
        case "sub":
            return pairs[0][0] - pairs[1][0], pairs[0][1] - pairs[1][1]
        case _:
            return None if any(p != (0, 0) for p in pairs) else (0, 0)
