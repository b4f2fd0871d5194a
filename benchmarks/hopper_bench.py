"""tilec's CUDA kernels against float64, then timed beside what else there is, in one process.

    python benchmarks/hopper_bench.py [--table peers,variants] [--cells D128,causal] [--dtype f16] [--quick] [--out X.jsonl]

Each timed cell alternates the candidates, idling 0.1 s before each burst, and reports medians. Calls are those of a user,
on given outputs; they are handed over while the device is held up, so that the times are the device's. A peer that fails is
left out and said. The work runs in a child process under a watchdog: what hangs or crashes costs some seconds and is
skipped. Kernels are compiled first, in parallel.
"""

from __future__ import annotations

import argparse
import json
import os
import pickle
import secrets
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks.gpu import build, measure, record, tables, watchdog
from benchmarks.gpu.cells import TABLES, Cell, cells

LOST = 3
"""The exit status of a child whose device answers no more."""


def options() -> argparse.ArgumentParser:
    """The command line."""
    about = "\n".join(f"  {n:10s}{x}" for n, x in TABLES.items())
    parser = argparse.ArgumentParser(
        description=f"{__doc__}\ntables:\n{about}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--table",
        default="peers",
        help="with commas (default: peers); 64:8192 is one head size and length",
    )
    parser.add_argument("--cells", help="words of the names of cells, such as D128,causal")
    parser.add_argument("--dtype", default="bf16", choices=("bf16", "f16"))
    parser.add_argument(
        "--with",
        dest="schedules",
        action="append",
        default=[],
        help="another schedule beside the default one, such as columns=64,relax=false",
    )
    parser.add_argument(
        "--quick", action="store_true", help="two rounds, and no peers that compile"
    )
    parser.add_argument("--seed", type=int, help="of the random data (default: another each time)")
    where = Path(os.environ.get("OUT", "."), "hopper_bench.jsonl")
    parser.add_argument("--out", type=Path, default=where, help=f"(default: {where})")
    parser.add_argument("--compile-only", action="store_true", help="no GPU is needed")
    for hidden in record.OWN:
        parser.add_argument(hidden, help=argparse.SUPPRESS)
    return parser


def chosen(args: argparse.Namespace) -> list[Cell]:
    """The cells that are asked for."""
    names = args.table.split(",")
    unknown = [n for n in names if n not in TABLES and ":" not in n]
    if unknown:
        raise SystemExit(f"no table is called {unknown[0]!r}; there are {', '.join(TABLES)}")
    return cells(names, args.dtype, args.cells)


def main(argv: Sequence[str] | None = None) -> int:
    args = options().parse_args(argv)
    if args.worker:
        return worker(args)
    wanted = chosen(args)
    made = compiled(wanted, args.schedules)
    if args.compile_only:
        return 0
    with tempfile.TemporaryDirectory(prefix="hopper_bench_") as folder:
        built = Path(folder, "built")
        seed = secrets.randbelow(1 << 30) if args.seed is None else args.seed
        built.write_bytes(pickle.dumps((made, seed)))
        return supervised(args, wanted, Path(folder), built)


def compiled(wanted: Sequence[Cell], schedules: Sequence[str]) -> dict[str, dict[str, build.Built]]:
    """By cell and candidate: the kernels, compiled into the cache."""
    out: dict[str, dict[str, build.Built]] = {c.key: {} for c in wanted}
    begun = time.time()
    for c, name, built in build.ahead(wanted, ["", *schedules]):
        out[c.key][name] = built
        print("BUILD", c.key, name, "FAILED" if built.failed else "", built.said, flush=True)
    print(f"# built in {time.time() - begun:.0f} s", flush=True)
    return out


def supervised(args: argparse.Namespace, wanted: list[Cell], folder: Path, built: Path) -> int:
    """Measures in child processes, then prints the tables."""
    progress, skip = folder / "progress", folder / "skip"
    before = len(record.read(args.out))

    def command(skipped: Sequence[str]) -> list[str]:
        done = [r["key"] for r in record.read(args.out)[before:]]
        skip.write_text(json.dumps([*skipped, *done]))
        own = ["--worker=1", f"--built={built}", f"--skip={skip}", f"--progress={progress}"]
        return [sys.executable, os.path.abspath(__file__), *sys.argv[1:], *own]

    skipped = watchdog.run(command, progress)
    rows = {r["key"]: r for r in record.read(args.out)[before:]}
    print(tables.show(wanted, rows))
    lost = [c.key for c in wanted if c.key not in rows]
    for name in (*skipped, *lost):
        print("# not measured:", name)
    return 1 if lost else 0


def worker(args: argparse.Namespace) -> int:
    """Everything that touches the device; a line of JSON as soon as a cell is done."""
    import torch

    progress = watchdog.Progress(Path(args.progress))
    skip = frozenset(json.loads(Path(args.skip).read_text()))
    made, seed = pickle.loads(Path(args.built).read_bytes())
    bench = measure.Bench(progress, skip, seed, 2 if args.quick else 3, args.quick)
    common = {"seed": seed, **record.circumstances()}
    kinds = {"errors": measure.errors, "bits": measure.bits}
    for cell in chosen(args):
        if cell.key in skip:
            continue
        begun = time.time()
        try:
            row = kinds.get(cell.table, measure.times)(bench, cell, made[cell.key])
        except measure.DeviceLost as e:
            progress.say(f"# {cell.key}: the device is lost: {e}")
            return LOST
        except torch.OutOfMemoryError as e:
            row = {"failed": {"tilec": f"out of memory: {e}"[:200]}}
        line = {"key": cell.key, "cell": cell.name, "table": cell.table, "unit": cell.unit}
        record.write(args.out, {**line, **row, **common})
        progress.say(f"{cell.key}: {time.time() - begun:.1f} s", _brief(row))
        torch.cuda.empty_cache()
    return 0


def _brief(row: measure.Row) -> str:
    return "  ".join(f"{n} {row[n]:.0f}" for n in row.get("ms", {}))


if __name__ == "__main__":
    sys.exit(main())
