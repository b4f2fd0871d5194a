"""No pass: one block of a loop with a stale reference, for `relax`.

What depends on the new maximum is computed with the old one. A test looks at the sums of the terms; where they are small the
block is done, and where they are not an `if` computes it as it was.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from tilec.builder import Builder
from tilec.dataflow import definitions, depends_on, forward, names_in, uses
from tilec.ir import (
    ABSENT,
    Body,
    Cast,
    Contract,
    If,
    Map,
    Op,
    Operand,
    Reduce,
    Value,
    Yield,
    defined,
    operands,
)
from tilec.renaming import fresh, substitute


@dataclass(frozen=True)
class Block:
    """Straight ops that make new carried values of old ones: a loop's body, or an arm of an `if` that ends it."""

    args: tuple[str, ...]
    ops: Body
    yields: tuple[Operand, ...]

    @property
    def idle(self) -> bool:
        """Whether it leaves all carried values as they are."""
        return self.yields == self.args


def _among(op: Op, names: Collection[str]) -> bool:
    """Whether a result of an op is one of these."""
    return any(v.name in names for v in op.results)


class Stale:
    """One block with a stale reference, the carried value of a slot.

    `wide`: whether a weight's type holds what f32 does. `limit`: the largest sum of a row's terms.
    """

    def __init__(
        self, builder: Builder, block: Block, slot: int, axis: str, *, wide: bool, limit: float
    ) -> None:
        self.builder, self.block, self.axis = builder, block, axis
        self.wide, self.limit = wide, limit
        self.old, self.new = block.args[slot], str(block.yields[slot])
        self.defs = definitions(block.ops)
        builder.types.update({v.name: v.type for op in block.ops for v in defined(op)})

    def run(self) -> Block:
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
                return b not in moved and self.wide and self.is_term(a, moved)
            case Cast(x=y):
                return self.is_term(y, moved)
            case _:
                return False

    def is_harmless(self, x: Operand) -> bool:
        """Whether a weight may be a term times this: its type holds large numbers, or the factor is small."""
        return self.wide or (isinstance(x, (int, float)) and abs(x) <= 16)

    def build(
        self, before: list[Op], exact: list[Op], after: list[Op], shared: list[str], moved: list[Op]
    ) -> Block:
        """The test, the `if` with its two arms, and what follows it."""
        b = self.builder
        b.ops = list(before)
        fast = self.stale(moved)
        terms = [op for op in moved if isinstance(op, Map) and op.fn in ("exp", "exp2")]
        ok = self.test(terms, fast)
        made, then = self.parted(b.ops, len(before), {fast.get(v) for v in shared})
        results = tuple(Value(fresh(v, b.taken), b.types[v]) for v in shared)
        rename: dict[str, Operand] = {v: x.name for v, x in zip(shared, results, strict=True)}
        branch = If(
            results,
            ok,
            (*then, Yield((), tuple(fast.get(v, v) for v in shared))),
            (*exact, Yield((), tuple(shared))),
            relaxed=True,
            span=self.defs[self.new].span,
        )
        ops = (*made, branch, *substitute(tuple(after), rename))
        yields = tuple(rename.get(y, y) if isinstance(y, str) else y for y in self.block.yields)
        return Block(self.block.args, ops, yields)

    def parted(
        self, made: list[Op], first: int, keep: Collection[Operand | None]
    ) -> tuple[list[Op], list[Op]]:
        """Ops without those from `first` on that only the accepting arm needs, the new sums; and these."""
        then: list[Op] = []
        for op in reversed(made[first:]):
            name = op.result.name
            used = any(name in operands(x) for x in made if x not in then and x is not op)
            small = isinstance(op, Map) and self.axis not in op.result.type.axes
            if small and not used and name in keep:
                then.insert(0, op)
        return [op for op in made if op not in then], then

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

    def test(self, terms: Iterable[Op], fast: dict[str, Operand]) -> Operand:
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
            small = b.map("le", total, self.limit)
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
