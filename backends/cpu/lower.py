"""From tile IR to LLVM IR: a worker function per grid, which takes tasks until none are left."""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import llvmlite.ir as llvm

from tilec.backends.cpu.context import COUNTER, TASKS, Context, Key
from tilec.backends.cpu.facts import Facts
from tilec.backends.cpu.jit import Machine
from tilec.backends.cpu.narrow import LIMIT
from tilec.backends.cpu.task import FEW, Task, lane_axis
from tilec.backends.cpu.vector import KINDS, POINTER, Emit, constant, function
from tilec.ir import Contract, For, Grid, Kernel, walk


@dataclass(frozen=True)
class Module:
    """The LLVM module of a kernel: one worker per grid, by name, and the scratch bytes that each worker needs."""

    text: str
    workers: tuple[str, ...]
    scratch: int


def lower(kernel: Kernel, machine: Machine) -> Module:
    """The code of a kernel in tiles (after place).

    Raises UnsupportedError for a tile whose extent is not known to the compiler.
    """
    module = llvm.Module(name=kernel.name)
    context = Context(kernel)
    names: list[str] = []
    most = 0
    word, arguments = KINDS["i64"], [POINTER, POINTER, KINDS["i64"]]
    grids = [op for op in kernel.body if isinstance(op, Grid)]
    facts = Facts(kernel)
    for n, grid in enumerate(grids):
        modes = facts.modes(grid)
        paired = len(modes) > 1
        kinds = [("exact" if exact else "relaxed", exact, False) for exact in modes]
        if paired and streams_products(grid):
            kinds.append(("few", False, True))
            if dict(grid.axes)[str(lane_axis(grid))] <= FEW:
                kinds = [k for k in kinds if k[0] != "relaxed"]
        tasks: dict[str, Any] = {}
        for name, exact, few in kinds:
            tasks[name] = task = function(
                module, f"task_{n}_{name}", arguments, word, internal=True
            )
            watch = paired and not exact
            emitted = Task(facts, context, Emit(task, machine), grid, n, exact, watch, few)
            most = max(most, emitted.emit())
        names.append(f"worker_{n}")
        worker = function(module, names[-1], arguments[:2])
        _worker(worker, tasks, lane_axis(grid), context, machine, kernel)
    return Module(str(module), tuple(names), most)


def streams_products(grid: Grid) -> bool:
    """Whether a grid streams something through contractions: a tile of few rows is then bound by memory."""
    loops = [op for op in walk(grid.body) if isinstance(op, For)]
    return lane_axis(grid) is not None and any(
        isinstance(op, Contract) for loop in loops for op in walk(loop.body)
    )


def _small(e: Emit, context: Context, pointer: Any, kernel: Kernel) -> Any:
    """Whether all sizes are so small that whole numbers are what `Narrow` takes them for."""
    keys: list[Key] = [("extent", axis.name) for axis in kernel.axes]
    keys += [("dim", name) for name in kernel.dims]
    keys += [("scalar", name) for name, x in kernel.arguments.items() if x.type == "int"]
    words = [context.read(e, pointer, key) for key in keys]
    near = [e.below(e.add(word, LIMIT), 2 * LIMIT + 1) for word in words]
    return functools.reduce(e.and_, near, constant("i1", 1))


def _worker(
    f: Any,
    tasks: Mapping[str, Any],
    lane: str | None,
    context: Context,
    machine: Machine,
    kernel: Kernel,
) -> None:
    """Takes the number of a task from the counter and runs it, until there are no more.

    `tasks`: the code of a task, by what it is made for; `exact` is for when another one finds NaN, or sizes are large, `few`
    for few positions on the lane axis.
    """
    e = Emit(f, machine)
    b, (pointer, scratch) = e.builder, f.args
    count = context.read(e, pointer, TASKS)
    small = _small(e, context, pointer, kernel) if "exact" in tasks else None
    again, run, end = (f.append_basic_block(name) for name in ("next", "run", "end"))
    b.branch(again)
    b.position_at_end(again)
    counter = e.at(pointer, context.slots[COUNTER], 8)
    n = b.atomic_rmw("add", counter, e.index(1), "monotonic")
    b.cbranch(e.compare("<", n, count), run, end)
    b.position_at_end(run)

    def call(name: str) -> list[Any]:
        return [b.call(tasks[name], [pointer, scratch, n])]

    def relaxed() -> list[Any]:
        if "few" not in tasks or "relaxed" not in tasks or lane is None:
            return call("few" if "few" in tasks else "relaxed")
        few = e.compare("<=", context.read(e, pointer, ("extent", lane)), FEW)
        return e.branch(few, lambda: call("few"), lambda: call("relaxed"))

    if len(tasks) == 1:
        call(*tasks)
    else:
        (found,) = e.branch(small, relaxed, lambda: [e.index(1)])
        e.branch(e.compare("!=", found, 0), lambda: call("exact") and None)
    b.branch(again)
    b.position_at_end(end)
    b.ret_void()
