"""Pipelines: which passes run, in which order, with which options.

A pass is `tilec/passes/NAME.py` with a function `NAME(kernel, options)` and, where it has options, a frozen dataclass
`Options`. On the command line a pipeline is `expand,simplify,tile:i=128:j=64`: commas between passes, colons before
options. An option that no field is named after goes into the field that is a mapping from names to integers.
"""

from __future__ import annotations

import dataclasses
import difflib
import functools
import importlib
import typing
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, cast

from tilec import levels
from tilec.errors import ArgumentError
from tilec.ir import Kernel
from tilec.target import CPU, CUDA, REFERENCE, Target

TENSOR = ("expand", "simplify", "exp2", "contract", "flatten", "fuse", "online")
"""Passes over whole tensors. `exp2` looks for the maxima that `expand` leaves; `online` needs the groups of `fuse`."""

TILE = ("specialise", "unroll", "tile", "steady", "prune", "place")
"""From groups to tiles. `specialise` needs the streamed axes of `online`, `steady` and `prune` the windows of `tile`."""

TARGETS = {t.name: t for t in (CPU, CUDA, REFERENCE)}
"""What the tile passes know of each target, by its name."""

LATE = ("phases", "stage", "survey", "lookup", "relax", "split")
PASSES = (*TENSOR, *TILE[:2], "fold", *TILE[2:-1], *LATE, TILE[-1])
"""Every pass, in order. Not in the default pipeline: `phases` to `relax`, which emitters for tensor cores run, and `fold`
and `split`, for few rows."""


@dataclass(frozen=True)
class Step:
    """One pass of a pipeline. `options` is the pass's `Options`, or None where it has none or takes its defaults."""

    name: str
    options: object | None = None


Pipeline = tuple[Step, ...]


@functools.cache
def module(name: str) -> Any:
    """The module of a pass. Raises ArgumentError for a name that is none."""
    if name not in PASSES:
        near = difflib.get_close_matches(name, PASSES, 1)
        hint = f"; did you mean {near[0]}?" if near else ""
        raise ArgumentError(f"no pass is called {name!r}{hint} (passes: {', '.join(PASSES)})")
    return importlib.import_module(f"tilec.passes.{name}")


def summary(name: str) -> str:
    """What a pass does: the first line of its docstring."""
    return (module(name).__doc__ or "").strip().split("\n")[0].removeprefix(f"{name}: ")


def step(name: str, **options: object) -> Step:
    """A step with options given by field. Raises ArgumentError for an option that the pass lacks."""
    known = fields(name)
    for key in options:
        if key not in known:
            raise ArgumentError(f"pass {name} has no option {key!r}; it has {_listed(known)}")
    return Step(name, module(name).Options(**options) if options else None)


@functools.cache
def fields(name: str) -> Mapping[str, Any]:
    """The options of a pass: field names and their types."""
    options = getattr(module(name), "Options", None)
    if options is None:
        return {}
    hints = typing.get_type_hints(options)
    return {f.name: hints[f.name] for f in dataclasses.fields(options)}


def parse(text: str) -> Pipeline:
    """The pipeline that a text such as `expand,tile:i=128:j=64` names.

    Raises ArgumentError for an unknown pass or option and for a value of the wrong type.
    """
    return tuple(_parse_step(part.strip()) for part in text.split(",") if part.strip())


def _parse_step(text: str) -> Step:
    name, *pairs = text.split(":")
    known = fields(name)
    table = next((f for f, t in known.items() if _is_table(t)), None)
    given: dict[str, Any] = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals:
            raise ArgumentError(f"pass {name}: option {pair!r} has no value; write {key}=VALUE")
        if key in known and not _is_table(known[key]):
            given[key] = _value(name, key, value, known[key])
        elif table is not None:
            entries = cast("dict[str, Any]", given.setdefault(table, {}))
            entries[key] = _value(name, key, value, int)
        else:
            raise ArgumentError(f"pass {name} has no option {key!r}; it has {_listed(known)}")
    return Step(name, module(name).Options(**given) if given else None)


def _is_table(kind: Any) -> bool:
    return typing.get_origin(kind) in (dict, Mapping)


def _value(name: str, key: str, text: str, kind: Any) -> object:
    kinds = [k for k in typing.get_args(kind) if k is not type(None)] or [kind]
    for k in kinds:
        if k is bool and text.lower() in ("true", "false"):
            return text.lower() == "true"
        try:
            if k in (int, float):
                return k(text)
        except ValueError:
            continue
        if k is str:
            return text
        if k is Target and text in TARGETS:
            return TARGETS[text]
    expected = " or ".join(getattr(k, "__name__", str(k)) for k in kinds)
    raise ArgumentError(f"pass {name}: option {key} is {text!r}, expected {expected}")


def _listed(known: Iterable[str]) -> str:
    return ", ".join(known) or "no options"


# ---- running


def tensor_pipeline() -> Pipeline:
    """The passes that need neither sizes nor a schedule."""
    return tuple(Step(name) for name in TENSOR)


def tile_pipeline(
    sizes: Mapping[str, int],
    extents: Mapping[str, int],
    target: str | Target = "cpu",
    workers: int | None = None,
    *,
    far: bool = False,
) -> Pipeline:
    """From groups to tiles for a target. `sizes`: dimensions to fix; `extents`: tile extents that the user chose; `workers`:
    for how many a streamed axis is split, None for not at all; `far`: whether some scalar is as `binding.far` says."""
    steps: list[Step] = []
    for name in TILE:
        if name == "prune" and far:
            continue  # `j - i < n` is asked as `j < i + n`, which may not fit 64 bits
        if name == "place" and workers is not None:
            steps.append(step("split", workers=workers))
        seen = target_of(target) if isinstance(target, str) else target
        given = {"sizes": sizes, "extents": extents, "target": seen}
        steps.append(step(name, **{k: given[k] for k in fields(name) if k in given}))
    return tuple(steps)


def target_of(name: str) -> Target:
    """What the tile passes know of a target, such as `cuda:sm_80`."""
    return TARGETS[name.partition(":")[0]]


def run(kernel: Kernel, pipeline: Pipeline, *, sizes: Mapping[str, int] | None = None) -> Kernel:
    """The kernel after a pipeline, verified at its end; `stages` also verifies what is between.

    `sizes` gives a `specialise` step without options the dimensions it fixes. Raises ArgumentError where a pass comes
    too early or too late, CompilerBug where one leaves an IR that breaks the rules.
    """
    from tilec.verify import fault, verify

    made = kernel
    for s in pipeline:
        levels.require(s.name, made)
        made = apply(made, _fixed(made, s, sizes))
    if fault(made):
        deque(stages(kernel, pipeline, sizes=sizes), maxlen=0)  # raises at the pass that is wrong
        verify(made)
    return made


def stages(
    kernel: Kernel, pipeline: Pipeline, *, sizes: Mapping[str, int] | None = None
) -> Iterator[tuple[str, Kernel]]:
    """The name of each pass and the verified kernel after it, as they are made."""
    from tilec.verify import verify

    verify(kernel)
    for s in pipeline:
        levels.require(s.name, kernel)
        kernel = apply(kernel, _fixed(kernel, s, sizes))
        verify(kernel)
        yield s.name, kernel


def apply(kernel: Kernel, s: Step) -> Kernel:
    """The kernel after one pass, not verified."""
    function = getattr(module(s.name), s.name)
    return function(kernel) if s.options is None else function(kernel, s.options)


def _fixed(kernel: Kernel, s: Step, sizes: Mapping[str, int] | None) -> Step:
    """A `specialise` step without sizes gets those of the dimensions that must be known."""
    if s.name != "specialise" or s.options is not None or not sizes:
        return s
    dims = module("specialise").static_dims(kernel)
    return step("specialise", sizes={d: sizes[d] for d in dims if d in sizes})
