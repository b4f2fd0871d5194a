"""Sums of products by fused multiply-adds: each thread holds a small block of the result in registers."""

from __future__ import annotations

import math
from collections.abc import Generator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass

from tilec.backends.cuda.simt.functions import Val, convert, kind_for
from tilec.backends.cuda.simt.loops import Loops
from tilec.backends.cuda.simt.plan import Axes, Stage, in_place
from tilec.backends.cuda.simt.values import Point
from tilec.ir import Contract, Load, Operand

AHEAD = 4
"""Rows that a thread asks for at a time."""


@dataclass(frozen=True)
class Block:
    """How a contraction's result is shared: each thread holds `m` × `n` elements, `m` along the axis `row` (None: one)
    and `n` along the axis `column`. `adjacent`: whether those along `column` lie side by side."""

    row: str | None
    column: str | None
    m: int
    n: int
    adjacent: bool = False


class Contractions(Loops):
    """Writes contractions."""

    def blocked(self, op: Contract) -> Block:
        """How the threads share a contraction."""
        if (load := self.read_once(op)) is not None:
            column = load.result.type.axes[-1]
            adjacent = self.ev.along(load, column) is not None
            return Block(None, column, 1, math.gcd(self.extent(column), 8), adjacent)
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
        w, b, load = self.w, self.blocked(op), self.read_once(op)
        axes = op.result.type.axes
        others = tuple(a for a in axes if a not in (b.row, b.column))
        rows = -(-self.extent(b.row) // b.m) if b.row else 1
        columns = -(-self.extent(b.column) // b.n) if b.column else 1
        total, n = self.total(others) * rows * columns, self.index
        acc, m_, n_ = self.acc
        ctype = self.ctype(op)
        with (
            self.ev.scope("each_thread"),
            self.ev.scope(self.turns(total)),
            self.decoded_all(others, f"{n} / {rows * columns}") as (p, inside),
            self.ev.scope(f"if ({' && '.join(inside if load else []) or 'true'})"),
        ):
            r0, c0 = self.corner
            if b.row:
                w.line(f"const int {r0} = {n} / {columns}" + (f" % {rows};" if others else ";"))
            if b.column:
                w.line(f"const int {c0} = {n} % {columns};")
            row = self.place(b.row, f"{r0} + {m_} * {rows}", rows * b.m)
            step = f"{c0} * {b.n} + {n_}" if b.adjacent else f"{c0} + {n_} * {columns}"
            column = self.place(b.column, step, columns * b.n)
            w.line(f"{ctype} {acc}[{b.m}][{b.n}] = {{}};")
            if load is not None and b.adjacent:
                self.rows(op, load, b, p, f"{c0} * {b.n}", acc)
            else:
                self.products(op, b, p, (m_, row), (n_, column), acc)
            self.exact(op, b, p, (m_, row), (n_, column), acc)
            with self.block_loops(b, m_, n_):
                own, step = (f"{c0} * {b.n}", 1) if b.adjacent else (c0, columns)
                q, bound = self.located(b, p, (r0, m_, rows), (own, n_, step))
                with self.ev.scope(f"if ({' && '.join([*inside, *bound]) or 'true'})"):
                    self.epilogue(stage, op, q, f"{acc}[{m_}][{n_}]")

    def place(self, axis: str | None, text: str, reach: int) -> str:
        """A position on a block's axis that lies within the tile."""
        if axis is None:
            return "0"
        if reach == self.extent(axis):
            return f"({text})"
        return f"(int)tl::least({text}, {self.extent(axis) - 1})"

    def located(
        self,
        b: Block,
        p: Point,
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
            whole = b.adjacent or step * size == window.extent
            if not window.full or not whole:
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

    def read_once(self, op: Contract) -> Load | None:
        """The factor that is read from memory where it is used."""
        defs = [self.ev.defs.get(x) if isinstance(x, str) else None for x in (op.x, op.y)]
        return next((d for d in defs if isinstance(d, Load) and in_place(d)), None)

    def rows(self, op: Contract, load: Load, b: Block, p: Point, first: str, acc: str) -> None:
        """The products of a factor that is read where it lies: some rows of it are asked for before the first is used."""
        w, (row, start), k, at = self.w, self.ahead, self.inner, self.acc[2]
        other, ctype = (op.y if op.x == load.result.name else op.x), self.ev.stored(load.tensor)
        kind, (*outer, axis) = kind_for(op.result.type.dtype), op.over
        name, count = self.names.of(axis), self.ev.window(axis).count
        assert b.column is not None
        with self.summed(tuple(outer), p, "ROLLED") as q:
            q = q.on(axis, name)
            w.line(f"const bool {self.whole} = {self.ev.in_pieces(load, b.column)};")
            loop = f"ROLLED for (int {start} = 0; {start} < {count}; {start} += {AHEAD})"
            with self.ev.scope(loop):
                w.line(f"tl::Row<{ctype}, {b.n}> {row}[{AHEAD}];")
                with self.ev.scope(f"UNROLL for (int {k} = 0; {k} < {AHEAD}; ++{k})"):
                    w.line(f"const int {name} = (int)tl::least({start} + {k}, {count} - 1);")
                    w.declared[-1].add(name)
                    self.ask(load, q.on(b.column, first), b.column, f"{row}[{k}]")
                with self.ev.scope(f"UNROLL for (int {k} = 0; {k} < {AHEAD}; ++{k})"):
                    w.line(f"const int {name} = {start} + {k};")
                    w.declared[-1].add(name)
                    w.line(f"if ({name} >= {count}) break;")
                    x = convert(self.ev.value(other, q), kind, self.ev.real)
                    value = self.ev.widened(f"{row}[{k}].x[{at}]", ctype)
                    y = convert(value, kind, self.ev.real)
                    loop = f"UNROLL for (int {at} = 0; {at} < {b.n}; ++{at})"
                    w.line(f"{loop} {acc}[0][{at}] = tl::fma({x}, {y}, {acc}[0][{at}]);")

    def ask(self, load: Load, p: Point, axis: str, row: str) -> None:
        """Reads adjacent elements of a row; zeros where there are none."""
        offset, there = self.ev.address(load.tensor, load.index, p)
        stride = self.ev.arguments.get("stride", load.tensor, str(load.index.index(axis)))
        pointer = self.ev.arguments.get("pointer", load.tensor)
        text = f"{row}.load({pointer} + ({offset}), {stride}, {self.whole});"
        self.w.line(f"if ({' && '.join(there)}) {text} else {row} = {{}};" if there else text)

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
