"""Measuring a cell: each candidate is run once and compared with float64, then all are timed in turn."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from benchmarks.gpu import peers, problem, timing
from benchmarks.gpu.build import Built
from benchmarks.gpu.cells import SDPA, Cell
from benchmarks.gpu.problem import Problem
from benchmarks.gpu.watchdog import Progress

CHECKS = ((1, 2, 1000), (2, 80, 512), (3, 1, 130), (1, 3, 1), (2, 2, 257))
"""Batches, heads and lengths that a kernel is tried on before it is timed."""
Row = dict[str, Any]


class DeviceLost(Exception):
    """The device answers no more; a new process must go on."""


@dataclass(frozen=True)
class Bench:
    """What all measurements share. `skipped`: candidates that hung, as `cell/candidate`."""

    progress: Progress
    skipped: frozenset[str]
    seed: int
    rounds: int = 3
    quick: bool = False

    def begin(self, cell: Cell, what: str, seconds: float = 20.0) -> bool:
        """Says what comes next; whether it is to be done."""
        name = f"{cell.key}/{what}"
        if name in self.skipped:
            return False
        self.progress.start(name, seconds)
        return True


def call_of(p: Problem, built: Built) -> Callable[[], Any]:
    """tilec's kernel on a problem, called as a user calls it, writing the same array each time."""
    import tilec

    kernel = tilec.compile(p.cell.program, target=p.cell.target, schedule=built.schedule or None)
    given = p.arguments
    o = p.q.new_full((*p.q.shape[:3], p.cell.width), float("nan"))
    return lambda: kernel(p.q, p.k, p.v, **given, out=o)


def settled() -> None:
    """Waits for the device. Raises DeviceLost where it answers no more."""
    import torch

    try:
        torch.cuda.synchronize()
    except Exception as e:
        raise DeviceLost(repr(e)[:200]) from e


def attempt(work: Callable[[], Any]) -> tuple[Any, str]:
    """The result of some work on the device, or why there is none."""
    try:
        made = work()
        settled()
    except DeviceLost:
        raise
    except Exception as e:
        settled()
        return None, f"{type(e).__name__}: {e}"[:300]
    return made, ""


def odd_shapes(cell: Cell, built: Built) -> float:
    """The largest error of a kernel on shapes that fit nothing, with scores of growing size too."""
    worst = 0.0
    for b, h, n in CHECKS:
        small = replace(cell, b=b, h=h, n=n)
        for ramp in (False, True) if n > 1 else (False,):
            p = problem.draw(small, n, ramp=ramp)
            run = call_of(p, built)
            run()
            worst = max(worst, p.error(run()))
    return worst


def times(bench: Bench, cell: Cell, made: Mapping[str, Built]) -> Row:
    """A row of a table of times."""
    p = problem.draw(cell, bench.seed)
    row: Row = {"error": {}, "ms": {}, "failed": {}}
    runs: dict[str, Callable[[], Any]] = {}

    def enter(name: str, make: Callable[[], Callable[[], Any]], seconds: float) -> None:
        if not bench.begin(cell, name, seconds):
            row["failed"][name] = "it hung or crashed"
            return
        run, why = attempt(make)
        error, why = attempt(lambda: p.error(run())) if run else (None, why)
        if error is not None and not error < p.limit:
            why = f"wrong: error {error:.1e}"
        if why:
            row["failed"][name] = why
            bench.progress.say(f"# {cell.key}: no {name}: {why}")
            return
        row["error"][name], runs[name] = error, run

    for name, built in made.items():
        if built.failed:
            row["failed"][name] = built.said
        elif _sound(bench, cell, name, built, row):
            enter(name, lambda built=built: call_of(p, built), 20.0)
    for name in cell.peers:
        if not bench.quick or name in SDPA:
            enter(name, lambda name=name: peers.make(name, p), peers.SECONDS.get(name, 20.0))
    if runs and bench.begin(cell, "timing", 60.0):
        row["ms"] = timing.timed(runs, bench.rounds)
        settled()
    work = p.operations() / 1e9 if cell.unit == "TFLOPS" else p.bytes() / 1e6
    row |= {name: round(work / t, 1) for name, t in row["ms"].items()}
    if cell.table == "variants":
        row["kept"] = p.kept()
    return row


def _sound(bench: Bench, cell: Cell, name: str, built: Built, row: Row) -> bool:
    """Whether a kernel is right on odd shapes."""
    if not cell.checked:
        return True
    if not bench.begin(cell, f"{name}/check", 40.0):
        row["failed"][name] = "it hung or crashed on odd shapes"
        return False
    error, why = attempt(lambda: odd_shapes(cell, built))
    limit = problem.LIMITS[cell.dtype]
    if why or not error < limit:
        row["failed"][name] = why or f"wrong on odd shapes: error {error:.1e}"
        bench.progress.say(f"# {cell.key}: {name}: {row['failed'][name]}")
        return False
    return True


# ---- errors and bits

SEEDS = 3
BURST = 100


def errors(bench: Bench, cell: Cell, made: Mapping[str, Built]) -> Row:
    """The largest and the root mean square error of tilec's candidates and of cuDNN, of outputs and of log-sum-exps."""
    import torch

    if not bench.begin(cell, "errors", 120.0):
        return {"failed": {"tilec": "it hung or crashed"}}
    found: dict[str, list[Any]] = {}
    failed = {name: b.said for name, b in made.items() if b.failed}
    if failed:
        return {"failed": failed}

    def measured() -> None:
        for k in range(SEEDS):
            p = problem.draw(cell, bench.seed + k)
            want = exact(p)
            each = [(name, _both(p, b)) for name, b in made.items()]
            for name, got in (*each, ("cudnn", _cudnn(p))):
                for what, g, w in zip(("o", "l"), got, want, strict=True):
                    assert not g.isnan().any(), f"{name} gives NaN"
                    found.setdefault(f"{what} {name}", []).append((g.double() - w).abs().flatten())

    _, why = attempt(measured)
    if why:
        return {"failed": {"tilec": why}}
    row: Row = {}
    for what in ("o", "l"):
        for kind, of in (("max", torch.max), ("rms", lambda x: x.square().mean().sqrt())):
            size = {n: of(torch.cat(found[f"{what} {n}"])).item() for n in (*made, "cudnn")}
            row[f"{what} {kind}"] = {**size, "ratio": size["tilec"] / size["cudnn"]}
    return row


def exact(p: Problem) -> tuple[Any, Any]:
    """The exact result of all heads, and its log-sum-exp."""
    import torch

    rows = torch.arange(p.cell.rows, device=p.q.device)
    each = [[p.exact(b, h, rows) for h in range(p.cell.h)] for b in range(p.cell.b)]
    return tuple(torch.stack([torch.stack([x[n] for x in r]) for r in each]) for n in (0, 1))  # type: ignore[return-value]


def _both(p: Problem, built: Built) -> tuple[Any, Any]:
    import tilec

    kernel = tilec.compile(p.cell.program, target=p.cell.target, schedule=built.schedule or None)
    return kernel(p.q, p.k, p.v)


def _cudnn(p: Problem) -> tuple[Any, Any]:
    """cuDNN's output and log-sum-exp."""
    import torch

    made = torch.ops.aten._scaled_dot_product_cudnn_attention(
        p.q, p.k, p.v, None, True, 0.0, p.cell.kind == "causal", False
    )
    return made[0], made[1].reshape(p.q.shape[:3])


def bits(bench: Bench, cell: Cell, made: Mapping[str, Built]) -> Row:
    """How many of many launches give other bits than the first, while the device does other work too."""
    import torch

    built = made["tilec"]
    if built.failed:
        return {"failed": {"tilec": built.said}}
    if not bench.begin(cell, "bits", 60.0):
        return {"failed": {"tilec": "it hung or crashed"}}
    p = problem.draw(cell, bench.seed)
    noise = torch.randn((4096, 4096), device="cuda", dtype=torch.bfloat16)
    other = torch.cuda.Stream()

    def compared() -> tuple[int, float]:
        run = call_of(p, built)
        o = run()
        first, differ = o.clone(), 0
        for n in range(BURST):
            o.fill_(float("nan"))
            if n % 2:
                with torch.cuda.stream(other):
                    noise @ noise
            differ += not torch.equal(run().view(torch.int16), first.view(torch.int16))
        return differ, p.error(first)

    found, why = attempt(compared)
    if why:
        return {"failed": {"tilec": why}}
    differ, error = found
    return {"launches": BURST, "differ": differ, "error": error, "right": error < p.limit}
