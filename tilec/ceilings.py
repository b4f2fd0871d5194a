"""How fast a machine can be: bytes and operations per second, measured once and kept, or known for a GPU.

`tilec doctor --measure` measures this machine and writes the figures to the user's cache folder. They are the roofs that
`tilec traffic` and the cost model hold a program against. GPUs that are not here have figures measured elsewhere.
"""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, cast

from tilec import cache
from tilec.errors import UnsupportedError

FORMAT = 1
"""Of the file of figures."""


@dataclass(frozen=True, slots=True)
class Ceilings:
    """What a machine reaches, all of its processors together. `origin`: how the figures are known.

    `memory`, `cache`: bytes per second to and from memory, and from the last cache. `matrix`, `fma`, `special`: operations
    per second of each unit (`tilec.work`). `shared`: the units are one, so that their times add up. `workers`: tiles that
    run at a time. `near`: bytes of the fast memory of each worker; `far`: of the last cache.
    """

    machine: str
    memory: float
    cache: float
    matrix: float
    fma: float
    special: float
    shared: bool
    workers: int
    near: int
    far: int
    origin: str

    @property
    def ridge(self) -> float:
        """Operations per byte from which on arithmetic is the limit, and memory is not."""
        return self.matrix / self.memory


H200 = Ceilings(
    machine="NVIDIA H200",
    memory=4.5e12,
    cache=23.5e12,
    matrix=922.9e12,
    fma=28.42e12,
    special=4.17e12,
    shared=False,
    workers=132,
    near=232448,
    far=60 << 20,
    origin="known: as `tilec doctor --measure` measured one",
)

A100 = Ceilings(
    machine="NVIDIA A100 80GB",
    memory=2.04e12,
    cache=4.5e12,
    matrix=312e12,
    fma=108 * 64 * 1.41e9,
    special=108 * 16 * 1.41e9,
    shared=False,
    workers=108,
    near=166912,
    far=40 << 20,
    origin="known: the data sheet's, not measured",
)

KNOWN = {"cuda": H200, "cuda:sm_90a": H200, "cuda:sm_80": A100}
"""Ceilings of GPUs that need not be here."""


def of(target: str) -> Ceilings | None:
    """The ceilings of a target: as they were measured here, else those that are known; None where they are not measured yet.

    Raises UnsupportedError for a target that has none, and cannot be measured here.
    """
    if target == "cpu":
        return read(path(machine()))
    device = gpu(target)
    if device is not None:
        known = next((c for c in KNOWN.values() if c.machine in device), None)
        return read(path(device)) or known
    if target in KNOWN:
        return KNOWN[target]
    known = ", ".join(("cpu", *KNOWN))
    raise UnsupportedError(
        f"no ceilings are known for target {target}, and no such GPU is here to be measured; there are some for {known}"
    )


def measured(target: str) -> Ceilings:
    """The ceilings of a target, measured now (about two seconds) where they are not known; kept for later."""
    return of(target) or measure(target)


def measure(target: str = "cpu") -> Ceilings:
    """Measures this machine's processors or its GPU anew, and writes the figures down."""
    if target == "cpu":
        from tilec.backends.cpu import ceilings as cpu

        found = cpu.measure(machine())
    else:
        from tilec.backends.cuda import ceilings as cuda

        found = cuda.measure()
    write(path(found.machine), found)
    return found


def gpu(target: str) -> str | None:
    """The name of the GPU here, if it is one of a target's kind."""
    from tilec.backends.cuda import arch, launch

    if not target.startswith("cuda"):
        return None
    wanted = arch.parse(target)
    if not launch.available():
        return None
    device = launch.current_device()
    number = launch.capability(device)
    if wanted is not None and not arch.takes(wanted, number):
        return None
    from tilec.backends.cuda import ceilings as cuda

    return cuda.name(device)


def machine() -> str:
    """This machine's processor, the features that code is made for, and how many of them there are."""
    from tilec.backends.cpu import jit, pool

    host = jit.host()
    return f"{host.cpu}, {host.lanes} f32 lanes, {pool.threads()} threads"


# ---- the file


def path(machine: str) -> Path:
    """Where the figures of a machine are kept: by its name, for a home folder may serve several machines."""
    return cache.directory("ceilings") / f"{cache.key(FORMAT, machine)[:16]}.json"


def kept() -> dict[Path, Ceilings | None]:
    """The files of figures, and what they say; None where a file is not one that tilec wrote."""
    return {p: read(p) for p in sorted(cache.directory("ceilings").glob("*.json"))}


def read(file: Path) -> Ceilings | None:
    """The figures of a file; None where there is none, or it is not one that tilec wrote."""
    try:
        found: Any = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return _checked(found)


def _checked(found: Any) -> Ceilings | None:
    if not isinstance(found, dict):
        return None
    figures = cast("dict[str, Any]", found)
    wanted = {f.name: f.type for f in fields(Ceilings)}
    if set(figures) != set(wanted):
        return None
    kinds: dict[str, Any] = {"str": str, "float": (int, float), "int": int, "bool": bool}
    for name, kind in wanted.items():
        x = figures[name]
        if not isinstance(x, kinds[str(kind)]):
            return None
        if kind in ("int", "float") and not (math.isfinite(x) and x > 0):
            return None
    return Ceilings(**figures)


def write(file: Path, figures: Ceilings) -> None:
    """Writes a file that appears whole or not at all; where it cannot be written, nothing is kept."""
    cache.keep(file, json.dumps(asdict(figures), indent=1).encode())
