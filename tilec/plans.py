"""Calls of a kernel: the first of each kind is checked in full and planned; those that look like it are repeats."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tilec import backend, binding, bounds
from tilec.arrays import Array, check_gradient, device_of, give, reach
from tilec.ir import Kernel as IR
from tilec.outline import Tiles
from tilec.repeat import Look, Ready, Repeats
from tilec.results import Maker, Result, given, makers
from tilec.scalar import Number
from tilec.uncollected import uncollected
from tilec.versions import Versions

if TYPE_CHECKING:
    from tilec.tuning.store import Winner
    from tilec.typed import Typed

MOST = 256
"""How many different calls (shapes, strides, element types, scalars) a kernel remembers."""


@dataclass(frozen=True, slots=True)
class Plan:
    """A checked call: its sizes and scalars, the tiles that run, what runs them, and what its outputs look like.

    `tuned`: the stored schedule that it takes, None where it has the default one or the user's.
    """

    bound: binding.Bound
    tiles: Tiles
    run: backend.Runner
    outputs: tuple[Result, ...]
    tuned: Winner | None = None

    @property
    def ir(self) -> IR:
        """The IR that runs."""
        return self.tiles.kernel


@dataclass(frozen=True, slots=True)
class Arguments:
    """What a call is given: where it runs, its arrays by parameter, and those scalars that it states."""

    target: str
    arrays: dict[str, Array]
    scalars: Mapping[str, Number]


class Plans:
    """The calls of a kernel on a target; None: the arrays of each call decide."""

    def __init__(self, versions: Versions, target: str | None) -> None:
        self.header, self.versions, self.target = versions.source.header, versions, target
        self.known: dict[object, Plan] = {}
        self.repeats = Repeats(self.header)

    def call(self, tensors: Sequence[Any], named: Mapping[str, Any], out: Any) -> Any:
        """Runs the kernel; gives its outputs, one alone as it is. Raises what is wrong with the arguments."""
        while True:
            look = self.repeats.look(tensors, named, out)
            ready = None if look is None else self.repeats.find(look)
            try:
                if look is None or ready is None:
                    return self._first(tensors, named, out, look)
                return ready(look[1], out)
            except backend.Stale:
                self.repeats.drop(look)

    def clear(self) -> None:
        """Forgets all calls: the next ones find what has changed since."""
        self.known.clear()
        self.repeats.clear()

    def _first(
        self, tensors: Sequence[Any], named: Mapping[str, Any], out: Any, look: Look | None
    ) -> Any:
        """A call that is checked in full; others that look like it will be repeats."""
        arguments = self.arguments(tensors, named)
        plan, arrays = self.plan(arguments), arguments.arrays
        make = makers(plan.outputs, arrays) if out is None else ()
        results = (
            {m.result.name: m.array() for m in make}
            if out is None
            else given(plan.outputs, arrays, out)
        )
        launch = None if look is None else plan.run.ready(arrays, plan.bound.scalars, results)
        if look is None or launch is None:
            plan.run(arrays, plan.bound.scalars, results)
        else:
            launch([a.pointer for a in (*arrays.values(), *results.values())])
            self._keep(look, launch, arrays, make, {} if out is None else results)
        if out is not None:
            return out
        values = tuple(give(a) for a in results.values())
        return values[0] if len(values) == 1 else values

    def _keep(
        self,
        look: Look,
        launch: backend.Launch,
        arrays: Mapping[str, Array],
        make: tuple[Maker, ...],
        given: Mapping[str, Array],
    ) -> None:
        """Remembers a call, unless it ran on copies of arrays that tilec cannot take as they are."""
        seen = [a.pointer for a in (*arrays.values(), *given.values())]
        if seen != look[1]:
            return
        if given:
            spans = tuple(reach(a) for a in (*arrays.values(), *given.values()))
            self.repeats.keep(look, Ready(launch, reach=spans))
        else:
            self.repeats.keep(look, Ready(launch, make=make))

    # ---- plans

    def arguments(self, tensors: Sequence[Any], named: Mapping[str, Any]) -> Arguments:
        """The arguments of a call, by name. Raises ArgumentError for those that no call can have."""
        given = binding.by_name(self.header, tensors, named)
        names = self.header.tensors
        target = self.target or backend.target_of({n: device_of(given[n]) for n in names})
        for n, x in given.items():
            check_gradient(n, x)
        arrays = {n: backend.see(n, given[n], target) for n in names}
        return Arguments(target, arrays, binding.numbers(self.header, given))

    def plan(self, arguments: Arguments) -> Plan:
        """The plan of a call, made at the first call of its kind."""
        layout = tuple((a.dtype, a.shape, a.strides) for a in arguments.arrays.values())
        words = tuple((n, repr(x)) for n, x in arguments.scalars.items())
        key = (arguments.target, layout, words, backend.threads(arguments.target))
        plan = self.known.get(key)
        if plan is None:
            plan = self._made(arguments)
            while len(self.known) >= MOST:
                self.known.pop(next(iter(self.known)), None)
            self.known[key] = plan
        return plan

    @uncollected()
    def _made(self, arguments: Arguments) -> Plan:
        typed, bound = self.bound(arguments.arrays, arguments.scalars)
        outputs = results(typed.facts.kernel, bound)
        tuned = self.versions.tuned(arguments.target, typed, bound.sizes)
        made = self.versions.compiled(arguments.target, typed, bound, tuned)
        return Plan(bound, *made, outputs, tuned)

    def bound(
        self, arrays: Mapping[str, Array], scalars: Mapping[str, Number]
    ) -> tuple[Typed, binding.Bound]:
        """The kernel for the element types of a call, and the call's sizes and scalars, all checked."""
        typed = self.versions.typed(arrays)
        facts = typed.facts
        bound = binding.bind(facts.kernel, arrays, scalars)
        bounds.check(facts.kernel, facts.indices, bound)
        return typed, bound


def results(kernel: IR, bound: binding.Bound) -> tuple[Result, ...]:
    """What the outputs of a call look like."""
    return tuple(
        Result(o.name, o.dtype, tuple(bound.extents[a] for a in o.axes)) for o in kernel.outputs
    )
