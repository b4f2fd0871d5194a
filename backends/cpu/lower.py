"""From tile IR to LLVM IR: a worker function per grid, which takes tasks until none are left."""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import llvmlite.ir as llvm

from tilec.backends.cpu.context import COUNTER, TASKS, Context
from tilec.backends.cpu.facts import Facts
from tilec.backends.cpu.jit import Machine
from tilec.backends.cpu.task import FEW, Task, lane_axis
from tilec.backends.cpu.vector import KINDS, POINTER, Emit, function
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
        _worker(worker, tasks, lane_axis(grid), context, machine)
    return Module(str(module), tuple(names), most)


def streams_products(grid: Grid) -> bool:
    """Whether a grid streams something through contractions: a tile of few rows is then bound by memory."""
    loops = [op for op in walk(grid.body) if isinstance(op, For)]
    return lane_axis(grid) is not None and any(
        isinstance(op, Contract) for loop in loops for op in walk(loop.body)
    )


def _worker(
    f: Any, tasks: Mapping[str, Any], lane: str | None, context: Context, machine: Machine
) -> None:
    """Takes the number of a task from the counter and runs it, until there are no more.

    `tasks`: the code of a task, by what it is made for; `exact` is for when another one finds NaN.
    """
    e = Emit(f, machine)
    b, (pointer, scratch) = e.builder, f.args
    count = context.read(e, pointer, TASKS)
    again, run, end = (f.append_basic_block(name) for name in ("next", "run", "end"))
    b.branch(again)
    b.position_at_end(again)
    counter = e.at(pointer, context.slots[COUNTER], 8)
    n = b.atomic_rmw("add", counter, e.index(1), "monotonic")
    b.cbranch(e.compare("<", n, count), run, end)
    b.position_at_end(run)

    def call(name: str) -> list[Any]:
        return [b.call(tasks[name], [pointer, scratch, n])]

    first = "relaxed" if "relaxed" in tasks else "exact"
    if "few" in tasks and lane is not None:
        few = e.compare("<=", context.read(e, pointer, ("extent", lane)), FEW)
        (found,) = e.branch(few, lambda: call("few"), lambda: call(first))
    else:
        (found,) = call(first)
    if first != "exact" and "exact" in tasks:
        e.branch(e.compare("!=", found, 0), lambda: call("exact") and None)
    b.branch(again)
    b.position_at_end(end)
    b.ret_void()
