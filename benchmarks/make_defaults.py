"""Searches schedules for common problems on this machine, by the tuner, and makes of what it found the file that is shipped.

    python benchmarks/make_defaults.py [--target cuda] [--seconds 190] [--budget 16] [--only causal] [--out defaults.jsonl]
    python benchmarks/make_defaults.py --merge defaults.jsonl

The first writes a line of JSON per problem, at once: what the rule chooses, written out, and the time of every candidate.
The second puts these into `tilec/tuning/shipped.json`, in place of earlier entries of the same problems: the schedule that
beats the rule's by GAIN, twice, if there is one.
"""

from __future__ import annotations

import argparse
import datetime
import itertools
import json
import os
import shlex
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tilec.tuning.board import Entry, Leaderboard

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))
FILE = ROOT / "tilec" / "tuning" / "shipped.json"
GAIN = 1.03
"""How many times faster than the rule's schedule another must be, in each of two searches."""
LEAST = 12.0
"""Seconds that a search takes at least: none begins with fewer left."""
WIDE = {
    64: "warpgroups=2,3,4 columns=64,96,128 store=tma,direct",
    128: "warpgroups=2,3 columns=64,80,96,112,128 store=tma,direct",
    256: "warpgroups=2 columns=48,64,80 stages=2,3 store=tma,direct",
}
"""What is tried on Hopper, by the head size: what else there is does not fit, or differs little."""
ON_CPU = "i=32,64,128,256 j=32,64,128,256,512"
NARROW = "columns=32,64,128 stages=2,3,4,6"
"""The same for a single query, which waits for memory."""


@dataclass(frozen=True)
class Case:
    """A problem: an example, its sizes, the scalars of its call. `free`: the dimensions that only say how many tiles there
    are alike: where there are more, its schedule does as well."""

    example: str
    sizes: dict[str, int]
    dtype: str
    space: str | None = None
    scalars: dict[str, Any] | None = None
    free: tuple[str, ...] = ("B", "H")

    def __str__(self) -> str:
        said = ",".join(f"{n}={x}" for n, x in self.sizes.items())
        return f"{self.example} {self.dtype} {said}"


def on_gpu() -> Iterator[Case]:
    """The problems for a GPU, the most common ones first: 16384 positions in all, 2048 columns of all heads."""
    plain = [
        ("causal", 128, 4096),
        ("causal", 64, 4096),
        ("causal", 128, 16384),
        ("naive", 128, 4096),
        ("causal", 128, 1024),
        ("causal", 256, 4096),
        ("naive", 64, 4096),
        ("causal", 64, 1024),
        ("naive", 128, 1024),
        ("causal", 64, 16384),
        ("naive", 128, 16384),
        ("naive", 256, 4096),
        ("naive", 64, 1024),
    ]
    cases = [Case(name, square(d, n), "bf16", WIDE[d]) for name, d, n in plain]
    gemma = square(128, 4096) | {"HK": 8}
    window = Case("gemma2", gemma, "bf16", WIDE[128], {"window": 1024}, ("B", "H", "HK"))
    pages = {"B": 8, "H": 32, "HK": 8, "M": 1, "NP": 4096, "P": 16, "MP": 512, "D": 128, "E": 128}
    decode = Case("paged", pages, "bf16", NARROW, free=("B", "NP"))
    yield from (*cases[:4], decode, window, *cases[4:])


def square(d: int, n: int) -> dict[str, int]:
    """As many queries as keys."""
    return {"B": max(1, 16384 // n), "H": 2048 // d, "M": n, "N": n, "D": d, "E": d}


def on_cpu() -> Iterator[Case]:
    """The problems for a CPU."""
    for n in (1024, 4096):
        for dtype in ("f32", "bf16"):
            for name in ("causal", "naive"):
                for d in (64, 128):
                    sizes = {"B": 1, "H": 512 // d, "M": n, "N": n, "D": d, "E": d}
                    yield Case(name, sizes, dtype, ON_CPU, free=())


# ---- searching


def drawn(kernel: Any, case: Case) -> dict[str, Any]:
    """The arguments of a case. Sequences and heads share their random numbers: drawing others for each takes longer than
    a search."""
    import numpy

    one = {
        d: 1 if d in case.free and "page" not in kernel.text else x for d, x in case.sizes.items()
    }
    data = kernel.sample(dtype=case.dtype, **{d: one[d] for d in kernel.dims})
    for p in kernel.parameters:
        if p.dims is not None:
            times = [case.sizes[d] // one[d] if d in one else 1 for d in p.dims]
            data[p.name] = numpy.tile(data[p.name], times)
    if case.example == "paged":
        data["len"][...] = case.sizes["MP"] * case.sizes["P"]
    return data


def ahead(cases: list[Case], target: str) -> None:
    """Compiles all candidates of all cases into the cache on disk, side by side."""
    jobs = [(c, target, point) for c in cases for point in points(c)]
    start = time.monotonic()
    with ProcessPoolExecutor(os.cpu_count() or 1) as pool:
        made = sum(pool.map(built, jobs))
    print(f"# {made} of {len(jobs)} made in {time.monotonic() - start:.0f} s", flush=True)


def points(case: Case) -> list[dict[str, Any]]:
    """The candidates of a case, the rule's first."""
    fields = [part.partition("=") for part in (case.space or "").split()]
    values = [[int(x) if x.isdigit() else x for x in xs.split(",")] for _, _, xs in fields]
    return [
        {},
        *(
            dict(zip((n for n, _, _ in fields), xs, strict=True))
            for xs in itertools.product(*values)
        ),
    ]


def built(job: tuple[Case, str, dict[str, Any]]) -> bool:
    """Compiles a candidate; whether there is one that fits."""
    import tilec
    from tilec import backend
    from tilec.errors import TilecError

    case, target, point = job
    kernel = tilec.load(ROOT / "examples" / f"{case.example}.tile", target=target)
    stages, known = in_tiles(kernel, case)
    try:
        backend.prepare(stages["place"], target, point, (stages["online"], known))
    except TilecError:
        return False
    return True


def searched(case: Case, target: str, budget: float) -> dict[str, Any]:
    """What a search found, as a line of JSON."""
    import tilec
    from tilec import gpu
    from tilec.backend import threads
    from tilec.tuning.key import compiler, kind

    kernel = tilec.load(ROOT / "examples" / f"{case.example}.tile", target=target)
    data = drawn(kernel, case)
    data = data if target == "cpu" else gpu.send(data)
    data |= case.scalars or {}
    jobs = (os.cpu_count() or 1) if target == "cpu" else 0  # a GPU's are compiled ahead
    board = kernel.tune(**data, budget=budget, space=case.space, jobs=jobs)
    gain = 1 / board.best.relative
    if gain > GAIN:  # once more, by itself
        text = " ".join(f"{n}={x}" for n, x in parts(choice(board.best.choice)).items())
        again = kernel.tune(**data, budget=budget, space=text, jobs=jobs)
        gain = min(gain, max(1 / e.relative for e in again.measured))
    return {
        "example": case.example,
        "dtype": case.dtype,
        "sizes": case.sizes,
        "scalars": case.scalars or {},
        "free": case.free,
        "target": kind(target),
        "threads": threads(target),
        "machine": machine_name(target),
        "date": datetime.date.today().isoformat(),
        "command": shlex.join(["python", "benchmarks/make_defaults.py", *sys.argv[1:]]),
        "compiler": compiler(target),
        "rule": choice(rule(kernel, case, target)),
        "best": choice(board.best.choice),
        "gain": gain,
        "complete": board.complete,
        "candidates": [candidate(board, e) for e in board.entries],
    }


def rule(kernel: Any, case: Case, target: str) -> Any:
    """What is taken for a case without a search, written out."""
    from tilec.tuning import space

    known, scalars = kernel.environment({d: case.sizes[d] for d in kernel.dims}, case.scalars)
    online = dict(kernel.stages(dtype=case.dtype, sizes=known))["online"]
    return space.by_rule(online, known, scalars, target)


def in_tiles(kernel: Any, case: Case) -> tuple[dict[str, Any], dict[str, int]]:
    """A kernel after each pass, and the sizes of a case."""
    known, _ = kernel.environment({d: case.sizes[d] for d in kernel.dims})
    return dict(kernel.stages(dtype=case.dtype, sizes=known)), known


def parts(x: dict[str, Any]) -> dict[str, Any]:
    """The extents and fields of a choice."""
    return {**x["tile"], **x["schedule"]}


def choice(x: Any) -> dict[str, Any]:
    """A choice as data."""
    return {"tile": dict(x.tile), "schedule": dict(x.schedule)}


def candidate(board: Leaderboard, e: Entry) -> dict[str, Any]:
    """What became of a candidate."""
    known = e.state == "measured"
    return {
        "choice": parts(choice(e.choice)),
        "state": e.state,
        "predicted": e.predicted,
        "seconds": board.time(e) if known else None,
        "raw": e.seconds if known else None,
        "note": e.note,
    }


def machine_name(target: str) -> str:
    """The machine, for people."""
    from tilec.tuning.key import machine

    if target == "cpu":
        return machine(target).rpartition(" ")[0].rpartition(" ")[0]
    from tilec.backends.cuda import launch

    props: Any = launch.cupy().cuda.runtime.getDeviceProperties(0)
    return props["name"].decode()


def said(row: dict[str, Any]) -> str:
    """An outcome in a line."""
    times = {json.dumps(c["choice"]): c["seconds"] for c in row["candidates"] if c["seconds"]}
    rule = times.get("{}", float("nan"))
    others = sorted((t, n) for n, t in times.items() if n != "{}")
    near = f"; of {len(others)} others {others[0][0] * 1e6:.0f} us {others[0][1]}" if others else ""
    missing = "" if row["complete"] else "; not all were tried"
    return f"the rule's {row['rule']} {rule * 1e6:.0f} us{near}; gain {row['gain']:.3f}{missing}"


def search(a: argparse.Namespace) -> None:
    """Searches one problem after the other while there is time."""
    until = time.monotonic() + a.seconds
    cases = [c for c in (on_cpu() if a.target == "cpu" else on_gpu()) if a.only in str(c)]
    cases = cases[a.skip : a.skip + a.most]
    if a.target != "cpu":
        ahead(cases, a.target)
    for n, case in enumerate(cases, a.skip):
        left = until - time.monotonic()
        if left < LEAST:
            print(f"# no time for the rest: --skip {n}", flush=True)
            break
        start = time.monotonic()
        try:
            row = searched(case, a.target, min(a.budget, left))
        except Exception as e:
            print(f"# {n} {case}: {type(e).__name__}: {e}", flush=True)
            continue
        with open(a.out, "a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")
        print(f"# {n} {case}, {time.monotonic() - start:.0f} s: {said(row)}", flush=True)


# ---- shipping


def merged(files: list[str]) -> None:
    """Puts what searches found into the file that is shipped."""
    from tilec.tuning import shipped

    old = json.loads(FILE.read_text(encoding="utf-8"))["entries"]
    lines = [x for f in files for x in Path(f).read_text(encoding="utf-8").splitlines()]
    entries = {which(e): e for e in [*old, *(entry(json.loads(x)) for x in lines)]}
    found = [e for _, e in sorted(entries.items())]
    for e in found:
        shipped.entry(e)
    text = json.dumps({"format": shipped.FORMAT, "entries": found}, indent=1)
    FILE.write_text(text + "\n", encoding="utf-8")
    print(
        f"{len(found)} entries, {sum(e['gain'] > 1 for e in found)} of them faster than the rule's"
    )


def which(e: dict[str, Any]) -> tuple[str, ...]:
    """What tells an entry from others."""
    sizes = ",".join(f"{d}={x}" for d, x in e["sizes"].items() if d not in e["free"])
    return e["target"], e["example"], e["dtype"], sizes


def entry(row: dict[str, Any]) -> dict[str, Any]:
    """A search as an entry of the file. Where the rule has changed since, it is the candidate that the rule now is."""
    import tilec
    from tilec.tuning import shipped, space

    target = "cpu" if row["target"].startswith("cpu") else row["target"]
    kernel = tilec.load(ROOT / "examples" / f"{row['example']}.tile", target=target)
    known, scalars = kernel.environment({d: row["sizes"][d] for d in kernel.dims}, row["scalars"])
    stages = dict(kernel.stages(dtype=row["dtype"], sizes=known))
    ir = stages["lower"]
    rule = choice(
        space.by_rule(stages["online"], known, scalars, target, row["threads"], compiling=False)
    )
    times = [(c["seconds"], c["choice"]) for c in row["candidates"] if c["seconds"]]
    then, now = time_of(times, {}), time_of(times, {} if rule == row["rule"] else parts(rule))
    gain = row["gain"] * now / then
    won = gain > GAIN
    seconds = time_of(times, parts(row["best"])) if won else now
    kept = ("example", "dtype", "sizes", "free", "target", "threads")
    made = ("machine", "date", "command", "compiler", "complete")
    return {n: row[n] for n in (*kept, *made)} | {
        "program": shipped.program(ir),
        "dims": ir.dims,
        "axes": tuple(ir.extents),
        "choice": {n: rule[n] | row["best"][n] for n in rule} if won else None,
        "rule": rule,
        "seconds": seconds,
        "gain": gain if won else 1.0,
        "tried": len(times),
    }


def time_of(times: list[tuple[float, dict[str, Any]]], fields: dict[str, Any]) -> float:
    """The seconds of a candidate."""
    for seconds, found in times:
        if found == fields:
            return seconds
    raise SystemExit(f"the rule is now {fields}, which the search did not time: search again")


def main() -> None:
    """Searches, or writes the file that is shipped."""
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    p.add_argument("--target", choices=("cpu", "cuda"), default="cpu")
    p.add_argument("--seconds", type=float, default=190.0)
    p.add_argument("--budget", type=float, default=16.0)
    p.add_argument("--only", default="")
    p.add_argument("--skip", type=int, default=0)
    p.add_argument("--most", type=int, default=10)
    p.add_argument("--out", default=os.path.join(os.environ.get("OUT", "."), "defaults.jsonl"))
    p.add_argument("--merge", nargs="+", metavar="FILE")
    a = p.parse_args()
    if a.merge:
        merged(a.merge)
    else:
        search(a)


if __name__ == "__main__":
    main()
