"""What a call of tilec's CUDA kernels is made of: the time of each kernel, and when the blocks of a Hopper kernel begin,
have their first tiles and end.

    python benchmarks/kernel_times.py [--table decode] [--cells N8192] [--with pieces=4,order=longest]

Kernels are timed by events around each launch, so that gaps between launches are left out of their times and in that of
the call. The blocks' own times come from the GPU's clock, in kernels that are compiled once more with stamps: they say
whether the blocks end together.
"""

from __future__ import annotations

import argparse
import ctypes
import dataclasses
import importlib
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks.gpu import build, measure, peers, problem, record, timing
from benchmarks.gpu.cells import SDPA, Cell, cells

STAMPS = 4
"""Words of a block: its multiprocessor, its beginning, its first tile, its end, in ns."""
MOST = 1 << 14
"""Blocks that have stamps."""
QUANTILES = (0.0, 0.1, 0.5, 0.9, 1.0)
DEFINED = f"""
extern "C" __device__ u64 stamps[{STAMPS * MOST}];
DEVICE u64 nanoseconds() {{ u64 x; asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(x) :: "memory"); return x; }}
DEVICE u64 processor() {{ u32 x; asm volatile("mov.u32 %0, %%smid;" : "=r"(x)); return x; }}
#define STAMP(thread, word, value) \\
  if (threadIdx.x == thread && blockIdx.x < {MOST}) stamps[{STAMPS} * blockIdx.x + word] = value;
"""


def stamped(text: str) -> str:
    """The text of a Hopper kernel that writes its blocks' times."""
    head, entry, rest = text.partition('extern "C" __global__')
    begin = "  __syncthreads();\n"
    loop = "    while (origin >= 0) {\n"
    end = "  }\n}\n"
    assert entry
    assert rest.count(loop) == 1
    assert rest.endswith(end)
    rest = rest.replace(begin, f"{begin}  STAMP(0, 0, processor()) STAMP(0, 1, nanoseconds())\n", 1)
    rest = rest.replace(loop, f"    STAMP(128, 2, nanoseconds())\n{loop}")
    return f"{head}{DEFINED}{entry}{rest[: -len(end)]}    STAMP(128, 3, nanoseconds())\n{end}"


def watch(launched: list[Any]) -> None:
    """Keeps each launch from here on in a list."""
    from tilec.backends.cuda import launch

    start = launch.start

    def noting(launches: Sequence[launch.Launch]) -> None:
        launched.extend(launches)
        start(launches)

    launch.start = noting


def with_stamps() -> None:
    """Hopper kernels get stamps from here on."""
    from tilec.backends.cuda.hopper import compile as hopper

    emit = hopper.emit

    def stamping(plan: Any) -> Any:
        source = emit(plan)
        return dataclasses.replace(source, text=stamped(source.text))

    hopper.emit = stamping


def call_of(p: problem.Problem, fields: str) -> Callable[[], Any]:
    """A call of tilec's kernel on a problem."""
    import tilec

    kernel = tilec.compile(
        p.cell.program, target=p.cell.target, schedule=build.changes(fields) or None
    )
    o = p.q.new_full((*p.q.shape[:3], p.cell.width), float("nan"))
    return lambda: kernel(p.q, p.k, p.v, **p.arguments, out=o)


def kernels(run: Callable[[], Any], launched: list[Any]) -> list[tuple[str, float]]:
    """The kernels of a call, and the median time of each in µs when it is launched alone."""
    from tilec.backends.cuda import launch

    launched.clear()
    run()
    out: list[tuple[str, float]] = []
    for one in list(launched):
        times = timing.burst(lambda one=one: launch.start([one]))
        out.append((one.kernel.name, 1e3 * sorted(times)[len(times) // 2]))
    return out


def blocks(run: Callable[[], Any], launched: list[Any]) -> list[list[int]]:
    """The stamps of the blocks of the first kernel of a call, the second time that it runs."""
    import torch

    for _ in range(2):
        launched.clear()
        run()
        torch.cuda.synchronize()
    kernel, count = launched[0].kernel, launched[0].settings.grid[0]
    size = 8 * STAMPS * min(count, MOST)
    words = (ctypes.c_uint64 * (size // 8))()
    address = kernel.function.module.get_global_var("stamps")
    runtime = importlib.import_module("cupy").cuda.runtime
    runtime.memcpy(ctypes.addressof(words), int(address), size, runtime.memcpyDeviceToHost)
    return [list(words[k : k + STAMPS]) for k in range(0, len(words), STAMPS)]


def spread(values: Sequence[float]) -> str:
    """The quantiles of some times."""
    ordered = sorted(values)
    return " / ".join(f"{ordered[round(q * (len(ordered) - 1))]:.1f}" for q in QUANTILES)


def report(cell: Cell, schedules: Sequence[str], launched: list[Any], seed: int) -> None:
    """Prints the times of a cell: those of PyTorch's kernels, too."""
    p = problem.draw(cell, seed)
    made: dict[str, Callable[[], Callable[[], Any]]] = {
        f"tilec,{fields}": lambda fields=fields: call_of(p, fields) for fields in schedules
    }
    made |= {x: lambda x=x: peers.make(x, p) for x in cell.peers if x in SDPA}
    runs: dict[str, Callable[[], Any]] = {}
    errors: dict[str, float] = {}
    for name, make in made.items():
        run, why = measure.attempt(make)
        error, why = measure.attempt(lambda run=run: p.error(run())) if run else (None, why)
        if error is None:
            print(f"{cell.key} {name}: {why}", flush=True)
        else:
            runs[name], errors[name] = run, error
    whole = timing.timed(runs, 2)
    work = p.operations() / 1e9 if cell.unit == "TFLOPS" else p.bytes() / 1e6
    for name, run in runs.items():
        each = ", ".join(f"{n} {t:.2f}" for n, t in kernels(run, launched))
        print(
            f"{cell.key} {name}: {1e3 * whole[name]:.2f} µs, {work / whole[name]:.0f} {cell.unit}; "
            f"alone: {each or '-'}; error {errors[name]:.1e}",
            flush=True,
        )


def report_blocks(cell: Cell, schedules: Sequence[str], launched: list[Any], seed: int) -> None:
    """Prints when the blocks of a cell's kernel begin and end."""
    p = problem.draw(cell, seed)
    for fields in schedules:
        try:
            found = blocks(call_of(p, fields), launched)
        except Exception as e:
            print(f"{cell.key} {fields}: {type(e).__name__}: {e}"[:300], flush=True)
            continue
        first = min(b[1] for b in found)
        print(
            f"{cell.key} {fields or 'default'}: {len(found)} blocks on "
            f"{len({b[0] for b in found})} multiprocessors; µs, quantiles {QUANTILES}: "
            f"begin {spread([(b[1] - first) / 1e3 for b in found])}; "
            f"first tile {spread([(b[2] - first) / 1e3 for b in found])}; "
            f"end {spread([(b[3] - first) / 1e3 for b in found])}",
            flush=True,
        )


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--table", default="decode")
    parser.add_argument("--cells", help="words of the names of cells")
    parser.add_argument("--dtype", default="bf16", choices=("bf16", "f16"))
    parser.add_argument("--with", dest="schedules", action="append", default=[])
    parser.add_argument(
        "--blocks",
        action="append",
        default=[],
        help="a schedule for which the times of the blocks are shown, such as default or pieces=4",
    )
    args = parser.parse_args(argv)
    wanted = cells(args.table.split(","), args.dtype, args.cells)
    schedules = ["", *args.schedules]
    for cell, name, built in build.ahead(wanted, schedules):
        print("#", cell.key, name, built.said)
    launched: list[Any] = []
    watch(launched)
    for cell in wanted:
        report(cell, schedules, launched, 1)
    if args.blocks:
        with_stamps()
        for cell in wanted:
            report_blocks(cell, [x.replace("default", "") for x in args.blocks], launched, 1)
    print("#", record.circumstances())
    return 0


if __name__ == "__main__":
    sys.exit(main())
