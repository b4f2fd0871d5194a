"""Pairs: elements of a tensor for a row and a position, such as a bias, two adjacent ones at a time.

Those of 16 bits are two in a word.
"""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass

from tilec.backends.cuda.hopper.expression import POSITION, Expression, loaded
from tilec.backends.cuda.hopper.scope import Scope
from tilec.backends.cuda.hopper.structure import Structure
from tilec.dtypes import SIZES
from tilec.ir import Load, Operand

TYPES = ("f32", "f16", "bf16", "bool")
"""The element types that come in pairs."""


@dataclass(frozen=True)
class Pairs:
    """A load that comes in pairs."""

    load: Load

    def words(self, s: Structure) -> int:
        """The words of a thread's elements of a window."""
        return s.columns // 2 if self.load.result.type.dtype == "f32" else s.columns // 4

    def fetched(self, scope: Scope, ragged: bool) -> str:
        """Asks for the elements of a window; gives the array that they come to."""
        s, out, load = scope.structure, scope.out, self.load
        name, dtype = scope.names.of(load.tensor), load.result.type.dtype
        array, at, there = (scope.names.fresh(name + x) for x in ("_pairs", "_at", "_there"))
        scope.used_pointers[load.tensor] = None
        terms: list[str] = []
        checks: list[str] = []
        for k, (x, dim) in enumerate(zip(load.index, scope.dims(load.tensor), strict=True)):
            e = _index(scope, x)
            terms.append(f"(i64){e} * {name}_stride{k}")
            if x != s.stream and not scope.in_range(x, dim):
                checks.append(f"(u64)(i64)({e}) < (u64){scope.scalar_expression(dim).text}")
        ctype = "float" if dtype == "f32" else "u32"
        element = {"f32": "float", "bool": "unsigned char"}.get(dtype, "u16")
        out.add(
            f"const {element}* {at}[2]; ROWS {at}[r] = (const {element}*){name} + ({' + '.join(terms)});"
        )
        out.add(f"bool {there}[2]; ROWS {there}[r] = {' && '.join(checks) or 'true'};")
        out.add(f"{ctype} {array}[{self.words(s)}];{scope.comment(load)}")
        place = load.index.index(s.stream)
        bound = "rest" if ragged else "MOST"
        out.add(
            f"pairs_of<{s.columns // 8}>({array}, {at}, {there}, {name}_stride{place}, {bound});"
        )
        return array

    def element(self, array: str) -> Expression:
        """An element of what was asked for, in a loop over blocks of columns `c` and their elements `x`."""
        dtype = self.load.result.type.dtype
        if dtype == "f32":
            return loaded(f"{array}[4 * c + x]", dtype)
        word, bits = f"{array}[2 * c + (x >> 1)]", 8 * SIZES[dtype]
        if dtype == "bool":
            return Expression(f"(({word} >> {bits} * (x & 1) & 255) != 0)", "bool")
        return loaded(f"(u16)({word} >> {bits} * (x & 1))", dtype)


def pairs(s: Structure, load: Load, own: Container[str]) -> Pairs | None:
    """A load of a row and a position along one dimension, by an index that is known before its loop; `own`: the names
    defined in that."""
    if load.tensor not in s.kernel.tensors or load.index.count(s.stream) != 1:
        return None
    if any(str(x) in own for x in load.index) or load.result.type.dtype not in TYPES:
        return None
    dims = s.kernel.tensors[load.tensor].dims
    whole = dims[load.index.index(s.stream)] == s.kernel.extents[s.stream]
    return Pairs(load) if whole else None


def _index(scope: Scope, x: Operand) -> str:
    if x == scope.structure.stream:
        return Expression("stream_lane", "int", POSITION).text
    return f"({scope.operand(x).whole().text})"
