"""Writes the stages of a plan: loops over tiles that the threads of a block share, each ending in a barrier."""

from __future__ import annotations

from collections.abc import Sequence

from tilec.backends.cuda.simt.functions import Val, convert, kind_for
from tilec.backends.cuda.simt.memory import Tile
from tilec.backends.cuda.simt.plan import Axes, Stage
from tilec.backends.cuda.simt.tensor import WARP, TensorCores
from tilec.backends.cuda.simt.values import Point
from tilec.ir import Load, Op, Reduce

PIECE = 8
"""Elements of 2 bytes that are loaded at a time."""
LOWEST = "i64(0x8000000000000000ull)"
HIGHEST = "i64(0x7fffffffffffffffull)"


class Stages(TensorCores):
    """Writes stages."""

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
        elif stage.reduces:
            self.reduction(stage)
        else:
            self.pointwise(stage)
        ev.memo.pop()
        self.sync()
        ev.computing = frozenset()

    def explain(self, stage: Stage) -> None:
        ops: list[Op] = [] if stage.root is None else [stage.root]
        ops += [self.ev.defs[x] for x in stage.kept] + stage.reduces + stage.stores
        for op in ops:
            self.comment(op)

    def pointwise(self, stage: Stage) -> None:
        """A stage without a contraction or reduction."""
        loads = [op for x in stage.kept if isinstance(op := self.ev.defs[x], Load)]
        copy = loads[0] if len(loads) == len(stage.kept) == 1 and not stage.stores else None
        condition = self.in_pieces(copy) if copy is not None else None
        if copy is not None and condition is not None:
            with self.ev.scope(f"if ({condition})"):
                self.pieces(copy)
            with self.ev.scope("else"), self.each(stage.domain, Point({}), 2) as p:
                self.finish(stage, p)
            return
        with self.each(stage.domain, Point({}), 4 if loads else 1) as p:
            self.finish(stage, p)

    def in_pieces(self, op: Load) -> str | None:
        """The condition under which a tile can be loaded in pieces of 16 bytes; None where it never can."""
        ev, tile = self.ev, self.held(op.result.name)
        if not tile.packed:
            return None
        last = tile.axes[-1]
        whole = ev.window(last).full and tile.extents[last] % PIECE == 0
        return ev.in_pieces(op, last) if whole and ev.along(op, last) is not None else None

    def pieces(self, op: Load) -> None:
        """Loads a tile in pieces of 16 bytes."""
        ev, tile, n = self.ev, self.held(op.result.name), self.index
        *others, last = tile.axes
        per_row = tile.extents[last] // PIECE
        total = self.total(others) * per_row
        with (
            ev.scope("each_thread"),
            ev.scope(self.turns(total, "UNROLL_4")),
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

    # ---- reductions

    def reduction(self, stage: Stage) -> None:
        """Several threads add up each result; where there are several, their parts are put together after a barrier."""
        w, n = self.w, self.index
        kept = tuple(a for a in stage.domain if a not in stage.over)
        outputs, inner = self.total(kept), self.total(stage.over)
        parts = self.parts_of(outputs, inner)
        partial = [self.parts(r, outputs * parts) for r in stage.reduces if parts > 1]
        totals = [self.names.with_suffix(r.result.name, "_sum") for r in stage.reduces]
        with self.ev.scope("each_thread"):
            share = self.part
            w.line(f"const int {share} = thread % {parts};")
            with self.ev.scope(self.turns(outputs, share=parts)):
                for r, t in zip(stage.reduces, totals, strict=True):
                    w.line(f"{self.ctype(r)} {t} = {self.identity(r)};")
                with self.decoded(kept, n, Point({})) as p:
                    m = self.inner
                    loop = self.steps(m, share, inner, parts, "UNROLL_4")
                    with self.ev.scope(loop), self.decoded(stage.over, m, p) as q:
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

    def parts_of(self, outputs: int, inner: int) -> int:
        """How many threads add up one result."""
        parts = 1
        while parts < WARP and 2 * parts * outputs <= self.threads and 2 * parts <= inner:
            parts *= 2
        return parts

    def parts(self, op: Reduce, number: int) -> Tile:
        """The place of what the threads have of a reduction's results."""
        name = self.names.fresh(self.names.of(op.result.name) + "_part")
        return self.scratch(name, kind_for(op.result.type.dtype), {"": number})

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
