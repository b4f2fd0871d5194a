"""Contractions in register tiles: a few rows of one operand, broadcast, times a few vectors of the other.

The vector operand has the vector axis in consecutive lanes, the other one is read element by element. Neither is packed:
tiles in scratch have constant strides, so all rows are reached from one address. A tile of `rows` × `vectors`
accumulators, `vectors` operands and one broadcast must fit the registers.

`Nests.product` says which contractions these are: those of two tiles of f32 or of f64. Processors that multiply bf16
(AVX512-BF16, AMX; `Machine.has` tells) would have a class like `Product` beside it, chosen there, for tiles that are kept
in 16 bits; today all 16-bit elements are f32 in scratch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
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
        pace = Pace(
            self.lanes.kind,
            first.parts,
            self.lanes.strides[axis],
            self.other.strides[axis],
            self.side_by_side,
        )
        a = e.at(self.lanes.base, self.lanes.start(e, first), pace.size)
        rows = self.rows(e, [p.on(axis, 0) for p in points])
        for start, stop, unroll in _stretches(window.begin, window.count, unroll_for(e.machine)):
            # what moves along is carried: computed from k anew, it would be one more instruction
            begin = [e.at(a, e.mul(start, pace.lanes), pace.size), pace.bytes(e, start)]
            body = pace.body(e, rows, unroll)
            flat = e.loop(start, stop, unroll, [*begin, *flat], body, name=axis)[2:]
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


@dataclass(frozen=True)
class Pace:
    """How the operands of a register tile are walked along its last summed axis.

    `lanes`, `other`: elements from one step to the next, of each operand; `parts`: vectors of a row; `side_by_side`: as
    `Product` says it.
    """

    kind: Kind
    parts: int
    lanes: int
    other: int
    side_by_side: bool

    @property
    def size(self) -> int:
        return BYTES[self.kind]

    def bytes(self, e: Emit, k: Any) -> Any:
        """How far into a row the broadcast operand is after k steps."""
        return e.index(e.mul(k, self.other * self.size))

    def body(
        self, e: Emit, rows: Sequence[tuple[Any, int]], unroll: int
    ) -> Callable[[Any, list[Any]], list[Any]]:
        """The body of a loop of some steps. It carries the place of the vectors, that in the rows, and the sums."""
        near = self.other == 1  # a processor's addresses scale k by the size of an element

        def steps(k: Any, held: list[Any]) -> list[Any]:
            at, kb = e.builder.hidden(held[0]), k if near else e.builder.hidden(held[1])
            bases = {id(base): e.at(base, kb, self.size if near else 1) for base, _ in rows}
            here, sums = [(bases[id(b)], place) for b, place in rows], held[2:]
            for u in range(unroll):
                sums = self.step(e, at, here, u, sums)
            following = held[1] if near else e.add(kb, unroll * self.other * self.size)
            return [e.at(at, unroll * self.lanes, self.size), following, *sums]

        return steps

    def step(
        self, e: Emit, at: Any, rows: Sequence[tuple[Any, int]], u: int, sums: list[Any]
    ) -> list[Any]:
        """The sums after step u from these places."""
        vectors = [
            e.read(self.kind, at, u * self.lanes + v * e.lanes, e.lanes) for v in range(self.parts)
        ]
        if self.side_by_side and self.other * self.size >= LINE:
            base, last = rows[-1]
            e.prefetch(e.at(base, (u + SOON) * self.other + last, self.size), near=True)
        out: list[Any] = []
        for r, (base, place) in enumerate(rows):
            x = e.splat(e.read(self.kind, base, u * self.other + place))
            out += [e.fma(x, y, sums[r * self.parts + v]) for v, y in enumerate(vectors)]
        return out


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
