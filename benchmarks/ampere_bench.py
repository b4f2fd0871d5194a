"""The kernels on mma.sync against float64, then timed beside FlashAttention-2 in one process.

    python benchmarks/ampere_bench.py [--cells D128,N4096,causal] [--vary columns=32 stages=2,columns=32]

FlashAttention-2 is the one of PyTorch (`scaled_dot_product_attention` with the backend FLASH_ATTENTION). `--vary` names
changes of the default schedule, each timed beside it. Each cell alternates the candidates, idling 0.1 s before each burst,
and reports medians. `--arch`: what is compiled, the device's own architecture by default; sm_80 is translated by the driver.
Cubins are compiled first, in parallel.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

SDPA = """
kernel {name}(Q[B, H, M, D], K[B, H, N, D], V[B, H, N, E]) -> O[b, h, i, e]:
    S = sum[d](Q[b, h, i, d] * K[b, h, j, d]) / sqrt(D)
    O = sum[j](softmax[j]({score}) * V[b, h, j, e])
"""
CAUSAL = SDPA.format(name="causal", score="S if j <= i + N - M else -inf")
FULL = SDPA.format(name="full", score="S")
CHECKS = ((1, 2, 1000), (2, 80, 512), (3, 1, 130), (1, 3, 1), (2, 2, 257))
TYPES = ("bf16", "f16")
Job = tuple[int, int, bool, str, str, str]
"""Head size, length, whether causal, element type, architecture, changes of the schedule."""


def build(job: Job) -> tuple[str, Any, bytes, str]:
    """(key, source, code, what the compiler says) of a job."""
    import dataclasses

    from tilec import pipeline
    from tilec.backends.cuda import nvrtc
    from tilec.backends.cuda.ampere import compile as ampere
    from tilec.backends.cuda.hopper.schedule import changed
    from tilec.kernel import Source as Program

    d, n, causal, dtype, arch, changes = job
    program = Program.of(CAUSAL if causal else FULL, "bench.tile", None)
    kernel = program.lowered(dict.fromkeys(program.untyped, dtype))
    online = pipeline.run(kernel, pipeline.tensor_pipeline())
    sizes = {"B": 1, "H": 1, "M": n, "N": n, "D": d, "E": d}
    given = dict(x.split("=") for x in changes.split(",") if x)
    schedule = changed(ampere.suggested(online, sizes, arch), given)
    found = ampere.sources(ampere.tiles(online, sizes, schedule), schedule, arch)
    (source,) = found.values()
    if isinstance(source, str):
        raise ValueError(source)
    made = nvrtc.compile(source.text, arch)
    use = made.usage[source.name]
    log = f"{schedule} regs {use.registers} spill {use.spill_stores}/{use.spill_loads} shared {source.shared}"
    code = made.cubin if arch != "sm_80" else nvrtc.ptx(source.text, arch).encode() + b"\0"
    assert dataclasses.is_dataclass(source)
    return key(job), source, code, log


def tried(job: Job) -> tuple[str, Any, bytes, str]:
    """The same; without code where it cannot be made."""
    try:
        return build(job)
    except Exception as e:
        return key(job), None, b"", repr(e)[:300]


def key(job: Job) -> str:
    d, n, causal, dtype, arch, changes = job
    return f"D{d}_N{n}_{'causal' if causal else 'full'}_{dtype}_{arch}{' ' if changes else ''}{changes}"


def launcher(source: Any, code: bytes) -> Any:
    """A function of tensors that gives a function without arguments, which launches the kernel."""
    import cupy
    from cupy_backends.cuda.api import driver

    from tilec.backends.cuda.ampere.launch import blocks, refusal
    from tilec.backends.cuda.hopper.launch import arguments

    module = cupy.cuda.function.Module()
    module.load(code)
    function = module.get_function(source.name)
    driver.funcSetAttribute(function.ptr, 8, source.shared)  # the largest dynamic shared memory
    words = cupy.zeros(2, cupy.uint32)

    class View:
        def __init__(self, t: Any) -> None:
            self.pointer, self.shape, self.strides = t.data_ptr(), tuple(t.shape), tuple(t.stride())
            self.dtype = str(t.dtype)

    def prepare(q: Any, k: Any, v: Any, o: Any) -> Any:
        views: Any = {"Q": View(q), "K": View(k), "V": View(v), "O": View(o)}
        b, h, m, d = q.shape
        sizes = {"B": b, "H": h, "M": m, "N": k.shape[2], "D": d, "E": v.shape[3]}
        assert refusal(source, views, sizes) is None
        args = arguments(source, views, sizes, int(words.data.ptr))
        grid = (blocks(source, sizes),)
        return lambda: function(grid, (source.threads,), args, shared_mem=source.shared)

    return prepare


def data(shape: tuple[int, ...], dtype: Any, seed: int) -> list[Any]:
    import torch

    g = torch.Generator(device="cuda").manual_seed(seed)
    return [torch.randn(shape, device="cuda", generator=g).to(dtype) for _ in range(3)]


def exact(q: Any, k: Any, v: Any, causal: bool) -> Any:
    import torch

    s = q.double() @ k.double().T / math.sqrt(q.shape[-1])
    if causal:
        n, m = k.shape[0], q.shape[0]
        mask = torch.ones(m, n, dtype=torch.bool, device="cuda").triu_(1 + n - m)
        s.masked_fill_(mask, float("-inf"))
    return torch.softmax(s, -1) @ v.double()


def check(prepare: Any, d: int, dtype: Any, causal: bool) -> float:
    """The worst relative error on some shapes, also with scores up to ±400 whose maxima keep growing."""
    import torch

    worst = 0.0
    for b, h, length in CHECKS:
        q, k, v = data((b, h, length, d), dtype, length)
        for ramp in (False, True) if length > 1 else (False,):
            if ramp:
                k = (k.float() * torch.linspace(0.2, 12, length, device="cuda")[:, None]).to(dtype)
                q = (q.float() * 3).to(dtype)
            o = torch.full_like(v, float("nan"))
            prepare(q, k, v, o)()
            torch.cuda.synchronize()
            for bb, hh in {(0, 0), (b - 1, h - 1)}:
                r = exact(q[bb, hh], k[bb, hh], v[bb, hh], causal)
                e = ((o[bb, hh].double() - r).norm() / r.norm()).item()
                worst = max(worst, e if e == e and not torch.isnan(o).any() else math.inf)
    return worst


def burst(run: Any) -> list[float]:
    """Times of single launches, in seconds, after idling."""
    import torch

    time.sleep(0.1)
    run()
    events = [[torch.cuda.Event(enable_timing=True) for _ in range(2)] for _ in range(8)]
    for a, b in events:
        a.record()
        run()
        b.record()
    torch.cuda.synchronize()
    return [a.elapsed_time(b) / 1e3 for a, b in events]


def main() -> int:
    p = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    p.add_argument(
        "--cells", default="", help="comma between tags such as D128, N4096, causal, full"
    )
    p.add_argument("--vary", nargs="*", default=[], help="changes of the schedule")
    p.add_argument("--dtype", default="bf16", choices=TYPES)
    p.add_argument("--arch", default="", help="sm_90 on an H200; sm_80 by the driver")
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--lengths", default="1024,4096,16384")
    p.add_argument("--heads", default="64,128,256", help="head sizes")
    p.add_argument("--compile-only", action="store_true")
    p.add_argument("--out", default=os.path.join(os.environ.get("OUT", "."), "ampere_bench.jsonl"))
    a = p.parse_args()
    lengths, heads = ([int(x) for x in t.split(",")] for t in (a.lengths, a.heads))
    words = [w for w in a.cells.split(",") if w]
    cells = [
        (d, n, c)
        for d in heads
        for n in lengths
        for c in (False, True)
        if all(w in {f"D{d}", f"N{n}", "causal" if c else "full"} for w in words)
    ]
    arch = a.arch or "sm_90"
    jobs = [
        (d, lengths[0], c, a.dtype, arch, v)
        for d, c in dict.fromkeys((d, c) for d, _, c in cells)
        for v in ("", *a.vary)
    ]
    with ProcessPoolExecutor(max_workers=min(len(jobs), os.cpu_count() or 1)) as pool:
        built = list(pool.map(tried, jobs))
    for name, _, _, log in built:
        print("BUILT", name, log, flush=True)
    if a.compile_only:
        return 0
    return measure(a, cells, {j: b for j, b in zip(jobs, built, strict=True) if b[1] is not None})


def measure(
    a: argparse.Namespace, cells: list[tuple[int, int, bool]], built: dict[Job, Any]
) -> int:
    import statistics

    import torch
    import torch.nn.functional as F
    from torch.nn.attention import SDPBackend, sdpa_kernel

    dtype = {"bf16": torch.bfloat16, "f16": torch.float16}[a.dtype]
    limit = {"bf16": 1.2e-2, "f16": 2e-3}[a.dtype]
    prepared: dict[Job, Any] = {}
    for job, (name, source, code, _) in built.items():
        prepare = launcher(source, code)
        error = check(prepare, job[0], dtype, job[2])
        print("CHECK", name, "ok" if error < limit else "WRONG", f"{error:.1e}", flush=True)
        prepared[job] = prepare
    with open(a.out, "a", buffering=1) as out:
        for d, n, causal in cells:
            b, h = max(1, 16384 // n), max(1, 2048 // d)
            q, k, v = data((b, h, n, d), dtype, 1)
            kept, runs = [], {}
            for job, prepare in prepared.items():
                if job[0] == d and job[2] == causal:
                    o = torch.empty_like(v)
                    kept.append(o)
                    runs[job[5] or "default"] = prepare(q, k, v, o)

            def flash(q: Any = q, k: Any = k, v: Any = v, causal: bool = causal) -> None:
                with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
                    F.scaled_dot_product_attention(q, k, v, is_causal=causal)

            runs["FA-2"] = flash
            times: dict[str, list[float]] = {name: [] for name in runs}
            for turn in range(a.rounds):
                for name in list(runs) if turn % 2 == 0 else list(runs)[::-1]:
                    times[name] += burst(runs[name])
            flops = 4 * b * h * n * n * d / (2 if causal else 1)
            speed = {name: flops / statistics.median(t) / 1e12 for name, t in times.items()}
            text = "  ".join(f"{name} {x:.0f}" for name, x in speed.items())
            print(f"D{d} N{n} {'causal' if causal else 'full'}: {text}", flush=True)
            line = {
                "d": d,
                "n": n,
                "causal": causal,
                "dtype": a.dtype,
                "arch": a.arch,
                "tflops": speed,
            }
            out.write(json.dumps(line) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
