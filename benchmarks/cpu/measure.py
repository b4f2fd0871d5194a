"""Measuring a case: its result is held against float64, then it is timed in turn with what stands beside it."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from benchmarks.cpu import timing
from benchmarks.cpu.cases import Case
from benchmarks.cpu.peak import fused_loop, read_loop
from benchmarks.gpu import peers, problem
from benchmarks.gpu.cells import Cell
from benchmarks.gpu.problem import Problem

ROUNDS = 1_000_000
"""Of the loop that shows the peak: about two milliseconds. A tenth of that shows up to 8 % less right after other code."""
Run = Callable[[], Any]


@dataclass(frozen=True)
class Candidate:
    """Something that is timed, and what it has to do: operations on all blocks that hold something."""

    run: Run
    work: float


def measure(case: Case, budget: float) -> dict[str, Any]:
    """The figures of a case. Ratios are those of rates: above 1, tilec does more in the same time than the other does.

    Raises ValueError where a result is wrong.
    """
    p = problem.draw(case.cell, 1, "cpu")
    p = strided(p) if case.strided else p
    os.environ["TILEC_NUM_THREADS"] = str(case.threads)
    made = {"tilec": Candidate(_tilec(p), _work(p))}
    made |= {name: beside(name, case, p) for name in case.beside}
    errors = {name: p.error(made[name].run()) for name in made if name not in ("near", "full")}
    if not errors["tilec"] < p.limit:
        raise ValueError(f"{case} is wrong: error {errors['tilec']:.1e}")
    peak = _peak(case.threads)
    runs: dict[str, Run] = {name: x.run for name, x in made.items()} | {"peak": peak.run}
    reading = {"read": read_loop(), "abreast": read_loop(4)} if case.cell.m == 1 else {}
    runs |= {name: run for name, (run, _) in reading.items()}
    times = timing.timed(runs, budget, case.threads)
    ours, work = times["tilec"], made["tilec"].work
    streamed: dict[str, Any] = {}
    if reading:
        # the loops read on one thread
        rate = {"tilec": p.bytes() / timing.typical(ours, case.threads)}
        for name, (_, size) in reading.items():
            rate[name] = size / timing.typical(times[name], case.threads)
        streamed["GB/s"] = {n: x / 1e9 for n, x in rate.items()}
    return {
        "ms": {n: 1e3 * timing.typical(times[n], case.threads) for n in made},
        "ratio": {
            n: timing.ratio(times[n], ours, case.threads) * work / made[n].work for n in case.beside
        },
        # in the same rounds, as beside others: the fastest loop of all would belong to a clock that nobody else had
        "of_peak": timing.ratio(times["peak"], ours, case.threads) * p.operations() / peak.work,
        "error": errors,
        **streamed,
    }


def beside(name: str, case: Case, p: Problem) -> Candidate:
    """What a case is timed beside, by name."""
    match name:
        case "sdpa":
            return Candidate(_sdpa(p, case.threads), _work(p))
        case "flex":
            return Candidate(_flex(p, case.threads), _work(p))
        case "alone":
            return Candidate(_alone(p, case.threads), _work(p))
        case "dense":
            tensors = {n: getattr(p, n).contiguous() for n in "qkv"}
            return Candidate(_tilec(replace(p, **tensors)), _work(p))
        case "near":
            return _other(case.near())
        case "full":
            return _other(replace(case.cell, kind="full"))
        case _:
            raise ValueError(f"nothing is called {name}")


def strided(p: Problem) -> Problem:
    """The problem with arrays in which the heads of a position lie side by side."""
    made = {n: getattr(p, n).transpose(1, 2).contiguous().transpose(1, 2) for n in "qkv"}
    return replace(p, **made)


def _other(cell: Cell) -> Candidate:
    p = problem.draw(cell, 1, "cpu")
    return Candidate(_tilec(p), _work(p))


def _work(p: Problem) -> float:
    """Operations on the blocks that have something to them."""
    c = p.cell
    return 2.0 * (c.d + c.width) * c.b * c.h * c.rows * c.n * p.kept()


def _peak(threads: int) -> Candidate:
    """The loop that shows the peak of a thread, and what all would do in its time."""
    loop, work = fused_loop()
    return Candidate(lambda: loop(ROUNDS), threads * ROUNDS * work)


def _tilec(p: Problem) -> Run:
    import tilec

    kernel, more = tilec.compile(p.cell.program, target="cpu"), p.arguments
    return lambda: kernel(p.q, p.k, p.v, **more)


def _alone(p: Problem, threads: int) -> Run:
    """One thread, among candidates that have more. The others do not say how many they have in every call, which takes a
    thousandth of a short one."""
    run = _tilec(p)

    def alone() -> Any:
        os.environ["TILEC_NUM_THREADS"] = "1"
        out = run()
        os.environ["TILEC_NUM_THREADS"] = str(threads)
        return out

    return alone


def _sdpa(p: Problem, threads: int) -> Run:
    import torch

    torch.set_num_threads(threads)
    attention = torch.nn.functional.scaled_dot_product_attention
    causal = p.cell.kind == "causal"
    grouped = p.cell.h != p.cell.heads
    return lambda: attention(p.q, p.k, p.v, is_causal=causal, enable_gqa=grouped)


def _flex(p: Problem, threads: int) -> Run:
    import torch

    torch.set_num_threads(threads)
    return peers.make("flex", p)
