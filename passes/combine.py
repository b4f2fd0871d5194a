"""The algebra that tells `split` how the carried values of two parts of a loop become those of both.

No pass. The body of a loop gives each carried value (a *state*) by one of two forms:

    new = f(old, part)               f is max, min, or, and; the part knows no state          Extreme
    new = old · α₁ ⋯ αₙ + part       α = exp(scale · (w(new) - w(old))), w made of states     Sum

In a sum every term of the part must have the factors exp(± scale · w(new)) of its alphas: `factor` says so. Then the state
divided by these factors knows no other state, and a sum of such quotients over the parts is the one over all of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias, Union

from tilec.dataflow import depends_on, forward
from tilec.ir import (
    Body,
    Cast,
    Contract,
    For,
    If,
    Map,
    Op,
    Operand,
    Reduce,
    Type,
    Yield,
    operands,
    rebuild,
)
from tilec.passes.factor import CAST, Context, Expr, NotFactored, Phi, Term, factor

REDUCTION = {"max": "max", "min": "min", "or": "any", "and": "all"}
"""The functions of extremes, and the reduction that each one is."""


@dataclass(frozen=True, slots=True)
class Extreme:
    """A state that the function `fn` of its parts gives."""

    fn: str


@dataclass(frozen=True, slots=True)
class Sum:
    """A state that is a sum of its parts, after each is multiplied by fn(± scale · (w(merged) - w(part))).

    In `w` and `scale` the states are called `#0`, `#1` and so on, in the order in which they are carried.
    """

    phis: tuple[Phi, ...]


Rule: TypeAlias = Extreme | Sum


def combination(loop: For, types: Mapping[str, Type]) -> tuple[Rule, ...]:
    """How each carried value of a loop combines. Raises NotFactored where one does not, with the reason."""
    step = _step(loop)
    return tuple(_rule(step, k, types) for k in range(len(step.loop.args)))


# ---- the body as straight code


@dataclass
class _Step:
    """One step of the innermost loop of a nest: the ops on the way to it, and what it yields."""

    loop: For
    axes: list[str] = field(default_factory=list[str])
    defs: dict[str, Op] = field(default_factory=dict[str, Op])
    alias: dict[str, Operand] = field(default_factory=dict[str, Operand])
    yields: tuple[Operand, ...] = ()

    def of(self, x: Operand) -> Operand:
        """What an operand is in straight code."""
        return self.alias.get(x, x) if isinstance(x, str) else x

    def inline(self, body: Body) -> tuple[Operand, ...]:
        """Takes in the ops of a region; gives what it yields."""
        for op in body:
            if isinstance(op, Yield):
                return tuple(self.of(x) for x in op.values)
            if isinstance(op, If):
                values = self.inline(_arm(op))
                self.alias |= {v.name: x for v, x in zip(op.results, values, strict=True)}
            elif isinstance(op, For):
                raise NotFactored("a loop in it carries other values")
            else:
                self.defs[op.result.name] = rebuild(op, self.of)
        raise NotFactored("a region of it yields nothing")

    def enter(self, inner: list[For]) -> None:
        """Goes on to the loops in a loop, which pass its values on, one to the next."""
        values: tuple[Operand, ...] = tuple(v.name for v in self.loop.args)
        for op in self.loop.body[:-1]:
            if op in inner:
                continue
            if set(depends_on(op)) & set(values):
                raise NotFactored("what is around the loops in it depends on what is carried")
            self.defs |= {v.name: op for v in op.results}
        for f in inner:
            if f.init != values or f.axis != inner[0].axis:
                raise NotFactored("the loops in it do not carry the same values")
            values = tuple(v.name for v in f.results)
        if operands(self.loop.body[-1]) != values:
            raise NotFactored("it does more with its values than the loops in it do")
        self.loop = inner[-1]
        self.axes.append(self.loop.axis)


def _arm(op: If) -> Body:
    """The arm that stands for both: the exact one, else the one that does something."""
    return op.orelse if op.relaxed or len(op.then) == 1 else op.then


def _step(loop: For) -> _Step:
    step = _Step(loop, [loop.axis])
    while inner := [op for op in step.loop.body if isinstance(op, For)]:
        step.enter(inner)
    step.yields = step.inline(step.loop.body)
    return step


# ---- one state


def _rule(step: _Step, k: int, types: Mapping[str, Type]) -> Rule:
    state, new = step.loop.args[k].name, step.yields[k]
    moving = forward(tuple(step.defs.values()), [v.name for v in step.loop.args])
    op = step.defs.get(new) if isinstance(new, str) else None
    if not isinstance(op, Map) or len(op.args) != 2:
        raise NotFactored(f"{state} does not become {state} and a part of each window")
    if op.fn in REDUCTION and state in op.args:
        (part,) = [x for x in op.args if x != state] or [state]
        if part in moving:
            raise NotFactored(f"{state} is a {op.fn} of values that depend on what is carried")
        return Extreme(op.fn)
    if op.fn == "add":
        for old, part in (op.args, op.args[::-1]):
            alphas = _alphas(old, state, step.defs)
            if alphas is not None:
                return _sum(step, types, moving, part, alphas)
    raise NotFactored(f"{state} is neither an extreme nor a sum of its windows' parts")


def _alphas(x: Operand, state: str, defs: Mapping[str, Op]) -> list[Operand] | None:
    """The factors of a state in a product; None where it is no such product."""
    if x == state:
        return []
    op = defs.get(x) if isinstance(x, str) else None
    if not isinstance(op, Map) or op.fn != "mul":
        return None
    for inner, alpha in (op.args, op.args[::-1]):
        found = _alphas(inner, state, defs)
        if found is not None:
            return [*found, alpha]
    return None


def _sum(
    step: _Step,
    types: Mapping[str, Type],
    moving: set[str],
    part: Operand,
    alphas: list[Operand],
) -> Sum:
    trees = _Trees(step)
    phis = tuple(trees.phi(a) for a in alphas)
    for t in _terms(step, types, moving, part):
        found = [trees.factor(p) for p in t.phis]
        if sorted(map(repr, found)) != sorted(map(repr, phis)):
            raise NotFactored(f"{part} does not scale as what is carried does")
    return Sum(phis)


def _terms(
    step: _Step, types: Mapping[str, Type], moving: set[str], part: Operand
) -> Iterator[Term]:
    """The terms of the part of a window."""
    op = step.defs.get(part) if isinstance(part, str) else None
    if part not in moving:
        yield Term((), part, None, ())
        return
    if not isinstance(op, (Reduce, Contract)) or not op.over:
        raise NotFactored("its windows hold one position")
    if isinstance(op, Reduce) and op.fn != "sum":
        raise NotFactored(f"{part} is a {op.fn} of values that depend on what is carried")
    for t in factor(op, Context(step.defs, types, frozenset(step.axes), moving)):
        if any(c in moving for _, c in t.coefficients):
            raise NotFactored(f"{part} has a factor that depends on what is carried")
        yield t


# ---- factors as expressions of states


@dataclass(frozen=True, slots=True)
class _State:
    """A state in a tree, before (`new` False) or after the window."""

    name: str
    new: bool


Tree: TypeAlias = Union[Operand, _State, tuple["Tree", ...]]


class _Trees:
    """The operands of a step as expressions of states and of what the loop does not change."""

    def __init__(self, step: _Step) -> None:
        self.defs, self.streamed = step.defs, set(step.axes)
        self.states: dict[Operand, _State] = {}
        for k, (v, new) in enumerate(zip(step.loop.args, step.yields, strict=True)):
            self.states[v.name] = _State(f"#{k}", False)
            self.states.setdefault(new, _State(f"#{k}", True))

    def phi(self, alpha: Operand) -> Phi:
        """An alpha as the factor whose quotient it is. Raises NotFactored for one that is none."""
        op = self.defs.get(alpha) if isinstance(alpha, str) else None
        if not isinstance(op, Map) or op.fn not in ("exp", "exp2"):
            raise NotFactored(f"what is carried is multiplied by {alpha}, which is no exponential")
        z = self.tree(op.args[0])
        for difference, scale in _scaled(z):
            match difference:
                case ("sub", x, y):
                    for new, old, negative in ((x, y, False), (y, x, True)):
                        w = _called(new, True)
                        if w is not None and w == _called(old, False):
                            return Phi(op.fn, w, negative, scale)
                case _:
                    pass
        raise NotFactored(f"{alpha} does not compare what is carried with what it was")

    def factor(self, p: Phi) -> Phi:
        """A factor of a term, its states called by their names."""
        w = _called(self.tree(p.w), True)
        scale = None if p.scale is None else _called(self.tree(p.scale), None)
        if w is None or (scale is None) != (p.scale is None):
            raise NotFactored("a term depends on what was carried before")
        return Phi(p.fn, w, p.negative, scale)

    def tree(self, x: Expr) -> Tree:
        """An operand, with what gives it."""
        if isinstance(x, tuple):
            return (x[0], *(self.tree(y) for y in x[1:]))
        if x in self.states:
            return self.states[x]
        if x in self.streamed:
            raise NotFactored(f"a factor depends on the position along {x}")
        op = self.defs.get(x) if isinstance(x, str) else None
        match op:
            case None:
                return x
            case Map():
                return (op.fn, *(self.tree(y) for y in op.args))
            case Cast():
                return (CAST + op.to, self.tree(op.x))
            case _:
                raise NotFactored(f"a factor depends on {op.result.name}, which a window gives")


def _scaled(z: Tree) -> Iterator[tuple[Tree, Expr | None]]:
    """z as a difference and its scale, in each way that there is."""
    match z:
        case ("mul", x, y):
            for inner, by in ((x, y), (y, x)):
                scale = _called(by, None)
                if scale is not None:
                    yield inner, scale
        case _:
            yield z, None


def _called(t: Tree, new: bool | None) -> Expr | None:
    """The tree with the states called by their names; None where they are not all `new` (None: where there is one)."""
    if isinstance(t, _State):
        return t.name if t.new == new else None
    if not isinstance(t, tuple):
        return t
    parts = [_called(x, new) for x in t[1:]]
    head = t[0]
    assert isinstance(head, str)
    return None if any(p is None for p in parts) else (head, *(p for p in parts if p is not None))
