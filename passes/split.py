"""split: a streamed axis in pieces, each a tile of its own, where there are fewer tiles than workers.

Requires: grids (after tile; best after prune). Changes: a grid whose loops combine becomes one grid per loop, over pieces of
its axis, that stores what the loop carried in buffers, and a last one that merges them and goes on.

    grid(axes=[b:1, i:128]) {                    grid(axes=[b:1, j_p:1, i:128]) {
      l = for(0.0, axis=j, tile=64) {…}            l_1 = for(0.0, axis=j, tile=64, start=…, stop=…) {…}
      store(O, b, i, value=sqrt(l)) }      ->      store(l_part, b, j_p, i, value=l_1) }
                                                 grid(axes=[b:1, i:128]) {
                                                   l = for(0.0, axis=j_p, tile=8) as (l_0) { … load(l_part, b, j_p, i) … }
                                                   store(O, b, i, value=sqrt(l)) }

`passes/combine.py` says how the pieces of a loop combine; the merging loop is that recurrence over pieces. How many pieces
there are is a scalar parameter of the kernel, whose default is an expression of the sizes. The pieces of a tile divide the
range that its loops visit, so that what is pruned away makes no piece idle.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from tilec.dataflow import live
from tilec.folding import FoldingBuilder
from tilec.ir import (
    Argument,
    Axis,
    Body,
    Buffer,
    For,
    Grid,
    Kernel,
    Op,
    Operand,
    Store,
    Type,
    Value,
    Yield,
    rebuild,
)
from tilec.passes.combine import REDUCTION, Extreme, Rule, Sum, combination
from tilec.passes.factor import Expr, NotFactored, Phi, conversion
from tilec.passes.specialise import fix
from tilec.renaming import copy_fresh, fresh, used_names
from tilec.scalar import Scalar


@dataclass(frozen=True)
class Options:
    """`pieces`: how many, the same for all sizes. `workers`: as many as give each worker a tile. Without either: one piece.

    `least` and `positions`: how many pairs of a row and a position, and how many positions, a piece holds, where `workers`
    decides: a smaller one costs more than it saves. `rounds`: the workers take tiles all at once, so that there must not be
    a few more of these than workers; where one round leaves many idle, there are tiles for so many rounds. `window`: the
    pieces merged at a time. `rows`: the longest tile of the merging grid; None: as it is. `products`: whether pieces of wide
    values are added up by a contraction with their weights.
    """

    pieces: int | None = None
    workers: int | None = None
    least: int = 4096
    positions: int = 1
    rounds: int | None = None
    window: int = 8
    rows: int | None = None
    products: bool = False


def split(kernel: Kernel, options: Options = Options()) -> Kernel:
    """The kernel with its streamed axes in pieces."""
    if options.pieces is None and options.workers is None:
        return kernel
    s = _Splitter(kernel, options)
    body = tuple(op for each in kernel.body for op in s.op(each))
    return replace(s.kernel, body=body)


def pieces(kernel: Kernel, options: Options) -> tuple[Scalar, ...]:
    """Into how many pieces each streamed axis would be cut."""
    return tuple(
        _default(kernel, op, c[0], options)
        for op in kernel.body
        if isinstance(op, Grid)
        for c in _chains(op.body)
    )


# ---- sizes as expressions


def _ceil(x: Scalar, n: Scalar) -> Scalar:
    return x if n == 1 else fix(("floordiv", ("sub", ("add", x, n), 1), n), {})


def _whole(x: Scalar, n: int) -> Scalar:
    return x if n == 1 else ("floordiv", x, n)


def _tiles(kernel: Kernel, grid: Grid) -> Scalar:
    out: Scalar = 1
    for axis, tile in grid.axes:
        count = _ceil(kernel.extents[axis], tile)
        out = count if out == 1 else fix(("mul", out, count), {})
    return out


def _default(kernel: Kernel, grid: Grid, loop: For, options: Options) -> Scalar:
    """How many pieces."""
    if options.pieces is not None:
        return options.pieces
    assert options.workers is not None
    extent = kernel.extents[loop.axis]
    wanted = _wanted(fix(("max", 1, _tiles(kernel, grid)), {}), options.workers, options.rounds)
    pairs: Scalar = extent
    for axis, tile in grid.axes:
        if tile > 1:
            pairs = ("mul", pairs, ("min", kernel.extents[axis], tile))
    held = _whole(pairs, options.least)
    if options.positions > 1:
        held = ("min", held, _whole(extent, options.positions))
    most: Scalar = ("min", held, _ceil(extent, loop.tile or 1))
    return fix(("max", 1, ("min", wanted, most)), {})


def _wanted(tiles: Scalar, workers: int, rounds: int | None) -> Scalar:
    """How many pieces of each tile keep the workers busy."""
    if rounds is None:
        return _ceil(workers, tiles)
    once: Scalar = ("floordiv", workers, tiles)
    busy: Scalar = ("ge", ("mul", once, tiles), workers * 7 // 8)
    more: Scalar = ("floordiv", rounds * workers, tiles)
    return fix(("select", ("or", ("eq", once, 0), busy), once, more), {})


# ---- the loops of a grid

Chain = list[For]
"""Loops over one axis, one after the other, each of which carries on from the one before."""


def _chains(body: Body) -> list[Chain]:
    """The chains of a grid's loops in windows."""
    out: list[Chain] = []
    for op in body:
        if not isinstance(op, For) or op.tile is None:
            continue
        last = out[-1][-1] if out else None
        follows = last is not None and op.init == tuple(v.name for v in last.results)
        if last is not None and follows and (op.axis, op.tile) == (last.axis, last.tile):
            out[-1].append(op)
        else:
            out.append([op])
    return out


def _own(op: Op, chains: Sequence[Chain]) -> int | None:
    """Which chain an op is a loop of."""
    return next((n for n, c in enumerate(chains) if any(op is f for f in c)), None)


@dataclass(frozen=True)
class _Cut:
    """A chain in pieces: their axis, the parameter that counts them, the buffers of their states, how these combine."""

    chain: Chain
    axis: str
    count: str
    buffers: tuple[Value, ...]
    rules: tuple[Rule, ...]


class _Splitter:
    """Splits the grids of a kernel; `kernel` has the axes and parameters that this adds."""

    def __init__(self, kernel: Kernel, options: Options) -> None:
        self.kernel, self.options = kernel, options
        self.taken = used_names(kernel)

    def op(self, op: Op) -> list[Op]:
        """What an op at the top level becomes."""
        chains = _chains(op.body) if isinstance(op, Grid) else []
        if not isinstance(op, Grid) or not chains:
            return [op]
        try:
            rules = [self._rules(c) for c in chains]
        except NotFactored as e:
            return [_noted(op, f"not split: {e}")]
        first = {c[0].axis: c[0] for c in reversed(chains)}
        counts = {axis: self._counted(op, loop) for axis, loop in first.items()}
        cuts = [self._cut(op, c, counts[c[0].axis], r) for c, r in zip(chains, rules, strict=True)]
        return [Buffer((b,), span=op.span) for c in cuts for b in c.buffers] + self._grids(op, cuts)

    def _rules(self, chain: Chain) -> tuple[Rule, ...]:
        """How the states of a chain combine."""
        types = {v.name: v.type for v in self.kernel.values.values()}
        first, *rest = [combination(f, types) for f in chain]
        if any(r != first for r in rest):
            raise NotFactored("its loops carry on in different ways")
        return first

    def _counted(self, grid: Grid, loop: For) -> str:
        """A parameter for the number of pieces of an axis."""
        name = fresh(f"{loop.axis}_pieces", self.taken)
        default = _default(self.kernel, grid, loop, self.options)
        self.kernel = replace(
            self.kernel, params=(*self.kernel.params, Argument(name, "int", default))
        )
        return name

    def _cut(self, grid: Grid, chain: Chain, count: str, rules: tuple[Rule, ...]) -> _Cut:
        axis = fresh(f"{chain[0].axis}_p", self.taken)
        single = {a for a, n in grid.axes if n == 1}
        axes = list(self.kernel.axes)
        at = next((n for n, a in enumerate(axes) if a.name not in single), len(axes))
        axes.insert(at, Axis(axis, count))
        self.kernel = replace(self.kernel, axes=tuple(axes))
        buffers = tuple(self._buffer(v, single | {axis}) for v in chain[-1].results)
        return _Cut(chain, axis, count, buffers, rules)

    def _buffer(self, state: Value, axes: set[str]) -> Value:
        """A buffer for what each piece of a tile has of a state."""
        kept = axes | set(state.type.axes)
        index = tuple(a.name for a in self.kernel.axes if a.name in kept)
        return Value(
            fresh(f"{state.name}_part", self.taken), Type(state.type.dtype, index, (), "hbm")
        )

    def _grids(self, grid: Grid, cuts: list[_Cut]) -> list[Op]:
        """A grid for each cut, and the one that goes on after all of them."""
        chains = [c.chain for c in cuts]
        done: list[Op] = []
        out: list[Op] = []
        for op in grid.body:
            n = _own(op, chains)
            if n is None:
                done.append(op)
            elif op is chains[n][-1]:
                out.append(self._partial(grid, cuts[n], done))
                done.append(self._merged(grid, cuts[n]))
        merging = replace(grid, body=live(tuple(done)))
        first, *rest = [*out, _narrowed(merging, self.options.rows)]
        return [first, *(op for g in rest for op in copy_fresh((g,), self.taken))]

    # ---- the pieces

    def _partial(self, grid: Grid, cut: _Cut, before: list[Op]) -> Grid:
        at = next((n for n, (_, tile) in enumerate(grid.axes) if tile > 1), len(grid.axes))
        axes = (*grid.axes[:at], (cut.axis, 1), *grid.axes[at:])
        emit = FoldingBuilder(self.kernel, self.taken, dict(axes))
        loops = _bounded(emit, cut)
        stores = [
            Store((), b.name, b.type.axes, v.name, span=grid.span)
            for b, v in zip(cut.buffers, cut.chain[-1].results, strict=True)
        ]
        kept = [op for op in before if not isinstance(op, Store)]
        return replace(grid, axes=axes, body=live((*kept, *emit.ops, *loops, *stores)))

    # ---- the merge

    def _merged(self, grid: Grid, cut: _Cut) -> For:
        """The loop over pieces that gives what the loops of a chain give."""
        first, last = cut.chain[0], cut.chain[-1]
        tiles = {**dict(grid.axes), cut.axis: self.options.window}
        emit = FoldingBuilder(self.kernel, self.taken, tiles)
        args = tuple(Value(fresh(v.name, self.taken), v.type) for v in last.args)
        emit.types |= {v.name: v.type for v in (*args, *cut.buffers)}
        parts = [emit.load(b.name, *b.type.axes, name=b.name) for b in cut.buffers]
        merge = _Merge(emit, cut, [v.name for v in args], parts, self.options.products)
        values = tuple(merge.new(k) for k in range(len(args)))
        return For(
            last.results,
            first.init,
            axis=cut.axis,
            tile=self.options.window,
            args=args,
            body=(*emit.ops, Yield((), values)),
            span=last.span,
        )


def _bounded(emit: FoldingBuilder, cut: _Cut) -> list[For]:
    """The loops of a chain, each on what it has in common with the present piece."""
    e, chain = emit.fn, cut.chain
    tile = chain[0].tile or 1
    extent = emit.scalar(emit.kernel.extents[chain[0].axis])
    starts = [0 if f.start is None else f.start for f in chain]
    stops = [extent if f.stop is None else f.stop for f in chain]
    begin = 0 if 0 in starts else _of(emit, "min", starts)
    end = extent if extent in stops else _of(emit, "max", stops)
    length = e("sub", end, begin)
    whole = begin == 0 and end == extent
    windows = e("floordiv", e("add", length if whole else e("max", 0, length), tile - 1), tile)
    each = e("floordiv", e("sub", e("add", windows, cut.count), 1), cut.count)
    size = e("mul", each, tile)
    low = e("add", begin, e("mul", cut.axis, size))
    high = e("add", low, size)
    # a piece may be empty, for which nothing is proven
    ragged = [f.ragged for f in chain[:-1]]
    ragged.append(chain[-1].ragged or not any(ragged))
    return [
        replace(f, start=low if a == begin else e("max", a, low), stop=e("min", z, high), ragged=r)
        for f, a, z, r in zip(chain, starts, stops, ragged, strict=True)
    ]


def _of(emit: FoldingBuilder, fn: str, xs: list[Operand]) -> Operand:
    out = xs[0]
    for x in xs[1:]:
        out = emit.fn(fn, out, x)
    return out


class _Merge:
    """The body of a merging loop: the carried states and a window of pieces give the new states."""

    def __init__(
        self,
        emit: FoldingBuilder,
        cut: _Cut,
        old: list[str],
        parts: list[str],
        products: bool = False,
    ) -> None:
        self.emit, self.cut, self.products = emit, cut, products
        self.old, self.parts = old, parts
        self.made: dict[int, Operand] = {}

    def new(self, k: int) -> Operand:
        """A state after the present window of pieces."""
        if k not in self.made:
            self.made[k] = self._made(k)
        return self.made[k]

    def _made(self, k: int) -> Operand:
        e = self.emit
        match self.cut.rules[k]:
            case Extreme(fn=fn):
                part = self._over(REDUCTION[fn], self.parts[k])
                return e.map(fn, self.old[k], part, name=self._name(k))
            case Sum(phis=phis):
                old: Operand = self.old[k]
                part: Operand = self.parts[k]
                for p in phis[:-1]:
                    old = e.fn("mul", old, self._alpha(p, self.old))
                    part = e.fn("mul", part, self._alpha(p, self.parts))
                if not phis:
                    return e.map("add", old, self._over("sum", part), name=self._name(k))
                old = e.fn("mul", old, self._alpha(phis[-1], self.old))
                total = self._weighted(part, self._alpha(phis[-1], self.parts))
                return e.map("add", old, total, name=self._name(k))

    def _weighted(self, x: Operand, weight: Operand) -> Operand:
        """The sum of weighted pieces."""
        wide = set(self.emit.type_of(weight).axes) < set(self.emit.type_of(x).axes)
        if self.products and wide and self.emit.tiles[self.cut.axis] != 1:
            return self.emit.contract(weight, x, over=(self.cut.axis,))
        return self._over("sum", self.emit.fn("mul", x, weight))

    def _over(self, fn: str, x: Operand) -> Operand:
        """A reduction over the window of pieces."""
        axis = self.cut.axis
        return x if self.emit.tiles[axis] == 1 else self.emit.reduce(fn, x, over=(axis,))

    def _name(self, k: int) -> str:
        return self.cut.chain[-1].results[k].name

    def _alpha(self, p: Phi, old: Sequence[Operand]) -> Operand:
        """What a value that was made with the states `old` is multiplied by."""
        e = self.emit
        before, after = self._value(p.w, old), self._value(p.w, None)
        x, y = (before, after) if p.negative else (after, before)
        z = e.fn("sub", x, y)
        if p.scale is not None:
            z = e.fn("mul", z, self._value(p.scale, old))
        return e.fn(p.fn, z)

    def _value(self, x: Expr, states: Sequence[Operand] | None) -> Operand:
        """An expression of states; those that are None are the new ones."""
        if isinstance(x, tuple):
            fn, *parts = x
            args = [self._value(y, states) for y in parts]
            assert isinstance(fn, str)
            to = conversion(fn)
            if to is not None:
                return self.emit.once((fn, *args), lambda: self.emit.cast(args[0], to))
            return self.emit.fn(fn, *args)
        if not isinstance(x, str) or not x.startswith("#"):
            return x
        k = int(x[1:])
        return self.new(k) if states is None else states[k]


def _narrowed(grid: Grid, most: int | None) -> Grid:
    """The grid in tiles of at most `most` positions: an op means on a short window what it means on a long one."""
    if most is None:
        return grid
    tiles = {a: most for a, n in grid.axes if n > most}

    def sized(v: Value) -> Value:
        extents = (tiles.get(a, n) for a, n in zip(v.type.axes, v.type.tile, strict=True))
        return replace(v, type=replace(v.type, tile=tuple(extents)))

    def again(op: Op) -> Op:
        return rebuild(op, region=lambda b: tuple(again(x) for x in b), value=sized)

    axes = tuple((a, tiles.get(a, n)) for a, n in grid.axes)
    return replace(grid, axes=axes, body=tuple(again(op) for op in grid.body))


def _noted(grid: Grid, note: str) -> Grid:
    """The grid with a note on the loops that stay whole."""

    def of(op: Op) -> Op:
        if not isinstance(op, For) or op.tile is None:
            return op
        return replace(op, note=note if op.note is None else f"{op.note}; {note}")

    return replace(grid, body=tuple(of(op) for op in grid.body))
