"""Small calls of the examples: what they are called on, and whether the results are right."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
Sizes = Mapping[str, int]


@dataclass(frozen=True)
class Call:
    """A call of an example on its sample data, of sizes beside those of its own.

    `spoilt`: the last key and the last value hold a NaN, for which a fast kernel asks the exact one to run.
    """

    name: str
    example: str
    sizes: Sizes = field(default_factory=dict[str, int])
    dtype: str = "f16"
    spoilt: bool = False


def examples() -> list[Call]:
    """One call of each example, of its own sizes."""
    return [Call(p.stem, p.stem) for p in sorted(EXAMPLES.glob("*.tile"))]


SHAPES = [
    Call("causal, one row", "causal", {"H": 2, "M": 1, "N": 700}),
    Call("causal, fewer keys", "causal", {"H": 2, "M": 300, "N": 130}),
    Call("causal, many tiles", "causal", {"B": 2, "H": 9, "M": 1100, "N": 1100}),
    Call("causal, odd heads", "causal", {"H": 2, "M": 333, "N": 333, "D": 72, "E": 40}),
    Call("causal, small heads", "causal", {"H": 2, "M": 65, "N": 129, "D": 5, "E": 3}),
    Call("causal, heads of 128", "causal", {"H": 2, "M": 515, "N": 515, "D": 128, "E": 128}),
    Call("causal, heads of 256", "causal", {"H": 2, "M": 260, "N": 260, "D": 256, "E": 256}),
    Call("causal, NaN", "causal", {"H": 2, "M": 400, "N": 400}, spoilt=True),
    Call("causal f32", "causal", {"H": 2, "M": 130, "N": 130}, "f32"),
    Call("naive, long", "naive", {"H": 1, "M": 129, "N": 3000}),
    Call("naive, tiny", "naive", {"H": 1, "M": 2, "N": 3, "D": 8, "E": 8}),
    Call("document, long", "document", {"B": 1, "H": 2, "N": 1500}),
]
"""What the sizes of the examples leave out."""


def calls(words: str | None) -> list[Call]:
    """All calls whose names hold one of the words (with commas between them)."""
    wanted = (words or "").split(",")
    return [c for c in (*examples(), *SHAPES) if any(w in c.name for w in wanted)]


def arguments(kernel: Any, call: Call) -> dict[str, Any]:
    """The arguments as NumPy arrays."""
    arrays = kernel.sample(1, dtype=call.dtype, **call.sizes)
    if call.spoilt:
        for name in "KV":
            arrays[name][..., -1, -1] = float("nan")
    return arrays


@dataclass(frozen=True)
class Ran:
    """A call that ran: the kernel, the arguments and the results as NumPy arrays, and which emitters made what ran."""

    kernel: Any
    given: Mapping[str, Any]
    results: Sequence[Any]
    emitters: str = "-"


def run(call: Call, target: str) -> Ran:
    """Runs a call."""
    import tilec
    from tilec import backend, gpu

    kernel: Any = tilec.load(EXAMPLES / f"{call.example}.tile", target=target)
    given = arguments(kernel, call)
    if not backend.on_gpu(target):
        return Ran(kernel, given, _listed(kernel(**given)))
    _plain_allocations()
    sent = gpu.send(given)
    results = [gpu.receive(x) for x in _listed(kernel(**sent))]
    made = {there.code.emitter for there in kernel.plan(**sent).run.loaded.values()}
    return Ran(kernel, given, results, "+".join(sorted(made)))


def _plain_allocations() -> None:
    """An allocation of the driver's for each array, without a pool: then it is known where each one ends."""
    import importlib

    importlib.import_module("cupy").cuda.set_allocator(None)


def _listed(results: Any) -> list[Any]:
    return [*results] if isinstance(results, tuple) else [results]


def digest(results: Sequence[Any]) -> str:
    """A hash of all bits."""
    made = hashlib.sha256()
    for x in results:
        made.update(f"{x.dtype}{x.shape}".encode() + x.tobytes())
    return made.hexdigest()


def wrong(ran: Ran) -> str:
    """What is wrong with the results, nothing where they are right."""
    from tilec import accuracy

    tolerance = accuracy.tolerance([*ran.given.values(), *ran.results])
    wanted = _listed(ran.kernel.reference(**ran.given))
    for output, got, want in zip(ran.kernel.outputs, ran.results, wanted, strict=True):
        error = accuracy.error(got, want, tolerance)
        if not error.ok:
            differ = "" if error.same else ", and what is not finite differs"
            return f"{output.name}: error {error.largest:.1e} > {error.allowed:.1e}{differ}"
    return ""
