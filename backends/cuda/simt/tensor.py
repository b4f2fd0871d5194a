"""Sums of products on tensor cores: each warp holds a block of the result as the fragments of `mma`."""

from __future__ import annotations

from tilec.backends.cuda.simt.contraction import Contractions
from tilec.backends.cuda.simt.functions import kind_for
from tilec.backends.cuda.simt.matrix import MOST, Shape
from tilec.backends.cuda.simt.memory import Tile
from tilec.backends.cuda.simt.plan import Stage
from tilec.backends.cuda.simt.values import Point
from tilec.ir import Contract

WARP = 32


class TensorCores(Contractions):
    """Writes contractions whose factors lie as tensor cores read them."""

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
            self.ev.scope(self.turns(total, share=WARP)),
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
                    self.w.line(f"{self.turns(tile.size)} {tile.name}[{n}].bits = 0;")
                self.w.line("SYNC();")
