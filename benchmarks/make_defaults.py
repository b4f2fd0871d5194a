"""Searches schedules for common problems on this machine, and writes what beats the rule to the package.

    python benchmarks/make_defaults.py [--target cuda] [--dtype bf16] [--budget 20] [--only causal:4096]

An entry must be GAIN times as fast as the rule's schedule. What was searched is written down as evidence either way; earlier
entries of the same problem on this kind of machine are replaced.
"""

from __future__ import annotations

import argparse
import dataclasses
import datetime
import json
import os
import shlex
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))
FILE = ROOT / "tilec" / "tuning" / "shipped.json"
GAIN = 1.03
CASES: dict[str, tuple[tuple[str, dict[str, int]], ...]] = {
    "cpu": tuple(
        (name, {"B": 1, "H": 4, "M": n, "N": n, "D": 64, "E": 64})
        for name in ("causal", "naive")
        for n in (1024, 4096)
    ),
    "cuda": tuple(
        (name, {"B": max(1, 16384 // n), "H": 2048 // d, "M": n, "N": n, "D": d, "E": d})
        for d in (64, 128, 256)
        for n in (1024, 4096, 16384)
        for name in ("causal", "naive")
    ),
}


def search(name: str, sizes: dict[str, int], target: str, dtype: Any, budget: float) -> Any:
    """The leaderboard of a problem."""
    import tilec
    from tilec import gpu

    kernel = tilec.load(ROOT / "examples" / f"{name}.tile", target=target)
    data = kernel.sample(dtype=dtype, **{d: sizes[d] for d in kernel.dims})
    data = gpu.send(data) if target != "cpu" else data
    return kernel.tune(**data, budget=budget, jobs=os.cpu_count() or 1)


def found(name: str, board: Any) -> str:
    """An outcome in words."""
    best, default = board.time(board.best), board.time(board.default)
    others = [board.time(e) for e in board.measured if e is not board.default]
    near = f", the fastest of {len(others)} others {min(others) * 1e6:.0f} us" if others else ""
    return (
        f"{name} {board.key.sizes} ({board.key.types}): the rule's schedule takes {default * 1e6:.0f} us{near}; "
        f"{'shipped: ' + str(board.best.choice) if default > GAIN * best else 'the rule stays'}"
        f"{'' if board.complete else ' (not all were tried)'}"
    )


def main() -> None:
    """Searches, and writes the file."""
    from tilec.tuning import store
    from tilec.tuning.key import kind, machine

    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    p.add_argument("--target", choices=tuple(CASES), default="cpu")
    p.add_argument("--dtype", default="f32")
    p.add_argument("--budget", type=float, default=20.0)
    p.add_argument("--only", default="")
    p.add_argument("--out", default=str(FILE))
    a = p.parse_args()
    own = kind(a.target)
    data = json.loads(FILE.read_text(encoding="utf-8"))
    winners = list(store.imported(FILE.read_text("utf-8"), FILE.name))
    about = {
        "target": own,
        "machine": machine(a.target),
        "date": datetime.date.today().isoformat(),
        "command": shlex.join(["python", "benchmarks/make_defaults.py", *sys.argv[1:]]),
    }
    for name, sizes in CASES[a.target]:
        if a.only not in f"{name}:{sizes['N']}":
            continue
        board = search(name, sizes, a.target, a.dtype, a.budget)
        said, key = found(name, board), dataclasses.replace(board.key, target=own)
        print(said, flush=True)
        problem = said.partition("): ")[0]
        kept = [
            e
            for e in data["evidence"]
            if (e["target"], e["found"].partition("): ")[0]) != (own, problem)
        ]
        data["evidence"] = [*kept, about | {"found": said}]
        winners = [w for w in winners if w.key.digest != key.digest]
        gain = 1 / board.best.relative
        if gain > GAIN:
            at = datetime.datetime.now().timestamp()
            winners.append(store.Winner(key, board.best.choice, board.time(board.best), gain, at))
    data["winners"] = json.loads(store.exported(winners))["winners"]
    Path(a.out).write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
