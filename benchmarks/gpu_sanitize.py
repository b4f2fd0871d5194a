"""Runs small calls of every example on the GPU under the tools of compute-sanitizer.

    python benchmarks/gpu_sanitize.py [--targets cuda:sm_90a,cuda:sm_80] [--tools memcheck,racecheck] [--only causal]

Each call runs first as it is: it compiles what it needs into the cache, and its results are held against the interpreter's.
Then it runs under each tool, where its results must have the same bits. Many processes at once; one that takes longer than
`--limit` seconds is ended. Prints a table of what the tools found, then what they said, and adds a line of JSON for each
call and one for all to `--out`; the logs that say something are kept beside it. Exit status 1 unless all is clean.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks.gpu import programs, record, sanitizer
from benchmarks.gpu.sanitizer import Finding

PLAIN = "plain"
SAID = "SAID "
"""What the child's last line begins with; the rest is JSON."""


def options() -> argparse.ArgumentParser:
    """The command line."""
    about = "\n".join(f"  {n:10s} {x}" for n, x in sanitizer.TOOLS.items())
    parser = argparse.ArgumentParser(
        description=f"{__doc__}\ntools:\n{about}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--targets", default="cuda:sm_90a,cuda:sm_80")
    parser.add_argument("--tools", default=",".join(sanitizer.TOOLS))
    parser.add_argument("--only", help="words of the names of calls, with commas")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--limit", type=float, default=60.0, help="seconds for one run")
    parser.add_argument(
        "--total", type=float, default=500.0, help="seconds after which none begins"
    )
    parser.add_argument("--sanitizer", help="the program (default: the one on the PATH)")
    where = Path(os.environ.get("OUT", "."), "gpu_sanitize.jsonl")
    parser.add_argument("--out", type=Path, default=where, help=f"(default: {where})")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    return parser


# ---- one run


@dataclass
class Job:
    """A call on a target, and what came of it: by tool what it found, and the log where it found something."""

    call: programs.Call
    target: str
    emitter: str = ""
    result: str = "not run"
    bits: str = ""
    found: dict[str, Finding] = field(default_factory=dict[str, Finding])
    logs: dict[str, str] = field(default_factory=dict[str, str])

    @property
    def title(self) -> str:
        return f"{self.call.name} {self.target}"


def child(name: str, target: str) -> None:
    """Runs one call, and says what came of it as JSON. Compares with the reference where the tool is `plain`."""
    tool, name = name.split("/", 1)
    call = next(c for c in programs.calls(None) if c.name == name)
    ran = programs.run(call, target)
    said = {"bits": programs.digest(ran.results), "emitter": ran.emitters}
    if tool == PLAIN:
        said["result"] = programs.wrong(ran) or "right"
    print(SAID + json.dumps(said), flush=True)


@dataclass(frozen=True)
class Bench:
    """How runs are made."""

    program: str
    known: str
    folder: Path
    limit: float
    end: float

    def __call__(self, job: Job, tool: str) -> None:
        """Runs a job under a tool, or as it is."""
        if time.monotonic() > self.end:
            job.found[tool] = Finding(problem="not run")
            return
        log = self.folder / (re.sub(r"\W+", "-", f"{job.title} {tool}") + ".log")
        own = [sys.executable, os.path.abspath(__file__), f"--child={tool}/{job.call.name}"]
        front = [] if tool == PLAIN else sanitizer.prefix(self.program, self.known, tool, log)
        said, text = ended([*front, *own, f"--targets={job.target}"], self.limit)
        if tool == PLAIN:
            self.plain(job, said, text)
        else:
            self.under(
                job, tool, said, text, log.read_text(errors="replace") if log.exists() else ""
            )

    @staticmethod
    def plain(job: Job, said: Mapping[str, str] | None, text: str) -> None:
        """Notes what came of a run without a tool."""
        if said is None:
            job.result = _last(text)
            job.logs[PLAIN] = text
            return
        job.result, job.bits, job.emitter = said["result"], said["bits"], said["emitter"]

    @staticmethod
    def under(job: Job, tool: str, said: Mapping[str, str] | None, text: str, log: str) -> None:
        """Notes what a tool found."""
        found = sanitizer.read(log)
        if said is None:
            found = Finding(found.errors, found.warnings, found.said, _last(text))
        elif said["bits"] != job.bits:
            found = Finding(found.errors, found.warnings, found.said, "other bits")
        job.found[tool] = found
        if not found.clean:
            job.logs[tool] = f"{log}\n{text if said is None else ''}"


def _last(text: str) -> str:
    """The last line of what a failed process printed."""
    return (text.strip().splitlines() or ["it printed nothing"])[-1][:200]


def ended(command: Sequence[str], limit: float) -> tuple[dict[str, str] | None, str]:
    """What a process said, None where it failed, and all that it printed. It is ended with all its own after the limit."""
    process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,
    )
    try:
        text, _ = process.communicate(timeout=limit)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        text, _ = process.communicate()
        return None, f"{text}\ntimeout"
    lines = [x for x in text.splitlines() if x.startswith(SAID)]
    return (json.loads(lines[-1][len(SAID) :]) if lines else None), text


# ---- all of them


def main(argv: Sequence[str] | None = None) -> int:
    args = options().parse_args(argv)
    if args.child:
        child(args.child, args.targets)
        return 0
    tools = args.tools.split(",")
    unknown = [t for t in tools if t not in sanitizer.TOOLS]
    if unknown:
        raise SystemExit(
            f"no tool is called {unknown[0]!r}; there are {', '.join(sanitizer.TOOLS)}"
        )
    program = args.sanitizer or sanitizer.find()
    if program is None:
        raise SystemExit("compute-sanitizer is not installed; --sanitizer says where it is")
    jobs = [Job(c, t) for t in args.targets.split(",") for c in programs.calls(args.only)]
    begun = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="gpu_sanitize_") as folder:
        end = begun + args.total
        bench = Bench(program, sanitizer.understood(program), Path(folder), args.limit, end)
        everything(bench, jobs, tools, args.jobs)
    seconds = time.monotonic() - begun
    print(table(jobs, tools), words(jobs), f"# {seconds:.0f} s", sep="\n")
    keep(args.out, jobs, tools, {"sanitizer": version(program), "seconds": round(seconds)})
    return 0 if all(clean(j, tools) for j in jobs) else 1


def everything(bench: Bench, jobs: Sequence[Job], tools: Iterable[str], processes: int) -> None:
    """Runs all jobs as they are, then those that ended under each tool."""
    with ThreadPoolExecutor(processes) as pool:
        list(pool.map(bench, jobs, itertools.repeat(PLAIN)))
        ready = [j for j in jobs if j.bits]
        print(f"# {len(ready)} of {len(jobs)} calls ran; each tool follows", flush=True)
        for tool in tools:
            list(pool.map(bench, ready, itertools.repeat(tool)))


def clean(job: Job, tools: Sequence[str]) -> bool:
    """Whether a call is right, and every tool found nothing."""
    return job.result == "right" and all(t in job.found and job.found[t].clean for t in tools)


def version(program: str) -> str:
    """The program's version."""
    done = subprocess.run([program, "--version"], capture_output=True, text=True, check=False)
    return next((x for x in done.stdout.splitlines() if "ersion" in x), "unknown").strip()


def table(jobs: Sequence[Job], tools: Sequence[str]) -> str:
    """A line per call: errors and warnings by tool, 0 where it is clean."""
    head = ["call", "target", "emitter", "result", *tools]
    rows = [
        [
            j.call.name,
            j.target,
            j.emitter,
            j.result[:40],
            *(str(j.found.get(t, "-"))[:40] for t in tools),
        ]
        for j in jobs
    ]
    return record.columns([head, *rows])


def words(jobs: Sequence[Job]) -> str:
    """What the tools said, each thing once with the calls of which they said it."""
    where: dict[tuple[str, str], list[str]] = {}
    for j in jobs:
        for tool, found in j.found.items():
            for said, count in found.said:
                where.setdefault((tool, said), []).append(f"{j.title} ({count})")
    return "\n".join(
        f"# {tool}: {said}\n#     {len(of)} calls: {', '.join(of[:4])}"
        for (tool, said), of in where.items()
    )


def keep(path: Path, jobs: Sequence[Job], tools: Sequence[str], more: Mapping[str, object]) -> None:
    """Writes what came of each job, what came of all, and the logs."""
    for j in jobs:
        found = {
            t: {
                "errors": f.errors,
                "warnings": f.warnings,
                "problem": f.problem,
                "said": dict(f.said),
            }
            for t, f in j.found.items()
        }
        line = {"call": j.call.name, "target": j.target, "emitter": j.emitter, "result": j.result}
        record.write(path, {**line, "tools": found})
    counts = {t: sum(t in j.found and j.found[t].clean for j in jobs) for t in tools}
    right = sum(j.result == "right" for j in jobs)
    total = {"calls": len(jobs), "right": right, "clean": counts}
    record.write(path, {"summary": total, **more, **record.circumstances()})
    print(json.dumps(total))
    logs = [(f"{j.title} {t}", log) for j in jobs for t, log in j.logs.items()]
    if logs:
        path.with_suffix(".logs").write_text(sanitizer.excerpt(logs))


if __name__ == "__main__":
    sys.exit(main())
