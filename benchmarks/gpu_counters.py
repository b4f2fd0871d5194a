"""Bytes that a GPU's counters see beside those that are expected, for schedules that share the L2 cache differently.

    python benchmarks/gpu_counters.py [--out counters.jsonl] [--all] [--only 0 1 …] [--state]

One process runs all cases between kernels that empty the L2 cache; `ncu` runs it once for each set of counters. What
does not compile is left out. Needs a Hopper GPU, PyTorch, and the permission to read counters. `--all`: with more counters
than the report needs. `--state` says what is expected, and counts nothing; that needs no GPU.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from tilec.backends.cuda.hopper import sections

LONG = {"B": 1, "H": 16, "N": 16384}
CASES: tuple[tuple[str, dict[str, int], dict[str, object]], ...] = (
    ("naive", LONG, {}),
    ("causal", LONG, {}),
    *(
        ("causal", LONG, {"order": "longest", "section": n, "columns": 64})
        for n in (1, 2, 3, 4, 6, 8, 16)
    ),
    ("causal", LONG, {"order": "static", "columns": 64}),
    ("causal", LONG, {"order": "longest", "section": 6, "warpgroups": 3, "columns": 64}),
    ("naive", LONG, {"order": "longest", "section": 8}),
    ("causal", {"B": 2, "H": 16, "N": 8192}, {}),
    ("causal", {"B": 2, "H": 16, "N": 8192}, {"order": "longest", "section": 32, "columns": 64}),
    ("causal", {"B": 16, "H": 16, "N": 1024}, {}),
    ("naive", {"B": 1, "H": 4, "N": 65536}, {}),
    ("causal", {"B": 1, "H": 4, "N": 65536}, {}),
    # what the model of misses was not fitted to
    ("causal", {"B": 1, "H": 32, "N": 16384, "D": 64}, {}),
    ("causal", {"B": 1, "H": 32, "N": 16384, "D": 64}, {"order": "longest", "section": 16}),
    ("causal", {"B": 1, "H": 32, "N": 16384, "D": 64}, {"order": "static"}),
    ("causal", {"B": 1, "H": 8, "N": 16384, "D": 256}, {}),
    ("causal", {"B": 1, "H": 8, "N": 16384, "D": 256}, {"order": "longest", "section": 4}),
    ("causal", {"B": 2, "H": 16, "N": 8192}, {"order": "static"}),
    ("causal", {"B": 2, "H": 16, "N": 8192}, {"order": "longest", "section": 12}),
    ("naive", LONG, {"order": "longest", "section": 4}),
    ("naive", {"B": 2, "H": 16, "N": 8192}, {"order": "longest", "section": 16}),
    ("naive", {"B": 1, "H": 4, "N": 32768}, {}),
)
USUAL = sections.CACHE
"""Bytes of the streamed tensors of a section, usually."""
WRITTEN = "dram__bytes_write.sum"
MORE = (
    "lts__t_sectors.sum",
    "lts__t_sectors_srcunit_tex.sum",
    "lts__t_sectors_srcunit_tex_op_read.sum",
    "lts__t_sectors_srcunit_tex_lookup_hit.sum",
    "lts__t_sectors_srcunit_tex_lookup_miss.sum",
    "lts__t_sectors_lookup_miss.sum",
    "lts__t_sectors_srcunit_ltcfabric.sum",
    "lts__t_sectors_srcnode_gpc.sum",
    "l1tex__m_xbar2l1tex_read_bytes.sum",
    "gpu__time_duration.sum",
    "sm__cycles_elapsed.max",
    "sm__inst_executed_pipe_tensor.sum",
)


def loaded(name: str, schedule: dict[str, object]) -> Any:
    """A case's kernel."""
    import tilec

    return tilec.load(ROOT / "examples" / f"{name}.tile", target="cuda:sm_90a", schedule=schedule)


def cut(schedule: dict[str, object]) -> None:
    """Has sections as long as a schedule says, also where their keys do not fit the L2 cache."""
    sections.CACHE = 1 << 50 if "section" in schedule else USUAL


def complete(sizes: dict[str, int]) -> dict[str, int]:
    """All sizes of a case: as many queries as keys, heads of 128 where nothing else is said."""
    width = sizes.get("D", 128)
    return {**sizes, "M": sizes["N"], "D": width, "E": width}


def refusal(case: tuple[str, dict[str, int], dict[str, object]]) -> str:
    """Compiles a case into the cache on disk; why that cannot be, or nothing."""
    from tilec.errors import TilecError

    name, sizes, schedule = case
    kernel = loaded(name, schedule)
    try:
        full, _ = kernel.environment(complete(sizes))
        kernel.gpu_code(dtype="bf16", **full)
    except TilecError as e:
        return str(e)
    return ""


def child(which: list[int]) -> None:
    """Runs some cases."""
    import torch

    from tilec.backends.cuda import ceilings
    from tilec.backends.cuda.launch import cupy

    c = cupy()
    flush = ceilings.flusher(8 * int(c.cuda.Device().attributes["L2CacheSize"]))
    g = torch.Generator(device="cuda").manual_seed(3)
    calls: list[tuple[Any, list[torch.Tensor], torch.Tensor]] = []
    data: dict[tuple[int, ...], list[torch.Tensor]] = {}
    for name, sizes, schedule in (CASES[n] for n in which):
        shape = (sizes["B"], sizes["H"], sizes["N"], sizes.get("D", 128))
        if shape not in data:
            data[shape] = [
                torch.randn(shape, device="cuda", generator=g).to(torch.bfloat16) for _ in range(3)
            ]
        kernel = loaded(name, schedule)
        cut(schedule)
        calls.append((kernel, data[shape], kernel(*data[shape])))
    torch.cuda.synchronize()
    c.cuda.runtime.profilerStart()
    for _ in range(2):  # the second one says what is counted where nothing else runs
        flush()
        c.cuda.Device().synchronize()
    for n, (kernel, tensors, out) in zip(which, calls, strict=True):
        cut(CASES[n][2])
        kernel(*tensors, out=out)
        torch.cuda.synchronize()
        flush()
        c.cuda.Device().synchronize()
    c.cuda.runtime.profilerStop()


def known(metrics: tuple[str, ...]) -> tuple[str, ...]:
    """Those metrics that ncu has for this chip."""
    from tilec.backends.cuda import counters

    done = subprocess.run(
        [counters.find(), "--query-metrics", "--chip", "gh100"],
        capture_output=True,
        text=True,
        check=False,
    )
    names = {line.split()[0] for line in done.stdout.splitlines() if line.split()}
    found = tuple(m for m in metrics if m.rsplit(".", 1)[0] in names)
    print("# not there:", *(m for m in metrics if m not in found))
    return found


def stated(name: str, sizes: dict[str, int], schedule: dict[str, object]) -> dict[str, Any]:
    """What the tiles load and store, what is compulsory, and what is expected to cross to and from memory."""
    from tilec import backend, ceilings, roofline
    from tilec.traffic import budget

    cut(schedule)
    kernel = loaded(name, schedule)
    full, scalars = kernel.environment(complete(sizes))
    stages = dict(kernel.stages(dtype="bf16", sizes=full))
    tiles = stages["place"]
    b, roof = budget(tiles, full, scalars), ceilings.measured("cuda:sm_90a")
    must = sum(roofline.compulsory(tiles, b.known).values())
    expected = backend.memory_bytes((stages["online"], full), "cuda:sm_90a", schedule, b, roof)
    return {
        **{"compulsory": must, "loaded": b.traffic.read, "stored": b.traffic.written},
        "expected": expected,
    }


def main() -> None:
    """Runs the cases under ncu, and prints a line of JSON for each."""
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    p.add_argument("--out", default=os.path.join(os.environ.get("OUT", "."), "counters.jsonl"))
    p.add_argument("--all", action="store_true")
    p.add_argument("--only", type=int, nargs="+", default=range(len(CASES)), metavar="CASE")
    p.add_argument("--state", action="store_true")
    p.add_argument("--child", type=int, nargs="+", help=argparse.SUPPRESS)
    a = p.parse_args()
    if a.child:
        child(a.child)
        return
    if a.state:
        state(a.only)
        return
    start = time.monotonic()
    which = fitting(a.only)
    print(f"# compiled after {time.monotonic() - start:.0f} s", flush=True)
    count(which, a.all, a.out)
    print(f"# counted after {time.monotonic() - start:.0f} s", flush=True)


def state(cases: Iterable[int]) -> None:
    """Prints what is expected, without a GPU."""
    for n in cases:
        name, sizes, schedule = CASES[n]
        found = stated(name, sizes, schedule)
        share = found["expected"] / found["compulsory"]
        print(n, name, sizes, schedule, f"{found['expected']:,}", f"{share:.3f} of compulsory")


def fitting(cases: Iterable[int]) -> list[int]:
    """The cases that can be made, which are compiled now; of the others it is said why not."""
    cases = list(cases)
    with ProcessPoolExecutor() as processes:
        refused = dict(zip(cases, processes.map(refusal, [CASES[n] for n in cases]), strict=True))
    for n, why in refused.items():
        if why:
            print(f"# left out: {CASES[n]}: {why}")
    return [n for n, why in refused.items() if not why]


def count(which: Sequence[int], all_: bool, out: str) -> None:
    """Runs cases under ncu; appends a line for each to `out`. `all_`: with more metrics."""
    from tilec.backends.cuda import counters

    again = [sys.executable, os.path.abspath(__file__), "--child", *map(str, which)]
    metrics = known(counters.METRICS + (MORE if all_ else ()))
    rows = counters.launched(again, metrics)
    print(f"# {len(rows)} launches")
    print(f"# with no kernel between: {counters.total(rows[1:2], WRITTEN):,} bytes written")
    groups: list[list[dict[str, str]]] = []
    for r in rows[2:]:
        if not groups or counters.FLUSH in groups[-1][-1]["Kernel Name"]:
            groups.append([])
        groups[-1].append(r)
    with open(out, "a", encoding="utf-8") as file:
        for n, found in zip(which, groups, strict=True):
            own = {m: counters.total(found[:-1], m) for m in metrics}
            line = counted(n, own, counters.total(found[-1:], WRITTEN))
            print(json.dumps(line), flush=True)
            file.write(json.dumps(line) + "\n")


def counted(n: int, own: dict[str, int], left: int) -> dict[str, Any]:
    """A case with the bytes that its kernels moved, and those that they left in the cache to be written."""
    name, sizes, schedule = CASES[n]
    line: dict[str, Any] = {"case": name, **sizes, "schedule": schedule}
    line |= {**stated(*CASES[n]), **own, "left": left}
    moved = own["dram__bytes_read.sum"] + own[WRITTEN] + left
    line["of_compulsory"] = moved / line["compulsory"]
    line["of_expected"] = moved / line["expected"] if line["expected"] else None
    return line


if __name__ == "__main__":
    main()
