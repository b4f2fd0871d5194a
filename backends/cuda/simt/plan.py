"""Plans the straight-line ops of a tile program as stages: loops over the elements of a tile that a block's threads share.

At each point of a stage's domain some values are computed, kept in shared memory, reduced or stored. A pointwise value is
computed where it is used, unless that would be too often: `kept` says which ones get a tile of their own. A contraction
ends in the pointwise values that are made of it alone, so that only their result is kept.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from tilec.dataflow import needed
from tilec.ir import (
    Cast,
    Contract,
    Edge,
    Load,
    Map,
    Op,
    Operand,
    Reduce,
    Store,
    operands,
)

Axes = tuple[str, ...]

COSTS = {
    **dict.fromkeys(("div", "sqrt", "rsqrt", "log", "log2"), 8),
    **dict.fromkeys(("exp", "exp2", "tanh", "sigmoid", "silu"), 8),
    **dict.fromkeys(("erf", "sin", "cos", "pow", "atan2", "floordiv", "mod"), 20),
    "uniform": 60,
}
"""Instructions of a pointwise function, roughly; of others 1."""
LOAD = 5
"""What a load from memory counts for."""
EPILOGUE = 14
"""What may follow a contraction in its stage, where it is written out for each element of a thread's block."""
OFTEN, WIDE = 8, 4
"""A value used several times is kept from this cost on, one used at more points than it has from that one on."""


@dataclass
class Stage:
    """One loop over a domain, which a contraction, reductions over some of the axes, or neither is the root of."""

    domain: Axes
    over: Axes = ()
    root: Contract | None = None
    kept: list[str] = field(default_factory=list[str])
    reduces: list[Reduce] = field(default_factory=list[Reduce])
    stores: list[Store] = field(default_factory=list[Store])

    def roots(self) -> list[Operand]:
        """What is evaluated at each point."""
        out: list[Operand] = [*self.kept, *(x for r in self.reduces for x in r.args)]
        out += [x for s in self.stores for x in (s.value, *s.index)]
        return out if self.root is None or self.root.init is None else [*out, self.root.init]


@dataclass
class Segment:
    """The plan of some ops: the stages, and for each place between them (0: before all) the scalars computed there.

    `factors`: the kept values that other stages read as factors of contractions only.
    """

    stages: list[Stage]
    scalars: dict[int, list[Op]]
    factors: set[str]


class Planner:
    """Plans one segment. `axes` gives the axes of an operand; `escaping` are the names that later parts read, `yielded`
    those among them that the region gives."""

    def __init__(
        self,
        ops: Sequence[Op],
        escaping: set[str],
        yielded: set[str],
        axes: Callable[[Operand], Axes],
    ) -> None:
        self.escaping, self.yielded, self.axes = escaping, yielded, axes
        self.ops = needed(ops, escaping)
        self.defs = {v.name: op for op in self.ops for v in op.results}
        self.users: dict[str, list[Op]] = {name: [] for name in self.defs}
        for op in self.ops:
            for x in dict.fromkeys(operands(op)):
                if isinstance(x, str) and x in self.users:
                    self.users[x].append(op)
        self.stages: list[Stage] = []
        self.scalars: dict[int, list[Op]] = {}
        self.home: dict[str, int] = {}
        self.after: dict[str, int] = {}

    def plan(self) -> Segment:
        """The plan."""
        self.wanted = self.choose()
        self.ends = self.epilogues()
        late = {self.ends[op.result.name]: op for op in self.ops if isinstance(op, Contract)}
        for op in self.ops:
            name = op.result.name if op.results else ""
            if isinstance(op, Contract) and self.ends[name] == name:
                self.contraction(op)
            elif name in late and not isinstance(op, Contract):
                self.contraction(late[name])
                self.pointwise(op)
            elif not isinstance(op, Contract):
                self.place(op)
        read, factors = self.read_elsewhere()
        for name, n in self.home.items():
            if name in read and not isinstance(self.defs[name], Reduce):
                self.stages[n].kept.append(name)
        return Segment(self.stages, self.scalars, factors)

    # ---- which pointwise values are kept

    def choose(self) -> set[str]:
        """The pointwise values that are worth a tile."""
        cost: dict[str, int] = {}
        kept: set[str] = set()
        for op in self.ops:
            if not isinstance(op, (Map, Cast, Load)):
                continue
            name = op.result.name
            own = (
                LOAD if isinstance(op, Load) else COSTS.get(op.fn, 1) if isinstance(op, Map) else 1
            )
            total = own + sum(cost.get(x, 0) for x in operands(op) if isinstance(x, str))
            if op.result.type.axes and self.worth(name, total):
                kept.add(name)
                total = 1
            cost[name] = total if op.result.type.axes else 0
        self.cost = cost
        return kept

    def worth(self, name: str, cost: int) -> bool:
        own, users = set(self.axes(name)), self.users[name]
        if in_place(self.defs[name]):
            return False
        if (
            any(isinstance(op, Contract) and name in (op.x, op.y) for op in users)
            or name in self.yielded
        ):
            return True
        wide = any(set(self.domain(op)) != own for op in users)
        often = len(users) + (name in self.escaping) > 1
        return (
            (cost >= WIDE and wide)
            or (cost >= OFTEN and often)
            or (name in self.escaping and cost >= WIDE)
        )

    def domain(self, op: Op) -> Axes:
        """The axes over which an op evaluates its operands."""
        if isinstance(op, Reduce):
            return union([*map(self.axes, op.args), op.over])
        if isinstance(op, Store):
            return tuple(x for x in op.index if isinstance(x, str) and self.axes(x))
        return op.results[0].type.axes if op.results else ()

    # ---- what a contraction ends in

    def epilogues(self) -> dict[str, str]:
        """For each contraction the value at which its stage ends."""
        claimed: set[str] = set()
        out: dict[str, str] = {}
        for op in self.ops:
            if isinstance(op, Contract):
                out[op.result.name] = self.follow(op, claimed)
        return out

    def follow(self, op: Contract, claimed: set[str]) -> str:
        name, own = op.result.name, set(op.result.type.axes)
        while own and name not in self.escaping:  # every thread computes scalars
            users = self.users[name]
            if len(users) != 1 or not isinstance(users[0], (Map, Cast)):
                break
            user = users[0].result
            if (
                set(user.type.axes) != own
                or user.name in claimed
                or self.cost[user.name] > EPILOGUE
            ):
                break
            claimed.add(user.name)
            name = user.name
        return name

    # ---- a stage for each op that needs one

    def place(self, op: Op) -> None:
        match op:
            case Edge():
                self.scalar(op, -1)
            case Load() | Map() | Cast():
                self.pointwise(op)
            case Reduce():
                domain = self.domain(op)
                self.join(domain, self.least(op.args, domain), op.over).reduces.append(op)
                self.home[op.result.name] = self.index
            case Store():
                domain = self.domain(op)
                self.join(domain, self.least([op.value, *op.index], domain)).stores.append(op)
            case _:
                raise TypeError(op.word)

    def pointwise(self, op: Op) -> None:
        name, domain = op.result.name, op.result.type.axes
        if not domain:
            self.scalar(op, max((self.at(x) for x in self.leaves(operands(op))), default=-1))
        elif name in self.wanted or name in self.ends.values():
            self.join(domain, self.least(operands(op), domain))
            self.home[name] = self.index

    def scalar(self, op: Op, after: int) -> None:
        """A scalar, computed by every thread once the stage `after` is done."""
        self.after[op.result.name] = after
        self.scalars.setdefault(after + 1, []).append(op)

    def contraction(self, op: Contract) -> None:
        axes = op.result.type.axes
        xs: list[Operand] = [op.x, op.y]
        end = self.defs[self.ends[op.result.name]]
        least = max(
            self.least(xs, ()),
            self.least([x for x in operands(end) if x != op.result.name], axes, False),
        )
        assert least <= len(self.stages), "an operand of a contraction comes after it"
        self.stages.append(Stage(axes, root=op))
        self.index = len(self.stages) - 1
        self.home[op.result.name] = self.index

    def at(self, x: str) -> int:
        """The stage that must be done before a value can be read outside it."""
        return self.home[x] if x in self.home else self.after[x]

    def least(self, xs: Iterable[Operand], domain: Axes, within: bool = True) -> int:
        """The first stage of a domain in which these operands are at hand."""
        out = 0
        for x in self.leaves(xs):
            same = (
                within and x in self.home and set(self.stages[self.home[x]].domain) == set(domain)
            )
            out = max(out, self.at(x) + (not same or isinstance(self.defs[x], Reduce)))
        return out

    def leaves(self, xs: Iterable[Operand]) -> set[str]:
        """The kept values and scalars of this segment that operands are computed from."""
        found: set[str] = set()
        seen: set[str] = set()
        todo = [x for x in xs if isinstance(x, str)]
        while todo:
            x = todo.pop()
            if x in self.home or x in self.after:
                found.add(x)
            elif x in self.defs and x not in seen:
                seen.add(x)
                todo += [y for y in operands(self.defs[x]) if isinstance(y, str)]
        return found

    def join(self, domain: Axes, least: int, over: Axes | None = None) -> Stage:
        """The first stage from `least` on with this domain, that can take a reduction over `over` where there is one; else
        a new one."""
        for n in range(least, len(self.stages)):
            stage = self.stages[n]
            fits = over is None or (
                stage.root is None and (not stage.reduces or set(stage.over) == set(over))
            )
            if set(stage.domain) == set(domain) and fits:
                self.index = n
                stage.over = stage.over or over or ()
                return stage
        self.index = len(self.stages)
        self.stages.append(Stage(domain, over or ()))
        return self.stages[-1]

    # ---- what is kept

    def read_elsewhere(self) -> tuple[set[str], set[str]]:
        """The values with a stage that another stage, a scalar or a later part reads; and those of them that are read as
        factors of contractions only."""
        plain = {x for x in self.leaves(self.escaping) if x in self.home}
        for ops in self.scalars.values():
            plain |= {x for op in ops for x in self.leaves(operands(op)) if x in self.home}
        factors: set[str] = set()
        for n, stage in enumerate(self.stages):
            own = [y for y, at in self.home.items() if at == n and self.defs[y] is not stage.root]
            xs: list[Operand] = [*stage.roots(), *(x for y in own for x in operands(self.defs[y]))]
            plain |= {x for x in self.leaves(xs) if self.home.get(x, n) != n}
            if stage.root is not None:
                factors |= {x for x in self.leaves((stage.root.x, stage.root.y)) if x in self.home}
        return plain | factors, factors - plain


def in_place(op: Op | None) -> bool:
    """Whether a factor is read from memory where it is used, as `place` says."""
    return isinstance(op, Load) and op.result.type.space == "reg"


def union(parts: Iterable[Axes]) -> Axes:
    """Axes in order of appearance."""
    return tuple(dict.fromkeys(a for p in parts for a in p))
