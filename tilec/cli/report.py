"""The figures of a program along its pipeline, for `tilec traffic`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from tilec import scalar
from tilec.cli import options
from tilec.errors import UnsupportedError

if TYPE_CHECKING:
    from tilec.backends.reference.interpreter import Outcome
    from tilec.ceilings import Ceilings
    from tilec.dtypes import DType
    from tilec.ir import Kernel as IR
    from tilec.ir import Value
    from tilec.kernel import Kernel
    from tilec.roofline import Bound, Stage
    from tilec.scalar import Number
    from tilec.tuning.store import Winner

Fact = dict[str, Any]
UNFUSED, FUSED = "contract", "online"
"""After these passes the program is one kernel per op, and as few kernels as there are groups."""
RUNNABLE = 2 << 30
"""Bytes of the largest value up to which `--measure` runs an IR in the interpreter."""
COUNTABLE = 20_000_000_000
"""Operations up to which it does."""


class Report:
    """The figures of a program along its pipeline."""

    def __init__(
        self,
        kernel: Kernel,
        element: DType,
        sizes: dict[str, int],
        scalars: dict[str, Number],
        roof: Ceilings,
        schedule: Mapping[str, object] | None,
        tuned: Winner | None,
        seed: int,
    ) -> None:
        """`schedule`: the fields that are asked for; None where the tiles were chosen. `tuned`: whose choice both are.
        `seed`: of the sample data, where data decides what runs or `--measure` runs it."""
        from tilec import least
        from tilec.roofline import lengths
        from tilec.traffic import budget

        self.kernel, self.roof, self.tuned = kernel, roof, tuned
        self.element: DType = element
        self.sizes, self.scalars, self.seed = sizes, scalars, seed
        self.steps = dict(kernel.stages(dtype=element, sizes=sizes))
        self.arrays = kernel.deciding(self.steps.values(), element, sizes, seed)
        self.kept = least.work(self.steps[FUSED], sizes, scalars, self.arrays)
        self.stated = {
            name: budget(ir, sizes, scalars, self.arrays) for name, ir in self.steps.items()
        }
        self.all = [self.stage(name, ir) for name, ir in self.steps.items()]
        if self.all[-1].name != FUSED:
            self.kept = self.all[
                -1
            ].kept  # where data decide, these tiles may do less than the usual ones
        self.twice = {**sizes, **{d: 2 * sizes[d] for d in lengths(self.steps[self.all[-1].name])}}
        self.memory = None if schedule is None else self._memory(schedule)
        self.counted: dict[str, dict[str, Any]] = {}
        self.hardware: dict[str, Any] | None = None

    @property
    def title(self) -> str:
        """The kernel and its sizes."""
        name, known = next(iter(self.steps.values())).name, {**self.sizes, **self.scalars}
        return f"{name}({scalar.assigned(known)})"

    def stage(self, name: str, ir: IR) -> Stage:
        """The figures after a pass."""
        from tilec import roofline

        return roofline.stage(name, ir, self.stated[name], self.roof, self.kept)

    @property
    def bound(self) -> Bound:
        """What no schedule beats."""
        from tilec.roofline import bound

        needed = min(self.all[0].compulsory, self.all[-1].moved)
        return bound(needed, 0, self.kept, self.roof)

    def _memory(self, schedule: Mapping[str, object]) -> int | None:
        """The bytes that the tiles move to and from memory, where it is known what they find in the last cache."""
        from tilec import backend

        *_, name = self.steps
        if name == FUSED:
            return None
        before = (self.steps[FUSED], self.sizes)
        target = self.kernel.target or "cpu"
        return backend.memory_bytes(before, target, schedule, self.stated[name], self.roof)

    @property
    def forms(self) -> dict[str, Stage]:
        """The program one op at a time, fused, and in tiles."""
        names = {UNFUSED: "one op at a time", FUSED: "fused"}
        names.setdefault(self.all[-1].name, "tuned" if self.tuned else "in tiles")
        return {names[s.name]: s for s in self.all if s.name in names}

    # ---- counting

    def count(self) -> None:
        """Runs each IR in the interpreter, as far as its values fit memory, and keeps what it counted."""
        from tilec.backends.reference.interpreter import run

        skipped = {s.name: self._too_large(s) for s in self.all}
        some = any(not why for why in skipped.values())
        arrays = self.kernel.sample(self.seed, dtype=self.element, **self.sizes) if some else {}
        for s in self.all:
            if skipped[s.name]:
                self.counted[s.name] = {"skipped": skipped[s.name]}
                continue
            got = run(self.steps[s.name], arrays, self.scalars)
            self.counted[s.name] = _comparison(s, got, _is_relaxed(self.steps[s.name]))

    def _too_large(self, s: Stage) -> str:
        """Why an IR is not run in the interpreter; nothing where it is."""
        most = self._widest(s.name)
        if most > RUNNABLE:
            return f"a value of {most:,} bytes"
        return f"{s.operations:,} operations" if s.operations > COUNTABLE else ""

    def ask_hardware(self, file: str, tile: dict[str, int], schedule: options.Strings) -> None:
        """Has the GPU count the bytes of a call, if the target is one that is here."""
        from tilec.ceilings import gpu

        target = self.kernel.target or "cpu"
        if not target.startswith("cuda"):
            return
        if gpu(target) is None:
            self.hardware = {"refused": "hardware counters: there is no such GPU here"}
            return
        from tilec.backends.cuda.counters import Call, count

        path, name = options.split(file)
        if path == "-":
            why = "hardware counters: they are asked by a process of its own, which needs the program in a file"
            self.hardware = {"refused": why}
            return
        fields: dict[str, object] = {**options.pairs("--schedule", schedule)}
        call = Call(
            path, name, target, self.element, self.sizes, self.scalars, tile, fields, self.seed
        )
        try:
            self.hardware = asdict(count(call))
        except UnsupportedError as e:
            self.hardware = {"refused": str(e)}

    def _widest(self, name: str) -> int:
        """Bytes of the largest array that the interpreter makes after a pass; products that are summed at once are none."""
        from tilec.backends.reference.machine import product_terms
        from tilec.roofline import size

        ir, known = self.steps[name], self.stated[name].known
        lazy = product_terms(ir)
        values = [v.type for n, v in ir.values.items() if n not in lazy]
        return max((2 * size(ir, t, known) for t in values), default=0)

    # ---- the comparison

    def compared(self) -> dict[str, Fact]:
        """The program one op at a time, fused, and in tiles: bytes, their growth, the largest score value, the bound."""
        from tilec.roofline import growth, largest

        out: dict[str, Fact] = {}
        for s in self.forms.values():
            ir = self.steps[s.name]
            found = largest(ir, self.stated[s.name].known)
            more = self._moved(ir, self.twice) if self.twice != self.sizes else None
            out[s.name] = {
                "moved": s.moved,
                "growth": None if more is None else growth(s.moved, more),
                "intensity": s.operations / max(s.moved, 1),
                "largest": None if found is None else _value(ir, *found),
                "holds": s.bound.holds,
                "least_seconds": s.bound.least,
            }
        return out

    def _moved(self, ir: IR, sizes: dict[str, int]) -> int:
        from tilec.traffic import budget

        arrays = self.kernel.deciding([ir], self.element, sizes, self.seed)
        return budget(ir, sizes, self.scalars, arrays).total

    def facts(self) -> dict[str, Any]:
        """Everything, for JSON."""
        return {
            "kernel": next(iter(self.steps.values())).name,
            "sizes": self.sizes,
            "scalars": self.scalars,
            "ceilings": asdict(self.roof),
            "schedule": None if self.tuned is None else str(self.tuned.choice),
            "shipped": self.tuned is not None and self.tuned.shipped,
            "compulsory": self.all[0].compulsory,
            "least": {
                "work": self.kept,
                "bound": {"holds": self.bound.holds, "seconds": dict(self.bound.seconds)},
            },
            "expected_from_memory": self.memory,
            "stages": [self._fact(s) for s in self.all],
            "compared": self.compared(),
            **({"hardware": self.hardware} if self.hardware is not None else {}),
        }

    def _fact(self, s: Stage) -> dict[str, Any]:
        more = {"counted": self.counted[s.name]} if s.name in self.counted else {}
        return {
            "after": s.name,
            "read": s.read,
            "written": s.written,
            "work": dict(s.work),
            "bound": {"holds": s.bound.holds, "seconds": dict(s.bound.seconds)},
            "ops": [asdict(r) for r in s.rows],
            **more,
        }


def _comparison(s: Stage, got: Outcome, relaxed: bool) -> Fact:
    """What a run counted, and whether it is what was stated. How often a stale reference is good enough depends on data:
    where one may be stale, the operations are stated as if it always were."""
    work = {u: got.work.total(u) for u in got.work.ops}
    same = (got.traffic.read, got.traffic.written) == (s.read, s.written)
    return {
        "read": got.traffic.read,
        "written": got.traffic.written,
        "work": work,
        "equal": same and (relaxed or work == s.work),
        "operations_equal": work == s.work,
    }


def _is_relaxed(ir: IR) -> bool:
    from tilec.ir import If, walk

    return any(isinstance(op, If) and op.relaxed for op in walk(ir.body))


def _value(ir: IR, v: Value, size: int) -> dict[str, Any]:
    """The largest product: its axes, its bytes, and where it is."""
    axes = ", ".join(
        a if n is None else f"{a}:{n}" for a, n in zip(v.type.axes, v.type.tile, strict=True)
    )
    whole = any(v in op.results for op in ir.body)
    place = "in HBM" if whole else "on chip, a tile at a time"
    return {"value": f"{v.name}[{axes}]", "bytes": size, "place": place}
