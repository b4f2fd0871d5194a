"""Attention on the CPU beside PyTorch and beside itself, in alternating runs.

    python benchmarks/cpu_sdpa.py [--table sdpa,threads,heads,strided,decode,variants] [--sizes 512,2048] [--dims 64,128]
        [--dtypes f32,bf16] [--heads 2] [--threads 1] [--quick] [--json FILE]

Prints for each case the time, how many times faster than what stands beside it (above 1: tilec is faster; `near`, `dense`
and `full` are tilec itself at the nearest power of two, on dense arrays, and without mask: there the rates per block are
compared), the share of the machine's peak, which is the rate of a loop of fused multiply-adds in the same rounds, and the
error against float64. Only what the mask lets through counts as work. Times are the thread's own where one thread runs.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from benchmarks.cpu.cases import TABLES, Case, Choice, cases
from benchmarks.gpu import record

BUDGET, QUICK = 3.0, 0.6
"""Seconds for the rounds of a case."""


def options() -> argparse.ArgumentParser:
    """The command line."""
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    help = "\n".join(f"{name}: {what}" for name, what in TABLES.items())
    p.add_argument("--table", default="sdpa", help=help)
    p.add_argument("--sizes", default="512,2048")
    p.add_argument("--dims", default="64,128")
    p.add_argument("--dtypes", default="f32")
    p.add_argument("--kinds", default="", help="of attention, all of a table unless given")
    p.add_argument("--heads", type=int, default=2)
    p.add_argument("--threads", type=int, default=1)
    p.add_argument("--quick", action="store_true", help="fewer rounds")
    p.add_argument("--json", metavar="FILE", help="append the figures as JSON lines")
    return p


def choice(a: argparse.Namespace) -> Choice:
    """What is asked for."""

    def numbers(text: str) -> tuple[int, ...]:
        return tuple(map(int, text.split(",")))

    return Choice(
        numbers(a.sizes),
        numbers(a.dims),
        tuple(a.dtypes.split(",")),
        tuple(filter(None, a.kinds.split(","))),
        a.heads,
        a.threads,
    )


def line(case: Case, row: dict[str, Any]) -> str:
    """A case as a line."""
    ms = "  ".join(f"{n} {x:8.2f} ms" for n, x in row["ms"].items())
    ratios = "  ".join(f"{n} x{x:.2f}" for n, x in row["ratio"].items())
    peak, error = 100 * row["of_peak"], row["error"]["tilec"]
    rates = row.get("GB/s")
    share = f"{peak:3.0f} %"
    if rates:
        parts = [100 * rates["tilec"] / rates[n] for n in ("read", "abreast")]
        share = f"{rates['tilec']:.1f} GB/s, {parts[0]:.0f} % of reading, {parts[1]:.0f} % in four places"
    return f"{case!s:28s} {ms}   {ratios}   {share}   error {error:.1e}"


def kept(case: Case, row: dict[str, Any]) -> dict[str, Any]:
    """A case as it is kept: what it is, its figures, and the circumstances."""
    import torch

    from tilec.backends.cpu import jit

    c = case.cell
    return {
        "table": c.table,
        "mask": c.kind,
        "dtype": c.dtype,
        "D": c.d,
        "N": c.n,
        "heads": c.h,
        "key heads": c.heads,
        "threads": case.threads,
        **{k: _rounded(x) for k, x in row.items()},
        "date": time.strftime("%Y-%m-%d"),
        "cpu": jit.host().cpu,
        "torch": torch.__version__,
        "commit": record.said("git", "rev-parse", "--short", "HEAD"),
        "command": record.command(sys.argv),
    }


def _rounded(x: Any) -> Any:
    return {n: _rounded(y) for n, y in x.items()} if isinstance(x, dict) else float(f"{x:.4g}")


def main() -> None:
    """Measures the cases that the command line asks for."""
    a = options().parse_args()
    if unknown := set(a.table.split(",")) - set(TABLES):
        sys.exit(f"no table {', '.join(unknown)}: there are {', '.join(TABLES)}")
    os.environ["TILEC_NUM_THREADS"] = str(a.threads)
    from benchmarks.cpu.measure import measure

    for table in a.table.split(","):
        print(f"{table}: {TABLES[table]}")
        for case in cases(table, choice(a)):
            row = measure(case, QUICK if a.quick else BUDGET)
            print(line(case, row), flush=True)
            if a.json:
                record.write(Path(a.json), kept(case, row))


if __name__ == "__main__":
    main()
