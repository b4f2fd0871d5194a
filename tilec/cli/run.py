"""`tilec run`: a program on sample data or on a file's."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from tilec import accuracy, backend, gpu
from tilec.cli import files, options
from tilec.cli.arguments import Asked, to_file

if TYPE_CHECKING:
    from tilec.ir import Kernel as IR
    from tilec.kernel import Kernel
    from tilec.plans import Plan
    from tilec.scalar import Number


Output = Annotated[
    str | None,
    typer.Option(
        "--output", metavar="FILE.npz", help="Write the outputs; 16- and 8-bit floats as f32."
    ),
]
Check = Annotated[bool, typer.Option("--check", help="Compare with the float64 reference.")]


def run(
    file: options.File,
    input_: options.Input = None,
    output: Output = None,
    check: Check = False,
    size: options.Size = None,
    dtype: options.Dtype = None,
    set_: options.Set = None,
    target: options.Target = None,
    tile: options.Tile = None,
    schedule: options.Schedule = None,
    seed: options.Seed = 0,
    json: options.Json = False,
) -> None:
    """Run a program; print time, throughput and bytes moved."""
    files.check(output)
    kernel = options.load(file, target, tile, schedule)
    asked = Asked(input_, size, dtype, set_, seed)
    scalars = asked.scalars
    arguments = {**asked.tensors(kernel), **scalars}
    done = _timed(kernel, arguments)
    facts = _facts(kernel, arguments, done)
    if output is not None:
        to_file(output, done.outputs)
    if check:
        facts["errors"] = _errors(kernel, arguments, done.outputs)
    if json:
        options.print_json(facts)
    else:
        _print(facts)
    if check and not all(e["ok"] for e in facts["errors"].values()):
        options.say("error: the result is not that of the float64 reference")
        raise typer.Exit(1)


@dataclass(frozen=True)
class _Done:
    """Calls that were timed: the first one, which compiles, and those after it, in seconds."""

    plan: Plan
    outputs: dict[str, Any]
    first: float
    times: list[float]


def _timed(kernel: Kernel, arguments: Mapping[str, Any]) -> _Done:
    """A first call, then as many as fit in half a second."""
    given, wait = arguments, _at_once
    if _on_gpu(kernel):
        tensors = {n: a for n, a in arguments.items() if hasattr(a, "dtype")}
        given, wait = {**arguments, **gpu.send(tensors)}, gpu.wait
    first, result = _call(kernel, given, wait)
    times: list[float] = []
    while not times or (sum(times) < 0.5 and len(times) < 50 and first < 10):
        seconds, result = _call(kernel, given, wait)
        times.append(seconds)
    results = map(gpu.receive, _tuple(result)) if _on_gpu(kernel) else _tuple(result)
    outputs = dict(zip((o.name for o in kernel.outputs), results, strict=True))
    return _Done(kernel.plan(**given), outputs, first, times)


def _call(
    kernel: Kernel, given: Mapping[str, Any], wait: Callable[[], None]
) -> tuple[float, object]:
    """A call's time and its result."""
    start = time.perf_counter()
    result = kernel(**given)
    wait()
    return time.perf_counter() - start, result


def _facts(kernel: Kernel, arguments: Mapping[str, Any], done: _Done) -> dict[str, Any]:
    """The figures of a run."""
    plan, seconds = done.plan, statistics.median(done.times)
    moved, flops = _bytes(plan, arguments), _flops(kernel, plan)
    return {
        "kernel": kernel.name,
        "target": kernel.target or "cpu",
        "schedule": None if plan.tuned is None else str(plan.tuned.choice),
        "shipped": plan.tuned is not None and plan.tuned.shipped,
        "sizes": plan.bound.sizes,
        "scalars": plan.bound.scalars,
        "types": {n: str(a.dtype) for n, a in arguments.items() if hasattr(a, "dtype")},
        "first_seconds": done.first,
        "seconds": seconds,
        "best_seconds": min(done.times),
        "runs": len(done.times),
        "flops": flops,
        "flops_per_second": flops / seconds,
        "bytes": moved,
        "bytes_per_second": moved / seconds,
        "outputs": {n: list(a.shape) for n, a in done.outputs.items()},
    }


def _on_gpu(kernel: Kernel) -> bool:
    return kernel.target is not None and backend.on_gpu(kernel.target)


def _at_once() -> None:
    """A call on the CPU is done when it returns."""


def _tuple(x: Any) -> tuple[Any, ...]:
    return cast("tuple[Any, ...]", x) if isinstance(x, tuple) else (x,)


def _bytes(plan: Plan, arguments: Mapping[str, Any]) -> int:
    """The bytes that the compiled program moves between memory and tiles."""
    from tilec.traffic import budget

    bound = plan.bound
    tensors = {n: a for n, a in arguments.items() if hasattr(a, "dtype")}
    return budget(plan.ir, bound.sizes, bound.scalars, tensors).total


def _flops(kernel: Kernel, plan: Plan) -> int:
    """The multiplications and additions of the program's contractions as written: no block skipped."""
    from tilec import pipeline
    from tilec.ir import Contract

    steps = pipeline.parse("expand,simplify,contract")
    *_, (_, ir) = kernel.stages(sizes=plan.bound.sizes, steps=steps)
    return sum(
        2 * math.prod(plan.bound.extents[a] for a in _axes(ir, op))
        for op in ir.body
        if isinstance(op, Contract)
    )


def _axes(ir: IR, op: Any) -> set[str]:
    """The axes that a contraction runs over."""
    of = [ir.values[x].type.axes for x in (op.x, op.y) if x in ir.values]
    return {*op.over, *op.result.type.axes}.union(*of)


def _errors(
    kernel: Kernel, arguments: Mapping[str, Any], outputs: Mapping[str, Any]
) -> dict[str, dict[str, Any]]:
    """Each output against the float64 reference: the largest and the mean error, and whether it is small enough."""
    want = dict(zip(outputs, _tuple(kernel.reference(**arguments)), strict=True))
    narrow = accuracy.tolerance((*arguments.values(), *outputs.values()))
    found = {n: accuracy.error(outputs[n], want[n], narrow) for n in outputs}
    if not all(e.ok for e in found.values()):
        plain = dict(zip(outputs, _tuple(kernel.plain(**arguments)), strict=True))
        off = {n: accuracy.error(plain[n], want[n], 0.0).largest for n in outputs}
        found = {n: accuracy.error(outputs[n], want[n], narrow, off[n]) for n in outputs}
    return {n: _error(e) for n, e in found.items()}


def _error(e: accuracy.Error) -> dict[str, Any]:
    return {"largest": e.largest, "mean": e.mean, "allowed": e.allowed, "ok": e.ok}


def _print(facts: Mapping[str, Any]) -> None:
    names: dict[str, Number] = {**facts["sizes"], **facts["scalars"]}
    print(
        f"{facts['kernel']} on {facts['target']}: {', '.join(f'{n}={x}' for n, x in names.items())}"
    )
    if facts["schedule"] is not None:
        print(f"schedule     {options.schedule(facts['schedule'], facts['shipped'])}")
    print(f"first call   {_seconds(facts['first_seconds'])} (with compilation)")
    print(
        f"time         {_seconds(facts['seconds'])} (median of {facts['runs']}, best "
        f"{_seconds(facts['best_seconds']).strip()})"
    )
    if facts["flops"]:
        print(f"throughput   {facts['flops_per_second'] / 1e9:10.1f} GFLOP/s (products as written)")
    print(
        f"bytes moved  {facts['bytes']:13,} ({facts['bytes_per_second'] / 1e9:.1f} GB/s between memory and tiles)"
    )
    for name, e in facts.get("errors", {}).items():
        print(
            f"check {name}: largest error {e['largest']:.3g}, mean {e['mean']:.3g}, allowed {e['allowed']:.3g}: "
            f"{'ok' if e['ok'] else 'WRONG'}"
        )


def _seconds(t: float) -> str:
    return f"{t * 1e3:10.3f} ms" if t < 1 else f"{t:10.3f} s "
