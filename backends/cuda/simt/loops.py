"""Loops over the elements of tiles that the threads of a block share."""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager

from tilec.backends.cuda.simt.functions import kind_for
from tilec.backends.cuda.simt.matrix import Matrices
from tilec.backends.cuda.simt.memory import Tile
from tilec.backends.cuda.simt.plan import Axes, Stage
from tilec.backends.cuda.simt.values import Evaluator, Point
from tilec.errors import UnsupportedError
from tilec.ir import Contract, Op, Operand, Reduce
from tilec.text import show_op


class Loops:
    """Writes loops for a block of `threads` threads. `scratch` makes a tile with a name, a kind and extents."""

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
        self.turn = fresh("turn")
        self.acc = fresh("acc"), fresh("r"), fresh("c")
        self.ahead, self.whole = (fresh("rows"), fresh("first")), fresh("whole")
        self.bad, self.lane = fresh("bad"), fresh("lane")
        self.corner, self.factors = (fresh("row"), fresh("column")), (fresh("x"), fresh("y"))

    def sync(self) -> None:
        """A barrier: what was written before it may be read after it."""
        self.w.line("SYNC();")
        self.ev.clock += 1

    def comment(self, op: Op) -> None:
        """The op as the IR shows it, and its place in the program."""
        where = f"   {op.span.file}:{op.span.line}" if op.span else ""
        text = (show_op(op) + where).replace("\\", "/").replace("\n", " ")
        self.w.line(f"// {text}")

    def extent(self, axis: str) -> int:
        """The most positions of an axis's window. Raises UnsupportedError where that is not known."""
        if self.open(axis):
            raise UnsupportedError(
                f"target cuda: the window of axis {axis} must have an extent; tile it"
            )
        return self.ev.window(axis).extent

    def open(self, axis: str) -> bool:
        """Whether it is only known at run time how many positions the window of an axis may have."""
        window = self.ev.window(axis)
        return not window.extent and window.count != "0"

    def total(self, axes: Sequence[str]) -> int:
        """The most points of a domain."""
        return math.prod(self.extent(a) for a in axes)

    @contextmanager
    def each(self, domain: Axes, p: Point, together: int = 1) -> Generator[Point]:
        """A loop of all threads over the points of a domain. `together`: how many at a time, where that reads memory."""
        with self.ev.scope("each_thread"):
            if any(map(self.open, domain)):
                with self.counted(domain, p) as q:
                    yield q
                return
            total = self.total(domain)
            if total <= 1:
                alone = "if (thread == 0)" if total else "if (false)"
                with self.ev.scope(alone), self.decoded(domain, "0", p) as q:
                    yield q
                return
            n = self.index
            unroll = f"UNROLL_{together}" if together > 1 else "ROLLED"
            with self.ev.scope(self.turns(total, unroll)), self.decoded(domain, n, p) as q:
                yield q

    def turns(self, total: int, unroll: str = "ROLLED", share: int = 1) -> str:
        """The head of a loop over `total` numbers, which the threads take in turn, `share` threads each one together.

        Where it is unrolled, the compiler can see how often it turns: otherwise it writes the body again, for the rest.
        """
        n, lanes = self.index, self.threads // share
        lane, step = (
            ("thread", "THREADS") if share == 1 else (f"thread / {share}", f"THREADS / {share}")
        )
        if total <= lanes:
            return f"if (const int {n} = {lane}; {n} < {total})"
        if unroll == "ROLLED":
            return f"ROLLED for (int {n} = {lane}; {n} < {total}; {n} += {step})"
        return self.steps(n, lane, total, lanes, unroll, step)

    def steps(self, n: str, first: str, total: int, lanes: int, unroll: str, step: str = "") -> str:
        """The head of an unrolled loop over `first`, which is less than `lanes`, and every number `lanes` behind."""
        at, rest = self.turn, f"{n} < {total}" if total % lanes else "true"
        loop = f"{unroll} for (int {at} = 0; {at} < {total}; {at} += {step or lanes})"
        return f"{loop} if (const int {n} = {at} + {first}; {rest})"

    @contextmanager
    def counted(self, domain: Axes, p: Point) -> Generator[Point]:
        """A loop of all threads over a domain with open axes: along such ones a value is stored that lacks them."""
        counts = {a: f"i64({self.ev.window(a).count})" for a in domain}
        n = rest = self.index
        loop = f"for (i64 {n} = thread; {n} < {' * '.join(counts.values())}; {n} += THREADS)"
        with self.ev.scope(loop):
            for axis in reversed(domain):
                name = self.names.of(axis)
                self.w.line(f"const i64 {name} = {rest} % {counts[axis]};")
                self.w.declared[-1].add(name)
                rest = f"{rest} / {counts[axis]}"
                p = p.on(axis, name)
            yield p

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

    def ctype(self, op: Reduce | Contract) -> str:
        kind = kind_for(op.result.type.dtype)
        return self.ev.real if kind == "real" else kind

    def fill(self, tile: Tile, x: Operand) -> None:
        """Sets all of a tile to an operand's value."""
        self.ev.memo.append({})
        with self.each(tile.axes, Point({})) as p:
            self.ev.write(tile, p, self.ev.value(x, p))
        self.ev.memo.pop()
        self.sync()
