"""tilec's kernels for the cells, compiled ahead by several processes into the cache on disk."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from typing import Any

from benchmarks.gpu.cells import Cell

Fields = Mapping[str, object]


@dataclass(frozen=True)
class Built:
    """A kernel that is in the cache: the fields of its schedule, the registers it takes, or why there is none."""

    schedule: dict[str, object]
    said: str
    failed: bool = False


def changes(text: str) -> dict[str, object]:
    """The fields of a schedule from a text such as `columns=64,relax=false`."""
    out: dict[str, object] = {}
    for pair in filter(None, text.split(",")):
        name, _, value = pair.partition("=")
        plain = {"true": True, "false": False}
        out[name] = int(value) if value.isdigit() else plain.get(value, value)
    return out


def label(fields: str) -> str:
    """What a candidate with a changed schedule is called."""
    return f"tilec,{fields}" if fields else "tilec"


def ahead(cells: Sequence[Cell], schedules: Sequence[str]) -> Iterator[tuple[Cell, str, Built]]:
    """The cells' kernels under each schedule, as they are ready."""
    jobs = [(c, s) for c in cells for s in schedules]
    with ProcessPoolExecutor(min(16, os.cpu_count() or 1)) as pool:
        for (c, s), made in zip(jobs, pool.map(_job, jobs), strict=True):
            yield c, label(s), made


def _job(job: tuple[Cell, str]) -> Built:
    try:
        return build(job[0], changes(job[1]))
    except Exception as e:
        return Built({}, repr(e)[:300], failed=True)


def build(cell: Cell, fields: Fields) -> Built:
    """Compiles a cell's kernel."""
    import tilec
    from tilec.backends.cuda.code import compiled

    asked = {**fields, **({"order": cell.order} if cell.order else {})}
    kernel = tilec.compile(cell.program, target=cell.target, schedule=asked or None)
    code = code_of(kernel, cell)
    said = f"{code.emitter} {usage(compiled(code))} {code.note}"
    if not code.fast:
        return Built(dict(asked), said)
    if any(
        s.watched for s in code.called.fast.values()
    ):  # where it finds a NaN, the exact code runs
        exact = tilec.compile(cell.program, target=cell.target, schedule={"emitter": "simt"})
        compiled(code_of(exact, cell))
    schedule = next(iter(code.fast.values())).plan.schedule
    return Built({f.name: getattr(schedule, f.name) for f in dataclasses.fields(schedule)}, said)


def code_of(kernel: Any, cell: Cell) -> Any:
    """The code of a cell's kernel for its sizes, as a call would run it on the device that is here."""
    sizes = {n: x for n, x in cell.sizes.items() if n in kernel.dims}
    return kernel.gpu_code(dtype=cell.dtype, called=True, **sizes)


def usage(images: Sequence[Any]) -> str:
    """The registers and the spilled bytes of kernels."""
    used = [u for i in images for u in i.usage.values()]
    return ", ".join(
        f"{u.registers} registers" + (f" spilling {u.spill_stores}" if u.spill_stores else "")
        for u in used
    )
