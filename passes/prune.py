"""prune: no blocks of a streamed axis in which nothing counts, and no conditions where everything does.

Requires: tiles (after tile). Changes: a `for` visits only windows that may hold an element that counts; where a
condition holds for the whole window, the body does not look at it; whole windows are apart from the ragged end.

    … = for(…, axis=j, tile=128) {        … = for(…, axis=j, tile=128, stop=t, ragged=false) { … s … }
      x = select(le(j, i), s, -inf)   ->  … = for(…, axis=j, tile=128, start=t, stop=u) { … select(le(j, i), s, -inf) … }
      … }                                 with t = (first(i) + 1) // 128 * 128, u = min(N, last(i) + 1)

`tilec.live` says which elements count, `tilec.region` where along the axis they can be, `tilec.interval` what a
condition is over one window. Where loop bounds say it all, the loop is cut in up to three; else each window is tested:
an `if` skips it, runs the plain body or the one without conditions. What is tested about data along the streamed axis
is read once, by a grid of its own (`tilec.summary`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from tilec.assume import assume
from tilec.dataflow import backward, definitions, depends_on
from tilec.folding import FoldingBuilder
from tilec.interval import Formula, Intervals
from tilec.ir import Body, Edge, For, Grid, If, Kernel, Load, Map, Op, Operand, Value, Yield, walk
from tilec.live import Live
from tilec.passes.simplify import simplify
from tilec.region import ALL, Mode, Region, Regions
from tilec.renaming import copy_fresh, fresh, used_names
from tilec.summary import Pair, Summaries

Tiles = Mapping[str, "int | None"]
Condition = tuple[str, bool]
"""A condition, and the answer that keeps elements alive."""


@dataclass(frozen=True)
class Options:
    """`apart`: where conditions about data hold in a window, and others about positions may not, it has a body of its
    own."""

    apart: bool = False


def prune(kernel: Kernel, options: Options = Options()) -> Kernel:
    """The kernel without the blocks and the conditions that do not matter."""
    summaries = Summaries(kernel, used_names(kernel))
    body: list[Op] = []
    for op in kernel.body:
        if isinstance(op, Grid):
            op = replace(op, body=_region(op.body, _Place.of(summaries, op, options)))
            body += summaries.take(x.tensor for x in walk(op.body) if isinstance(x, Load))
        body.append(op)
    return simplify(replace(summaries.kernel, body=tuple(body)))


@dataclass(frozen=True)
class _Place:
    """Where a loop stands: the windows around it, and the values in sight."""

    summaries: Summaries
    tiles: Tiles
    known: Mapping[str, Op]
    names: frozenset[str]
    options: Options

    @staticmethod
    def of(summaries: Summaries, grid: Grid, options: Options) -> _Place:
        """The beginning of a grid's body."""
        known = definitions(summaries.source.body)
        return _Place(summaries, dict(grid.axes), known, frozenset(known), options)

    def after(self, op: Op) -> _Place:
        """Behind an op."""
        known = {**self.known, **{v.name: op for v in op.results}}
        return replace(self, known=known, names=self.names | {v.name for v in op.results})

    def inside(self, op: For) -> _Place:
        """The beginning of a loop's body."""
        names = self.names | {v.name for v in op.args}
        return replace(self, tiles={**self.tiles, op.axis: op.tile}, names=names)


def _region(body: Body, place: _Place) -> Body:
    """A region with its innermost loops pruned."""
    out: list[Op] = []
    for op in body:
        if isinstance(op, For) and any(isinstance(x, For) for x in walk(op.body)):
            out.append(replace(op, body=_region(op.body, place.inside(op))))
        elif isinstance(op, For) and op.tile is not None and op.start is None and op.stop is None:
            out += _Loop(op, op.tile, place.inside(op)).pruned()
        else:
            out.append(op)
        place = place.after(op)
    return tuple(out)


class _Loop:
    """One innermost loop, and what is known of it."""

    def __init__(self, op: For, tile: int, place: _Place) -> None:
        self.op, self.tile, self.summaries = op, tile, place.summaries
        self.apart = place.options.apart
        self.taken = place.summaries.taken
        self.known = {**place.known, **definitions(op.body)}
        self.emit = FoldingBuilder(
            place.summaries.kernel, self.taken, place.tiles, place.summaries.wide
        )
        windows = {a for a, n in place.tiles.items() if n != 1}
        names = place.names - {v.name for v in op.args}
        self.intervals = Intervals(
            self.emit, self.known, names, windows, op.axis, self.reduced, self.samples
        )
        self.extent = self.emit.scalar(self.emit.kernel.extents[op.axis])

    def reduced(self, fns: Pair, x: str, axis: str) -> tuple[Operand, Operand] | None:
        """Two reductions over the present window, from the buffers that have them for all windows."""
        found = self.summaries.of(fns, x, axis, self.tile, self.intervals)
        if found is None:
            return None
        self.emit.kernel = self.summaries.kernel
        if x in self.emit.wide:
            self.emit.wide.update(v.name for v in found.buffers)
        a, b = (self.summarised(v, axis) for v in found.buffers)
        return a, b

    def samples(self, axis: str) -> str | None:
        """The axis of the samples of a window; None where the window has no extent of its own."""
        tile = self.emit.tiles.get(axis)
        if tile is None:
            return None
        name = self.summaries.samples(axis, tile)
        self.emit.kernel = self.summaries.kernel
        return name

    def summarised(self, buffer: Value, axis: str) -> Operand:
        """The present window's entry of a buffer."""
        window, _ = self.summaries.windows[axis, self.tile]
        number = self.emit.fn("floordiv", self.emit.end("first", axis), self.tile)
        self.emit.types[buffer.name] = buffer.type
        index = tuple(number if a == window else a for a in buffer.type.axes)
        key = ("load", buffer.name, index)
        return self.emit.once(key, lambda: self.emit.load(buffer.name, *index))

    # ---- where it is cut

    def pruned(self) -> list[Op]:
        """The loop in up to three parts, after the ops that compute where they begin and end."""
        live = Live(self.op, self.known, self.summaries.defined)
        counts = live.condition()
        parts = [c for name, alive in live.conditions for c in self.parts_of(name, alive)]
        conditions = [c for c in dict.fromkeys(parts) if self.holds(c) is not False]
        may = self.spanned(self.regions("may").of(counts), "min", "max")
        must = {c: self.spanned(self.regions("must").of(*c), "max", "min") for c in conditions}
        if may.exact and all(r.exact for r in must.values()):
            return self.assembled(self.cut(must, may))
        return self.assembled(self.tested(counts, conditions, may))

    def regions(self, mode: Mode) -> Regions:
        """Regions along the streamed axis."""
        return Regions(self.intervals, self.op.axis, self.extent, mode)

    def spanned(self, region: Region, lo: str, hi: str) -> Region:
        """A region for all positions of the axes without a window: where a mask looks at the columns of V, say."""
        ends = (
            None if x is None else self.throughout(fn, x)
            for fn, x in ((lo, region.lo), (hi, region.hi))
        )
        return Region(*ends, exact=region.exact)

    def throughout(self, fn: str, x: Operand) -> Operand:
        """What is known for each position of axes without a window, over all of these."""
        axes = self.emit.type_of(x).axes
        return self.emit.over(fn, x, axes) if axes else x

    def parts_of(self, x: Operand, answer: bool) -> list[Condition]:
        """The conditions that together make up a conjunction, or the opposite of a disjunction."""
        match self.known.get(x) if isinstance(x, str) else None:
            case Map(fn="not", args=(y,)):
                return self.parts_of(y, not answer)
            case Map(fn="and" | "or" as fn, args=args) if (fn == "and") == answer:
                return [c for y in args for c in self.parts_of(y, answer)]
            case _:
                return [(x, answer)] if isinstance(x, str) else []

    def holds(self, c: Condition) -> Operand:
        """Whether a condition has its answer at all positions of the window."""
        name, answer = c
        return self.intervals.truth(name if answer else ("not", name)).must

    def bounds(self, may: Region) -> tuple[Operand, Operand]:
        """The first window to visit, and the end of the positions to visit."""
        start = 0 if may.lo is None else self.down(self.emit.fn("max", may.lo, 0))
        return start, self.end(may)

    def end(self, region: Region) -> Operand:
        """The position behind a region."""
        if region.hi is None:
            return self.extent
        return self.emit.fn("min", self.extent, self.emit.fn("add", region.hi, 1))

    def down(self, x: Operand) -> Operand:
        """The beginning of the window that holds a position."""
        e = self.emit.fn
        return e("mul", e("floordiv", x, self.tile), self.tile)

    def later(self, x: Operand, y: Operand) -> Operand:
        """The later of two positions; y may not be negative."""
        return y if x == 0 else self.emit.fn("max", x, y)

    def cut(self, must: Mapping[Condition, Region], may: Region) -> list[_Part]:
        """Partial windows, full ones, partial ones."""
        region = ALL if must else may
        for r in must.values():
            region = self.regions("must").meet(region, r)
        start, stop = self.bounds(may)
        middle = start
        if region.lo is not None:  # the first window that begins inside
            first = self.down(self.emit.fn("add", region.lo, self.tile - 1))
            middle = self.emit.fn("max", start, first)
        end = self.down(self.end(region))
        end = self.later(middle, end) if region.hi is None else self.emit.fn("max", middle, end)
        plain, full = _Plain(self.op.body), _Plain(self.without(must))
        parts = [_Part(full, middle, end, False), _Part(plain, end, stop, True)]
        if region.lo is not None:
            parts.insert(0, _Part(plain, start, self.emit.fn("min", middle, stop), True))
        return parts

    def tested(self, counts: Formula, conditions: list[Condition], may: Region) -> list[_Part]:
        """Whole windows, each tested, and the ragged one."""
        start, stop = self.bounds(may)
        whole = self.down(self.extent)
        end = whole if stop == self.extent else self.emit.fn("min", stop, whole)
        lives = self.throughout("any", self.intervals.truth(counts).may)
        holding = {c: self.throughout("all", self.holds(c)) for c in conditions}
        data = [c for c in conditions if self.asks_data(c)] if self.apart else []
        ways = [(self.emit.all(*(holding[c] for c in some)), some) for some in (conditions, data)]
        ways = [w for w in (ways if data != conditions else ways[:1]) if self.matter(w[1])]
        return [
            _Part(_Tested(self, lives, ways), start, end, False),
            _Part(_Tested(self, lives), self.later(start, whole), stop, True),
        ]

    def matter(self, conditions: list[Condition]) -> bool:
        """Whether the body is another one where conditions hold."""
        return bool(conditions) and self.without(conditions) != self.op.body

    def asks_data(self, c: Condition) -> bool:
        """Whether a condition looks at data."""
        return any(isinstance(self.known[x], Load) for x in backward([c[0]], self.known))

    def without(self, conditions: Iterable[Condition]) -> Body:
        """The body where conditions are known to have their answers."""
        emit = FoldingBuilder(self.emit.kernel, self.taken, self.emit.tiles)
        return assume(self.op.body, dict(tuple(conditions)), emit)

    # ---- putting it together

    def assembled(self, parts: list[_Part]) -> list[Op]:
        """The loops in sequence: each carries on from the one before."""
        parts = [p for p in parts if not p.is_empty] or parts[-1:]
        moving = self.moving()
        within = tuple(op for op in self.emit.ops if op.result.name in moving)
        init, loops = self.op.init, list[Op]()
        for n, p in enumerate(parts):
            start, stop = _unless(p.start, 0), _unless(p.stop, self.extent)
            body = p.body.ops(within)
            loop: Op = replace(
                self.op, init=init, start=start, stop=stop, ragged=p.ragged, body=body
            )
            if n < len(parts) - 1:
                (loop,) = copy_fresh((loop,), self.taken)
            init = tuple(v.name for v in loop.results)
            loops.append(loop)
        used = {x for loop in loops for x in depends_on(loop)}
        return [
            *_needed((op for op in self.emit.ops if op.result.name not in moving), used),
            *loops,
        ]

    def moving(self) -> set[str]:
        """The names, among the ops emitted, that change from window to window."""
        out: set[str] = {self.op.axis}
        for op in self.emit.ops:
            ends = isinstance(op, Edge) and op.axis == self.op.axis
            if ends or any(x in out for x in depends_on(op)):
                out.update(v.name for v in op.results)
        return out


def _needed(ops: Iterable[Op], used: Iterable[str]) -> Body:
    """The ops of a list that others use."""
    kept, used = list[Op](), set(used)
    for op in reversed(list(ops)):
        if op.result.name in used:
            kept.append(op)
            used.update(depends_on(op))
    return tuple(reversed(kept))


def _unless(x: Operand, default: Operand) -> Operand | None:
    return None if x == default else x


# ---- bodies


@dataclass(frozen=True)
class _Plain:
    """A body as it is."""

    body: Body

    def ops(self, within: Body) -> Body:
        """The ops of the loop's region; `within` are tests, which this body does not need."""
        del within
        return self.body


@dataclass(frozen=True)
class _Tested:
    """A body behind tests of the window: may anything count (`lives`), which conditions hold throughout (`ways`: the test of
    this, and these)."""

    loop: _Loop
    lives: Operand
    ways: Sequence[tuple[Operand, list[Condition]]] = ()

    def ops(self, within: Body) -> Body:
        """The tests that are needed, and the body: none of it, one without some conditions, or the plain one."""
        body = self.loop.op.body
        for holds, conditions in reversed(self.ways):
            if holds is not False:
                orelse = copy_fresh(body, self.loop.taken)
                body = self._choose(holds, self.loop.without(conditions), orelse)
        if self.lives is not True:
            same = (Yield((), tuple(v.name for v in self.loop.op.args)),)
            body = self._choose(self.lives, body, same)
        return (*_needed(within, {x for op in body for x in depends_on(op)}), *body)

    def _choose(self, condition: Operand, then: Body, orelse: Body) -> Body:
        taken, args = self.loop.taken, self.loop.op.args
        results = tuple(Value(fresh(v.name, taken), v.type) for v in args)
        op = If(results, condition, then, orelse, span=self.loop.op.span)
        return (op, Yield((), tuple(v.name for v in results)))


@dataclass(frozen=True)
class _Part:
    """A stretch of the loop: its body, the windows it visits, whether the last one may be cut short."""

    body: _Plain | _Tested
    start: Operand
    stop: Operand
    ragged: bool

    @property
    def is_empty(self) -> bool:
        """Whether it is known to visit nothing."""
        if isinstance(self.start, int) and isinstance(self.stop, int):
            return self.start >= self.stop
        return self.start == self.stop
