"""Checks the CUDA target on a machine with a GPU: every program of a folder of cases, then odd calls, then some times.

    python benchmarks/gpu_check.py --cases cases --target cuda --jobs 8 --out results.jsonl

Each program runs in a worker process and is given up after `--limit` seconds, so that one that hangs costs little. Prints a
line per program that is not right and a table at the end; exit status 1 where something is wrong.
"""

from __future__ import annotations

import argparse
import collections
import functools
import importlib
import itertools
import json
import os
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from benchmarks.gpu.plain import CAUSAL, FULL


def folder(given: str | None) -> Path | None:
    """Where the cases are."""
    places = [given, os.environ.get("TILEC_CASES")]
    return next((Path(p) for p in places if p and Path(p, "runner.py").exists()), None)


class Report:
    """Prints what is not right and writes all of it as JSON lines."""

    def __init__(self, path: str | None) -> None:
        self.file = open(path, "a", buffering=1) if path else None  # noqa: SIM115
        self.counts: dict[str, collections.Counter[str]] = collections.defaultdict(
            collections.Counter
        )

    def __call__(
        self, part: str, name: str, status: str, said: str, seconds: float, **more: Any
    ) -> None:
        self.counts[part][status] += 1
        if status != "pass" or part in ("odd", "speed"):
            print(f"{part:24s} {name:34s} {status:11s} {seconds:6.1f}s {said[:160]}", flush=True)
        if self.file:
            line = {
                "part": part,
                "name": name,
                "status": status,
                "said": said,
                "seconds": seconds,
                **more,
            }
            self.file.write(json.dumps(line) + "\n")


# ---- the cases


def cases(
    where: Path, targets: list[str], jobs: int, limit: float, only: str, report: Report
) -> None:
    sys.path.insert(0, str(where))
    os.environ["PYTHONPATH"] = os.pathsep.join(
        [str(ROOT), str(where), os.environ.get("PYTHONPATH", "")]
    )
    runner: Any = importlib.import_module("runner")
    starts = [x for x in only.split(",") if x]
    ids = [
        i
        for i, t in runner.TESTS.items()
        if not getattr(t, "big", False) and (not starts or any(i.startswith(s) for s in starts))
    ]
    for target in targets:

        def say(id: str, status: str, said: str, seconds: float, target: str = target) -> None:
            if status == "unsupported" and ".grad:" in said:
                status = "pass"  # the forward result was compared before
            report(target, id, status, said, seconds)

        runner.run_all(ids, target, "torch", jobs, limit, say)


def odd(report: Report) -> None:
    """The odd calls, one after the other."""
    from benchmarks.gpu.odd import CALLS

    for call in CALLS:
        start = time.perf_counter()
        try:
            status, said = "pass", call()
        except Exception as e:
            traceback.print_exc()
            status, said = "wrong", f"{type(e).__name__}: {e}"
        report("odd", call.__name__, status, said, time.perf_counter() - start)


# ---- times


def speed(report: Report, emitters: list[str]) -> None:
    """Plain attention by each emitter, beside PyTorch's."""
    import torch

    import tilec

    attention = torch.nn.functional.scaled_dot_product_attention
    b, h, n = 2, 16, 2048
    masks = {"full": FULL, "causal": CAUSAL}
    for dtype, d, mask in itertools.product((torch.float32, torch.bfloat16), (64, 128), masks):
        arrays = [torch.randn(b, h, n, d, device="cuda", dtype=dtype) for _ in range(3)]
        operations = 4e-12 * b * h * n * n * d / (1 if mask == "full" else 2)
        theirs = functools.partial(attention, *arrays, is_causal=mask == "causal")
        base = operations / time_of(theirs)
        for emitter in emitters:
            name, start = f"{str(dtype)[6:]} D{d} {mask} {emitter}", time.perf_counter()
            kernel = tilec.compile(masks[mask], target="cuda", schedule={"emitter": emitter})
            more: dict[str, float] = {}
            try:
                error = (kernel(*arrays) - theirs()).abs().max().item()
                more["tflops"] = operations / time_of(functools.partial(kernel, *arrays))
                said = f"{more['tflops']:.1f} TFLOPS, torch {base:.1f}, differs by {error:.2g}"
            except Exception as e:
                said = f"{type(e).__name__}: {e}"[:300]
            status = "pass" if more else "wrong"
            report("speed", name, status, said, time.perf_counter() - start, **more)


def time_of(f: Callable[[], Any]) -> float:
    """The median of five calls, in seconds."""
    import torch

    for _ in range(2):
        f()
    times: list[float] = []
    for _ in range(5):
        a, b = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        a.record()
        f()
        b.record()
        torch.cuda.synchronize()
        times.append(a.elapsed_time(b) / 1e3)
    return sorted(times)[len(times) // 2]


def main() -> int:
    p = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    p.add_argument("--cases", help="the folder with runner.py")
    p.add_argument(
        "--target",
        default="cuda",
        help="comma between several: cuda,cuda:sm_80 (the emitter for all GPUs)",
    )
    p.add_argument("--emitters", default="simt,hopper", help="those to time")
    p.add_argument("--only", default="", help="starts of ids of cases")
    p.add_argument("--parts", default="odd,speed,cases")
    p.add_argument("--jobs", type=int, default=8)
    p.add_argument(
        "--limit", type=float, default=40.0, help="seconds for one case, compilation included"
    )
    p.add_argument("--out", help="a file for JSON lines")
    a = p.parse_args()
    report, start = Report(a.out), time.perf_counter()
    parts = a.parts.split(",")
    if "odd" in parts:
        odd(report)
    if "speed" in parts:
        speed(report, a.emitters.split(","))
    where = folder(a.cases)
    if "cases" in parts and where is None:
        print("no folder of cases found; give one with --cases", file=sys.stderr)
    elif "cases" in parts and where is not None:
        cases(where, a.target.split(","), a.jobs, a.limit, a.only, report)
    for part, counts in report.counts.items():
        print(f"{part}: " + ", ".join(f"{n} {status}" for status, n in sorted(counts.items())))
    print(f"{time.perf_counter() - start:.0f} s")
    bad = sum(n for c in report.counts.values() for s, n in c.items() if s in ("wrong", "crash"))
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
