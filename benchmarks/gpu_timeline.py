"""The time of each kernel of a call, and where the warpgroups of the Hopper kernel among them spend their cycles.

    python benchmarks/gpu_timeline.py [--cells documents,window] [--with columns=64] [--marks] [--replace A=>B]

First the kernels as they are: CUPTI's time of each (by PyTorch's profiler), and of the whole call, by events. With `--marks`
the kernel is compiled once more with a note of the clock at each wait (benchmarks/gpu/timeline.py); such a kernel is
some percent slower. Tables go to DIR, one file per kernel. `--documents`: so many of the same length,
instead of random ones. `--replace`: the text with something in place of what a regular expression finds, to see
what that costs; its results are wrong.
"""

from __future__ import annotations

import argparse
import dataclasses
import os
import re
import sys
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from benchmarks.gpu import build, measure, problem, timeline, timing
from benchmarks.gpu.cells import Cell, cells
from benchmarks.gpu.problem import Problem
from tilec.errors import TilecError

CALLS = 10


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--table", default="variants")
    parser.add_argument("--cells", default="documents,window,chunks1024,causal")
    parser.add_argument("--with", dest="schedules", action="append", default=[])
    parser.add_argument("--documents", type=int, help="so many of the same length")
    parser.add_argument("--marks", action="store_true")
    parser.add_argument("--replace", action="append", default=[], metavar="A=>B")
    parser.add_argument("--out", type=Path, default=Path(os.environ.get("OUT", ".")))
    parser.add_argument("--compile-only", action="store_true", help="no GPU is needed")
    args = parser.parse_args()
    kinds = args.cells.split(",")
    wanted = [c for c in cells([args.table], "bf16") if c.kind in kinds or c.name in kinds]
    for cell in sorted(wanted, key=lambda c: kinds.index(c.kind) if c.kind in kinds else 0):
        for schedule in ["", *args.schedules]:
            fields = build.changes(schedule)
            if args.compile_only:
                checked(cell, fields)
                continue
            p = drawn(cell, args.documents)
            try:
                shown(p, fields, schedule)
            except TilecError as e:
                print(f"{cell.kind} {schedule}: {e}")
                continue
            for change in args.replace:
                with edited(lambda text, change=change: replaced(text, change)):
                    shown(p, fields, f"{schedule} with {change}")
            if args.marks:
                table = args.out / f"timeline-{cell.kind}{'-' if schedule else ''}{schedule}.txt"
                table.write_text(cycles(p, fields))


def drawn(cell: Cell, documents: int | None) -> Problem:
    """The tensors of a cell."""
    import torch

    p = problem.draw(cell, 1)
    if documents is None or "doc" not in p.extra:
        return p
    marks = torch.arange(cell.n, dtype=torch.int32, device="cuda") // -(-cell.n // documents)
    doc = marks.expand(cell.b, cell.n).contiguous()
    return dataclasses.replace(p, extra={**p.extra, "doc": doc})


def shown(p: Problem, fields: dict[str, object], schedule: str) -> None:
    """Prints the times of a call's kernels."""
    import torch

    cell = p.cell
    run = measure.call_of(p, build.Built(fields, ""))
    error = p.error(run())
    whole = timing.timed({"": run}, 2)[""]
    kinds = [torch.profiler.ProfilerActivity.CUDA]
    with torch.profiler.profile(activities=kinds) as profile:
        for _ in range(CALLS):
            run()
        torch.cuda.synchronize()
    each = "  ".join(in_turn(profile.events() or []))
    kept = p.kept()
    print(
        f"{cell.kind} {schedule}: call {1e3 * whole:.1f} us, kernels {each}; blocks kept {kept:.4f}; error {error:.1e}"
    )
    sys.stdout.flush()


def in_turn(events: Sequence[Any]) -> Generator[str]:
    """The kernels of a call in their order, and the median time of each in microseconds. Two may have the same name."""
    ran = sorted((e for e in events if e.device_time > 0), key=lambda e: e.time_range.start)
    count = len(ran) // CALLS
    for n in range(count):
        times = sorted(e.device_time for e in ran[n::count])
        yield f"{ran[n].name[:28]} {times[len(times) // 2]:.1f}"


def fast_unit(code: Any) -> Any:
    """The unit of a fast kernel."""
    names = {s.name for s in code.fast.values()}
    return next(u for u in code.units if u.names[0] in names)


def checked(cell: Cell, fields: dict[str, object]) -> None:
    """Compiles a kernel with marks, and prints its registers."""
    import tilec
    from tilec.backends.cuda import nvrtc

    kernel = tilec.compile(cell.program, target=cell.target, schedule=fields or None)
    unit = fast_unit(build.code_of(kernel, cell))
    made = nvrtc.compile(timeline.marked(unit.text, 0).text, "sm_90a")
    print(cell.kind, made.usage, made.warnings)


def replaced(text: str, change: str) -> str:
    """A text with something else in it. Raises SystemExit where it is not there."""
    pattern, _, new = change.partition("=>")
    out, count = re.subn(pattern, new, text)
    if not count:
        raise SystemExit(f"nothing in the text is like {pattern}")
    print(f"{count} places changed")
    return out


@contextmanager
def edited(edit: Callable[[str], str]) -> Generator[None]:
    """Has the fast kernels that are loaded made of other texts."""
    from tilec.backends.cuda import code as cubins
    from tilec.backends.cuda import execute

    def compiled(code: Any) -> Any:
        if not code.fast:
            return cubins.compiled(code)
        unit = fast_unit(code)
        changed = dataclasses.replace(unit, text=edit(unit.text))
        units = tuple(changed if u is unit else u for u in code.units)
        return cubins.compiled(dataclasses.replace(code, units=units))

    execute.compiled = compiled
    try:
        yield
    finally:
        execute.compiled = cubins.compiled


def cycles(p: Problem, fields: dict[str, object]) -> str:
    """The table of a kernel."""
    import numpy as np
    import torch

    made: list[timeline.Marked] = []
    room = torch.zeros(timeline.WORDS, dtype=torch.int32, device="cuda")

    def marked(text: str) -> str:
        made.append(timeline.marked(text, room.data_ptr()))
        return made[-1].text

    with edited(marked):
        run = measure.call_of(p, build.Built(fields, ""))
        run()
        room.zero_()
        run()
        torch.cuda.synchronize()
    words = room.cpu().numpy().view(np.uint32)
    rooms = words.reshape(timeline.BLOCKS, timeline.GROUPS, -1)
    lines = list[str]()
    for group in range(timeline.GROUPS):
        runs = [timeline.notes(rooms[b, group].tolist()) for b in range(timeline.BLOCKS)]
        if not any(runs):
            continue
        last = max(r[-1][1] - r[0][1] for r in runs if r)
        lines.append(
            f"# warpgroup {group}: {sum(map(len, runs))} marks, the longest block {last} cycles"
        )
        lines += timeline.spent(runs, made[0].names)
    lines.append("# block 0, warpgroup 1, as it was")
    run_0 = timeline.notes(rooms[0, 1].tolist())[:600]
    lines += [f"{t - run_0[0][1]:8d}  {made[0].names[k]}" for k, t in run_0]
    lines.append("# its loading warp")
    run_1 = timeline.notes(rooms[0, 0].tolist())[:400]
    lines += [f"{t - run_0[0][1]:8d}  {made[0].names[k]}" for k, t in run_1]
    return "\n".join([*lines, "", made[0].text])


if __name__ == "__main__":
    main()
