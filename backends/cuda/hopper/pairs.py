"""Pairs: elements of a tensor for a row and a position, such as a bias, two adjacent ones at a time.

A thread asks for all that it needs of a window before it waits for the products of that window: they arrive meanwhile. They
are in registers then, those of 16 bits two in a word.
"""

from __future__ import annotations

from collections.abc import Iterator

from tilec.backends.cuda.hopper.expression import POSITION, Expression, loaded
from tilec.backends.cuda.hopper.scope import Scope
from tilec.backends.cuda.hopper.structure import Block, Structure
from tilec.dtypes import SIZES
from tilec.ir import Load, Operand, walk

TYPES = ("f32", "f16", "bf16", "bool")
"""The element types that come in pairs."""


def pairs(s: Structure, block: Block) -> tuple[Load, ...]:
    """The loads of a block that come in pairs: of a row and a position, by an index that is known before its loop."""
    return tuple(_pairs(s, block))


def _pairs(s: Structure, block: Block) -> Iterator[Load]:
    own = {v.name for op in walk(block.loop.body) for v in op.results}
    for op in block.middle:
        if not isinstance(op, Load) or set(op.result.type.axes) != {s.row, s.stream}:
            continue
        others = [x for x in op.index if x != s.stream]
        known = not own.intersection(map(str, others))
        if known and _along(s, op) and op.result.type.dtype in TYPES:
            yield op


def _along(s: Structure, op: Load) -> bool:
    """Whether a load has the positions of the streamed axis along one dimension, which is as long as the axis."""
    if op.tensor not in s.kernel.tensors or op.index.count(s.stream) != 1:
        return False
    dims = s.kernel.tensors[op.tensor].dims
    return dims[op.index.index(s.stream)] == s.kernel.extents[s.stream]


def registers(s: Structure) -> int:
    """The registers per thread that hold them."""
    return max(sum(words(s, op) for op in pairs(s, b)) for b in s.blocks)


def words(s: Structure, load: Load) -> int:
    """The words of a thread's elements of a window."""
    return s.columns // 2 if load.result.type.dtype == "f32" else s.columns // 4


def fetched(scope: Scope, load: Load, ragged: bool) -> str:
    """Asks for the elements of a window; gives the array that they come to."""
    s, out = scope.structure, scope.out
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
    out.add(f"{ctype} {array}[{words(s, load)}];{scope.comment(load)}")
    place = load.index.index(s.stream)
    bound = "rest" if ragged else "MOST"
    out.add(f"pairs_of<{s.columns // 8}>({array}, {at}, {there}, {name}_stride{place}, {bound});")
    return array


def _index(scope: Scope, x: Operand) -> str:
    if x == scope.structure.stream:
        return Expression("stream_lane", "int", POSITION).text
    return f"({scope.operand(x).whole().text})"


def element(array: str, load: Load) -> Expression:
    """An element of what was asked for, in a loop over blocks of columns `c` and their elements `x`."""
    dtype = load.result.type.dtype
    if dtype == "f32":
        return loaded(f"{array}[4 * c + x]", dtype)
    word, bits = f"{array}[2 * c + (x >> 1)]", 8 * SIZES[dtype]
    if dtype == "bool":
        return Expression(f"(({word} >> {bits} * (x & 1) & 255) != 0)", "bool")
    return loaded(f"(u16)({word} >> {bits} * (x & 1))", dtype)
