"""Bytes that a GPU's counters see beside those that are stated, for schedules that share the L2 cache differently.

    python benchmarks/gpu_counters.py [--out counters.jsonl] [--all]

One process runs all cases between kernels that empty the L2 cache; `ncu` runs it once for each set of counters. Needs a
Hopper GPU, PyTorch, and the permission to read counters. `--all`: with more counters than the report needs.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

CASES: tuple[tuple[str, dict[str, int], dict[str, object]], ...] = (
    ("naive", {"B": 1, "H": 16, "N": 16384}, {}),
    ("causal", {"B": 1, "H": 16, "N": 16384}, {}),
    *(
        ("causal", {"B": 1, "H": 16, "N": 16384}, {"order": "longest", "section": n})
        for n in (1, 2, 4, 16)
    ),
    ("causal", {"B": 1, "H": 16, "N": 16384}, {"order": "static"}),
    ("naive", {"B": 1, "H": 16, "N": 16384}, {"order": "longest", "section": 16}),
    ("causal", {"B": 2, "H": 16, "N": 8192}, {"order": "longest", "section": 32}),
    ("causal", {"B": 16, "H": 16, "N": 1024}, {}),
    ("naive", {"B": 1, "H": 16, "N": 16384}, {"warpgroups": 3, "columns": 96}),
    ("naive", {"B": 1, "H": 4, "N": 65536}, {}),
    ("causal", {"B": 1, "H": 4, "N": 65536}, {}),
)
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


def child() -> None:
    """Runs the cases."""
    import torch

    from tilec.backends.cuda import ceilings, launch

    c = launch.cupy()
    flush = ceilings.flusher(8 * int(c.cuda.Device().attributes["L2CacheSize"]))
    g = torch.Generator(device="cuda").manual_seed(3)
    calls: list[tuple[Any, list[torch.Tensor], torch.Tensor]] = []
    data: dict[tuple[int, ...], list[torch.Tensor]] = {}
    for name, sizes, schedule in CASES:
        shape = (sizes["B"], sizes["H"], sizes["N"], 128)
        if shape not in data:
            data[shape] = [
                torch.randn(shape, device="cuda", generator=g).to(torch.bfloat16) for _ in range(3)
            ]
        kernel = loaded(name, schedule)
        calls.append((kernel, data[shape], kernel(*data[shape])))
    torch.cuda.synchronize()
    c.cuda.runtime.profilerStart()
    flush()
    c.cuda.Device().synchronize()
    for kernel, tensors, out in calls:
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


def stated(name: str, sizes: dict[str, int], schedule: dict[str, object]) -> dict[str, int]:
    """What the tiles move, and what is compulsory."""
    from tilec import roofline
    from tilec.traffic import budget

    kernel = loaded(name, schedule)
    full, scalars = kernel.environment({**sizes, "M": sizes["N"], "D": 128, "E": 128})
    *_, (_, tiles) = kernel.stages(dtype="bf16", sizes=full)
    b = budget(tiles, full, scalars)
    must = sum(roofline.compulsory(tiles, {**full, **scalars}).values())
    return {"compulsory": must, "loaded": b.traffic.read, "stored": b.traffic.written}


def main() -> None:
    """Runs the cases under ncu, and prints a line of JSON for each."""
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    p.add_argument("--out", default=os.path.join(os.environ.get("OUT", "."), "counters.jsonl"))
    p.add_argument("--all", action="store_true")
    p.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    a = p.parse_args()
    if a.child:
        child()
        return
    from tilec.backends.cuda import counters

    start = time.monotonic()
    again = [sys.executable, os.path.abspath(__file__), "--child"]
    subprocess.run(again, check=True)  # compiles
    print(f"# compiled and run after {time.monotonic() - start:.0f} s", flush=True)
    metrics = known(counters.METRICS + (MORE if a.all else ()))
    rows = counters.launched(again, metrics)
    print(f"# counted after {time.monotonic() - start:.0f} s, {len(rows)} launches", flush=True)
    groups: list[list[dict[str, str]]] = []
    for r in rows[1:]:
        if not groups or counters.FLUSH in groups[-1][-1]["Kernel Name"]:
            groups.append([])
        groups[-1].append(r)
    with open(a.out, "a", encoding="utf-8") as file:
        for (name, sizes, schedule), found in zip(CASES, groups, strict=True):
            own = {m: counters.total(found[:-1], m) for m in metrics}
            line = {"case": name, **sizes, "schedule": schedule, **stated(name, sizes, schedule)}
            line |= {**own, "left": counters.total(found[-1:], "dram__bytes_write.sum")}
            moved = own["dram__bytes_read.sum"] + own["dram__bytes_write.sum"] + line["left"]
            line["of_compulsory"] = moved / line["compulsory"]
            print(json.dumps(line), flush=True)
            file.write(json.dumps(line) + "\n")


if __name__ == "__main__":
    main()
