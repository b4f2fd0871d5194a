"""Contractions in register tiles: a few rows of one operand, broadcast, times a few vectors of the other.

The vector operand has the vector axis in consecutive lanes, the other one is read element by element. Neither is packed:
tiles in scratch have constant strides, so all rows are reached from one address. A tile of `rows` × `vectors`
accumulators, `vectors` operands and one broadcast must fit the registers.

`Nests.product` says which contractions these are: those of two tiles of f32 or of f64. Processors that multiply bf16
(AVX512-BF16, AMX; `Machine.has` tells) would have a class like `Product` beside it, chosen there, for tiles that are kept
in 16 bits; today all 16-bit elements are f32 in scratch.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tilec.backends.cpu.jit import Machine
from tilec.backends.cpu.points import Point, Window
from tilec.backends.cpu.tiles import LINE, Tile
from tilec.backends.cpu.vector import BYTES, Emit, Kind

VECTORS = 2
"""Vectors of f32 in a panel; there are twice as many of f64."""
MOST = 12
"""Rows beyond which LLVM keeps something of a tile in memory, though there be registers for it."""
SOON = 4
"""Steps of a summed axis between asking for a row of memory and reading it."""
SPREAD = 12
"""Vectors of a tile whose rows lie anywhere: each row takes a register for its address."""


def rows_for(machine: Machine, kind: Kind) -> int:
    """Rows of a register tile: the most that leave room for the operands, and for a product where that is no part of a
    fused multiply-add."""
    vectors = vectors_of(kind)
    others = vectors + 1 if machine.fma else vectors + 2
    return min(MOST, (machine.registers - others) // vectors)


def spread_for(machine: Machine, kind: Kind) -> int:
    """The same for rows that lie anywhere."""
    return min(rows_for(machine, kind), SPREAD // vectors_of(kind))


def vectors_of(kind: Kind) -> int:
    """Vectors of a panel."""
    return VECTORS * BYTES[kind] // BYTES["f32"]


def unroll_for(machine: Machine) -> int:
    """Steps of the summed axis per iteration: one where products take registers of their own, for want of more."""
    return 2 if machine.fma else 1


@dataclass(frozen=True)
class Product:
    """A contraction that fits register tiles: `lanes` is the vector operand, `other` the broadcast one.

    `over` are the summed axes, the longest last; `row` the axis of `other` that a tile covers some rows of, which follow
    one another unless they are `spread`.
    """

    lanes: Tile
    other: Tile
    over: tuple[str, ...]
    row: str | None
    spread: bool = False

    def total(
        self,
        e: Emit,
        points: Sequence[Point],
        windows: Mapping[str, Window],
        start: Sequence[Sequence[Any]],
    ) -> list[list[Any]]:
        """start[r][part] plus the sum of products, for the rows at these points."""
        parts = points[0].parts
        out = self.outer(e, self.over, points, windows, [x for row in start for x in row])
        return [out[r * parts : (r + 1) * parts] for r in range(len(points))]

    def outer(
        self,
        e: Emit,
        over: Sequence[str],
        points: Sequence[Point],
        windows: Mapping[str, Window],
        flat: list[Any],
    ) -> list[Any]:
        """The loops over all summed axes but the last, around `inner`. `flat`: the sums so far, all rows of vectors."""
        axis, *rest = over
        if not rest:
            return self.inner(e, axis, points, windows[axis], flat)

        def body(k: Any, held: list[Any]) -> list[Any]:
            return self.outer(e, rest, [p.on(axis, k) for p in points], windows, held)

        return e.loop(windows[axis].begin, windows[axis].count, 1, flat, body, name=axis)

    def inner(
        self, e: Emit, axis: str, points: Sequence[Point], window: Window, flat: list[Any]
    ) -> list[Any]:
        """The loop over the last summed axis."""
        first = points[0].on(axis, 0)
        kind, parts = self.lanes.kind, first.parts
        size = BYTES[kind]
        a = e.at(self.lanes.base, self.lanes.start(e, first), size)
        rows = self.rows(e, [p.on(axis, 0) for p in points])
        step_a, step_b = self.lanes.strides[axis], self.other.strides[axis]
        far = self.side_by_side and step_b * size >= LINE

        near = step_b == 1  # a processor's addresses scale k by the size of an element

        def steps(unroll: int) -> Any:
            def body(k: Any, held: list[Any]) -> list[Any]:
                ak, kb = e.builder.hidden(held[0]), k if near else e.builder.hidden(held[1])
                bases = {id(base): e.at(base, kb, size if near else 1) for base, _ in rows}
                sums = held[2:]
                for u in range(unroll):
                    sums = step(ak, [(bases[id(b)], place) for b, place in rows], u, sums)
                following = held[1] if near else e.add(kb, unroll * step_b * size)
                return [e.at(ak, unroll * step_a, size), following, *sums]

            return body

        def step(ak: Any, rows: Sequence[tuple[Any, int]], u: int, held: list[Any]) -> list[Any]:
            vectors = [e.read(kind, ak, u * step_a + v * e.lanes, e.lanes) for v in range(parts)]
            if far:
                base, last = rows[-1]
                e.prefetch(e.at(base, (u + SOON) * step_b + last, size), near=True)
            out: list[Any] = []
            for r, (base, place) in enumerate(rows):
                x = e.splat(e.read(kind, base, u * step_b + place))
                out += [e.fma(x, y, held[r * parts + v]) for v, y in enumerate(vectors)]
            return out

        for start, stop, unroll in _stretches(window.begin, window.count, unroll_for(e.machine)):
            # what moves along is carried: computed from k anew, it would be one more instruction
            at = [e.at(a, e.mul(start, step_a), size), e.index(e.mul(start, step_b * size))]
            flat = e.loop(start, stop, unroll, [*at, *flat], steps(unroll), name=axis)[2:]
        return flat

    @property
    def side_by_side(self) -> bool:
        """Whether the rows of a register tile are neighbours in memory, as columns of values are.

        Each step then reads a line of its own, of which the next tile reads the rest. The nearest cache has lost it by then
        where a window fills the cache, or where lines are so far apart that they share few places in it.
        """
        return self.row is not None and not self.spread and self.other.strides[self.row] == 1

    def rows(self, e: Emit, points: Sequence[Point]) -> list[tuple[Any, int]]:
        """Where the row at each point starts: an address, and elements from there."""
        other, size = self.other, BYTES[self.other.kind]

        def start(p: Point) -> Any:
            return e.at(other.base, other.start(e, p), size)

        if self.row is None or self.spread:
            return [(start(p), 0) for p in points]
        base = start(points[0])
        return [(base, r * other.strides[self.row]) for r in range(len(points))]


def _stretches(begin: Any, end: Any, unroll: int) -> Iterator[tuple[Any, Any, int]]:
    """Start, stop and step of the loops over a summed axis: unrolled ones, then the rest. Where nobody knows how many steps
    there are, as at the end of an axis, two loops are not worth their code."""
    if unroll == 1 or not (isinstance(begin, int) and isinstance(end, int)):
        yield begin, end, 1
        return
    whole = begin + (end - begin) // unroll * unroll
    yield begin, whole, unroll
    if whole < end:
        yield whole, end, 1


def row_tiles(n: int, most: int) -> list[tuple[int, int, int]]:
    """n rows as (first, rows of a tile, tiles), in tiles that differ by one row at most: short ones starve the units."""
    tiles = -(-n // most)
    short = tiles * most - n
    if short > tiles:
        rows, longer = divmod(n, tiles) if tiles else (0, 0)
        parts = [(rows + 1, longer), (rows, tiles - longer)]
    else:
        parts = [(most, tiles - short), (most - 1, short)]
    out: list[tuple[int, int, int]] = []
    first = 0
    for rows, count in parts:
        if rows and count:
            out.append((first, rows, count))
            first += rows * count
    return out
