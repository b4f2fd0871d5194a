"""Checks the CUDA target on a machine with a GPU: every program of a folder of cases, then odd calls, then some times.

    python benchmarks/gpu_check.py --cases cases --target cuda --jobs 8 --out results.jsonl

Each program runs in a worker process and is given up after `--limit` seconds, so that one that hangs costs little. Prints a
line per program that is not right and a table at the end; exit status 1 where something is wrong.
"""

from __future__ import annotations

import argparse
import collections
import importlib
import json
import os
import sys
import time
import traceback
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

ATTENTION = """
kernel attend(Q[B, H, M, D], K[B, H, N, D], V[B, H, N, E]) -> O[b, h, i, e]:
    S = sum[d](Q[b, h, i, d] * K[b, h, j, d]) / sqrt(D)
    P = softmax[j](S{mask})
    O = sum[j](P * V[b, h, j, e])
"""
FULL, CAUSAL = (ATTENTION.format(mask=m) for m in ("", " if j <= i + N - M else -inf"))


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


# ---- odd calls


def odd(report: Report) -> None:
    import torch

    import tilec

    dev = torch.device("cuda")

    def inputs(b: int, h: int, m: int, n: int, d: int, dtype: Any = torch.float32) -> list[Any]:
        g = torch.Generator(device=dev).manual_seed(1)
        shapes = [(b, h, m, d), (b, h, n, d), (b, h, n, d)]
        return [torch.randn(s, device=dev, generator=g).to(dtype) for s in shapes]

    def expect(q: Any, k: Any, v: Any, causal: bool = True) -> Any:
        q, k, v = (x.double() for x in (q, k, v))
        s = q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5
        if causal:
            m, n = s.shape[-2:]
            s = s.masked_fill(torch.ones(m, n, device=dev).triu(1 + n - m).bool(), -torch.inf)
        return torch.nan_to_num(torch.softmax(s, -1)) @ v

    def close(got: Any, want: Any, tolerance: float) -> str:
        error = (got.double() - want).abs().max().item() if want.numel() else 0.0
        if not error <= tolerance or tuple(got.shape) != tuple(want.shape):
            raise AssertionError(f"error {error} > {tolerance}, shape {tuple(got.shape)}")
        return f"error {error:.2g}"

    kernel = tilec.compile(CAUSAL)

    def strided() -> str:
        q, k, v = (
            x.transpose(1, 2).contiguous().transpose(1, 2) for x in inputs(2, 3, 65, 130, 64)
        )
        return close(kernel(q, k, v), expect(q, k, v), 1e-5)

    def expanded() -> str:
        q, k, v = inputs(2, 3, 65, 130, 64)
        k, v = (x[:, :1].expand(-1, 3, -1, -1) for x in (k, v))
        return close(kernel(q, k, v), expect(q, k, v), 1e-5)

    def flipped_offset() -> str:
        q, k, v = inputs(2, 3, 67, 131, 64)
        q, k, v = (x[:, :, 1:] for x in (q, k, v))
        return close(kernel(q, k, v), expect(q, k, v), 1e-5)

    def empty() -> str:
        shapes = [(0, 1, 4, 4, 8), (1, 1, 0, 4, 8), (1, 2, 4, 0, 8)]
        for s in shapes:
            q, k, v = inputs(*s)
            got = kernel(q, k, v)
            assert got.shape == q.shape
            assert not got.abs().sum().item()
        return "zeros"

    def many_blocks() -> str:
        q, k, v = inputs(1, 1 << 17, 3, 5, 8)
        return close(kernel(q, k, v), expect(q, k, v), 1e-5)

    def nan_and_infinity() -> str:
        q, k, v = inputs(1, 2, 80, 80, 64)
        v[:, :, 40] = torch.nan
        v[:, :, 60, 3] = torch.inf
        got, want = kernel(q, k, v), expect(*inputs(1, 2, 80, 80, 64))
        assert got[:, :, 40:].isnan().all()
        return close(got[:, :, :40], want[:, :, :40], 1e-5)

    def out() -> str:
        q, k, v = inputs(1, 2, 33, 40, 64)
        o = torch.empty_like(q)
        assert kernel(q, k, v, out=o) is o
        return close(o, expect(q, k, v), 1e-5)

    def side_stream() -> str:
        q, k, v = inputs(1, 2, 33, 40, 64)
        s = torch.cuda.Stream()
        s.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(s):
            o = kernel(q, k, v)
        s.synchronize()
        return close(o, expect(q, k, v), 1e-5)

    def graph() -> str:
        q, k, v = inputs(1, 2, 33, 40, 64)
        o = kernel(q, k, v)
        g = torch.cuda.CUDAGraph()
        with torch.cuda.graph(g):
            o = kernel(q, k, v)
        for x, y in zip((q, k, v), inputs(1, 2, 33, 40, 64), strict=True):
            x.copy_(2 * y)
        g.replay()
        torch.cuda.synchronize()
        return close(o, expect(q, k, v), 1e-5)

    def cupy_arrays() -> str:
        cupy: Any = importlib.import_module("cupy")
        q, k, v = inputs(1, 2, 33, 40, 64)
        o = kernel(*(cupy.from_dlpack(x) for x in (q, k, v)))
        assert isinstance(o, cupy.ndarray)
        return close(torch.from_dlpack(o), expect(q, k, v), 1e-5)

    def mixed_devices() -> str:
        q, k, v = inputs(1, 2, 33, 40, 64)
        try:
            kernel(q.cpu(), k, v)
        except tilec.ArgumentError as e:
            return str(e)
        raise AssertionError("accepted")

    def bits() -> str:
        q, k, v = inputs(2, 4, 300, 300, 64)
        first = kernel(q, k, v)
        assert all(torch.equal(first, kernel(q, k, v)) for _ in range(20))
        return "equal bits in 20 runs"

    def overhead() -> str:
        q, k, v = inputs(1, 1, 1, 1, 8)
        for _ in range(20):
            kernel(q, k, v)
        torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(200):
            kernel(q, k, v)
        spent = (time.perf_counter() - start) / 200
        torch.cuda.synchronize()
        return f"{spent * 1e6:.1f} us per call"

    tests = [
        strided,
        expanded,
        flipped_offset,
        empty,
        many_blocks,
        nan_and_infinity,
        out,
        side_stream,
        graph,
        cupy_arrays,
        mixed_devices,
        bits,
        overhead,
    ]
    for test in tests:
        start = time.perf_counter()
        try:
            status, said = "pass", test()
        except Exception as e:
            traceback.print_exc()
            status, said = "wrong", f"{type(e).__name__}: {e}"
        report("odd", test.__name__, status, said, time.perf_counter() - start)


# ---- times: each function is used up before the loop goes on
# ruff: noqa: B023


def speed(report: Report, emitters: list[str]) -> None:
    import torch

    import tilec

    def time_of(f: Any) -> float:
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

    for dtype in (torch.float32, torch.bfloat16):
        for d in (64, 128):
            for mask, text in (("full", FULL), ("causal", CAUSAL)):
                b, h, n = 2, 16, 2048
                q, k, v = (torch.randn(b, h, n, d, device="cuda", dtype=dtype) for _ in range(3))
                flops = 4 * b * h * n * n * d / (1 if mask == "full" else 2)

                def theirs() -> Any:
                    return torch.nn.functional.scaled_dot_product_attention(
                        q, k, v, is_causal=mask == "causal"
                    )

                base = time_of(theirs)
                for emitter in emitters:
                    start = time.perf_counter()
                    kernel = tilec.compile(text, target="cuda", schedule={"emitter": emitter})
                    name = f"{str(dtype)[6:]} D{d} {mask} {emitter}"
                    try:
                        error = (kernel(q, k, v) - theirs()).abs().max().item()
                        spent = time_of(lambda: kernel(q, k, v))
                        said = f"{flops / spent / 1e12:.1f} TFLOPS, torch {flops / base / 1e12:.1f}, differs by {error:.2g}"
                        report(
                            "speed",
                            name,
                            "pass",
                            said,
                            time.perf_counter() - start,
                            tflops=flops / spent / 1e12,
                        )
                    except Exception as e:
                        report(
                            "speed",
                            name,
                            "wrong",
                            f"{type(e).__name__}: {e}"[:300],
                            time.perf_counter() - start,
                        )


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
