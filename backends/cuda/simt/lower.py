"""From tile IR to CUDA C++: kernels whose blocks take tasks (tiles of a grid) until none are left.

A program of several grids is one kernel, too: to launch it costs as much as to launch any one, also where it only finds out
that nobody wants its results. Its blocks take tasks in the order of the grids, and a task begins when those of the grids
before are done. These have been taken then by blocks that run, so that nothing waits for a block that has no place yet.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from tilec.backends.cuda.simt.arguments import Arguments, Function
from tilec.backends.cuda.simt.frame import threads_for
from tilec.backends.cuda.simt.memory import ALIGN, Layout, allocate
from tilec.backends.cuda.simt.regions import Regions
from tilec.backends.cuda.simt.writer import Writer
from tilec.ieee import Facts
from tilec.ir import Grid, Kernel


@dataclass(frozen=True)
class Module:
    """The CUDA text of a program, without the header, and its kernels by the number of their grid."""

    text: str
    functions: dict[int, Function]
    arguments: Arguments


def lower(kernel: Kernel, limit: int, skip: Collection[int] = ()) -> Module:
    """The code of a kernel in tiles (after place), for blocks of at most `limit` bytes of shared memory.

    `skip`: numbers of grids for which there is other code; the others have a kernel each then.

    Raises UnsupportedError for a tile whose extent is not known to the compiler.
    """
    arguments, facts = Arguments(kernel), Facts(kernel)
    numbered = list(enumerate(op for op in kernel.body if isinstance(op, Grid)))
    threads = {n: threads_for(kernel, g) for n, g in numbered if n not in skip}
    sets = [[n] for n in threads] if skip else [[*threads]] if threads else []
    texts: list[str] = []
    functions: dict[int, Function] = {}
    for numbers in sets:
        wide = max(threads[n] for n in numbers)
        grids = [_Grid(kernel, facts, arguments, numbered[n][1], n, wide) for n in numbers]
        text, functions[numbers[0]] = _together(grids, limit)
        texts.append(text)
    return Module("\n".join([arguments.declaration(), "", *texts]), functions, arguments)


class _Grid(Regions):
    """Writes what a kernel does for one grid."""

    def emit(self, limit: int) -> Layout:
        """Writes a task; gives what its tiles take."""
        self.windows()
        self.prologue()
        self.body(self.grid.body, [])
        return allocate(self.tiles, limit)

    @property
    def is_last(self) -> bool:
        """Whether no grid of the program follows."""
        return self.number == sum(isinstance(op, Grid) for op in self.kernel.body) - 1

    def tasks(self, head: str) -> list[str]:
        """The tiles, and the loop over the tasks, which begins with `head`."""
        w = Writer(self.names, 1)
        w.line(f"typedef {self.ev.real} real;")
        for t in self.tiles:
            base = "workspace" if t.outside else "memory"
            extents = ", ".join(f"{a}:{n}" for a, n in t.extents.items() if a)
            w.line(
                f"{t.ctype}* const {t.name} = ({t.ctype}*)({base} + {t.offset});  // [{extents}]"
            )
        w.line(head)
        return [*w.lines, *self.w.lines, "  }"]


def _together(grids: Sequence[_Grid], limit: int) -> tuple[str, Function]:
    """A kernel for grids that follow each other, and how to launch it."""
    layouts = [g.emit(limit) for g in grids]
    first, threads = grids[0], grids[0].threads
    several = len(grids) > 1
    shown = max(x.shared for x in layouts)  # where a block shows its threads which task it has
    shared = shown + ALIGN if several else shown
    workspace = max(x.workspace for x in layouts)
    redo = first.arguments.get("redo")
    lines = [
        f"GLOBAL BOUNDS({threads}) {first.name}(const Args a) {{",
        f"  constexpr int THREADS = {threads};",
        f"  SHARED(memory, {shared});",
    ]
    if workspace:
        spill = first.arguments.get("workspace")
        lines.append(
            f"  unsigned char* const workspace = {spill} + tl::block_index() * {workspace};"
        )
    lines.append(f"  if (!tl::wanted({redo})) return;")
    lines += _in_turn(grids, redo, shown) if several else _alone(first, redo)
    function = Function(first.name, threads, shared, workspace, tuple(g.number for g in grids))
    return "\n".join([*lines, "}", ""]), function


def _alone(grid: _Grid, redo: str) -> list[str]:
    """The tasks of one grid: every block has its own."""
    tasks = grid.arguments.get("tasks", str(grid.number))
    head = f"for (i64 task = tl::block_index(); task < {tasks}; task += tl::block_count()) {{"
    return [*grid.tasks(head), *([f"  tl::redone({redo});"] if grid.is_last else [])]


def _in_turn(grids: Sequence[_Grid], redo: str, shown: int) -> list[str]:
    """The tasks of several grids, dealt out in their order."""
    words = grids[0].arguments.get("turns")
    lines = [f"  tl::Turns turns({words}, (i64*)(memory + {shown}));"]
    for g in grids:
        tasks = g.arguments.get("tasks", str(g.number))
        head = f"for (i64 task; (task = turns.next({tasks})) >= 0; turns.finish()) {{"
        lines += ["  {", *g.tasks(head), "  }"]
    return [*lines, f"  turns.end({redo});"]
