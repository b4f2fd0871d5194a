"""relax: the running reference of an online reduction may be stale.

Requires: tiles (after prune). Changes: where a carried maximum is only a reference, a block keeps the old one as long as
its terms stay small, and takes the block as it was, with the new maximum, where they do not.

    n = max(m, maxnum(x, over=j)); p = exp2(sub(x, n)); l1 = add(mul(l, exp2(sub(m, n))), sum(p, over=j))
    ->
    q = exp2(sub(x, m)); w = sum(q, over=j); c = le(w, 1024.0); ok = all(c, over=i)
    n, l1, p = if(ok, relaxed=true) { yield(m, add(l, w), q) } else { … as before … yield(n, …, p) }

A maximum is *only a reference* where moving it by d multiplies every accumulator by 2 ** (e · d) for a known e, and changes
nothing that leaves the grid. `Scaling` proves it: it gives each value its degree e and its shift, what d adds to it.
Any reference then gives the same result as long as nothing overflows, and the test shows that nothing does: it fails for NaN
and infinity too. Where there is no such proof, the loop stays as it is.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace

from tilec.builder import Builder
from tilec.dataflow import definitions, depends_on, forward, names_in, uses
from tilec.ir import (
    ABSENT,
    Body,
    Cast,
    Contract,
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
    Value,
    Yield,
    defined,
    operands,
    walk,
)
from tilec.renaming import fresh, substitute

LIMIT = 1024.0
"""How large the sum of a row's terms may be under a stale reference: far from overflow in f16 and f32."""

Tree = Operand | tuple["Tree", ...]
"""An expression of row values in which "?" is the reference's carried maximum."""


@dataclass(frozen=True)
class Options:
    """`limit`: the largest sum of a row's terms under a stale reference."""

    limit: float = LIMIT


def relax(kernel: Kernel, options: Options = Options()) -> Kernel:
    """The kernel with stale references where they are proven to be right."""
    taken = Builder(kernel).taken
    body = tuple(
        _Grid(kernel, op, taken, options).run() if isinstance(op, Grid) else op
        for op in kernel.body
    )
    return replace(kernel, body=body)


# ---- the blocks of a loop


@dataclass(frozen=True)
class _Block:
    """Straight ops that make new carried values of old ones: a loop's body, or an arm of an `if` that ends it."""

    args: tuple[str, ...]
    ops: Body
    yields: tuple[Operand, ...]

    @property
    def idle(self) -> bool:
        """Whether it leaves all carried values as they are."""
        return self.yields == self.args


def _blocks(args: tuple[str, ...], body: Body) -> Iterator[_Block]:
    """The blocks of a loop. What is neither straight nor ends in one `if` has none."""
    end = body[-1]
    assert isinstance(end, Yield)
    branch = [op for op in body if isinstance(op, If)]
    if not branch:
        yield _Block(args, body[:-1], end.values)
    elif len(branch) == 1 and end.values == tuple(v.name for v in branch[0].results):
        yield from _blocks(args, branch[0].then)
        yield from _blocks(args, branch[0].orelse)


class _Grid:
    """Relaxes the loops of one grid."""

    def __init__(self, kernel: Kernel, grid: Grid, taken: set[str], options: Options) -> None:
        self.kernel, self.grid, self.taken, self.options = kernel, grid, taken, options
        self.loops = [op for op in grid.body if isinstance(op, For)]
        self.blocks = [
            b for f in self.loops for b in _blocks(tuple(v.name for v in f.args), f.body)
        ]
        self.defs = {v.name: op for op in walk(grid.body) for v in op.results}
        # whether weights of any type that the operands have reach as far as f32 does
        self.wide = all(v.type.dtype != "f16" for op in self.defs.values() for v in op.results)

    def run(self) -> Grid:
        """The grid, relaxed where there is a reference."""
        if not self.chained():
            return self.grid
        live = [b for b in self.blocks if not b.idle]
        slots = [k for k in range(len(self.loops[0].args)) if all(_is_maximum(b, k) for b in live)]
        references = [r for k in slots if (r := self.reference(k, live)) is not None]
        if not live or not references:
            return self.grid
        body = tuple(
            self.loop(op, references) if isinstance(op, For) else op for op in self.grid.body
        )
        return replace(self.grid, body=body)

    def chained(self) -> bool:
        """Whether the grid's loops carry the same values, one after the other."""
        loops = self.loops
        if not loops or len(loops[0].args) == 0:
            return False
        flat = all(not any(isinstance(x, For) for x in walk(f.body)) for f in loops)
        linked = all(
            b.init == tuple(v.name for v in a.results) for a, b in itertools.pairwise(loops)
        )
        return flat and linked and all(list(_blocks((), f.body)) for f in loops)

    def reference(self, slot: int, live: list[_Block]) -> Reference | None:
        """The proof that a carried maximum is only a reference, or None."""
        shape = _shape(live[0], slot, self.defs)
        if shape is None:
            return None
        powers: tuple[float, ...] | None = None
        for b in live:
            found = Scaling(self.defs, shape, {b.args[slot]: 0, str(b.yields[slot]): 1}).powers(
                b, slot
            )
            if found is None or (powers is not None and found != powers):
                return None
            powers = found
        assert powers is not None
        last = self.loops[-1]
        after = Scaling(self.defs, shape, {last.results[slot].name: 0})
        for v, power in zip(last.results, powers, strict=True):
            after.known.setdefault(v.name, Measure((power, 0.0)))
        stored = [op.value for op in self.grid.body if isinstance(op, Store)]
        if any(after.measure(x) != FIXED for x in stored):
            return None
        return Reference(slot, shape)

    # ---- rewriting

    def loop(self, op: For, references: list[Reference]) -> For:
        body = self.body(tuple(v.name for v in op.args), op.body, references, op.axis)
        return replace(op, body=body)

    def body(
        self, args: tuple[str, ...], body: Body, references: list[Reference], axis: str
    ) -> Body:
        """A loop's body or an arm of it, with its blocks relaxed."""
        if any(isinstance(op, If) for op in body):
            return tuple(
                replace(
                    op,
                    then=self.body(args, op.then, references, axis),
                    orelse=self.body(args, op.orelse, references, axis),
                )
                if isinstance(op, If)
                else op
                for op in body
            )
        (block,) = _blocks(args, body)
        for reference in references:
            if not block.idle:
                block = _Relaxer(self, block, reference, axis).run()
        return (*block.ops, Yield((), block.yields))


def _is_maximum(b: _Block, slot: int) -> bool:
    """Whether the new value of a slot is the greater of the old one and the block's maximum."""
    defs = definitions(b.ops)
    op = defs.get(str(b.yields[slot]))
    if not isinstance(op, Map) or op.fn != "max" or b.args[slot] not in op.args:
        return False
    other = op.args[1 - op.args.index(b.args[slot])]
    part = defs.get(str(other))
    return isinstance(part, Reduce) and part.fn == "maxnum"


def _shape(b: _Block, slot: int, defs: Mapping[str, Op]) -> Tree | None:
    """What is subtracted in the block's exponents, as an expression of the maximum; None where nothing is."""
    new = str(b.yields[slot])
    for op in b.ops:
        if isinstance(op, Map) and op.fn == "sub" and isinstance(op.args[1], str):
            t = tree(op.args[1], new, defs)
            if t is not None and _mentions(t):
                return t
    return None


def tree(x: Operand, hole: str, defs: Mapping[str, Op]) -> Tree | None:
    """An operand as an expression of `hole`; None where it is not one of pointwise functions and fixed values."""
    if x == hole:
        return "?"
    op = defs.get(x) if isinstance(x, str) else None
    if op is None:
        return x
    parts = [tree(y, hole, defs) for y in operands(op)]
    known = tuple(p for p in parts if p is not None)
    if len(known) < len(parts):
        return None
    match op:
        case Map():
            return (op.fn, *known)
        case Load() if not any(map(_mentions, known)):
            return x
        case _:
            return None


def _mentions(t: Tree) -> bool:
    return t == "?" or (isinstance(t, tuple) and any(_mentions(x) for x in t[1:]))


# ---- the proof


@dataclass(frozen=True)
class Reference:
    """A carried maximum that is only a reference: its place among the carried values, and what is subtracted."""

    slot: int
    shape: Tree


@dataclass(frozen=True)
class Measure:
    """How a value moves with the old and the new reference: degree (a factor 2 ** e·d) and shift (a summand)."""

    degree: tuple[float, float] = (0.0, 0.0)
    shift: tuple[float, float] = (0.0, 0.0)


FIXED = Measure()


class Scaling:
    """Degrees and shifts of values. `holes`: the names of the maxima, 0 for the old and 1 for the new one."""

    def __init__(self, defs: Mapping[str, Op], shape: Tree, holes: Mapping[str, int]) -> None:
        self.defs, self.shape, self.holes = defs, shape, holes
        self.known: dict[str, Measure | None] = {}
        self.exponents: list[float] = [0.0]

    def powers(self, b: _Block, slot: int) -> tuple[float, ...] | None:
        """The degree of each carried value; None where one has none."""
        for op in b.ops:
            for v in op.results:
                m = self.measure(v.name)
                if isinstance(op, Map) and op.fn in ("exp", "exp2") and m is not None:
                    self.exponents.append(m.degree[1])
        out: list[float] = []
        for k, (old, new) in enumerate(zip(b.args, b.yields, strict=True)):
            power = 0.0 if k == slot else self.power(old, new)
            if power is None:
                return None
            out.append(power)
        return tuple(out)

    def power(self, old: str, new: Operand) -> float | None:
        """The degree with which a carried value goes in and comes out."""
        for e in dict.fromkeys(self.exponents):
            trial = Scaling(self.defs, self.shape, self.holes)
            trial.known[old] = Measure((e, 0.0))
            m = trial.measure(new)
            if m == Measure((0.0, e)):
                return e
        return None

    def measure(self, x: Operand) -> Measure | None:
        """How an operand moves; None where that is unknown."""
        if not isinstance(x, str):
            return FIXED
        if x not in self.known:
            self.known[x] = self._measure(x)
        return self.known[x]

    def _measure(self, x: str) -> Measure | None:
        for hole, which in self.holes.items():
            if tree(x, hole, self.defs) == self.shape:
                return Measure(shift=(1.0, 0.0) if which == 0 else (0.0, 1.0))
        if x in self.holes:
            return None
        op = self.defs.get(x)
        if op is None or isinstance(op, (For, If)):
            return FIXED if op is None else None
        parts = [self.measure(y) for y in operands(op)]
        if all(p == FIXED for p in parts):
            return FIXED
        if any(p is None for p in parts):
            return None
        return self.rule(op, [p for p in parts if p is not None])

    def rule(self, op: Op, parts: list[Measure]) -> Measure | None:
        """The measure of an op's result from those of its operands, not all of them fixed."""
        match op:
            case Map(fn=fn, args=args):
                return _map_rule(fn, args, parts)
            case Cast():
                return parts[0]
            case Reduce(fn="sum"):
                return parts[0] if parts[0].shift == (0.0, 0.0) else None
            case Contract():
                m = _times(parts[0], parts[1], 1.0)
                return m if m is None or op.init is None else _plus(m, parts[2], 1.0)
            case _:
                return None


def _map_rule(fn: str, args: tuple[Operand, ...], parts: list[Measure]) -> Measure | None:
    first = parts[0]
    match fn:
        case "add" | "sub":
            if 0 in args and not isinstance(args, str):
                return parts[1 - args.index(0)] if fn == "add" else None
            return _plus(parts[0], parts[1], 1.0 if fn == "add" else -1.0)
        case "mul":
            for x, other in ((args[0], parts[1]), (args[1], parts[0])):
                if isinstance(x, (int, float)):
                    return _scaled(other, float(x))
            return _times(parts[0], parts[1], 1.0)
        case "div":
            if isinstance(args[1], (int, float)) and args[1]:
                return _scaled(first, 1.0 / args[1])
            return _times(parts[0], parts[1], -1.0)
        case "neg":
            return _scaled(first, -1.0)
        case "exp" | "exp2":
            if first.degree != (0.0, 0.0):
                return None
            c = 1.0 if fn == "exp2" else 1.0 / math.log(2.0)
            return Measure((_clean(first.shift[0] * c), _clean(first.shift[1] * c)))
        case "log" | "log2":
            if first.shift != (0.0, 0.0):
                return None
            c = 1.0 if fn == "log2" else math.log(2.0)
            return Measure(shift=(_clean(first.degree[0] * c), _clean(first.degree[1] * c)))
        case "abs" | "relu":
            return first if first.shift == (0.0, 0.0) else None
        case "lt" | "le" | "gt" | "ge" | "eq" | "ne":
            sign = (
                args[1] == 0 and not isinstance(args[1], (str, bool)) and first.shift == (0.0, 0.0)
            )
            return FIXED if sign else None
        case "select":
            arms = [p for p, x in zip(parts[1:], args[1:], strict=True) if x != ABSENT and x != 0]
            return arms[0] if first == FIXED and arms and all(p == arms[0] for p in arms) else None
        case _:
            return None


def _clean(x: float) -> float:
    """A number free of the last bits of rounding, so that equal exponents compare equal."""
    return float(f"{x:.12g}") + 0.0


def _plus(a: Measure, b: Measure, sign: float) -> Measure | None:
    zero = (0.0, 0.0)
    if a.degree == b.degree == zero:
        return Measure(
            shift=(_clean(a.shift[0] + sign * b.shift[0]), _clean(a.shift[1] + sign * b.shift[1]))
        )
    return a if a == b and a.shift == zero else None


def _times(a: Measure, b: Measure, sign: float) -> Measure | None:
    if a.shift != (0.0, 0.0) or b.shift != (0.0, 0.0):
        return None
    return Measure(
        (_clean(a.degree[0] + sign * b.degree[0]), _clean(a.degree[1] + sign * b.degree[1]))
    )


def _scaled(a: Measure, c: float) -> Measure:
    return Measure(a.degree, (_clean(a.shift[0] * c), _clean(a.shift[1] * c)))


# ---- rewriting a block


def _among(op: Op, names: Collection[str]) -> bool:
    """Whether a result of an op is one of these."""
    return any(v.name in names for v in op.results)


class _Relaxer:
    """Rewrites one block for one reference."""

    def __init__(self, grid: _Grid, block: _Block, reference: Reference, axis: str) -> None:
        self.grid, self.block, self.axis = grid, block, axis
        self.builder = Builder(grid.kernel, grid.taken)
        self.old = block.args[reference.slot]
        self.new = str(block.yields[reference.slot])
        self.defs = definitions(block.ops)
        self.builder.types.update({v.name: v.type for op in block.ops for v in defined(op)})
        self.builder.tiles = {**dict(grid.grid.axes), **self.windows()}

    def windows(self) -> dict[str, int | None]:
        """The windows of the streamed axes."""
        return {f.axis: f.tile for f in self.grid.loops}

    def run(self) -> _Block:
        """The block, relaxed; as it was where its terms have no bound."""
        block = self.block
        moving = forward(block.ops, {self.new})
        tails = {
            op.result.name
            for op in block.ops
            if isinstance(op, Contract) and self.axis in op.over and op.result.name in moving
        }
        late = forward(block.ops, tails)
        moved = [op for op in block.ops if _among(op, moving) and not _among(op, late)]
        if any(isinstance(op, If) for op in moved) or not self.bounded(moved, tails):
            return block
        exact = self.only_for({op.result.name for op in moved})
        before = [op for op in block.ops if not _among(op, exact) and not _among(op, late)]
        after = [op for op in block.ops if _among(op, late)]
        arm = [op for op in block.ops if _among(op, exact)]
        leaving = {*uses(after), *names_in(block.yields)}
        shared = [op.result.name for op in arm if op.result.name in leaving]
        return self.build(before, arm, after, shared, moved)

    def only_for(self, names: set[str]) -> set[str]:
        """These values and those that nothing else uses."""
        out = set(names)
        kept = set(names_in(self.block.yields))
        for op in reversed(self.block.ops):
            if not isinstance(op, Reduce):
                continue
            # what the exact block alone looks at: the maximum
            name = op.result.name
            users = [x for x in self.block.ops if name in depends_on(x)]
            inner = users and all(_among(u, out) for u in users)
            if name not in out and inner and name not in kept:
                out.add(name)
        return out

    def bounded(self, moved: list[Op], tails: set[str]) -> bool:
        """Whether what goes into contractions is no greater than the terms that are tested, but for factors."""
        for name in tails:
            op = self.defs[name]
            assert isinstance(op, Contract)
            names = {v.result.name for v in moved}
            for x in (op.x, op.y):
                if isinstance(x, str) and x in names and not self.is_term(x, names):
                    return False
        return bool(moved)

    def is_term(self, x: Operand, moved: set[str]) -> bool:
        """Whether an operand is an exponential of the reference; it may be left out here and there, and have a factor."""
        op = self.defs.get(x) if isinstance(x, str) else None
        match op:
            case Map(fn="exp" | "exp2"):
                return True
            case Map(fn="select", args=(_, a, b)):
                return all(y == 0 or y == ABSENT or self.is_term(y, moved) for y in (a, b))
            case Map(fn="mul", args=(a, b)) if a in moved or b in moved:
                return any(
                    y not in moved and self.is_harmless(y) and self.is_term(z, moved)
                    for y, z in ((a, b), (b, a))
                )
            case Map(fn="div", args=(a, b)):
                return b not in moved and self.grid.wide and self.is_term(a, moved)
            case Cast(x=y):
                return self.is_term(y, moved)
            case _:
                return False

    def is_harmless(self, x: Operand) -> bool:
        """Whether a weight may be a term times this: its type holds large numbers, or the factor is small."""
        return self.grid.wide or (isinstance(x, (int, float)) and abs(x) <= 16)

    def build(
        self, before: list[Op], exact: list[Op], after: list[Op], shared: list[str], moved: list[Op]
    ) -> _Block:
        """The test, the `if` with its two arms, and what follows it."""
        b = self.builder
        b.ops = list(before)
        fast = self.stale(moved)
        ok = self.test(
            [op for op in moved if isinstance(op, Map) and op.fn in ("exp", "exp2")], fast, exact
        )
        made, b.ops = b.ops, []
        then: list[Op] = []
        keep = {fast.get(v) for v in shared}
        # what only the accepting arm needs is computed in it: the new sums
        for op in reversed(made[len(before) :]):
            name = op.result.name
            used = any(name in operands(x) for x in made if x not in then and x is not op)
            if (
                not used
                and name in keep
                and isinstance(op, Map)
                and self.axis not in op.result.type.axes
            ):
                then.insert(0, op)
        made = [op for op in made if op not in then]
        results: list[Value] = []
        rename: dict[str, Operand] = {}
        for v in shared:
            t = b.types[v]
            new = Value(fresh(v, b.taken), t)
            rename[v] = new.name
            results.append(new)
        values = tuple(fast.get(v, v) for v in shared)
        branch = If(
            tuple(results),
            ok,
            (*then, Yield((), values)),
            (*exact, Yield((), tuple(shared))),
            relaxed=True,
            span=self.defs[self.new].span,
        )
        ops = (*made, branch, *substitute(tuple(after), rename))
        yields = tuple(rename.get(y, y) if isinstance(y, str) else y for y in self.block.yields)
        return _Block(self.block.args, ops, yields)

    def stale(self, moved: list[Op]) -> dict[str, Operand]:
        """Copies of ops with the old reference in place of the new one; what each value became."""
        b = self.builder
        same = {(op.fn, op.args): op.result.name for op in b.ops if isinstance(op, Map)}
        fast: dict[str, Operand] = {self.new: self.old}
        for op in moved:
            if op.result.name == self.new:
                continue
            if isinstance(op, Map):
                args = tuple(fast.get(x, x) if isinstance(x, str) else x for x in op.args)
                known = _folded(op.fn, args)
                if known is None and (op.fn, args) in same:
                    known = same[op.fn, args]
                if known is not None:
                    fast[op.result.name] = known
                    continue
            name = b.again(op, fast)
            fast[op.result.name] = name
            made = b.ops[-1]
            if isinstance(made, Map):
                same[made.fn, made.args] = name
        return fast

    def test(self, terms: list[Op], fast: dict[str, Operand], exact: list[Op]) -> Operand:
        """Whether the terms of each row add up to little."""
        b = self.builder
        ok: Operand | None = None
        for op in terms:
            x = fast.get(op.result.name)
            if not isinstance(x, str) or self.axis not in b.types[x].axes:
                continue
            summed = next(
                (
                    o.result.name
                    for o in b.ops
                    if isinstance(o, Reduce) and o.fn == "sum" and o.args == (x,)
                ),
                None,
            )
            total = summed if summed is not None else b.reduce("sum", x, over=(self.axis,))
            small = b.map("le", total, self.grid.options.limit)
            axes = b.types[small].axes
            every: Operand = b.reduce("all", small, over=axes) if axes else small
            ok = every if ok is None else b.map("and", ok, every)
        assert ok is not None
        return ok


def _folded(fn: str, args: tuple[Operand, ...]) -> Operand | None:
    """What a function gives where the old and the new reference are one: a factor 1."""
    match fn, args:
        case "sub", (x, y) if x == y:
            return 0.0
        case "mul", (x, y) if x == 1.0 or y == 1.0:
            return y if x == 1.0 else x
        case "mul", (x, y) if (x == 0.0 and isinstance(x, float)) or (
            y == 0.0 and isinstance(y, float)
        ):
            return 0.0
        case (("exp" | "exp2"), (0.0,)):
            return 1.0
        case _:
            return None
