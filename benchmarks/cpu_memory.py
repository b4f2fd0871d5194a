"""The memory that a call on the CPU takes beyond its arrays: the most that the process ever held during it.

    python benchmarks/cpu_memory.py [--size 65536] [--only causal] [--limit 16] [--json FILE]

Each case is a process of its own, on Linux. It makes the arrays and makes the kernel ready by a small call; then it has the
system forget the most that it has held, calls, and asks again. `stated` is what the kernel says it needs: the scratch
memory of all threads, which is partly there from the small call, and the tensors between its grids. Exit status 1 where a
call took more than `--limit` MiB.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from benchmarks.gpu import record


@dataclass(frozen=True)
class Case:
    """An example on arrays of some sizes. `rows`: of queries, as many as keys unless given."""

    program: str = "naive"
    dtype: str = "float32"
    rows: int | None = None
    heads: int = 1
    dim: int = 64
    strided: bool = False


CASES = {
    "full f32": Case(),
    "full bf16": Case(dtype="bfloat16"),
    "full f32 D=256": Case(rows=8192, dim=256),
    "causal f32": Case("causal"),
    "causal f16": Case("causal", "float16"),
    "few rows, keys in pieces": Case(rows=128),
    "decode": Case("causal", rows=1, heads=8),
    "decode bf16": Case("causal", "bfloat16", rows=1, heads=8),
    "documents f32": Case("document"),
    "heads side by side": Case("causal", rows=16384, heads=4, strided=True),
}


def options() -> argparse.ArgumentParser:
    """The command line."""
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    p.add_argument("--size", type=int, default=65536, help="keys")
    p.add_argument("--only", default="", help="a word of the names of cases")
    p.add_argument("--limit", type=float, default=16, help="MiB")
    p.add_argument("--json", metavar="FILE", help="append the figures as JSON lines")
    p.add_argument("--case", help=argparse.SUPPRESS)
    return p


def arrays(case: Case, n: int) -> list[Any]:
    """The arguments of a call with n keys."""
    import ml_dtypes
    import numpy as np

    kind: Any = getattr(np, case.dtype, None) or getattr(ml_dtypes, case.dtype)
    rng = np.random.default_rng(1)

    def tensor(length: int) -> Any:
        order = (0, 2, 1, 3) if case.strided else (0, 1, 2, 3)
        shape = [(1, case.heads, length, case.dim)[k] for k in order]
        made = np.empty(shape, kind)
        for part in np.array_split(made.reshape(-1), 64):
            part[...] = rng.standard_normal(part.shape, np.float32)
        return made.transpose(order)

    out = [tensor(case.rows or n), tensor(n), tensor(n)]
    if case.program == "document":
        out.append(np.sort(rng.integers(0, 8, (1, n))).astype(np.int32))
    return out


def held() -> int:
    """The most bytes that this process has held since it last forgot."""
    status = Path("/proc/self/status").read_text()
    return 1024 * next(int(x.split()[1]) for x in status.split("\n") if x.startswith("VmHWM"))


def forget() -> None:
    """What has been the most until now is no longer."""
    Path("/proc/self/clear_refs").write_text("5")


def figures(case: Case, n: int) -> dict[str, float]:
    """What a case takes: bytes beyond the arrays, as stated and as seen, and seconds."""
    import numpy as np

    import tilec
    from tilec.arrays import numpy_dtype, view
    from tilec.backends.cpu.target import Executable

    kernel = tilec.load(ROOT / "examples" / f"{case.program}.tile", target="cpu")
    kernel(*arrays(replace(case, rows=case.rows and min(case.rows, 300)), 300))
    given = arrays(case, n)
    plan = kernel.plan(*given)
    # not zeros, whose memory the system gives when they are written
    out = [np.ones(o.shape, numpy_dtype(o.dtype)) for o in plan.outputs]
    assert isinstance(plan.run, Executable)
    views = {n: view(n, x) for n, x in zip(plan.ir.tensors, given, strict=True)}
    results = {o.name: view(o.name, x) for o, x in zip(plan.outputs, out, strict=True)}
    stated = plan.run.memory(views, {}, results)
    forget()
    before, begun = held(), time.perf_counter()
    kernel(*given, out=tuple(out) if len(out) > 1 else out[0])
    seconds = time.perf_counter() - begun
    seen = held() - before
    assert all(np.isfinite(x.astype(np.float32)).all() for x in out)
    return {"stated": stated, "seen": seen, "seconds": seconds}


def main() -> int:
    """Runs the cases, each in a process of its own."""
    args = options().parse_args()
    if args.case:
        print(json.dumps(figures(CASES[args.case], args.size)))
        return 0
    found = [over(name, args) for name in CASES if args.only in name]
    return int(any(found))


def over(name: str, args: argparse.Namespace) -> bool:
    """Reports on a case; whether it took too much."""
    command: Sequence[str] = (sys.executable, __file__, "--case", name, "--size", str(args.size))
    row = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    stated, seen = (row[k] / (1 << 20) for k in ("stated", "seen"))
    print(f"{name:26s} stated {stated:6.2f} MiB  seen {seen:6.2f} MiB  {row['seconds']:6.2f} s", flush=True)  # fmt: skip
    if args.json:
        about = {"case": name, "N": args.size, "date": time.strftime("%Y-%m-%d")}
        about["commit"] = record.said("git", "rev-parse", "--short", "HEAD")
        record.write(Path(args.json), {**about, **row, "command": record.command(sys.argv)})
    return seen > args.limit


if __name__ == "__main__":
    sys.exit(main())
