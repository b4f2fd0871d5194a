"""From tile IR to LLVM IR: a worker function per grid, which takes tasks until none are left."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tilec.backends.cpu import llvmir as ir
from tilec.backends.cpu.context import COUNTER, MISSED, TASKS, Context
from tilec.backends.cpu.facts import Facts
from tilec.backends.cpu.jit import Machine
from tilec.backends.cpu.task import Task
from tilec.backends.cpu.vector import KINDS, POINTER, Emit, function
from tilec.backends.cpu.ways import EXACT, FEW, NONE, USUAL, Choice, is_narrow, ways
from tilec.ir import Grid, Kernel
from tilec.uncollected import uncollected

TASK = (POINTER, POINTER, KINDS["i64"])
"""The arguments of a task: the context, scratch memory and the number of the task."""


@dataclass(frozen=True)
class Module:
    """The LLVM module of a kernel, with a `worker_n` for each grid n that is asked for, and the scratch bytes that each
    worker needs.

    Exact code also has a `task_n`.
    """

    text: str
    scratch: int


def lower(
    kernel: Kernel, machine: Machine, chosen: Choice | None = None, placed: bool = False
) -> Module:
    """The code of a kernel in tiles (after place). `chosen`: what is wanted, the usual code unless given. `placed`: each
    instruction says which line of the program it comes from.

    Raises UnsupportedError for a tile whose extent is not known to the compiler.
    """
    with uncollected():
        return _lower(kernel, machine, chosen, placed)


def _lower(kernel: Kernel, machine: Machine, chosen: Choice | None, placed: bool) -> Module:
    module = ir.Module(kernel.name, placed)
    context, facts = Context(kernel), Facts(kernel)
    grids = [op for op in kernel.body if isinstance(op, Grid)]
    most = 0
    chosen = chosen or Choice((USUAL,) * len(grids))
    for n, (grid, way) in enumerate(zip(grids, chosen.ways, strict=True)):
        if way == NONE:
            continue
        modes = facts.modes(grid)
        paired = EXACT in ways(grid, modes, machine.lanes)
        exact = way == EXACT if paired else modes[0]
        f = function(module, f"task_{n}", TASK, KINDS["i64"], internal=way != EXACT)
        watch = paired and not exact
        few = way == FEW or is_narrow(grid, machine.lanes)
        task = Task(facts, context, Emit(f, machine), grid, n, exact, watch, few, chosen.dense)
        most = max(most, task.emit())
        worker = Emit(function(module, f"worker_{n}", TASK[:2]), machine)
        _worker(worker, f, context, n if watch else None)
    return Module(str(module), most)


def _worker(e: Emit, task: Any, context: Context, watched: int | None) -> None:
    """Takes the number of a task from the counter and runs it, until there are no more.

    `watched`: the number of the grid if its exact code is to run again what finds NaN.
    """
    b, (pointer, scratch) = e.builder, e.function.args
    count = context.read(e, pointer, TASKS)
    again, run, end = (e.function.append_basic_block(name) for name in ("next", "run", "end"))
    b.branch(again)
    b.position_at_end(again)
    counter = e.at(pointer, context.slots[COUNTER], 8)
    n = b.atomic_rmw("add", counter, e.index(1), "monotonic")
    b.cbranch(e.compare("<", n, count), run, end)
    b.position_at_end(run)
    found = b.call(task, [pointer, scratch, n])
    if watched is not None:
        e.branch(
            e.compare("!=", found, 0), lambda: _again(e, context, watched, [pointer, scratch, n])
        )
    b.branch(again)
    b.position_at_end(end)
    b.ret_void()


def _again(e: Emit, context: Context, grid: int, arguments: list[Any]) -> None:
    """Runs the exact code of a grid, or says that it is missed."""
    pointer = arguments[0]
    address = context.read(e, pointer, ("exact", grid))

    def run() -> None:
        code = e.builder.inttoptr(address, POINTER)
        e.call_address(code, *arguments, result=KINDS["i64"])

    def miss() -> None:
        e.write(e.index(1), pointer, context.slots[MISSED])

    e.branch(e.compare("!=", address, 0), run, miss)
