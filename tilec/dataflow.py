"""The dataflow graph of a body: who defines a name, who uses it, what a value depends on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping

from tilec.ir import Body, For, Grid, Group, If, Load, Op, Operand, Store, operands, rebuild, walk


def definitions(body: Iterable[Op]) -> dict[str, Op]:
    """The op that defines each result of a body (not of the regions in it)."""
    return {v.name: op for op in body for v in op.results}


def uses(body: Iterable[Op]) -> Counter[str]:
    """How often each name is an operand, regions included."""
    return Counter(x for op in walk(body) for x in operands(op) if isinstance(x, str))


def names_in(xs: Iterable[Operand]) -> tuple[str, ...]:
    """The names among operands."""
    return tuple(x for x in xs if isinstance(x, str))


def depends_on(op: Op) -> tuple[str, ...]:
    """Every name an op reads: its own operands and those of the ops in its regions."""
    return tuple(x for inner in walk((op,)) for x in names_in(operands(inner)))


def backward(roots: Iterable[str], defs: Mapping[str, Op], stop: Collection[str] = ()) -> set[str]:
    """The values of `defs` that the roots depend on, themselves included, without passing through `stop`."""
    seen: set[str] = set()
    todo = [r for r in roots if r in defs]
    while todo:
        name = todo.pop()
        if name in seen:
            continue
        seen.add(name)
        todo.extend(x for x in depends_on(defs[name]) if x in defs and x not in stop)
    return seen


def forward(body: Body, sources: Collection[str]) -> set[str]:
    """The results of a body that depend on one of the sources, and the sources."""
    out = set(sources)
    for op in body:
        if any(x in out for x in depends_on(op)):
            out.update(v.name for v in op.results)
    return out


def stretches(body: Body, control: tuple[type[Op], ...]) -> list[tuple[list[Op], Op | None]]:
    """The straight-line stretches of a body, each with the control op that ends it."""
    out: list[tuple[list[Op], Op | None]] = []
    run: list[Op] = []
    for op in body:
        if isinstance(op, control):
            out.append((run, op))
            run = []
        else:
            run.append(op)
    return [*out, (run, None)]


def needed(ops: Iterable[Op], wanted: Iterable[str]) -> list[Op]:
    """The ops of a stretch that some values need, and its stores."""
    names, kept = set(wanted), list[Op]()
    for op in reversed(list(ops)):
        if isinstance(op, Store) or any(v.name in names for v in op.results):
            kept.append(op)
            names.update(depends_on(op))
    return kept[::-1]


def live(body: Body) -> Body:
    """The body without the ops whose results nothing needs; stores need theirs."""
    return _live(body, set())


def _live(body: Body, live: set[str]) -> Body:
    kept: list[Op] = []
    for op in reversed(body):
        if op.results and not any(v.name in live for v in op.results):
            continue
        if isinstance(op, (For, If, Grid, Group)):
            op = rebuild(op, region=lambda inner: _live(inner, live))
        live.update(x for x in operands(op) if isinstance(x, str))
        for inner in walk((op,)):
            if isinstance(inner, (Load, Store)):
                live.add(inner.tensor)  # a buffer
            live.update(x for x in operands(inner) if isinstance(x, str))
        kept.append(op)
    return tuple(reversed(kept))
