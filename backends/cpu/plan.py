"""Plans the straight-line ops of a tile program as loop nests: which values are computed together, and which are stored.

A *stage* is one nest over a domain of axes. At each point of it some values are computed, kept in scratch, reduced or
stored to memory. Maps are computed in the earliest stage that has what they need, on the way of the contraction or the
pass that is there anyway; a value is kept only where a later stage reads it. Values that need no stage (positions,
arithmetic on them, loads) are computed where they are used.

One axis of a grid, the *lane* axis, lies in vector lanes. Stages whose domain has it run one after another on a panel of
a few vectors of lanes, so that what they hand on stays in the nearest cache.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TypeGuard

from tilec.backends.cpu.parts import shape
from tilec.dataflow import needed
from tilec.dtypes import kind
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
CHEAP = frozenset(
    {"add", "sub", "mul", "neg", "abs", "min", "max", "select", "lt", "le", "gt", "ge", "eq", "ne"}
    | {"and", "or", "not", "bitand", "bitor", "bitxor", "invert", "shl", "shr"}
)
"""Functions of an instruction or two."""
LONG = 12
"""Instructions per vector from which on what follows a contraction is a loop of its own: in the register tile, it would be
written for each of its vectors."""
LOAD, SLOW = 8, 8
"""Instructions of a load with the lanes of its rows in several places, and of a function that is not cheap."""


@dataclass
class Stage:
    """One nest. `needs`: the stages that must be complete before it; `alone`: it computes its root and nothing else;
    `again`: another one of the plan is alike."""

    domain: Axes
    root: Contract | None = None
    kept: list[str] = field(default_factory=list[str])
    reduces: list[Reduce] = field(default_factory=list[Reduce])
    stores: list[Store] = field(default_factory=list[Store])
    needs: set[int] = field(default_factory=set[int])
    alone: bool = False
    again: bool = False

    def roots(self) -> list[Operand]:
        """What is evaluated at each point."""
        out: list[Operand] = list(self.kept)
        for r in self.reduces:
            out += r.args
        for s in self.stores:
            out += [s.value, *s.index]
        return out


@dataclass
class Step:
    """Stages that run one after another: on each panel of lanes (`panel`), or once."""

    stages: list[int]
    panel: bool


@dataclass
class Segment:
    """The plan of some straight-line ops: scalars first, then the steps. `local`: values that one step only reads."""

    scalars: list[Op]
    stages: list[Stage]
    steps: list[Step]
    home: dict[str, int]
    local: set[str]


class Planner:
    """Makes the plan of one segment.

    `axes` gives the axes of an operand, `free` says of a name that it is positions and scalars only: it is computed
    anew wherever it is used. `escaping` are the names that later parts of the program read. `inline` gives the operands
    of a contraction that are evaluated where it uses them; such a contraction has a stage of its own.
    """

    def __init__(
        self,
        ops: Sequence[Op],
        lane: str | None,
        escaping: set[str],
        axes: Callable[[Operand], Axes],
        free: Callable[[Operand], bool],
        inline: Callable[[Contract], list[Operand]] | None = None,
    ) -> None:
        self.lane, self.escaping, self.axes, self.free = lane, escaping, axes, free
        self.ops = needed(ops, escaping)
        self.defs = {v.name: op for op in self.ops for v in op.results}
        self.stages: list[Stage] = []
        self.scalars: list[Op] = []
        self.home: dict[str, int] = {}
        self.costs: dict[str, bool] = {}
        contracts = [op for op in self.ops if isinstance(op, Contract)]
        self.inline = {op.result.name: inline(op) if inline else [] for op in contracts}
        self.way = self.on_the_way()

    def plan(self) -> Segment:
        """The plan."""
        for op in self.ops:
            self.place(op)
        for op in self.ops:
            for v in op.results:
                if v.name in self.escaping and not self.free(v.name) and v.type.axes:
                    self.complete(v.name)
        stored = self.stored()
        for name in self.home:
            if name in stored and not isinstance(self.defs[name], Reduce):
                self.stages[self.home[name]].kept.append(name)
        for n, stage in enumerate(self.stages):
            stage.needs = self.needs(n)
        self.compare()
        steps = self.steps()
        return Segment(self.scalars, self.stages, steps, self.home, self.local(stored, steps))

    def compare(self) -> None:
        """Finds stages that are alike: code of contractions is long."""
        shapes = {
            n: shape([op for op in self.ops if any(self.home.get(v.name) == n for v in op.results)])
            for n, stage in enumerate(self.stages)
            if stage.root
        }
        times = Counter(shapes.values())
        for n, found in shapes.items():
            self.stages[n].again = times[found] > 1

    # ---- a stage for each op that needs one

    def place(self, op: Op) -> None:
        """Gives an op a stage, or sees that it is computed where it is used."""
        match op:
            case Edge():
                self.scalars.append(op)
            case Load() | Map() | Cast():
                self.pointwise(op)
            case Reduce():
                self.reduction(op)
            case Contract():
                self.contraction(op)
            case Store():
                domain = tuple(x for x in op.index if isinstance(x, str) and self.axes(x))
                self.share([op.value], domain)
                self.join(domain, self.after([op.value], domain)).stores.append(op)
            case _:
                raise TypeError(op.word)

    def pointwise(self, op: Op) -> None:
        """A function of points: with what it needs in the last stage of that, or computed where it is used."""
        name, domain = op.result.name, op.result.type.axes
        self.share(operands(op), domain)
        least = self.after(operands(op), domain)
        if name in self.way or least >= 0 and self.late(op, domain):
            return
        if least >= 0 and self.stages[least : least + 1] and self.stages[least].root:
            least += self.long(op)
        if least >= 0:
            self.join(domain, least)
            self.home[name] = self.index
        elif not domain:
            self.scalars.append(op)

    def late(self, op: Op, domain: Axes) -> bool:
        """Whether a value is computed where it is used, in a stage that is there for something else: `mul(O, alpha)`, say,
        where the products are that are added to it."""
        name = op.result.name
        if not _is_float(op) or op.fn not in CHEAP or name in self.escaping:
            return False
        users = [y for y in self.ops if name in operands(y)]
        alike = [y for y in users if isinstance(y, Map) and set(y.result.type.axes) == set(domain)]
        stages = (self.stages[self.home[x]] for x in self.leaves(operands(op)))
        return len(users) == len(alike) == 1 and all(set(s.domain) != set(domain) for s in stages)

    def long(self, op: Op) -> bool:
        """Whether an op is in a loop of its own behind a contraction: with all that is long there, what is slow and leads
        to it."""
        if self.length(op) > LONG:
            return True
        if not _is_float(op) or op.fn in CHEAP:
            return False
        name, whole = op.result.name, set(op.result.type.axes)
        users = [x for x in self.ops if isinstance(x, Map) and name in x.args]
        return any(self.long(x) for x in users if set(x.result.type.axes) == whole)

    def length(self, op: Op) -> int:
        """The instructions from contractions to the value of an op, of those that are needed at each of its points."""
        whole = set(op.result.type.axes)
        found: dict[str, int] = {}
        todo = [op]
        while todo:
            op = todo.pop()
            name = op.result.name
            if name in found or isinstance(op, (Contract, Reduce)) or set(self.axes(name)) != whole:
                continue
            fast = isinstance(op, Cast) or isinstance(op, Map) and op.fn in CHEAP
            found[name] = 1 if fast else LOAD if isinstance(op, Load) else SLOW
            todo += [self.defs[x] for x in operands(op) if isinstance(x, str) and x in self.defs]
        return sum(found.values())

    def on_the_way(self) -> set[str]:
        """The values that only contractions use that evaluate them."""
        kept = set(self.escaping)
        found: set[str] = set()
        for op in reversed(self.ops):
            passed: list[Operand] = []
            if isinstance(op, Contract):
                passed = self.inline[op.result.name]
            elif isinstance(op, (Load, Map, Cast)) and op.result.name in found - kept:
                whole = set(op.result.type.axes)
                passed = [x for x in operands(op) if whole and set(self.axes(x)) == whole]
            names = {x for x in passed if isinstance(x, str)}
            found |= names
            kept |= {x for x in operands(op) if isinstance(x, str)} - names
        return found - kept

    def reduction(self, op: Reduce) -> None:
        """A reduction: a stage over its axes; over lanes one of its own, whose operands are complete tiles."""
        domain = _union([*map(self.axes, op.args), op.over])
        self.share(op.args, domain)
        if self.lane in op.over:
            for x in op.args:
                self.complete(x)
            self.new(domain).reduces.append(op)
        else:
            self.join(domain, self.after(op.args, domain), op.over).reduces.append(op)
        self.home[op.result.name] = self.index

    def contraction(self, op: Contract) -> None:
        """A contraction: the root of a stage of its own, over the axes of its result."""
        inline = self.inline[op.result.name]
        for x in (op.x, op.y):
            if x not in inline:
                self.complete(x)
        stage = self.new(op.result.type.axes)
        stage.root, stage.alone = op, bool(inline)
        self.home[op.result.name] = self.index

    def share(self, xs: Iterable[Operand], domain: Axes) -> None:
        """Keeps costly operands that have fewer axes than the domain they are used in."""
        for x in xs:
            if isinstance(x, str) and set(self.axes(x)) < set(domain) and self.costly(x):
                self.complete(x)

    def costly(self, x: str) -> bool:
        """Whether computing a value where it is used takes long."""
        if x in self.home:
            return False
        if x not in self.costs:
            op = self.defs.get(x)
            if op is None:
                return False
            parts = [y for y in operands(op) if isinstance(y, str)]
            slow = isinstance(op, Map) and op.fn not in CHEAP
            self.costs[x] = slow or any(map(self.costly, parts))
        return self.costs[x]

    def after(self, xs: Iterable[Operand], domain: Axes) -> int:
        """The first stage in which these operands are at hand, -1: anywhere."""
        return max((self.ready(x, domain) for x in self.leaves(xs)), default=-1)

    def ready(self, x: str, domain: Axes) -> int:
        """The first stage over a domain that may read a value: its own one where that has the domain, else the next."""
        stage = self.stages[self.home[x]]
        same = set(stage.domain) == set(domain) and not stage.alone
        same = same and not isinstance(self.defs[x], Reduce)
        return self.home[x] + (not same)

    def leaves(self, xs: Iterable[Operand]) -> set[str]:
        """The values with a stage that operands are computed from."""
        found: set[str] = set()
        seen: set[str] = set()
        todo = [x for x in xs if isinstance(x, str)]
        while todo:
            x = todo.pop()
            if x in self.home:
                found.add(x)
            elif x in self.defs and x not in seen:
                seen.add(x)
                todo += [y for y in operands(self.defs[x]) if isinstance(y, str)]
        return found

    def join(self, domain: Axes, least: int, over: Axes | None = None) -> Stage:
        """The first stage from `least` on with this domain, and no reduction but over `over`; else a new one."""
        for n in range(max(least, 0), len(self.stages)):
            stage = self.stages[n]
            agree = over is None or all(set(r.over) == set(over) for r in stage.reduces)
            free = agree and not stage.alone and not self.crosses(stage)
            if set(stage.domain) == set(domain) and free:
                self.index = n
                return stage
        return self.new(domain)

    def new(self, domain: Axes) -> Stage:
        """A stage of its own, behind all others."""
        self.index = len(self.stages)
        self.stages.append(Stage(domain))
        return self.stages[-1]

    def crosses(self, stage: Stage) -> bool:
        """Whether a stage reduces over lanes."""
        return any(self.lane in r.over for r in stage.reduces)

    def complete(self, x: Operand) -> None:
        """Sees to it that a tile is kept as such."""
        if not isinstance(x, str) or x not in self.defs or x in self.home or self.free(x):
            return
        if self.axes(x):
            self.new(self.axes(x))
            self.home[x] = self.index

    # ---- what is kept, and when stages run

    def users(self) -> dict[str, set[int]]:
        """For each value with a stage, the stages that read it."""
        out: dict[str, set[int]] = {name: set() for name in self.home}
        for n, stage in enumerate(self.stages):
            for x in self.reads(n, stage):
                out[x].add(n)
        return out

    def reads(self, n: int, stage: Stage) -> set[str]:
        """The values with a stage that a stage reads; its own are among them where others of its own use them."""
        own = [name for name, at in self.home.items() if at == n]
        return self.leaves([*stage.roots(), *(x for y in own for x in operands(self.defs[y]))])

    def stored(self) -> set[str]:
        """The values that must be kept: read by another stage or later on."""
        users = self.users()
        return {x for x, at in self.home.items() if x in self.escaping or users[x] - {at}}

    def needs(self, n: int) -> set[int]:
        """The other stages that must be complete before a stage."""
        return {self.home[x] for x in self.reads(n, self.stages[n])} - {n}

    def steps(self) -> list[Step]:
        """The stages in an order in which each has what it needs: what runs once as early as it can, panels between."""
        done: set[int] = set()
        rest = list(range(len(self.stages)))
        out: list[Step] = []
        while rest:
            once = [n for n in rest if not self.panelled(n) and self.stages[n].needs <= done]
            run: list[int] = []
            for n in rest:
                if not once and self.panelled(n) and self.stages[n].needs <= done | set(run):
                    run.append(n)
            assert once or run, "stages need each other"
            out += [Step([n], False) for n in once]
            out += [Step(run, True)] if run else []
            done |= {*once, *run}
            rest = [n for n in rest if n not in done]
        return out

    def panelled(self, n: int) -> bool:
        """Whether a stage runs panel by panel: it has the lanes and does not reduce over them."""
        stage = self.stages[n]
        return self.lane in stage.domain and not self.crosses(stage)

    def local(self, stored: set[str], steps: list[Step]) -> set[str]:
        """The kept values that only stages of their own run of panels read: one panel of these is enough."""
        users = self.users()
        step = {n: k for k, s in enumerate(steps) for n in s.stages}
        panels = {n for s in steps if s.panel for n in s.stages}
        return {
            x
            for x in stored - self.escaping
            if self.home[x] in panels and {step[n] for n in users[x]} <= {step[self.home[x]]}
        }


def _is_float(op: Op) -> TypeGuard[Map]:
    """Whether an op is a function that gives floats: masks have ways of their own."""
    return isinstance(op, Map) and kind(op.result.type.dtype) == "float"


def _union(parts: Iterable[Axes]) -> Axes:
    return tuple(dict.fromkeys(a for p in parts for a in p))
