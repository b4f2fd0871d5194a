"""The Hopper kernels against float64, then timed beside cuDNN and FlashAttention-4 in one process.

    python benchmarks/hopper_bench.py [--quick] [--out results.jsonl] [--cells D128,N4096,causal] [--table variants,heads]

Tables: `peers` (head sizes 64, 128, 256; full and causal; three lengths), `heads` (head sizes 80, 96, 192/128 and other
lengths), `variants` (masks and score functions, called as a user calls them, beside plain causal attention).

Each timed cell alternates the candidates, idling 0.1 s before each burst, and reports medians. The work runs in a child
process under a watchdog: a kernel that hangs costs 15 s and is skipped. Cubins are compiled first, in parallel.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

SDPA = """
kernel {name}(Q[B, H, M, D], K[B, H, N, D], V[B, H, N, E]) -> O[b, h, i, e]:
    S = sum[d](Q[b, h, i, d] * K[b, h, j, d]) / sqrt(D)
    O = sum[j](softmax[j]({score}) * V[b, h, j, e])
"""
CAUSAL = SDPA.format(name="causal", score="S if j <= i + N - M else -inf")
NAIVE = SDPA.format(name="full", score="S")
CHECKS = ((1, 2, 1000), (2, 80, 512), (3, 1, 130), (1, 3, 1), (2, 2, 257))
VARIANT = """
kernel {name}(Q[B, H, N, D], K[B, H, N, D], V[B, H, N, E]{more}) -> O[b, h, i, e]:
    S = sum[d](Q[b, h, i, d] * K[b, h, j, d]) / sqrt(D)
    O = sum[j](softmax[j]({score}) * V[b, h, j, e])
"""
VARIANTS = {
    "causal": ("", "S if j <= i else -inf"),
    "window": (", width: int = 1024", "S if i - width < j <= i else -inf"),
    "soft cap": (", cap: float = 50.0", "cap * tanh(S / cap) if j <= i else -inf"),
    "alibi": (", slope: f32[H]", "S - slope[h] * (i - j) if j <= i else -inf"),
    "prefix": (", len: i32[B]", "S if j <= i or j < len[b] else -inf"),
    "documents": (", doc: i32[B, N]", "S if doc[b, i] == doc[b, j] and j <= i else -inf"),
}
"""Masks and score functions: further parameters, and the score."""
LENGTH, PREFIX, DOCUMENTS = 8192, 1024, 12
HANG = 15.0
SLEEP = 10_000_000
"""Cycles: about 6 ms, in which the host queues a burst of calls."""


def variant(name: str) -> str:
    """The program of a variant."""
    more, score = VARIANTS[name]
    return VARIANT.format(name=name.replace(" ", "_"), more=more, score=score)


def cells(pattern: str | None, tables: str) -> list[tuple[int, int, bool]]:
    """(D, N, causal) of the tables. 192: with values of 128. `64:8192`: a table of one head size and length."""
    out: list[tuple[int, int, bool]] = []
    for word in tables.split(","):
        if ":" in word:
            d, n = map(int, word.split(":"))
            out += [(d, n, c) for c in (False, True)]
    if "peers" in tables:
        out += [
            (d, n, c) for d in (64, 128, 256) for n in (1024, 4096, 16384) for c in (False, True)
        ]
    if "heads" in tables:
        out += [(d, 4096, c) for d in (80, 96, 192) for c in (False, True)]
        out += [(128, n, c) for n in (512, 2048, 8192) for c in (False, True)]
    words = [w for w in (pattern or "").split(",") if w]

    def keep(d: int, n: int, c: bool) -> bool:
        tags = {f"D{d}", f"N{n}", "causal" if c else "full"}
        return all(w in tags for w in words)

    return [x for x in out if keep(*x)]


def build(job: tuple[int, int, bool, str, dict[str, object]]) -> tuple[str, object, bytes, str]:
    """(key, source, cubin, log) of a cell."""
    d, n, causal, dtype, changes = job
    import dataclasses

    import tilec
    from tilec import pipeline
    from tilec.backends.cuda import nvrtc
    from tilec.backends.cuda.hopper import compile as hopper
    from tilec.kernel import Source as Program

    text = CAUSAL if causal else NAIVE
    program = Program.of(text, "bench.tile", None)
    kernel = program.lowered(dict.fromkeys(program.untyped, dtype))
    kernel = pipeline.run(kernel, pipeline.tensor_pipeline())
    sizes = {"B": 1, "H": 1, "M": n, "N": n, "D": d, "E": value_width(d)}
    tiled, schedule = hopper.tiles(kernel, sizes)
    if changes:
        tiled, schedule = hopper.tiles(kernel, sizes, dataclasses.replace(schedule, **changes))
    found = hopper.sources(tiled, schedule)
    source = next(s for s in found.values() if not isinstance(s, str))
    made = nvrtc.compile(source.text, "sm_90a")
    use = made.usage[source.name]
    bad = [w for w in made.warnings if "C75" in w]
    log = f"{schedule} regs {use.registers} spill {use.spill_stores}/{use.spill_loads} {bad or ''}"
    assert tilec
    return key(job), source, made.cubin, log


def value_width(d: int) -> int:
    """The width of values where keys have width d."""
    return 128 if d == 192 else d


def key(job: tuple[int, int, bool, str, dict[str, object]]) -> str:
    d, n, causal, dtype, changes = job
    tail = "".join(f",{k}={v}" for k, v in changes.items())
    return f"D{d}_N{n}_{'causal' if causal else 'full'}_{dtype}{tail}"


def worker(args: argparse.Namespace) -> None:
    """Everything that touches the device."""
    import pickle

    import torch

    from tilec.backends.cuda.hopper.launch import Launcher, refusal

    progress = open(args.progress, "a", buffering=1)  # noqa: SIM115
    skip = set(json.loads(Path(args.skip).read_text()))

    def say(*words: object) -> None:
        line = " ".join(str(w) for w in words)
        progress.write(line + "\n")
        print(line, flush=True)

    class View:
        def __init__(self, t: torch.Tensor) -> None:
            self.pointer, self.shape, self.strides = t.data_ptr(), tuple(t.shape), tuple(t.stride())
            self.dtype = {torch.bfloat16: "bf16", torch.float16: "f16", torch.float32: "f32"}[
                t.dtype
            ]

    built = pickle.loads(Path(args.built).read_bytes())
    types = {"bf16": torch.bfloat16, "f16": torch.float16}

    def prepare(launcher: Launcher, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor):
        b, h, m, d = q.shape
        o = torch.full((b, h, m, v.shape[3]), float("nan"), device="cuda", dtype=q.dtype)
        views = {"Q": View(q), "K": View(k), "V": View(v), "O": View(o)}
        sizes = {"B": b, "H": h, "M": m, "N": k.shape[2], "D": d, "E": v.shape[3]}
        why = refusal(launcher.source, views, sizes)
        assert why is None, why
        run = launcher.prepare(views, sizes)
        return run, o, (q, k, v)

    def data(shape: tuple[int, ...], dtype: torch.dtype, seed: int) -> list[torch.Tensor]:
        g = torch.Generator(device="cuda").manual_seed(seed)
        shapes = [shape, shape, (*shape[:3], value_width(shape[3]))]
        return [torch.randn(s, device="cuda", generator=g).to(dtype) for s in shapes]

    def exact(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, causal: bool) -> torch.Tensor:
        s = q.double() @ k.double().T / math.sqrt(q.shape[-1])
        if causal:
            n, m = k.shape[0], q.shape[0]
            mask = torch.ones(m, n, dtype=torch.bool, device="cuda").triu_(1 + n - m)
            s.masked_fill_(mask, float("-inf"))
        return torch.softmax(s, -1) @ v.double()

    launchers: dict[str, Launcher] = {}
    for name, (job, source, cubin, _) in built.items():
        if name in skip:
            continue
        d, n, causal, dtype, _ = job
        say("START", name)
        launcher = Launcher(source, cubin)
        worst = 0.0
        for b, h, length in CHECKS:
            q, k, v = data((b, h, length, d), types[dtype], length)
            for ramp in (False, True) if length > 1 else (False,):
                if ramp:  # maxima that keep growing, scores to ±400
                    k = (k.float() * torch.linspace(0.2, 12, length, device="cuda")[:, None]).to(
                        q.dtype
                    )
                    q = (q.float() * 3).to(q.dtype)
                run, o, _keep = prepare(launcher, q, k, v)
                run()
                run()
                torch.cuda.synchronize()
                for bb, hh in {(0, 0), (b - 1, h - 1)}:
                    r = exact(q[bb, hh], k[bb, hh], v[bb, hh], causal)
                    e = ((o[bb, hh].double() - r).norm() / r.norm()).item()
                    worst = max(worst, e if e == e and not torch.isnan(o).any() else math.inf)
        limit = 1.2e-2 if dtype == "bf16" else 2e-3
        say("CHECK", name, "ok" if worst < limit else "WRONG", f"{worst:.1e}")
        if worst < limit or args.time_wrong:
            launchers[name] = launcher
    import torch.nn.functional as F
    from torch.nn.attention import SDPBackend, sdpa_kernel

    fa4 = _flash4(say)
    results: dict[str, dict[str, float]] = {}
    grouped: dict[tuple[int, int, bool, str], list[str]] = {}
    for name in launchers:
        grouped.setdefault(built[name][0][:4], []).append(name)
    for (d, n, causal, dtype), names in grouped.items():
        b, h = max(1, 16384 // n), max(1, 2048 // d)
        q, k, v = data((b, h, n, d), types[dtype], 7)
        flops = 2 * b * h * n * n * (d + value_width(d)) / (2 if causal else 1)
        runs: dict[str, object] = {}

        def cudnn(q=q, k=k, v=v, causal=causal) -> torch.Tensor:
            with sdpa_kernel([SDPBackend.CUDNN_ATTENTION]):
                return F.scaled_dot_product_attention(q, k, v, is_causal=causal)

        base = cudnn()
        runs["cudnn"] = cudnn
        if fa4 is not None and not args.quick:
            try:
                qt, kt, vt = (x.transpose(1, 2).contiguous() for x in (q, k, v))
                say("START", "fa4")
                fa4(qt, kt, vt, causal=causal)
                torch.cuda.synchronize()
                runs["fa4"] = lambda qt=qt, kt=kt, vt=vt, causal=causal: fa4(
                    qt, kt, vt, causal=causal
                )
            except Exception as e:  # a peer that fails is left out, and said so
                say("# no fa4:", repr(e)[:200])
        for name in names:
            say("START", name)
            run, o, _keep = prepare(launchers[name], q, k, v)
            run()
            torch.cuda.synchronize()
            e = ((o.float() - base.float()).norm() / base.float().norm()).item()
            if not e < 1.5e-2:
                say("# MISMATCH with cudnn", name, e)
            runs[name] = run
        tag = f"D{d} N{n} {'causal' if causal else 'full'} {dtype}"
        row = {r: flops / t / 1e9 for r, t in timed(runs, 2 if args.quick else 3).items()}
        results[tag] = row
        say("TIME", tag, "  ".join(f"{r} {x:.0f}" for r, x in row.items()))
    if "variants" in args.table:
        results |= variants(say, skip, args)
    with open(args.out, "a") as out:
        for tag, row in results.items():
            line = {"cell": tag, "unit": "TFLOPS", **row, **circumstances()}
            out.write(json.dumps(line) + "\n")
    say("DONE")


def timed(runs: dict[str, object], rounds: int) -> dict[str, float]:
    """The median time of each candidate on the GPU in ms: bursts after 0.1 s of idling, in alternating order. The GPU sleeps
    until all calls of a burst are queued, so that what a call costs the host does not count."""
    import torch

    times: dict[str, list[float]] = {r: [] for r in runs}
    for turn in range(rounds):
        for r in runs if turn % 2 == 0 else list(runs)[::-1]:
            time.sleep(0.1)
            torch.cuda._sleep(SLEEP)
            for _ in range(2):
                runs[r]()
            events = [[torch.cuda.Event(enable_timing=True) for _ in range(2)] for _ in range(12)]
            for x, y in events:
                x.record()
                runs[r]()
                y.record()
            torch.cuda.synchronize()
            times[r] += [x.elapsed_time(y) for x, y in events]
    return {r: sorted(t)[len(t) // 2] for r, t in times.items()}


def variants(say, skip: set[str], args: argparse.Namespace) -> dict[str, dict[str, float]]:
    """The variants, called as a user calls them: each against float64, then all timed in turn."""
    import torch

    import tilec

    b, h, n, d = 2, 16, LENGTH, 128
    dtype = {"bf16": torch.bfloat16, "f16": torch.float16}[args.dtype]
    g = torch.Generator(device="cuda").manual_seed(5)
    q, k, v = (torch.randn((b, h, n, d), device="cuda", generator=g).to(dtype) for _ in range(3))
    slope = 2.0 ** (-8 * (torch.arange(h, device="cuda") + 1) / h)
    more = {
        "alibi": {"slope": slope.float()},
        "prefix": {"len": torch.full((b,), PREFIX, device="cuda", dtype=torch.int32)},
        "documents": {
            "doc": (torch.arange(n, device="cuda") * DOCUMENTS // n).int().expand(b, n).contiguous()
        },
    }
    i, j = torch.arange(n, device="cuda")[:, None], torch.arange(n, device="cuda")[None, :]
    seen = dict.fromkeys(VARIANTS, j <= i)
    seen["window"] = (j <= i) & (j > i - 1024)
    seen["prefix"] = (j <= i) | (j < PREFIX)
    seen["documents"] = (j <= i) & (i * DOCUMENTS // n == j * DOCUMENTS // n)
    runs: dict[str, object] = {}
    flops: dict[str, float] = {}
    for name in VARIANTS:
        if f"variant_{name}".replace(" ", "_") in skip:
            continue
        say("START", f"variant_{name}".replace(" ", "_"))
        try:
            kernel = tilec.compile(variant(name), target="cuda:sm_90a")
            given = more.get(name, {})
            o = kernel(q, k, v, **given)
            torch.cuda.synchronize()
            worst = 0.0
            for bb, hh in ((0, 0), (b - 1, h - 1)):
                s = q[bb, hh].double() @ k[bb, hh].double().T / math.sqrt(d)
                s = 50 * torch.tanh(s / 50) if name == "soft cap" else s
                s = s - slope[hh].double() * (i - j) if name == "alibi" else s
                r = (
                    torch.softmax(s.masked_fill_(~seen[name], float("-inf")), -1)
                    @ v[bb, hh].double()
                )
                worst = max(worst, ((o[bb, hh].double() - r).norm() / r.norm()).item())
            say("CHECK", name, "ok" if worst < 1.2e-2 else "WRONG", f"{worst:.1e}")
            runs[name] = lambda kernel=kernel, given=given, o=o: kernel(q, k, v, **given, out=o)
            flops[name] = 4 * b * h * d * float(seen[name].sum())
        except Exception as e:  # a variant that fails is left out, and said so
            say("# no", name, repr(e)[:300])
    took = timed(runs, 2 if args.quick else 3)
    base = took.get("causal", math.nan)
    for name, t in took.items():
        say(
            "TIME",
            name,
            f"{t:.3f} ms, {flops[name] / t / 1e9:.0f} TFLOPS, {t / base:.2f} of causal",
        )
    return {
        n: {"tilec": flops[n] / t / 1e9, "ms": t, "of_causal": t / base} for n, t in took.items()
    }


def circumstances() -> dict[str, str]:
    """When, where and how something was measured."""
    import torch

    def said(*command: str) -> str:
        done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
        return done.stdout.strip().split("\n")[0]

    return {
        "date": time.strftime("%Y-%m-%d"),
        "gpu": torch.cuda.get_device_name(),
        "driver": said("nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"),
        "torch": torch.__version__,
        "commit": said("git", "rev-parse", "--short", "HEAD"),
        "command": " ".join(
            [
                "python",
                *(
                    a
                    for a in sys.argv
                    if not a.startswith(("--worker", "--built", "--skip", "--progress"))
                ),
            ]
        ),
    }


def _flash4(say):
    try:
        from flash_attn.cute import flash_attn_func

        return flash_attn_func
    except Exception as e:
        say("# no fa4:", repr(e)[:120])
        return None


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="two rounds, without FlashAttention-4")
    parser.add_argument("--cells", help="which cells, such as D128,causal")
    parser.add_argument("--dtype", default="bf16")
    parser.add_argument(
        "--table",
        default="peers",
        help="peers, heads, variants, or head size and length as in 64:8192, with commas (default: peers)",
    )
    parser.add_argument(
        "--with",
        dest="variants",
        action="append",
        default=[],
        help="another schedule, such as columns=64,relax=false",
    )
    parser.add_argument(
        "--out", default=os.path.join(os.environ.get("OUT", "."), "hopper_bench.jsonl")
    )
    parser.add_argument("--time-wrong", action="store_true")
    parser.add_argument("--compile-only", action="store_true")
    for hidden in ("worker", "built", "skip", "progress"):
        parser.add_argument(f"--{hidden}", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.worker:
        worker(args)
        return 0
    import pickle

    schedules: list[dict[str, object]] = [{}, *(_changes(v) for v in args.variants)]
    jobs = [(*c, args.dtype, v) for c in cells(args.cells, args.table) for v in schedules]
    built: dict[str, object] = {}
    start = time.time()
    with ProcessPoolExecutor(min(16, os.cpu_count() or 1)) as pool:
        names = list(VARIANTS) if "variants" in args.table else []
        others = [pool.submit(_build_variant, name, args.dtype) for name in names]
        for job, made in zip(jobs, pool.map(_try_build, jobs), strict=True):
            if isinstance(made, str):
                print("BUILD", key(job), "failed:", made, flush=True)
                continue
            name, source, cubin, log = made
            print("BUILD", name, log, flush=True)
            built[name] = (job, source, cubin, log)
        for name, made in zip(names, others, strict=True):
            print("BUILD", name, made.result(), flush=True)
    print(f"# built {len(built)} in {time.time() - start:.0f} s", flush=True)
    if args.compile_only:
        return 0
    folder = Path(os.environ.get("TMPDIR", "/tmp")) / f"hopper_bench_{os.getpid()}"
    folder.mkdir()
    (folder / "built").write_bytes(pickle.dumps(built))
    progress, skip = folder / "progress", folder / "skip"
    progress.touch()
    skipped: list[str] = []
    command = [
        sys.executable,
        os.path.abspath(__file__),
        *sys.argv[1:],
        "--worker=1",
        f"--built={folder / 'built'}",
    ]
    for _ in range(4):
        skip.write_text(json.dumps(skipped))
        child = subprocess.Popen([*command, f"--skip={skip}", f"--progress={progress}"])
        if not _watch(child, progress):
            return 0
        started = [
            line.split()[1]
            for line in progress.read_text().splitlines()
            if line.startswith("START")
        ]
        print("# the worker died at", started[-1:], flush=True)
        if not started:
            return 1
        skipped.append(started[-1])
    return 1


def _watch(child: subprocess.Popen[bytes], progress: Path) -> bool:
    """Waits for a child that must report now and then; whether it failed."""
    size, since = -1, time.time()
    while child.poll() is None:
        time.sleep(0.3)
        now = progress.stat().st_size
        if now != size:
            size, since = now, time.time()
        if time.time() - since > HANG + (60 if size <= 0 else 0):
            child.kill()
            child.wait()
    return child.returncode != 0


def _changes(text: str) -> dict[str, object]:
    out: dict[str, object] = {}
    for pair in text.split(","):
        name, _, value = pair.partition("=")
        out[name] = (
            int(value)
            if value.isdigit()
            else value == "true"
            if value in ("true", "false")
            else value
        )
    return out


def _build_variant(name: str, dtype: str) -> str:
    """Compiles a variant into the cache on disk; what it says."""
    import tilec
    from tilec.backends.cuda import target

    kernel = tilec.compile(variant(name), target="cuda:sm_90a")
    try:
        code = kernel.gpu_code(dtype=dtype, B=2, H=16, N=LENGTH, D=128, E=128)
        target.compiled(code)
    except Exception as e:
        return repr(e)[:300]
    return f"emitter {code.emitter}; {code.note}"


def _try_build(job: tuple[int, int, bool, str, dict[str, object]]) -> object:
    try:
        return build(job)
    except Exception as e:
        return repr(e)[:500]


if __name__ == "__main__":
    sys.exit(main())
