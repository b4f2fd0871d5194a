"""Writes the stages of a plan: loops over tiles that the threads of a block share, each ending in a barrier."""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass

from tilec.backends.cuda.simt.functions import Val, convert, kind_for
from tilec.backends.cuda.simt.matrix import MOST, Matrices, Shape
from tilec.backends.cuda.simt.memory import SIZES, Tile
from tilec.backends.cuda.simt.plan import Axes, Stage
from tilec.backends.cuda.simt.values import Evaluator, Point
from tilec.errors import UnsupportedError
from tilec.ir import Contract, Load, Op, Operand, Reduce
from tilec.text import show_op

WARP = 32
PIECE = 8
"""Elements of 2 bytes that are loaded at a time."""
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
        self,
        ev: Evaluator,
        threads: int,
        scratch: Callable[[str, str, Mapping[str, int]], Tile],
        matrices: Matrices,
    ) -> None:
        self.matrices = matrices
        self.ev, self.w, self.names = ev, ev.w, ev.names
        self.threads, self.scratch = threads, scratch
        fresh = ev.names.fresh
        self.index, self.inner, self.part = fresh("n"), fresh("k"), fresh("part")
        self.acc = fresh("acc"), fresh("r"), fresh("c")
        self.bad, self.lane = fresh("bad"), fresh("lane")
        self.corner, self.factors = (fresh("row"), fresh("column")), (fresh("x"), fresh("y"))

    def emit(self, stage: Stage) -> None:
        """One stage."""
        ev = self.ev
        ev.computing = frozenset(stage.kept)
        self.explain(stage)
        ev.memo.append({})
        self.clear(stage)
        shape = self.on_tensor_cores(stage.root) if stage.root is not None else None
        if stage.root is not None and shape is not None:
            self.matrix(stage, stage.root, shape)
        elif stage.root is not None:
            self.contraction(stage, stage.root)
        elif stage.over:
            self.reduction(stage)
        else:
            self.pointwise(stage)
        ev.memo.pop()
        self.sync()
        ev.computing = frozenset()

    def sync(self) -> None:
        """A barrier: what was written before it may be read after it."""
        self.w.line("SYNC();")
        self.ev.clock += 1

    def pointwise(self, stage: Stage) -> None:
        """A stage without a contraction or reduction."""
        loads = [op for x in stage.kept if isinstance(op := self.ev.defs[x], Load)]
        copy = loads[0] if len(loads) == len(stage.kept) == 1 and not stage.stores else None
        condition = self.in_pieces(copy) if copy is not None else None
        if copy is not None and condition is not None:
            with self.ev.scope(f"if ({condition})"):
                self.pieces(copy)
            with self.ev.scope("else"), self.each(stage.domain, Point({}), True) as p:
                self.finish(stage, p)
            return
        with self.each(stage.domain, Point({}), bool(loads)) as p:
            self.finish(stage, p)

    def in_pieces(self, op: Load) -> str | None:
        """The condition under which a tile can be loaded in pieces of 16 bytes; None where it never can."""
        ev, tile = self.ev, self.held(op.result.name)
        if not tile.packed:
            return None
        last = tile.axes[-1]
        at = [k for k, x in enumerate(op.index) if last in ev.axes(x)]
        whole = ev.window(last).full and tile.extents[last] % PIECE == 0
        if len(at) != 1 or op.index[at[0]] != last or not whole:
            return None
        strides = [self.ev.arguments.get("stride", op.tensor, str(k)) for k in range(len(op.index))]
        dense = strides.pop(at[0])
        given = [ev.arguments.get("pointer", op.tensor), str(SIZES[tile.ctype]), dense, *strides]
        return f"tl::in_pieces({', '.join(given)})"

    def pieces(self, op: Load) -> None:
        """Loads a tile in pieces of 16 bytes."""
        ev, tile, n = self.ev, self.held(op.result.name), self.index
        *others, last = tile.axes
        per_row = tile.extents[last] // PIECE
        total = self.total(others) * per_row
        with (
            ev.scope("each_thread"),
            ev.scope(f"UNROLL_4 for (int {n} = thread; {n} < {total}; {n} += THREADS)"),
            self.decoded_all(tuple(others), f"{n} / {per_row}") as (p, inside),
            ev.scope(f"if ({' && '.join(inside) or 'true'})"),
        ):
            name = self.names.of(last)
            self.w.line(f"const int {name} = {n} % {per_row} * {PIECE};")
            self.w.declared[-1].add(name)
            p = p.on(last, name)
            offset, there = ev.address(op.tensor, op.index, p)
            source = f"*(const tl::Piece*)({ev.arguments.get('pointer', op.tensor)} + ({offset}))"
            value = f"{' && '.join(there)} ? {source} : tl::Piece{{}}" if there else source
            self.w.line(f"*(tl::Piece*)&{ev.element(tile, p)} = {value};")

    def clear(self, stage: Stage) -> None:
        """Where a window is cut short, tensor cores read past its end: there must be zeros."""
        for name in stage.kept:
            tile = self.held(name)
            short = [a for a in tile.axes if a in tile.summed and not self.ev.window(a).full]
            if not short:
                continue
            counts = [f"{self.ev.window(a).count} < {self.extent(a)}" for a in short]
            with self.ev.scope(f"if ({' || '.join(counts)})"):
                n = self.index
                with self.ev.scope("each_thread"):
                    loop = f"for (int {n} = thread; {n} < {tile.size}; {n} += THREADS)"
                    self.w.line(f"{loop} {tile.name}[{n}].bits = 0;")
                self.w.line("SYNC();")

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
            raise UnsupportedError(
                f"target cuda: the window of axis {axis} must have an extent; tile it"
            )
        return extent

    def total(self, axes: Sequence[str]) -> int:
        """The most points of a domain."""
        return math.prod(self.extent(a) for a in axes)

    @contextmanager
    def each(self, domain: Axes, p: Point, loads: bool = False) -> Generator[Point]:
        """A loop of all threads over the points of a domain. `loads`: that reads memory, several elements at a time."""
        with self.ev.scope("each_thread"):
            total = self.total(domain)
            if total <= 1:
                alone = "if (thread == 0)" if total else "if (false)"
                with self.ev.scope(alone), self.decoded(domain, "0", p) as q:
                    yield q
                return
            n = self.index
            unroll = "UNROLL_4" if loads else "ROLLED"
            with self.ev.scope(f"{unroll} for (int {n} = thread; {n} < {total}; {n} += THREADS)"):
                with self.decoded(domain, n, p) as q:
                    yield q

    @contextmanager
    def decoded(self, domain: Axes, n: str, p: Point) -> Generator[Point]:
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
        partial = (
            [
                self.scratch(
                    self.names.fresh(self.names.of(r.result.name) + "_part"),
                    kind_for(r.result.type.dtype),
                    {"": outputs * parts},
                )
                for r in stage.reduces
            ]
            if parts > 1
            else []
        )
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
                    with (
                        self.ev.scope(
                            f"UNROLL_4 for (int {m} = {share}; {m} < {inner}; {m} += {parts})"
                        ),
                        self.decoded(stage.over, m, p) as q,
                    ):
                        self.accumulate(stage, totals, q)
                    if parts == 1:
                        for r, t in zip(stage.reduces, totals, strict=True):
                            self.result(r, p, t)
                for t, tile in zip(totals, partial, strict=False):
                    w.line(
                        f"{self.ev.element(tile, Point({'': f'{n} * {parts} + {share}'}))} = {t};"
                    )
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
                self.w.line(
                    f"UNROLL for (int {k} = 0; {k} < {parts}; ++{k}) {total} = {self.joined(r.fn, total, at)};"
                )
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
                        w.line(
                            f"const int {r0} = {n} / {columns}" + (f" % {rows};" if others else ";")
                        )
                    if b.column:
                        w.line(f"const int {c0} = {n} % {columns};")
                    row = self.place(b.row, f"{r0} + {m_} * {rows}", rows * b.m)
                    column = self.place(b.column, f"{c0} + {n_} * {columns}", columns * b.n)
                    w.line(f"{ctype} {acc}[{b.m}][{b.n}] = {{}};")
                    self.products(op, b, p, (m_, row), (n_, column), acc)
                    self.exact(op, b, p, (m_, row), (n_, column), acc)
                    with self.block_loops(b, m_, n_):
                        q, bound = self.located(
                            b, p, row, column, (r0, m_, rows), (c0, n_, columns)
                        )
                        with self.ev.scope(f"if ({' && '.join([*inside, *bound]) or 'true'})"):
                            self.epilogue(stage, op, q, f"{acc}[{m_}][{n_}]")

    def place(self, axis: str | None, text: str, reach: int) -> str:
        """A position on a block's axis that lies within the tile."""
        if axis is None:
            return "0"
        return (
            f"({text})"
            if reach == self.extent(axis)
            else f"(int)tl::least({text}, {self.extent(axis) - 1})"
        )

    @contextmanager
    def decoded_all(self, axes: Axes, n: str) -> Generator[tuple[Point, list[str]]]:
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
        self,
        b: Block,
        p: Point,
        row: str,
        column: str,
        r: tuple[str, str, int],
        c: tuple[str, str, int],
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
        self,
        op: Contract,
        b: Block,
        p: Point,
        row: tuple[str, str],
        column: tuple[str, str],
        acc: str,
    ) -> None:
        """A NaN may come from an absent zero that met a NaN or an infinity: then the block again, without these terms."""
        marks = [self.may_vanish(x) for x in (op.x, op.y)]
        if kind_for(op.result.type.dtype) != "real" or not any(marks):
            return
        self.w.line(f"bool {self.bad} = false;")
        with self.block_loops(b, row[0], column[0]):
            real = ""  # what lies past a window's end is no number of ours
            for axis, at in ((b.row, row[1]), (b.column, column[1])):
                if axis and not self.ev.window(axis).full:
                    real += f" && {at} < {self.ev.window(axis).count}"
            self.w.line(f"{self.bad} |= tl::is_nan({acc}[{row[0]}][{column[0]}]){real};")
        with self.ev.scope(f"if ({self.bad})"):
            with self.block_loops(b, row[0], column[0]):
                self.w.line(f"{acc}[{row[0]}][{column[0]}] = 0;")
            x, y = ("true" if mark else "false" for mark in marks)
            self.products(op, b, p, row, column, acc, f"tl::fma_absent<{x}, {y}>", "ROLLED")

    @contextmanager
    def summed(self, over: Axes, p: Point, unroll: str) -> Generator[Point]:
        """Loops over summed axes."""
        if not over:
            with self.ev.scope():
                yield p
            return
        axis, *rest = over
        name = self.names.of(axis)
        how = "ROLLED" if rest else unroll
        with self.ev.scope(
            f"{how} for (int {name} = 0; {name} < {self.ev.window(axis).count}; ++{name})"
        ):
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
            self.w.line(
                f"{name} = "
                + (f"tl::add({init}, {name});" if kind == "real" else f"{init} + {name};")
            )
        self.ev.define(op.result.name, p, Val(name, kind))
        self.finish(stage, p)

    def may_vanish(self, x: Operand) -> bool:
        return (
            self.ev.value(x, Point({})).marked
            if not isinstance(x, str)
            else x in self.ev.facts.absent
        )

    # ---- contractions on tensor cores

    def on_tensor_cores(self, op: Contract) -> Shape | None:
        """How tensor cores do a contraction whose factors lie as they must; else None."""
        shape = self.matrices.shapes.get(op.result.name)
        if shape is None or kind_for(op.result.type.dtype) != "real":
            return None
        tiles = [self.ev.held.get(x) if isinstance(x, str) else None for x in (op.x, op.y)]
        fit = [
            isinstance(t, Tile) and t.packed and t.ctype == shape.dtype and not t.outside
            for t in tiles
        ]
        return shape if all(fit) else None

    def matrix(self, stage: Stage, op: Contract, shape: Shape) -> None:
        """Each warp multiplies a block of rows by a block of columns, then goes on with what is made of it."""
        w, n = self.w, self.index
        acc, m, c = self.acc
        row, column = self.corner
        others = tuple(a for a in op.result.type.axes if a not in (shape.row, shape.column))
        high, wide = self.extent(shape.row) // 16, self.extent(shape.column) // 8
        rows, columns = self.warp_block(high, wide, self.total(others))
        down, across = high // rows, wide // columns
        total = self.total(others) * down * across
        with (
            self.ev.scope("each_thread"),
            self.ev.scope(
                f"ROLLED for (int {n} = thread / 32; {n} < {total}; {n} += THREADS / 32)"
            ),
            self.decoded_all(others, f"{n} / {down * across}") as (p, inside),
        ):
            w.line(f"const int {self.lane} = thread % 32;")
            w.line(f"const int {row} = {n} / {across} % {down} * {16 * rows};")
            w.line(f"const int {column} = {n} % {across} * {8 * columns};")
            w.line(f"float {acc}[{rows}][{columns}][4] = {{}};")
            self.multiply(op, shape, p, (rows, columns), row, column)
            loops = ((m, rows), (c, columns), (self.inner, 4))
            head = " ".join(f"UNROLL for (int {k} = 0; {k} < {size}; ++{k})" for k, size in loops)
            with self.ev.scope(head):
                for axis, text in (
                    (shape.row, f"{row} + tl::row_of({self.lane}, {m}, {self.inner})"),
                    (shape.column, f"{column} + tl::column_of({self.lane}, {c}, {self.inner})"),
                ):
                    name = self.names.of(axis)
                    w.line(f"const int {name} = {text};")
                    w.declared[-1].add(name)
                    p = p.on(axis, name)
                    if not self.ev.window(axis).full:
                        inside.append(f"{name} < {self.ev.window(axis).count}")
                with self.ev.scope(f"if ({' && '.join(inside) or 'true'})"):
                    self.epilogue(stage, op, p, f"{acc}[{m}][{c}][{self.inner}]")

    def warp_block(self, high: int, wide: int, others: int) -> tuple[int, int]:
        """How many blocks of 16 rows and of 8 columns a warp holds: those with which all are done soonest, and of these the
        ones that read least."""
        warps = self.threads // WARP

        def cost(block: tuple[int, int]) -> tuple[int, float]:
            m, n = block
            rounds = -(-(high // m) * (wide // n) * others // warps)
            return rounds * m * n, (m + n / 2) / (m * n)

        choices = [
            (m, n)
            for m in (1, 2, 4)
            for n in range(2, MOST + 1, 2)
            if m * n <= MOST and high % m == 0 and wide % n == 0
        ]
        return min(choices, key=cost)

    def multiply(
        self, op: Contract, shape: Shape, p: Point, size: tuple[int, int], row: str, column: str
    ) -> None:
        """The products of a warp's block; again, without those of absent zeros, where one of them is NaN."""
        acc, m, c = self.acc
        window, texts, turned = self.ev.window(shape.depth), list[str](), list[str]()
        for x, axis, at in ((op.x, shape.row, row), (op.y, shape.column, column)):
            tile = self.held(str(x))
            turn = tile.axes[-1] == axis
            start = self.ev.element(tile, p.on(axis, at).on(shape.depth, "0"))
            step = tile.strides[shape.depth if turn else axis]
            texts += [f"&{start}", str(step)]
            turned.append("true" if turn else "false")
        depth = str(window.extent) if window.full else f"({window.count} + 15) / 16 * 16"
        given = ", ".join([acc, *texts, depth, self.lane])
        kind = f"{shape.dtype}, {size[0]}, {size[1]}, {', '.join(turned)}"
        self.w.line(f"tl::products<{kind}>({given});")
        marks = [self.may_vanish(x) for x in (op.x, op.y)]
        if not any(marks):
            return
        loops = ((m, size[0]), (c, size[1]), (self.inner, 4))
        head = " ".join(f"UNROLL for (int {k} = 0; {k} < {n}; ++{k})" for k, n in loops)
        cell = f"{acc}[{m}][{c}][{self.inner}]"
        self.w.line(f"bool {self.bad} = false;")
        rows = self.ev.window(shape.row)
        # what lies past a window's end is no number of ours
        real = (
            ""
            if rows.full
            else f" && {row} + tl::row_of({self.lane}, {m}, {self.inner}) < {rows.count}"
        )
        self.w.line(f"{head} {self.bad} |= tl::is_nan({cell}){real};")
        with self.ev.scope(f"if ({self.bad})"):
            self.w.line(f"{head} {cell} = 0;")
            x, y = ("true" if mark else "false" for mark in marks)
            self.w.line(f"tl::products_exact<{x}, {y}, {kind}>({given});")
