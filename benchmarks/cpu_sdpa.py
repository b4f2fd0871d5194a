"""Attention on the CPU beside PyTorch's `scaled_dot_product_attention`, in alternating runs on one thread.

    python benchmarks/cpu_sdpa.py [--sizes 512,2048] [--heads 2] [--dims 64,128] [--dtypes f32,bf16] [--threads 1]

Prints for each case the time of both, the ratio (above 1: tilec is faster) and the share of the machine's peak, which is
that of a loop of fused multiply-adds timed in the same run. Times are the thread's own where one thread runs, so that a
busy machine does not distort them. Only the exact sums of the mask count as work.
"""

from __future__ import annotations

import argparse
import ctypes
import datetime
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

FULL = """
kernel full(Q[B, H, M, D], K[B, H, N, D], V[B, H, N, E]) -> O[b, h, i, e]:
    S = sum[d](Q[b, h, i, d] * K[b, h, j, d]) / sqrt(D)
    O = sum[j](softmax[j](S) * V[b, h, j, e])
"""
CAUSAL = """
kernel causal(Q[B, H, M, D], K[B, H, N, D], V[B, H, N, E]) -> O[b, h, i, e]:
    S = sum[d](Q[b, h, i, d] * K[b, h, j, d]) / sqrt(D)
    O = sum[j](softmax[j](S if j <= i + N - M else -inf) * V[b, h, j, e])
"""
ROUNDS = 7
CHAINS = 12


def fused_loop() -> tuple[Callable[[int], None], int]:
    """A function that runs n rounds of independent fused multiply-adds, and the operations of a round."""
    import llvmlite.ir as ir

    from tilec.backends.cpu import jit
    from tilec.backends.cpu.vector import KINDS, POINTER, Emit, constant, function

    module = ir.Module("peak")
    f = function(module, "peak", [POINTER, KINDS["i64"]])
    e = Emit(f, jit.host())
    pointer, rounds = f.args
    x = e.read("f32", pointer, 0, e.lanes)
    start = [constant("f32", n + 1.0, e.lanes) for n in range(CHAINS)]
    sums = e.loop(0, rounds, 1, start, lambda _, ys: [e.fma(y, x, x) for y in ys], some=True)
    for y in sums:
        e.write(y, pointer)
    e.builder.ret_void()
    code = jit.load(jit.compile(module))
    call = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64)(code.address("peak"))
    memory = (ctypes.c_float * 64)()

    def run(n: int) -> None:
        call(ctypes.addressof(memory), n)

    run.code = code  # type: ignore[attr-defined]  # keeps the machine code alive
    return run, 2 * CHAINS * e.lanes


def best(run: Callable[[], object], clock: Callable[[], float], rounds: int = ROUNDS) -> float:
    """The shortest of a few runs, in seconds."""
    times: list[float] = []
    for _ in range(rounds):
        start = clock()
        run()
        times.append(clock() - start)
    return min(times)


def compare(
    causal: bool, dtype: str, n: int, d: int, heads: int, threads: int, peak: float
) -> dict[str, object]:
    """Times one case, prints a line and gives its figures."""
    import torch

    import tilec

    types: dict[str, Any] = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}
    q, k, v = (torch.randn(1, heads, n, d).to(types[dtype]) for _ in range(3))
    kernel = tilec.compile(CAUSAL if causal else FULL, target="cpu")
    ours = kernel(q, k, v)
    sdpa = torch.nn.functional.scaled_dot_product_attention
    error = (ours.float() - sdpa(q, k, v, is_causal=causal).float()).abs().max().item()
    clock = time.thread_time if threads == 1 else time.perf_counter
    ours_s: list[float] = []
    torch_s: list[float] = []
    for _ in range(ROUNDS):
        ours_s.append(best(lambda: kernel(q, k, v), clock, 1))
        torch_s.append(best(lambda: sdpa(q, k, v, is_causal=causal), clock, 1))
    ratio = statistics.median(y / x for x, y in zip(ours_s, torch_s, strict=True))
    a, b = statistics.median(ours_s), statistics.median(torch_s)
    pairs = n * (n + 1) // 2 if causal else n * n
    rate = 4 * heads * pairs * d / a
    print(
        f"{'causal' if causal else 'full':6s} {dtype:4s} D={d:<3d} N={n:<5d} tilec {a * 1e3:8.2f} ms "
        f"{rate / 1e9:6.1f} GF {100 * rate / peak:3.0f} %   torch {b * 1e3:8.2f} ms   x{ratio:.2f}   "
        f"difference {error:.1e}",
        flush=True,
    )
    mask = "causal" if causal else "full"
    case = {"mask": mask, "dtype": dtype, "D": d, "N": n, "heads": heads, "threads": threads}
    figures = {"tilec_ms": a * 1e3, "torch_ms": b * 1e3, "ratio": ratio, "of_peak": rate / peak}
    return {**case, **{name: round(x, 4) for name, x in figures.items()}, "difference": error}


def record(file: str, figures: dict[str, object]) -> None:
    """Appends one line: the figures, and what they were measured with."""
    import torch

    git = ["git", "-C", str(ROOT), "rev-parse", "--short", "HEAD"]
    commit = subprocess.run(git, capture_output=True, text=True, check=False).stdout.strip()
    what = {
        "date": datetime.date.today().isoformat(),
        "cpu": cpu_name(),
        "torch": torch.__version__,
        "command": "python " + " ".join(sys.argv),
        "commit": commit,
    }
    with open(file, "a", encoding="utf-8") as f:
        f.write(json.dumps({**figures, **what}) + "\n")


def cpu_name() -> str:
    """What LLVM calls this processor."""
    from tilec.backends.cpu import jit

    return jit.host().cpu


def main() -> None:
    """Runs the cases that the command line asks for."""
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    p.add_argument("--sizes", default="512,2048")
    p.add_argument("--dims", default="64,128")
    p.add_argument("--dtypes", default="f32")
    p.add_argument("--heads", type=int, default=2)
    p.add_argument("--threads", type=int, default=1)
    p.add_argument("--json", metavar="FILE", help="append the figures as JSON lines")
    a = p.parse_args()
    os.environ["TILEC_NUM_THREADS"] = str(a.threads)
    import torch

    torch.set_num_threads(a.threads)
    run, work = fused_loop()
    peak = a.threads * work * 1_000_000 / best(lambda: run(1_000_000), time.thread_time)
    print(f"peak {peak / 1e9:.1f} GF on {a.threads} thread(s)")
    for dtype in a.dtypes.split(","):
        for d in map(int, a.dims.split(",")):
            for n in map(int, a.sizes.split(",")):
                for causal in (False, True):
                    figures = compare(causal, dtype, n, d, a.heads, a.threads, peak)
                    if a.json:
                        record(a.json, figures)


if __name__ == "__main__":
    main()
