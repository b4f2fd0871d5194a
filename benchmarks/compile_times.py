"""How long NVRTC takes for the kernels of each program, how much code they are, and how many it saw before one fitted.

    python benchmarks/compile_times.py [--targets cuda:sm_90a,cuda:sm_80] [--only chunks] [--cases FOLDER] [--least 2]
    python benchmarks/compile_times.py --targets cpu --dtype f32,bf16 --least 0.3

Needs NVRTC and no GPU; for the CPU, what a call without and one with its code in the cache spend before they run. Each
program is compiled as by its first call: what its default emitter makes, every schedule that turned out not to fit, and the
exact kernel that stands behind a fast one. Seconds are those of the process, so that other work on the machine hardly
counts. Prints a line per compiled text and adds the same as JSON to `--out`; exit status 1 where
one took longer than `--least`.
"""

from __future__ import annotations

import argparse
import importlib
import os
import re
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks.gpu import record


@dataclass(frozen=True)
class Program:
    """A program, and what it is compiled for."""

    name: str
    text: str
    kernel: str | None
    dtype: str
    sizes: Mapping[str, int] = field(default_factory=dict[str, int])


@dataclass(frozen=True)
class Text:
    """A text that NVRTC compiled: of which emitter, how long it took, its machine code in bytes, and what went to memory."""

    kernels: str
    emitter: str
    seconds: float
    bytes: int
    spilled: int


def options() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--targets", default="cuda:sm_90a,cuda:sm_80")
    parser.add_argument("--only", default="", help="words of the names of programs, with commas")
    parser.add_argument("--cases", type=Path, help="a folder of cases, beside the examples")
    parser.add_argument("--dtype", default="f16", help="that of the examples' tensors, or several")
    parser.add_argument("--least", type=float, default=2.0, help="seconds that are too long")
    parser.add_argument("--total", type=float, default=1e9, help="seconds after which none begins")
    where = Path(os.environ.get("OUT", "."), "compile_times.jsonl")
    parser.add_argument("--out", type=Path, default=where, help=f"(default: {where})")
    return parser


def examples(dtype: str) -> Iterator[Program]:
    """The examples, of their own sizes."""
    for p in sorted(ROOT.glob("examples/*.tile")):
        yield Program(p.stem, p.read_text(), None, dtype)


def cases(folder: Path) -> Iterator[Program]:
    """The programs of a folder of cases, of the sizes that these have."""
    import numpy as np

    sys.path.insert(0, str(folder))
    runner, programs, cases = (importlib.import_module(n) for n in ("runner", "programs", "cases"))
    types = {"fp32": "f32", "fp16": "f16", "bf16": "bf16"}
    for id, test in runner.TESTS.items():
        if getattr(test, "error", "") or getattr(test, "big", False):
            continue
        try:
            with np.errstate(all="ignore"):
                if id in runner.CASES:
                    text, given = programs.arguments(test, cases.inputs_for(test))
                    name = programs.USES[id][0]
                else:
                    (given, _), text, name = test.build(), test.text, test.name
        except Exception as e:  # a case that needs what is not installed
            print(f"# {id}: {e}")
            continue
        arrays = {n: x for n, x in given.items() if hasattr(x, "shape")}
        yield Program(id, text, name, types[test.dtype], sizes(text, name, arrays))


def sizes(text: str, name: str, arrays: Mapping[str, Any]) -> dict[str, int]:
    """The dimensions that stand by themselves in a signature."""
    head = re.search(rf"kernel\s+{name}\s*\((.*?)\)\s*->", text, re.DOTALL)
    out: dict[str, int] = {}
    for tensor, dims in re.findall(r"(\w+)\[([^\]]*)\]", head.group(1) if head else ""):
        shape = getattr(arrays.get(tensor), "shape", ())
        out |= {d.strip(): n for d, n in zip(dims.split(","), shape, strict=False)}
    return {d: int(n) for d, n in out.items() if d.isidentifier()}


def compiled(program: Program, target: str) -> list[Text]:
    """All that NVRTC compiles for a first call of a program."""
    import tilec
    from tilec.backends.cuda import nvrtc
    from tilec.backends.cuda.code import compiled as cubins

    texts: list[Text] = []
    plain = nvrtc.compile

    def noting(source: str, arch: str, more: Any = ()) -> nvrtc.Compiled:
        begun = time.process_time()
        made = plain(source, arch, more)
        spent = time.process_time() - begun
        emitter = re.search(r"emitter (\w+)", source)
        spilled = sum(u.spill_stores + u.spill_loads + u.stack for u in made.usage.values())
        kernels = "+".join(made.usage)
        texts.append(Text(kernels, emitter[1] if emitter else "?", spent, len(made.cubin), spilled))
        return made

    with tempfile.TemporaryDirectory(prefix="compile_times_") as folder:
        os.environ["TILEC_CACHE_DIR"] = folder
        nvrtc.compile = noting
        try:
            for schedule in ({}, {"emitter": "simt"}):
                kernel: Any = tilec.compile(
                    program.text, name=program.kernel, target=target, schedule=schedule
                )
                cubins(kernel.gpu_code(dtype=program.dtype, **program.sizes))
        finally:
            nvrtc.compile = plain
    return texts


def main() -> int:
    args = options().parse_args()
    begun, slow, columns = time.monotonic(), 0, "{:14s} {:12s} {:7s} {:>7s} {:>8s} {:>7s} {}"
    heads = ("program", "target", "emitter", "seconds", "bytes", "spilled", "kernels")
    print(columns.format(*heads))
    programs = [p for d in args.dtype.split(",") for p in examples(d)]
    programs += [*(cases(args.cases) if args.cases else ())]
    words = args.only.split(",")
    for program in (p for p in programs if any(w in p.name for w in words)):
        for target in args.targets.split(","):
            if time.monotonic() - begun > args.total:
                return 1
            report = on_cpu if target == "cpu" else reported
            slow += report(program, target, args, columns)
    print(f"{slow} texts took longer than {args.least} s")
    return 1 if slow else 0


def on_cpu(program: Program, target: str, args: argparse.Namespace, columns: str) -> int:
    """Compiles a program for the CPU twice, so that nothing is loaded for the first time, and says where time went."""
    from benchmarks.cpu import compiling

    del columns
    given = (program.text, program.kernel, program.dtype, dict(program.sizes))
    try:
        spent = min((compiling.measure(*given) for _ in range(2)), key=lambda x: x.miss)
    except Exception as e:
        print(f"{program.name:14s} {target:12s} {type(e).__name__}: {e}"[:160], flush=True)
        return 0
    rest = spent.miss - spent.emission - spent.llvm
    parts = f"passes {rest:.3f}, emission {spent.emission:.3f}, LLVM {spent.llvm:.3f}"
    miss = f"miss {spent.miss:.3f} ({parts}, {spent.bytes} bytes)"
    hit = f"hit {spent.hit:.3f} (loading {spent.loading:.4f})"
    print(f"{program.name:14s} {target:12s} {program.dtype:7s} {miss} {hit}", flush=True)
    found = {"program": program.name, "target": target, "dtype": program.dtype, **vars(spent)}
    record.write(args.out, found)
    return spent.miss > args.least


def reported(program: Program, target: str, args: argparse.Namespace, columns: str) -> int:
    """Compiles a program, says what came of it, and how many of its texts took too long."""
    begun = time.process_time()
    try:
        texts = compiled(program, target)
    except Exception as e:
        print(f"{program.name:14s} {target:12s} {type(e).__name__}: {e}"[:160], flush=True)
        return 0
    whole = time.process_time() - begun
    for t in texts:
        figures = (f"{t.seconds:.2f}", str(t.bytes), str(t.spilled))
        print(columns.format(program.name, target, t.emitter, *figures, t.kernels), flush=True)
        record.write(args.out, {"program": program.name, "target": target, **vars(t)})
    compiling = sum(t.seconds for t in texts)
    print(
        f"{program.name:14s} {target:12s} all     {compiling:7.2f}  beside {whole - compiling:.2f} s of Python",
        flush=True,
    )
    return sum(t.seconds > args.least for t in texts)


if __name__ == "__main__":
    sys.exit(main())
