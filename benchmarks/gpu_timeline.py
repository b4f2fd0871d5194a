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
from collections import defaultdict
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from benchmarks.gpu import build, measure, problem, timeline, timing  # noqa: E402
from benchmarks.gpu.cells import Cell, cells  # noqa: E402
from benchmarks.gpu.problem import Problem  # noqa: E402

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
            shown(p, fields, schedule)
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
    times: dict[str, list[float]] = defaultdict(list)
    for event in profile.events() or []:
        times[event.name].append(event.device_time)
    each = "  ".join(f"{n[:28]} {sorted(t)[len(t) // 2]:.1f}" for n, t in times.items())
    kept = p.kept()
    print(
        f"{cell.kind} {schedule}: call {1e3 * whole:.1f} us, kernels {each}; blocks kept {kept:.4f}; error {error:.1e}"
    )
    sys.stdout.flush()


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
    made = nvrtc.compile(timeline.marked(unit.text).text, "sm_90a")
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
def edited(edit: Callable[[str], str]) -> Generator[dict[str, Any]]:
    """Has the fast kernels that are loaded made of other texts; holds the kernels by name."""
    from tilec.backends.cuda import execute, launch, target

    kept: dict[str, Any] = {}
    loading = launch.load

    def compiled(code: Any) -> Any:
        if not code.fast:
            return target.compiled(code)
        unit = fast_unit(code)
        changed = dataclasses.replace(unit, text=edit(unit.text))
        units = tuple(changed if u is unit else u for u in code.units)
        return target.compiled(dataclasses.replace(code, units=units))

    def load(*given: Any) -> Any:
        out = loading(*given)
        kept.update({k.name: k for k in out})
        return out

    execute.compiled, launch.load = compiled, load
    try:
        yield kept
    finally:
        execute.compiled, launch.load = target.compiled, loading


def cycles(p: Problem, fields: dict[str, object]) -> str:
    """The table of a kernel."""
    import numpy as np
    import torch
    from cuda.bindings import driver

    made: list[timeline.Marked] = []

    def marked(text: str) -> str:
        made.append(timeline.marked(text))
        return made[-1].text

    with edited(marked) as kept:
        run = measure.call_of(p, build.Built(fields, ""))
        run()
        torch.cuda.synchronize()
        name = next(n for n in kept if f" {n}(" in made[0].text)
        module = done(driver.cuFuncGetModule(driver.CUfunction(kept[name].function.ptr)))
        place, size = done(driver.cuModuleGetGlobal(module, timeline.NAME.encode()))
        done(driver.cuMemsetD8(place, 0, size))
        run()
        torch.cuda.synchronize()
        words = np.zeros(size // 4, np.uint32)
        done(driver.cuMemcpyDtoH(words.ctypes.data, place, size))
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


def done(result: Any) -> Any:
    """What a call of the driver gives."""
    status, *values = result
    assert int(status) == 0, status
    return values[0] if len(values) == 1 else values or None


if __name__ == "__main__":
    main()
