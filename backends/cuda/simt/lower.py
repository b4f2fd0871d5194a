"""From tile IR to CUDA C++: one kernel per grid, whose blocks take tasks (tiles of the grid) until none are left."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from tilec.backends.cuda.simt.arguments import Arguments, Function
from tilec.backends.cuda.simt.memory import Layout, allocate
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

    `skip`: numbers of grids for which there is other code.

    Raises UnsupportedError for a tile whose extent is not known to the compiler.
    """
    arguments, facts = Arguments(kernel), Facts(kernel)
    texts: list[str] = []
    functions: dict[int, Function] = {}
    for n, grid in enumerate(op for op in kernel.body if isinstance(op, Grid)):
        if n not in skip:
            text, functions[n] = _Grid(kernel, facts, arguments, grid, n).emit(limit)
            texts.append(text)
    return Module("\n".join([arguments.declaration(), "", *texts]), functions, arguments)


class _Grid(Regions):
    """Writes the kernel of one grid."""

    def emit(self, limit: int) -> tuple[str, Function]:
        """The text of the kernel, and how to launch it."""
        self.windows()
        self.prologue()
        self.body(self.grid.body, [])
        layout = allocate(self.tiles, limit)
        function = Function(self.name, self.threads, layout.shared, layout.workspace)
        return self.text(layout), function

    def text(self, layout: Layout) -> str:
        w = Writer(self.names)
        w.line(f"GLOBAL BOUNDS({self.threads}) {self.name}(const Args a) {{")
        w.line(f"  typedef {self.ev.real} real;")
        w.line(f"  constexpr int THREADS = {self.threads};")
        w.line(f"  SHARED(memory, {layout.shared});")
        if layout.workspace:
            spill = self.arguments.get("workspace")
            w.line(
                f"  unsigned char* const workspace = {spill} + tl::block_index() * {layout.workspace};"
            )
        for t in self.tiles:
            base = "workspace" if t.outside else "memory"
            extents = ", ".join(f"{a}:{n}" for a, n in t.extents.items() if a)
            w.line(
                f"  {t.ctype}* const {t.name} = ({t.ctype}*)({base} + {t.offset});  // [{extents}]"
            )
        tasks, redo = self.arguments.get("tasks", str(self.number)), self.arguments.get("redo")
        w.line(f"  if (!tl::wanted({redo})) return;")
        w.line(
            f"  for (i64 task = tl::block_index(); task < {tasks}; task += tl::block_count()) {{"
        )
        last = self.number == sum(isinstance(op, Grid) for op in self.kernel.body) - 1
        end = [f"  tl::redone({redo});"] if last else []
        return "\n".join([*w.lines, *self.w.lines, "  }", *end, "}", ""])
