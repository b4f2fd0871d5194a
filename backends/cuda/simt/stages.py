"""Writes the stages of a plan: loops over tiles that the threads of a block share, each ending in a barrier."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass

from tilec.backends.cuda.simt.functions import Val, convert, kind_for
from tilec.backends.cuda.simt.memory import Tile
from tilec.backends.cuda.simt.plan import Axes, Stage
from tilec.backends.cuda.simt.values import Evaluator, Point
from tilec.errors import UnsupportedError
from tilec.ir import Contract, Load, Op, Operand, Reduce
from tilec.text import show_op

WARP = 32
LOWEST = "i64(0x8000000000000000ull)"
HIGHEST = "i64(0x7fffffffffffffffull)"


@dataclass(frozen=True)
class Block:
    """How a contraction's result is shared: each thread holds `m` × `n` elements, `m` along the axis `row` (None: one)
    and `n` along the axis `column`."""

    row: str | None
    column: str | None
    m: int
    n: int


class Stages:
    """Writes stages for a block of `threads` threads. `tile` makes a tile with a name, a kind and extents."""

    def __init__(
        self, ev: Evaluator, threads: int, scratch: Callable[[str, str, Mapping[str, int]], Tile]
    ) -> None:
        self.ev, self.w, self.names = ev, ev.w, ev.names
        self.threads, self.scratch = threads, scratch
        fresh = ev.names.fresh
        self.index, self.inner, self.part = fresh("n"), fresh("k"), fresh("part")
        self.acc = fresh("acc"), fresh("r"), fresh("c")
        self.bad = fresh("bad")
        self.corner, self.factors = (fresh("row"), fresh("column")), (fresh("x"), fresh("y"))

    def emit(self, stage: Stage) -> None:
        """One stage."""
        ev = self.ev
        ev.computing = frozenset(stage.kept)
        self.explain(stage)
        ev.memo.append({})
        if stage.root is not None:
            self.contraction(stage, stage.root)
        elif stage.over:
            self.reduction(stage)
        else:
            loads = bool(stage.kept) and all(isinstance(ev.defs[x], Load) for x in stage.kept)
            with self.each(stage.domain, Point({}), loads) as p:
                self.finish(stage, p)
        ev.memo.pop()
        self.sync()
        ev.computing = frozenset()

    def sync(self) -> None:
        """A barrier: what was written before it may be read after it."""
        self.w.line("SYNC();")
        self.ev.clock += 1

    def explain(self, stage: Stage) -> None:
        ops: list[Op] = [] if stage.root is None else [stage.root]
        ops += [self.ev.defs[x] for x in stage.kept] + stage.reduces + stage.stores
        for op in ops:
            self.comment(op)

    def comment(self, op: Op) -> None:
        """The op as the IR shows it, and its place in the program."""
        where = f"   {op.span.file}:{op.span.line}" if op.span else ""
        text = (show_op(op) + where).replace("\\", "/").replace("\n", " ")
        self.w.line(f"// {text}")

    # ---- loops

    def extent(self, axis: str) -> int:
        """The most positions of an axis's window. Raises UnsupportedError where that is not known."""
        extent = self.ev.window(axis).extent
        if not extent and self.ev.window(axis).count != "0":
            raise UnsupportedError(f"target cuda: the window of axis {axis} must have an extent; tile it")
        return extent

    def total(self, axes: Sequence[str]) -> int:
        """The most points of a domain."""
        return math.prod(self.extent(a) for a in axes)

    @contextmanager
    def each(self, domain: Axes, p: Point, loads: bool = False) -> Iterator[Point]:
        """A loop of all threads over the points of a domain. `loads`: that reads memory, several elements at a time."""
        with self.ev.scope("each_thread"):
            total = self.total(domain)
            if total <= 1:
                alone = f"if (thread == 0)" if total else "if (false)"
                with self.ev.scope(alone), self.decoded(domain, "0", p) as q:
                    yield q
                return
            n = self.index
            unroll = "UNROLL_4" if loads else "ROLLED"
            with self.ev.scope(f"{unroll} for (int {n} = thread; {n} < {total}; {n} += THREADS)"):
                with self.decoded(domain, n, p) as q:
                    yield q

    @contextmanager
    def decoded(self, domain: Axes, n: str, p: Point) -> Iterator[Point]:
        """The point that a number stands for, where it lies within the windows."""
        inside: list[str] = []
        step = self.total(domain)
        for axis in domain:
            extent = self.extent(axis)
            step = step // extent if extent else 0
            text = n if step <= 1 else f"{n} / {step}"
            text = text if axis == domain[0] else f"{text} % {extent}"
            name = self.names.of(axis)
            self.w.line(f"const int {name} = {'0' if extent == 1 else text};")
            self.w.declared[-1].add(name)
            p = p.on(axis, name)
            if not self.ev.window(axis).full:
                inside.append(f"{name} < {self.ev.window(axis).count}")
        if not inside:
            yield p
            return
        with self.ev.scope(f"if ({' && '.join(inside)})"):
            yield p

    def finish(self, stage: Stage, p: Point) -> None:
        """Keeps and stores a point's values. All are read before one is written: a tile may be updated in place."""
        values = [(name, self.ev.value(name, p)) for name in stage.kept]
        for op in stage.stores:
            self.ev.store(op, p)
        for name, value in values:
            self.ev.write(self.held(name), p, value)

    def held(self, name: str) -> Tile:
        tile = self.ev.held[name]
        assert isinstance(tile, Tile)
        return tile

    def fill(self, tile: Tile, x: Operand) -> None:
        """Sets all of a tile to an operand's value."""
        self.ev.memo.append({})
        with self.each(tile.axes, Point({})) as p:
            self.ev.write(tile, p, self.ev.value(x, p))
        self.ev.memo.pop()
        self.sync()

    # ---- reductions

    def reduction(self, stage: Stage) -> None:
        """Several threads add up each result; where there are several, their parts are put together after a barrier."""
        w, n = self.w, self.index
        kept = tuple(a for a in stage.domain if a not in stage.over)
        outputs, inner = self.total(kept), self.total(stage.over)
        parts = 1
        while parts < WARP and 2 * parts * outputs <= self.threads and 2 * parts <= inner:
            parts *= 2
        partial = [
            self.scratch(self.names.fresh(self.names.of(r.result.name) + "_part"), kind_for(r.result.type.dtype),
                         {"": outputs * parts})
            for r in stage.reduces
        ] if parts > 1 else []
        totals = [self.names.with_suffix(r.result.name, "_sum") for r in stage.reduces]
        with self.ev.scope("each_thread"):
            share = self.part
            w.line(f"const int {share} = thread % {parts};")
            step = f"THREADS / {parts}" if parts > 1 else "THREADS"
            first = f"thread / {parts}" if parts > 1 else "thread"
            with self.ev.scope(f"ROLLED for (int {n} = {first}; {n} < {outputs}; {n} += {step})"):
                for r, t in zip(stage.reduces, totals, strict=True):
                    w.line(f"{self.ctype(r)} {t} = {self.identity(r)};")
                with self.decoded(kept, n, Point({})) as p:
                    m = self.inner
                    with self.ev.scope(f"UNROLL_4 for (int {m} = {share}; {m} < {inner}; {m} += {parts})"):
                        with self.decoded(stage.over, m, p) as q:
                            self.accumulate(stage, totals, q)
                    if parts == 1:
                        for r, t in zip(stage.reduces, totals, strict=True):
                            self.result(r, p, t)
                for t, tile in zip(totals, partial, strict=False):
                    w.line(f"{self.ev.element(tile, Point({'': f'{n} * {parts} + {share}'}))} = {t};")
        if parts > 1:
            self.sync()
            self.combine(stage, kept, parts, partial)

    def accumulate(self, stage: Stage, totals: Sequence[str], p: Point) -> None:
        for r, t in zip(stage.reduces, totals, strict=True):
            x = convert(self.ev.value(r.args[0], p), kind_for(r.result.type.dtype), self.ev.real)
            self.w.line(f"{t} = {self.joined(r.fn, t, x)};")
        self.finish(stage, p)

    def combine(self, stage: Stage, kept: Axes, parts: int, partial: Sequence[Tile]) -> None:
        """Puts the parts of each result together, in order."""
        with self.each(kept, Point({})) as p:
            n = self.index if self.total(kept) > 1 else "0"
            for r, tile in zip(stage.reduces, partial, strict=True):
                total, k = self.names.with_suffix(r.result.name, "_sum"), self.inner
                at = self.ev.element(tile, Point({"": f"{n} * {parts} + {k}"}))
                self.w.line(f"{self.ctype(r)} {total} = {self.identity(r)};")
                self.w.line(f"UNROLL for (int {k} = 0; {k} < {parts}; ++{k}) {total} = {self.joined(r.fn, total, at)};")
                self.result(r, p, total)

    def result(self, r: Reduce, p: Point, text: str) -> None:
        self.ev.write(self.held(r.result.name), p, Val(text, kind_for(r.result.type.dtype)))

    def ctype(self, op: Reduce | Contract) -> str:
        kind = kind_for(op.result.type.dtype)
        return self.ev.real if kind == "real" else kind

    def identity(self, r: Reduce) -> str:
        """What a reduction of nothing gives."""
        real = kind_for(r.result.type.dtype) == "real"
        infinity = f"tl::infinity({self.ev.real}(0))"
        match r.fn:
            case "sum":
                return f"{self.ctype(r)}(0)"
            case "any":
                return "false"
            case "all":
                return "true"
            case "max" | "maxnum":
                return f"-{infinity}" if real else LOWEST
            case "min":
                return infinity if real else HIGHEST
            case _:
                raise AssertionError(f"{r.fn} has no loop of its own")

    def joined(self, fn: str, total: str, x: str) -> str:
        """A reduction's total with one more value."""
        match fn:
            case "sum":
                return f"{total} + {x}"
            case "any":
                return f"{total} || {x}"
            case "all":
                return f"{total} && {x}"
            case _:
                return f"tl::{fn}({total}, {x})"

    # ---- contractions

    def blocked(self, op: Contract) -> Block:
        """How the threads share a contraction."""
        x, y = set(self.ev.axes(op.x)), set(self.ev.axes(op.y))
        axes = op.result.type.axes
        rows = [a for a in axes if a in x and a not in y and self.extent(a) > 1]
        columns = [a for a in axes if a in y and a not in x and self.extent(a) > 1]
        row = max(rows, key=self.extent, default=None)
        column = max(columns, key=self.extent, default=None)
        m = n = 1
        goal = min(self.total(axes) // self.threads, 32)
        while 2 * m * n <= goal:
            wider = column is not None and 2 * n <= min(self.extent(column), 8) and n <= m
            if wider:
                n *= 2
            elif row is not None and 2 * m <= min(self.extent(row), 8):
                m *= 2
            elif column is not None and 2 * n <= min(self.extent(column), 8):
                n *= 2
            else:
                break
        return Block(row, column, m, n)

    def contraction(self, stage: Stage, op: Contract) -> None:
        """Each thread adds up a small block of the result in registers, then goes on with what is made of it."""
        w, b = self.w, self.blocked(op)
        axes = op.result.type.axes
        others = tuple(a for a in axes if a not in (b.row, b.column))
        rows = -(-self.extent(b.row) // b.m) if b.row else 1
        columns = -(-self.extent(b.column) // b.n) if b.column else 1
        total, n = self.total(others) * rows * columns, self.index
        acc, m_, n_ = self.acc
        ctype = self.ctype(op)
        with self.ev.scope("each_thread"):
            with self.ev.scope(f"ROLLED for (int {n} = thread; {n} < {total}; {n} += THREADS)"):
                with self.decoded_all(others, f"{n} / {rows * columns}") as (p, inside):
                    r0, c0 = self.corner
                    if b.row:
                        w.line(f"const int {r0} = {n} / {columns}" + (f" % {rows};" if others else ";"))
                    if b.column:
                        w.line(f"const int {c0} = {n} % {columns};")
                    row = self.place(b.row, f"{r0} + {m_} * {rows}", rows * b.m)
                    column = self.place(b.column, f"{c0} + {n_} * {columns}", columns * b.n)
                    w.line(f"{ctype} {acc}[{b.m}][{b.n}] = {{}};")
                    self.products(op, b, p, (m_, row), (n_, column), acc)
                    self.exact(op, b, p, (m_, row), (n_, column), acc)
                    with self.block_loops(b, m_, n_):
                        q, bound = self.located(b, p, row, column, (r0, m_, rows), (c0, n_, columns))
                        with self.ev.scope(f"if ({' && '.join([*inside, *bound]) or 'true'})"):
                            self.epilogue(stage, op, q, f"{acc}[{m_}][{n_}]")

    def place(self, axis: str | None, text: str, reach: int) -> str:
        """A position on a block's axis that lies within the tile."""
        if axis is None:
            return "0"
        return f"({text})" if reach == self.extent(axis) else f"(int)tl::least({text}, {self.extent(axis) - 1})"

    @contextmanager
    def decoded_all(self, axes: Axes, n: str) -> Iterator[tuple[Point, list[str]]]:
        """The point that a number stands for, and the conditions under which it lies within the windows."""
        p, inside = Point({}), list[str]()
        step = self.total(axes)
        for axis in axes:
            extent = self.extent(axis)
            step //= max(extent, 1)
            name = self.names.of(axis)
            self.w.line(f"const int {name} = ({n}) / {max(step, 1)} % {max(extent, 1)};")
            self.w.declared[-1].add(name)
            p = p.on(axis, name)
            if not self.ev.window(axis).full:
                inside.append(f"{name} < {self.ev.window(axis).count}")
        yield p, inside

    def located(
        self, b: Block, p: Point, row: str, column: str, r: tuple[str, str, int], c: tuple[str, str, int]
    ) -> tuple[Point, list[str]]:
        """The point of one element of a thread's block, and the conditions under which it exists."""
        inside: list[str] = []
        for axis, (first, k, step), size in ((b.row, r, b.m), (b.column, c, b.n)):
            if axis is None:
                continue
            name = self.names.of(axis)
            self.w.line(f"const int {name} = {first} + {k} * {step};")
            self.w.declared[-1].add(name)
            p = p.on(axis, name)
            window = self.ev.window(axis)
            if not window.full or step * size != window.extent:
                inside.append(f"{name} < {window.count}")
        return p, inside

    def products(
        self,
        op: Contract,
        b: Block,
        p: Point,
        row: tuple[str, str],
        column: tuple[str, str],
        acc: str,
        fma: str = "tl::fma",
        unroll: str = "UNROLL_4",
    ) -> None:
        """Adds the products along the summed axes to a thread's block."""
        xs, ys = self.factors
        ctype, kind = self.ctype(op), kind_for(op.result.type.dtype)
        (m, row_at), (n, column_at) = row, column
        with self.summed(op.over, p, unroll) as q:
            self.w.line(f"{ctype} {xs}[{b.m}], {ys}[{b.n}];")
            for operand, name, k, size in ((op.x, xs, m, b.m), (op.y, ys, n, b.n)):
                with self.ev.scope(f"UNROLL for (int {k} = 0; {k} < {size}; ++{k})"):
                    at = q.on(b.row, row_at) if b.row and k == m else q
                    at = at.on(b.column, column_at) if b.column and k == n else at
                    value = convert(self.ev.value(operand, at), kind, self.ev.real)
                    self.w.line(f"{name}[{k}] = {value};")
            with self.block_loops(b, m, n):
                self.w.line(f"{acc}[{m}][{n}] = {fma}({xs}[{m}], {ys}[{n}], {acc}[{m}][{n}]);")

    def block_loops(self, b: Block, m: str, n: str) -> AbstractContextManager[None]:
        """Loops over a thread's block."""
        rows = f"UNROLL for (int {m} = 0; {m} < {b.m}; ++{m})"
        return self.ev.scope(f"{rows} UNROLL for (int {n} = 0; {n} < {b.n}; ++{n})")

    def exact(
        self, op: Contract, b: Block, p: Point, row: tuple[str, str], column: tuple[str, str], acc: str
    ) -> None:
        """A NaN may come from an absent zero that met a NaN or an infinity: then the block again, without these terms."""
        marks = [self.may_vanish(x) for x in (op.x, op.y)]
        if kind_for(op.result.type.dtype) != "real" or not any(marks):
            return
        self.w.line(f"bool {self.bad} = false;")
        with self.block_loops(b, row[0], column[0]):
            self.w.line(f"{self.bad} |= tl::is_nan({acc}[{row[0]}][{column[0]}]);")
        with self.ev.scope(f"if ({self.bad})"):
            with self.block_loops(b, row[0], column[0]):
                self.w.line(f"{acc}[{row[0]}][{column[0]}] = 0;")
            x, y = ("true" if mark else "false" for mark in marks)
            self.products(op, b, p, row, column, acc, f"tl::fma_absent<{x}, {y}>", "ROLLED")

    @contextmanager
    def summed(self, over: Axes, p: Point, unroll: str) -> Iterator[Point]:
        """Loops over summed axes."""
        if not over:
            with self.ev.scope():
                yield p
            return
        axis, *rest = over
        name = self.names.of(axis)
        how = "ROLLED" if rest else unroll
        with self.ev.scope(f"{how} for (int {name} = 0; {name} < {self.ev.window(axis).count}; ++{name})"):
            if rest:
                with self.summed(tuple(rest), p.on(axis, name), unroll) as q:
                    yield q
            else:
                yield p.on(axis, name)

    def epilogue(self, stage: Stage, op: Contract, p: Point, total: str) -> None:
        """What is made of an element of the result."""
        kind = kind_for(op.result.type.dtype)
        name = self.names.with_suffix(op.result.name, "_at")
        self.w.line(f"{self.ctype(op)} {name} = {total};")
        if op.init is not None:
            init = convert(self.ev.value(op.init, p), kind, self.ev.real)
            self.w.line(f"{name} = " + (f"tl::add({init}, {name});" if kind == "real" else f"{init} + {name};"))
        self.ev.define(op.result.name, p, Val(name, kind))
        self.finish(stage, p)

    def may_vanish(self, x: Operand) -> bool:
        return self.ev.value(x, Point({})).marked if not isinstance(x, str) else x in self.ev.facts.absent
