"""From tile IR to LLVM IR: a worker function per grid, which takes tasks until none are left."""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import llvmlite.ir as llvm

from tilec.backends.cpu.context import COUNTER, TASKS, Context
from tilec.backends.cpu.facts import Facts
from tilec.backends.cpu.jit import Machine
from tilec.backends.cpu.task import Task
from tilec.backends.cpu.vector import KINDS, POINTER, Emit, function
from tilec.ir import Grid, Kernel


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
    grids = [op for op in kernel.body if isinstance(op, Grid)]
    facts = Facts(kernel)
    for n, grid in enumerate(grids):
        tasks: list[Any] = []
        modes = facts.modes(grid)
        for exact in modes:
            name = f"task_{n}_{'exact' if exact else 'relaxed'}"
            task = function(
                module, name, [POINTER, POINTER, KINDS["i64"]], KINDS["i64"], internal=True
            )
            watch = not exact and len(modes) > 1
            most = max(
                most, Task(facts, context, Emit(task, machine), grid, n, exact, watch).emit()
            )
            tasks.append(task)
        names.append(f"worker_{n}")
        _worker(function(module, names[-1], [POINTER, POINTER]), tasks, context, machine)
    return Module(str(module), tuple(names), most)


def _worker(f: Any, tasks: Sequence[Any], context: Context, machine: Machine) -> None:
    """Takes the number of a task from the counter and runs it, until there are no more.

    `tasks`: the code of a task; where there are two, the second is for when the first finds NaN.
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
    found = b.call(tasks[0], [pointer, scratch, n])
    if len(tasks) > 1:
        e.branch(
            e.compare("!=", found, 0), lambda: b.call(tasks[1], [pointer, scratch, n]) and None
        )
    b.branch(again)
    b.position_at_end(end)
    b.ret_void()
