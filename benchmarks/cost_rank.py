"""How well the cost model ranks candidates: predicted against measured times on this machine.

    python benchmarks/cost_rank.py [--rounds 7] [--threads 1]
    python benchmarks/cost_rank.py --target cuda [--cases causal:D=128,N=4096 …] [--budget 150] [--out ranks.jsonl]
    python benchmarks/cost_rank.py --measured ranks.jsonl
    python benchmarks/cost_rank.py --beside benchmarks/results/h200-2026-11-29.jsonl

On a GPU it times the whole space of schedules of the Hopper emitter for each case, by the tuner's own search (candidates
compiled side by side, each timed in turn with the best so far), and writes a line of JSON per candidate.

`--beside` holds predicted times of default schedules against those that `hopper_bench.py` measured.

On the CPU it prints for each case the rank correlation (Spearman), what the model would pick, and how much slower that is
than the best.
With one thread the times are the thread's own, so that a busy machine distorts them little. A second table says what the
best extents of one length cost at another: the ground for sharing a stored schedule between near lengths.
"""

from __future__ import annotations

import argparse
import dataclasses
import itertools
import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tilec.tuning.board import Leaderboard

ROWS, COLUMNS = (16, 32, 64, 128, 256), (16, 32, 64, 128, 256, 512)
CASES = (
    ("naive", {"M": 512, "N": 512}),
    ("naive", {"M": 720, "N": 720}),
    ("naive", {"M": 1024, "N": 1024, "H": 2}),
    ("causal", {"M": 512, "N": 512, "H": 4}),
    ("causal", {"M": 724, "N": 724, "H": 4}),
    ("causal", {"M": 1024, "N": 1024, "H": 2}),
    ("gemma2", {}),
)
SCHEDULES = (
    "warpgroups=2,3,4 columns=32,48,64,80,96,112,128,144,160,176,192 stages=2,3,4 "
    "order=static,longest store=tma,direct"
)
"""The space on a GPU."""
FIRST, NEAR = 5, 1.03
"""One of the FIRST candidates should be no slower than NEAR times the best."""
EXAMPLES = Path(__file__).resolve().parents[1] / "examples"


def spearman(a: Sequence[float], b: Sequence[float]) -> float:
    """The rank correlation of two lists of one length."""

    def ranks(xs: Sequence[float]) -> list[int]:
        order = sorted(range(len(xs)), key=lambda n: xs[n])
        return sorted(range(len(xs)), key=lambda n: order[n])

    n = len(a)
    far = sum((x - y) ** 2 for x, y in zip(ranks(a), ranks(b), strict=True))
    return 1 - 6 * far / (n * (n * n - 1))


def case(
    name: str, sizes: dict[str, int], rounds: int, threads: int
) -> dict[tuple[int, int], tuple[float, float]]:
    """Predicted and measured seconds for each pair of extents."""
    import tilec
    from tilec import ceilings, cost
    from tilec.traffic import budget

    roof = ceilings.measured("cpu")
    share = threads / roof.workers
    roof = dataclasses.replace(
        roof,
        workers=threads,
        **{u: getattr(roof, u) * share for u in ("matrix", "fma", "special")},
    )
    plain = tilec.load(EXAMPLES / f"{name}.tile", target="cpu")
    known, scalars = plain.environment(sizes)
    data = plain.sample(**sizes)

    def tiles(tile: dict[str, int]):
        *_, (_, ir) = tilec.load(EXAMPLES / f"{name}.tile", target="cpu", tile=tile).stages(
            sizes=known
        )
        return ir

    least = budget(tiles({"i": 16, "j": 16}), known, scalars, data).work
    trimmed = {u: least.total(u) for u in least.ops}
    kernels = {
        (i, j): tilec.load(EXAMPLES / f"{name}.tile", target="cpu", tile={"i": i, "j": j})
        for i, j in itertools.product(ROWS, COLUMNS)
        if i < 2 * known["M"] and j < 2 * known["N"]
    }
    times: dict[tuple[int, int], list[float]] = {at: [] for at in kernels}
    clock = time.thread_time if threads == 1 else time.perf_counter
    for _ in range(rounds + 1):
        for at, kernel in kernels.items():
            start = clock()
            kernel(**data)
            times[at].append(clock() - start)
    return {
        at: (
            cost.predict(tiles({"i": at[0], "j": at[1]}), known, scalars, data, roof, trimmed),
            min(times[at][1:]),
        )
        for at in kernels
    }


# ---- on a GPU


def problem(text: str) -> tuple[str, dict[str, int]]:
    """The example and the sizes of a case."""
    name, _, rest = text.partition(":")
    given = {n: int(x) for n, x in (part.split("=") for part in rest.split(","))}
    n, d = given["N"], given["D"]
    return name, {"B": max(1, 16384 // n), "H": max(1, 2048 // d), "M": n, "E": d, **given}


def gpu_case(text: str, dtype: str, budget: float, jobs: int) -> Leaderboard:
    """All schedules of a case such as `causal:D=128,N=4096`, at 16384 rows and 2048 columns of all heads together."""
    import tilec
    from tilec import gpu

    name, sizes = problem(text)
    kernel = tilec.load(EXAMPLES / f"{name}.tile", target="cuda:sm_90a")
    element: Any = dtype
    data = gpu.send(kernel.sample(dtype=element, **{x: sizes[x] for x in kernel.dims}))

    def progress(done: int, total: int, last: Any, best: Any) -> None:
        if done % 20 == 0:
            print(f"# {done} of {total}: last {last.choice} {last.state}", flush=True)

    return kernel.tune(**data, budget=budget, space=SCHEDULES, jobs=jobs, progress=progress)


def gpu_report(text: str, board: Leaderboard) -> list[dict[str, Any]]:
    """Prints how well the candidates of a case were ranked; what each took."""
    rows = [
        {
            "case": text,
            "schedule": dict(e.choice.schedule),
            "state": e.state,
            "predicted": e.predicted,
            "seconds": board.time(e) if e.relative else None,
            "raw": e.seconds,
            "note": e.note,
        }
        for e in board.entries
    ]
    print("\n".join(str(board).splitlines()[:20]))
    print(ranking(text, rows), "" if board.complete else "; NOT ALL were tried", sep="", flush=True)
    return rows


def ranking(text: str, rows: Sequence[dict[str, Any]]) -> str:
    """How well the candidates of a case are ranked by what was predicted."""
    timed = sorted(
        (r for r in rows if r["state"] == "measured"), key=lambda r: (r["predicted"], str(r))
    )
    states = ", ".join(
        f"{sum(r['state'] == s for r in rows)} {s}" for s in sorted({r["state"] for r in rows})
    )
    if len(timed) < 2:
        return f"{text}: {states}; too few to rank"
    took = [r["seconds"] for r in timed]
    best = min(took)
    first = min(took[:FIRST]) / best
    default = next((r["seconds"] / best for r in timed if not r["schedule"]), float("nan"))
    return (
        f"{text}: {states}; correlation {spearman([r['predicted'] for r in timed], took):.2f}; the best of the first "
        f"{FIRST} takes {first:.3f} of the best ({'good' if first <= NEAR else 'BAD'}), the first {took[0] / best:.3f}, "
        f"the default {default:.3f}"
    )


def again(file: str) -> None:
    """Ranks what was measured on a GPU by the cost model as it is now."""
    import json

    from tilec import ceilings

    roof = ceilings.measured("cuda:sm_90a")
    rows: list[dict[str, Any]] = [
        json.loads(x) for x in Path(file).read_text(encoding="utf-8").splitlines()
    ]
    for text in dict.fromkeys(r["case"] for r in rows):
        own = [r for r in rows if r["case"] == text]
        print(ranking(text + " (then)", own))
        predict = predictor(text, "bf16", roof)
        now = [r | predict(r["schedule"]) if r["state"] == "measured" else r for r in own]
        print(ranking(text + " (now)", now))


def predictor(text: str, dtype: Any, roof: Any) -> Callable[[dict[str, Any]], dict[str, Any]]:
    """What the cost model says of the schedules of a case."""
    import tilec
    from tilec import backend
    from tilec.errors import ResourceError
    from tilec.traffic import budget

    name, sizes = problem(text)
    kernel = tilec.load(EXAMPLES / f"{name}.tile", target="cuda:sm_90a")
    known, scalars = kernel.environment({x: sizes[x] for x in kernel.dims})
    stages = dict(kernel.stages(dtype=dtype, sizes=known))
    budgets: dict[Any, Any] = {}

    def predict(schedule: dict[str, Any]) -> dict[str, Any]:
        try:
            draft = backend.draft(
                stages["place"], "cuda:sm_90a", schedule, (stages["online"], known)
            )
        except ResourceError as e:
            return {"state": "does not fit", "note": str(e)}
        if draft.kernel not in budgets:
            budgets[draft.kernel] = budget(draft.kernel, known, scalars)
        assert draft.seconds is not None
        return {"predicted": draft.seconds(budgets[draft.kernel], roof)}

    return predict


def beside(file: str) -> None:
    """Predicted over measured times of the default schedules of plain attention."""
    import json
    import re

    from tilec import ceilings

    roof = ceilings.measured("cuda:sm_90a")
    shapes: dict[str, tuple[str, float]] = {}
    for line in Path(file).read_text(encoding="utf-8").splitlines():
        row: dict[str, Any] = json.loads(line)
        found = re.fullmatch(r"D(\d+) N(\d+) (full|causal) bf16", row["cell"])
        if found and "ms" in row and row["table"] in ("peers", "heads"):
            d, n, mask = found.groups()
            name, e = ("naive" if mask == "full" else mask), 128 if d == "192" else d
            case = f"{name}:D={d},E={e},N={n}"
            shapes[case] = row["cell"], row["ms"]["tilec"] / 1e3
    ratios = list[float]()
    for case, (cell, took) in shapes.items():
        said = predictor(case, "bf16", roof)({})["predicted"]
        ratios.append(said / took)
        print(
            f"{cell:24} measured {took * 1e3:6.3f} ms, predicted {said * 1e3:6.3f} ms: {ratios[-1]:.2f}"
        )
    near = sum(abs(x - 1) <= 0.1 for x in ratios)
    print(f"{near} of {len(ratios)} within 10 %, from {min(ratios):.2f} to {max(ratios):.2f}")


def on_gpu(a: argparse.Namespace) -> None:
    """Runs the cases of a GPU."""
    import json

    for text in a.cases:
        rows = gpu_report(text, gpu_case(text, a.dtype, a.budget, a.jobs))
        with open(a.out, "a", encoding="utf-8") as file:
            file.writelines(json.dumps(row) + "\n" for row in rows)


def main() -> None:
    """Runs all cases."""
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    p.add_argument("--rounds", type=int, default=7)
    p.add_argument("--threads", type=int, default=1)
    p.add_argument("--target", choices=("cpu", "cuda"), default="cpu")
    p.add_argument("--cases", nargs="+", default=["causal:D=128,N=4096"])
    p.add_argument("--dtype", default="bf16")
    p.add_argument("--budget", type=float, default=150.0)
    p.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    p.add_argument("--out", default=os.path.join(os.environ.get("OUT", "."), "ranks.jsonl"))
    p.add_argument("--measured", metavar="FILE")
    p.add_argument("--beside", metavar="FILE")
    a = p.parse_args()
    if a.beside:
        beside(a.beside)
        return
    if a.measured:
        again(a.measured)
        return
    if a.target == "cuda":
        on_gpu(a)
        return
    os.environ["TILEC_NUM_THREADS"] = str(a.threads)
    found: list[tuple[str, int, dict[tuple[int, int], tuple[float, float]]]] = []
    for name, sizes in CASES:
        result = case(name, dict(sizes), a.rounds, a.threads)
        predicted, measured = zip(*result.values(), strict=True)
        pick = min(result, key=lambda at: result[at][0])
        best = min(result, key=lambda at: result[at][1])
        print(
            f"{name:8} {sizes.get('N', 512):5} correlation {spearman(predicted, measured):.2f}  "
            f"picks i={pick[0]} j={pick[1]}, "
            f"{result[pick][1] / result[best][1] - 1:.1%} slower than i={best[0]} j={best[1]} "
            f"({result[best][1] * 1e3:.3f} ms)",
            flush=True,
        )
        found.append((name, sizes.get("N", 512), result))
    print("\nthe best extents of one length, used at another")
    for (name, n, first), (other, m, second) in itertools.permutations(found, 2):
        if name == other:
            best = min(first, key=lambda at: first[at][1])
            loss = second[best][1] / min(t for _, t in second.values()) - 1
            print(f"{name:8} tuned for {n:5}, run at {m:5}: {loss:.1%} slower than its own best")


if __name__ == "__main__":
    main()
