"""The parts of a grid that runs on wgmma, found in its ops; what does not fit is refused with the reason."""

from __future__ import annotations

from collections.abc import Collection

from tilec.backends.cuda.fast import Refused
from tilec.backends.cuda.hopper.alike import joined
from tilec.backends.cuda.hopper.structure import Block, Head, Slot, Structure, Tail
from tilec.backends.cuda.hopper.tiles import Tile, Tiles
from tilec.dataflow import backward, definitions, names_in
from tilec.ir import (
    Body,
    Cast,
    Contract,
    Edge,
    For,
    Grid,
    If,
    Kernel,
    Load,
    Map,
    Op,
    Operand,
    Reduce,
    Store,
    Yield,
    operands,
    walk,
)
from tilec.scalar import Scalar

DIVISIONS = 4
"""The divisions of integers for each score that are still compiled in seconds."""


def recognise(
    kernel: Kernel, grid: Grid, pieces: Collection[str] = (), runs: bool = False
) -> Structure:
    """The parts of a grid. Raises Refused where it does not fit. `pieces`: tensors that no bulk copy can bring; `runs`:
    whether several may bring a tile."""
    return _Recogniser(kernel, grid, pieces, runs).run()


class _Recogniser:
    def __init__(self, kernel: Kernel, grid: Grid, pieces: Collection[str], runs: bool) -> None:
        self.kernel, self.grid, self.pieces, self.runs = kernel, grid, pieces, runs
        empty = [a.name for a in kernel.axes if a.extent == 0]
        if empty:  # a tile would have no room, nor a bulk copy anything to bring
            raise Refused(f"its axis {empty[0]} is empty")
        tiled = [(a, n) for a, n in grid.axes if n > 1]
        if len(tiled) != 1:
            raise Refused(f"its grid tiles {len(tiled)} axes; it must tile one")
        self.row, self.rows = tiled[0]
        self.loops = [op for op in grid.body if isinstance(op, For)]
        if not self.loops:
            raise Refused("it streams no axis")
        self.stream = self.loops[0].axis
        self.queries: dict[object, Tile] = {}
        self.rings: dict[object, Tile] = {}

    def run(self) -> Structure:
        columns = self.columns = self.check_loops()
        prologue, epilogue = self.around()
        sides = {self.row: self.rows, self.stream: columns}
        loops = tuple(self.loops)
        self.tiles = Tiles(self.kernel, self.grid, sides, loops, self.pieces, self.runs)
        self.tests: list[Body] = []
        blocks = self.all_blocks()
        self.check_size(blocks)
        self.check_epilogue(epilogue)
        kept = self.kept(prologue, blocks, epilogue)
        return Structure(
            self.kernel,
            self.grid,
            self.row,
            self.stream,
            self.rows,
            columns,
            kept,
            tuple(self.loops),
            tuple(self.tests),
            blocks,
            epilogue,
            tuple(self.queries.values()),
            tuple(self.rings.values()),
            self.slots(),
            tuple(op for op in self.kernel.body if not isinstance(op, Grid)),
            self.tiles.precise,
        )

    def around(self) -> tuple[list[Op], Body]:
        """What can be done before the loops, scalars between them included, and what follows them."""
        body = self.grid.body
        first, last = body.index(self.loops[0]), body.index(self.loops[-1])
        between = [op for op in body[first:last] if not isinstance(op, For)]
        if any(v.type.axes for op in between for v in op.results):
            raise Refused("it computes tiles between its loops")
        prologue = [*body[:first], *between]
        carried = {v.name for f in self.loops for v in f.results}
        if any(x in carried for op in prologue for x in operands(op)):
            raise Refused("what is between its loops depends on them")
        return prologue, body[last + 1 :]

    def all_blocks(self) -> tuple[Block, ...]:
        """The blocks of all loops, which read the same tiles."""
        blocks = tuple(b for n, f in enumerate(self.loops) for b in self.blocks(f, n))
        if not blocks:
            raise Refused("no window of its streamed axis counts")
        if len({_contracted(b) for b in blocks}) > 1:
            raise Refused("its loops contract different tiles")
        return joined(blocks) if any(b.choice for b in blocks) else blocks

    def kept(self, prologue: list[Op], blocks: tuple[Block, ...], epilogue: Body) -> Body:
        """What is before the loops and is no part of a tile: scalars and row values."""
        needed = {x for t in (*self.queries.values(), *self.rings.values()) for x in t.scalars}
        used: list[Op] = [*(op for ops in self.tests for op in ops), *epilogue]
        for b in blocks:
            used += b.middle
            needed.update(names_in((*b.yields, *b.bases.values())))
        needed.update(x for op in walk(used) for x in names_in(operands(op)))
        for f in self.loops:
            needed.update(x for x in (f.start, f.stop, *f.init) if isinstance(x, str))
        live = backward(needed, definitions(prologue))
        kept = tuple(op for op in prologue if op.result.name in live)
        for op in kept:
            if isinstance(op, Reduce) and op.over == (self.row,):
                self.check_over_rows(op)
            else:
                self.check_op(op, {(), (self.row,)})
        return kept

    def check_loops(self) -> int:
        tile = self.loops[0].tile
        columns = -(-self.extent(self.stream) // 16) * 16 if tile is None else tile
        if columns > 256:
            raise Refused(f"axis {self.stream} is held whole, with more than 256 positions")
        for a, b in zip(self.loops, self.loops[1:], strict=False):
            if b.init != tuple(v.name for v in a.results):
                raise Refused("its loops do not carry the same values one after the other")
        for f in self.loops:
            if f.axis != self.stream or f.tile != tile:
                raise Refused("it streams more than one axis")
            if any(isinstance(op, For) for op in walk(f.body)):
                raise Refused("its loops are nested")
        return columns

    def slots(self) -> tuple[Slot, ...]:
        first, last = self.loops[0], self.loops[-1]
        out: list[Slot] = []
        for init, v in zip(first.init, last.results, strict=True):
            t = v.type
            if t.dtype != "f32":
                raise Refused(f"it carries {v.name} in {t.dtype}")
            if set(t.axes) == {self.row}:
                out.append(Slot(v.name, t, init))
            elif len(t.axes) == 2 and self.row in t.axes:
                if init != 0.0:
                    raise Refused(f"accumulator {v.name} does not begin at 0")
                (feature,) = set(t.axes) - {self.row}
                out.append(Slot(v.name, t, init, self.extent(feature)))
            else:
                raise Refused(f"it carries {v.name} over {', '.join(t.axes) or 'no axis'}")
        return tuple(out)

    def extent(self, axis: str) -> int:
        n: Scalar = self.kernel.extents[axis]
        if not isinstance(n, int):
            raise Refused(f"the length of axis {axis} is not known")
        return n

    # ---- the block of a loop

    def blocks(self, loop: For, number: int) -> list[Block]:
        """The blocks of a loop: one, or one for each way through the tests that its body begins with."""
        branch = next((op for op in loop.body if isinstance(op, If) and not op.relaxed), None)
        if branch is None:
            self.tests.append(())
            return [self.block(loop, number, loop.body, ())]
        tests = loop.body[: loop.body.index(branch)]
        for op in tests:
            self.check_op(op, {()})
        self.tests.append(tests)
        return self.ways(loop, number, loop.body[len(tests) :], ())

    def ways(
        self, loop: For, number: int, body: Body, choice: tuple[tuple[Operand, bool], ...]
    ) -> list[Block]:
        branch, end = body[0], body[-1]
        assert isinstance(end, Yield)
        if not isinstance(branch, If) or branch.relaxed:
            idle = len(body) == 1 and end.values == tuple(v.name for v in loop.args)
            return [] if idle else [self.block(loop, number, body, choice)]
        if len(body) != 2 or end.values != tuple(v.name for v in branch.results):
            raise Refused("its blocks go on after what data decides")
        return [
            *self.ways(loop, number, branch.then, (*choice, (branch.cond, True))),
            *self.ways(loop, number, branch.orelse, (*choice, (branch.cond, False))),
        ]

    def block(
        self, loop: For, number: int, body: Body, choice: tuple[tuple[Operand, bool], ...]
    ) -> Block:
        if any(isinstance(op, If) and not op.relaxed for op in body):
            raise Refused("its blocks are chosen by data after other ops")
        end = body[-1]
        assert isinstance(end, Yield)
        heads: list[Head] = []
        middle: list[Op] = []
        for op in body[:-1]:
            head = self.head(op)
            if head is not None:
                heads.append(head)
            else:
                middle.append(op)
        if not heads:
            raise Refused("no contraction of rows with columns is at the head of its blocks")
        tails, middle, bases = self.tails(loop, middle, end.values)
        needed = {t.x for t in tails} | set(names_in((*end.values, *bases.values())))
        live = backward(needed, definitions(middle))
        middle = [op for op in middle if any(v.name in live for v in op.results)]
        for op in middle:
            self.check_middle(op)
        return Block(
            loop, number, choice, tuple(heads), tuple(middle), tuple(tails), end.values, bases
        )

    def head(self, op: Op) -> Head | None:
        if not isinstance(op, Contract) or len(op.over) != 1 or op.over == (self.stream,):
            return None
        x, y = self.tiles.tile(op.x), self.tiles.tile(op.y)
        if x is None or y is None:
            return None
        query, key = (x, y) if x.axis == self.row else (y, x)
        if (query.axis, key.axis, query.feature, key.feature) != (
            self.row,
            self.stream,
            *op.over * 2,
        ):
            raise Refused(f"{op.result.name} contracts in a way that is not rows by columns")
        init = op.init
        if init is not None and not isinstance(init, str):
            raise Refused(f"{op.result.name} adds a literal")
        self.queries.setdefault(query.key, query)
        self.rings.setdefault(key.key, key)
        return Head(op.result.name, query, key, init)

    def tails(
        self, loop: For, middle: list[Op], yields: tuple[Operand, ...]
    ) -> tuple[list[Tail], list[Op], dict[int, Operand]]:
        defs = definitions(middle)
        tails: list[Tail] = []
        taken: set[str] = set()
        bases: dict[int, Operand] = {}
        for slot, (v, y) in enumerate(zip(loop.args, yields, strict=True)):
            if len(v.type.axes) != 2:
                continue
            bases[slot] = self.base(y, slot, defs, tails, taken)
        return tails, [op for op in middle if not any(v.name in taken for v in op.results)], bases

    def base(
        self, y: Operand, slot: int, defs: dict[str, Op], tails: list[Tail], taken: set[str]
    ) -> Operand:
        """The accumulator before tails are added to it."""
        op = defs.get(y) if isinstance(y, str) else None
        if isinstance(op, Map) and op.fn == "add":
            for k in (0, 1):
                part = defs.get(str(op.args[k]))
                if isinstance(part, Contract):
                    self.tail(part, slot, tails, taken)
                    taken.add(op.result.name)
                    return self.base(op.args[1 - k], slot, defs, tails, taken)
        if isinstance(op, Contract) and op.init is not None:
            self.tail(op, slot, tails, taken)
            return self.base(op.init, slot, defs, tails, taken)
        return y

    def tail(self, op: Contract, slot: int, tails: list[Tail], taken: set[str]) -> None:
        x, y = op.x, op.y
        if isinstance(x, str) and self.tiles.is_side(x):
            x, y = y, x
        value = self.tiles.tile(y)
        if (
            value is None
            or value.axis != self.stream
            or op.over != (self.stream,)
            or not isinstance(x, str)
        ):
            raise Refused(f"{op.result.name} is not a product of computed rows with columns")
        t = self.kernel.values[x].type
        if set(t.axes) != {self.row, self.stream} or t.dtype not in ("f32", value.dtype):
            raise Refused(
                f"{x}, which meets {value.tensor}, is not a tile of rows and columns in f32"
            )
        self.rings.setdefault(value.key, value)
        tails.append(Tail(op.result.name, x, value, slot))
        taken.add(op.result.name)

    def check_middle(self, op: Op) -> None:
        shapes = {(), (self.row,), (self.stream,), (self.row, self.stream), (self.stream, self.row)}
        if isinstance(op, If):
            for inner in (*op.then, *op.orelse):
                if not isinstance(inner, Yield):
                    self.check_middle(inner)
            return
        accumulator = isinstance(op, Map) and op.fn == "mul" and len(op.result.type.axes) == 2
        if accumulator and self.stream not in op.result.type.axes:
            return
        self.check_op(op, shapes)

    def check_op(self, op: Op, shapes: set[tuple[str, ...]]) -> None:
        """A pointwise op, a reduction over the stream or along all rows of a test."""
        if not isinstance(op, (Map, Cast, Load, Reduce, Edge)):
            raise Refused(f"it has a {op.word} where only pointwise ops can be")
        if op.result.type.axes not in shapes:
            raise Refused(f"{op.result.name} is a tile over {', '.join(op.result.type.axes)}")
        if isinstance(op, Reduce):
            stream = op.over == (self.stream,) and op.fn in ("sum", "max", "min", "maxnum")
            if op.result.type.dtype != "f32" and op.fn != "all":
                raise Refused(f"{op.result.name} is a {op.fn} in {op.result.type.dtype}")
            if not stream and not (op.fn == "all" and op.over == (self.row,)):
                raise Refused(f"it takes the {op.fn} over {', '.join(op.over)}")

    def check_size(self, blocks: tuple[Block, ...]) -> None:
        """The middle of a block is written out for each element of a fragment, a division of integers as many lines."""
        for b in blocks:
            divisions = sum(
                isinstance(op, Map)
                and op.fn in ("floordiv", "mod")
                and self.stream in op.result.type.axes
                and not isinstance(op.args[1], int)
                for op in walk(b.middle)
            )
            if divisions > DIVISIONS:
                raise Refused(
                    f"a score takes {divisions} divisions along {self.stream}; written out that is too long"
                )

    def check_over_rows(self, op: Reduce) -> None:
        """A summary of a tile's rows, which tests of windows look at."""
        if op.fn not in ("min", "max", "any", "all") or op.result.type.axes:
            raise Refused(f"{op.result.name} is a {op.fn} over rows")

    def check_epilogue(self, body: Body) -> None:
        """What follows the loops: pointwise values of at most two axes, and stores."""
        for op in body:
            if isinstance(op, Store):
                continue
            if not isinstance(op, (Map, Cast, Load, Edge)):
                raise Refused(f"it ends with a {op.word}")
            axes = op.result.type.axes
            if self.stream in axes or len(axes) > 2:
                raise Refused(f"it ends with a tile over {', '.join(axes)}")


def _contracted(b: Block) -> tuple[object, ...]:
    """The tiles that a block contracts."""
    heads = tuple((h.query.key, h.key.key) for h in b.heads)
    return heads, tuple((t.slot, t.value.key) for t in b.tails)
