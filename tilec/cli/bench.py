"""`tilec bench`: a program beside what else computes it, in one process, in turns."""

from __future__ import annotations

import contextlib
import importlib
import io
import itertools
import math
import statistics
import time
import warnings
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from tilec import accuracy, backend
from tilec.cli import files, options
from tilec.errors import UnsupportedError

if TYPE_CHECKING:
    from tilec.formula import Formula, Roles
    from tilec.kernel import Kernel

COMPARED = 1 << 29
"""Scores up to which all heads are compared with float64."""
EXACT = 400_000_000
"""Operations up to which the interpreter gives the exact result, where no formula does."""
UNEVEN = 2.0
"""Times the best run: a median above it says more of the machine than of the code."""
TURNS, RUNS, FEWEST = 20, 10, 3
"""Turns of each, runs of a turn, and the fewest of all."""


@dataclass
class Runner:
    """What is timed: a name, what it runs, its times and its error; or why it did not run."""

    name: str
    run: Callable[[], Any] | None = None
    refused: str = ""
    times: list[float] = field(default_factory=list[float])
    error: accuracy.Error | None = None

    @property
    def seconds(self) -> float:
        """The median of the times."""
        return statistics.median(self.times) if self.times else math.inf

    @property
    def uneven(self) -> bool:
        """Whether its median says little: other work on the machine falls harder on those that wait for all of their threads
        than on those that share out work."""
        return bool(self.times) and self.seconds > UNEVEN * min(self.times)

    def time(self, by: str) -> float:
        """The `best` time, or the `median`."""
        return min(self.times, default=math.inf) if by == "best" else self.seconds


def bench(
    file: options.File,
    size: options.Size = None,
    dtype: options.Dtype = None,
    set_: options.Set = None,
    target: options.Target = None,
    tile: options.Tile = None,
    schedule: options.Schedule = None,
    input_: Annotated[
        str | None, typer.Option("--input", metavar="FILE.npz", help="The arguments, by name.")
    ] = None,
    peer: Annotated[
        list[str] | None,
        typer.Option(
            "--peer",
            metavar="MODULE:FUNCTION",
            help="Time this too: it gets the tensors in order (PyTorch's, where that is installed) and --set by name.",
        ),
    ] = None,
    only: Annotated[
        list[str] | None,
        typer.Option("--only", metavar="WORD", help="Only peers whose name holds this word."),
    ] = None,
    seconds: Annotated[
        float, typer.Option("--seconds", min=0.0, help="How long to time each.")
    ] = 1.0,
    seed: options.Seed = 0,
    plot: Annotated[
        str | None, typer.Option("--plot", metavar="FILE.svg", help="Draw the times.")
    ] = None,
    json: options.Json = False,
) -> None:
    """Time a program beside PyTorch's kernels and your own.

    Its peers are PyTorch's kernels, FlexAttention and the formula written out, as far as they compute the same: that is
    found by evaluating the program on small data. All run in one process, in turns, on the same data; errors are
    against float64.
    """
    from tilec.cli.run import arguments_of

    files.check_plot(plot)
    kernel = options.load(file, target, tile, schedule)
    scalars = options.scalars(set_)
    arrays = arguments_of(kernel, input_, size, dtype, seed)
    facts, runners = _compared(kernel, arrays, scalars, peer or [], only, seconds)
    if plot is not None:
        from tilec import plots

        timed = [r for r in runners if r.times]
        title = f"{facts['title']}\n{facts['formula'] or 'no standard variant'}"
        plots.save(
            plots.bars(
                title, [r.name for r in timed], [r.time(facts["compared_by"]) for r in timed]
            ),
            plot,
        )
        options.say(f"wrote {plot}")
    if json:
        options.print_json({**facts, "runs": [_fact(r) for r in runners]})
    else:
        print("\n".join(_table(facts, runners)))
    ours = runners[0].error
    if ours is not None and not ours.ok:
        options.say("error: the result is not that of the float64 reference")
        raise typer.Exit(1)


def _compared(
    kernel: Kernel,
    arrays: dict[str, Any],
    scalars: Mapping[str, Any],
    named: Sequence[str],
    only: Sequence[str] | None,
    seconds: float,
) -> tuple[dict[str, Any], list[Runner]]:
    from tilec import formula, peers

    on_gpu = kernel.target is not None and backend.on_gpu(kernel.target)
    torch = peers.installed("torch")
    if on_gpu and not torch:
        raise UnsupportedError(
            "bench: peers on a GPU need PyTorch, which is not installed; what works is `tilec run`"
        )
    tensors = {n: _to_torch(a, on_gpu) for n, a in arrays.items()} if torch else arrays
    plan = kernel.plan(**tensors, **scalars)
    found = formula.recognise(kernel, plan.bound.sizes)
    order = [tensors[p.name] for p in kernel.parameters if p.name in tensors]
    yours = [peers.named(text, order, scalars) for text in named]
    runners = [Runner(f"tilec {kernel.name}", lambda: kernel(**tensors, **scalars))]
    with _quiet(torch):  # compiling peers take the number of threads that they find
        if found is not None:
            f, r = found[0].fixed(plan.bound.scalars), found[1]
            runners += [_made(p, only) for p in _standard(f, r, tensors, arrays, torch, on_gpu)]
        runners += [_made(p, None) for p in yours]
        runners = [r for r in runners if r.refused != "left out"]
        _check(kernel, runners, arrays, scalars, found, plan)
        _time(runners, seconds, _on_gpu if on_gpu else _here)
    sizes = ", ".join(f"{n}={x}" for n, x in plan.bound.sizes.items())
    return {
        "title": f"{kernel.name}({sizes})",
        "kernel": kernel.name,
        "sizes": plan.bound.sizes,
        "scalars": plan.bound.scalars,
        "formula": None if found is None else str(found[0]),
        "schedule": None if plan.tuned is None else str(plan.tuned.choice),
        "shipped": plan.tuned is not None and plan.tuned.shipped,
        "compared_by": "best" if any(r.uneven for r in runners) else "median",
    }, runners


def _standard(
    f: Formula,
    r: Roles,
    tensors: Mapping[str, Any],
    arrays: Mapping[str, Any],
    torch: bool,
    on_gpu: bool,
) -> Iterator[Any]:
    from tilec import formula, peers

    if torch:
        yield from peers.standard(f, r, tensors, on_gpu)
    if not on_gpu:
        yield peers.Peer("NumPy in float64", lambda: lambda: formula.evaluate(f, arrays, r.names))


def _made(peer: Any, only: Sequence[str] | None) -> Runner:
    """A peer made ready, or why it refuses."""
    if only is not None and not any(w.lower() in peer.name.lower() for w in only):
        return Runner(peer.name, refused="left out")
    with warnings.catch_warnings(record=True) as said, contextlib.redirect_stderr(io.StringIO()):
        try:
            return Runner(peer.name, peer.make())
        except Exception as e:  # whatever a library raises, it is not ours to judge
            texts = [str(e).strip() or type(e).__name__, *(str(w.message) for w in said)]
            why = next((t for t in reversed(texts) if t), "")
            return Runner(peer.name, refused=why.splitlines()[0][:120])


def _to_torch(a: Any, on_gpu: bool) -> Any:
    torch: Any = importlib.import_module("torch")
    if a.dtype.name in ("bfloat16", "float8_e4m3fn", "float8_e5m2"):
        raw = torch.from_numpy(a.view("int16" if a.dtype.itemsize == 2 else "int8"))
        x = raw.view(getattr(torch, a.dtype.name))
    else:
        x = torch.from_numpy(a)
    return x.cuda() if on_gpu else x


def _here(run: Callable[[], Any]) -> float:
    """The seconds of a run."""
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def _on_gpu(run: Callable[[], Any]) -> float:
    """The seconds of a run on the GPU, whose stream is PyTorch's; not those of asking for it and hearing that it is done."""
    cuda: Any = importlib.import_module("torch").cuda
    start, end = (cuda.Event(enable_timing=True) for _ in range(2))
    cuda.synchronize()
    start.record()
    run()
    end.record()
    end.synchronize()
    return start.elapsed_time(end) / 1e3


@contextlib.contextmanager
def _quiet(torch: bool) -> Generator[None]:
    """Without gradients, and with as many threads as tilec takes."""
    if not torch:
        yield
        return
    from tilec.backends.cpu import pool

    library: Any = importlib.import_module("torch")
    held = library.get_num_threads()
    library.set_num_threads(pool.threads())
    try:
        with library.no_grad():
            yield
    finally:
        library.set_num_threads(held)


def _check(
    kernel: Kernel,
    runners: Sequence[Runner],
    arrays: Mapping[str, Any],
    scalars: Mapping[str, Any],
    found: tuple[Formula, Roles] | None,
    plan: Any,
) -> None:
    """Each one's error against float64: of the formula, or of the interpreter where the work allows it."""
    from tilec import formula

    some: tuple[slice, ...] = ()
    own: Mapping[str, Any] = arrays
    if found is not None:
        some, own = _some_heads(arrays, found[1])
        want = formula.evaluate(found[0].fixed(plan.bound.scalars), own, found[1].names)
    elif _work(plan, arrays) <= EXACT:
        want = _first(kernel.reference(**arrays, **scalars))
    else:
        return
    for r in runners:
        if r.run is None:
            continue
        got = _plain(_first(r.run())[some])
        if got.shape != want.shape:
            r.run, r.refused = None, f"gives shape {got.shape}, not {want.shape}"
        else:
            narrow = accuracy.tolerance((*arrays.values(), got))
            r.error = accuracy.error(got, want, narrow)
            if r is runners[0] and not r.error.ok:
                plain = _first(kernel.plain(**own, **scalars))
                off = accuracy.error(plain, want, 0.0).largest
                r.error = accuracy.error(got, want, narrow, off)


def _some_heads(
    arrays: Mapping[str, Any], r: Roles
) -> tuple[tuple[slice, slice], Mapping[str, Any]]:
    """Which batches and heads of an output are compared, and the arrays of these: all of them, or where all would take long
    the last ones that share keys."""
    q, k = (arrays[n] for n in r.names[:2])
    if math.prod(q.shape[:3]) * k.shape[2] <= COMPARED:
        return (slice(None), slice(None)), arrays
    last, group = slice(-1, None), slice(-(q.shape[1] // k.shape[1]), None)
    own = {
        n: a[last, group if n == r.names[0] else last] for n, a in arrays.items() if n in r.names
    }
    return (last, group), own | ({r.slopes: arrays[r.slopes][group]} if r.slopes else {})


def _work(plan: Any, arrays: Mapping[str, Any]) -> int:
    from tilec.traffic import budget

    stated = budget(plan.ir, plan.bound.sizes, plan.bound.scalars, arrays)
    return sum(stated.work.total(u) for u in stated.work.ops)


def _first(x: Any) -> Any:
    return cast("Sequence[Any]", x)[0] if isinstance(x, (tuple, list)) else x


def _plain(x: Any) -> Any:
    """An array as NumPy's, in float64."""
    if hasattr(x, "detach"):
        return x.detach().double().cpu().numpy()
    import numpy

    return numpy.asarray(x).astype("float64")


def _time(
    runners: Sequence[Runner], seconds: float, timed: Callable[[Callable[[], Any]], float]
) -> None:
    """Times all in turns of equal length, in alternating order: what runs in a moment runs often, and all see the same
    machine, to the end."""
    ready = [r for r in runners if r.run is not None]
    for turn in itertools.count():
        late = [
            r
            for r in ready
            if len(r.times) < FEWEST or (sum(r.times) < seconds and len(r.times) < TURNS * RUNS)
        ]
        if not late:
            return
        for r in late if turn % 2 else reversed(late):
            _turn(r, seconds / TURNS, timed)


def _turn(r: Runner, seconds: float, timed: Callable[[Callable[[], Any]], float]) -> None:
    """One turn: runs until its time is up, one at least."""
    assert r.run is not None
    spent = 0.0
    for _ in range(RUNS):
        took = timed(r.run)
        r.times.append(took)
        spent += took
        if spent >= seconds:
            return


# ---- showing


def _fact(r: Runner) -> dict[str, Any]:
    e = r.error
    return {
        "name": r.name,
        "seconds": r.seconds if r.times else None,
        "best_seconds": min(r.times, default=None),
        "runs": len(r.times),
        "largest_error": None if e is None else e.largest,
        "mean_error": None if e is None else e.mean,
        "refused": r.refused or None,
    }


def _table(facts: Mapping[str, Any], runners: Sequence[Runner]) -> Iterator[str]:
    yield facts["title"]
    if facts["formula"] is None:
        yield "no standard variant: its peers are those of --peer"
    else:
        yield f"recognised as: {facts['formula']}"
    if facts["schedule"] is not None:
        yield f"schedule {options.schedule(facts['schedule'], facts['shipped'])}"
    wide = max(len(r.name) for r in runners)
    yield f"{'':{wide}} {'median':>10} {'best':>10} {'runs':>5} {'tilec is':>12} {'largest':>9} {'mean error':>10}"
    by, uneven = facts["compared_by"], [r.name for r in runners if r.uneven]
    ours = runners[0].time(by)
    for r in runners:
        if not r.times:
            yield f"{r.name:{wide}} refused: {r.refused}"
            continue
        e = r.error
        errors = f"{e.largest:9.1e} {e.mean:10.1e}" if e is not None else f"{'-':>9} {'-':>10}"
        faster = "" if r is runners[0] else _against(r.time(by), ours)
        yield (
            f"{r.name:{wide}} {r.seconds * 1e3:7.3f} ms {min(r.times) * 1e3:7.3f} ms {len(r.times):5} {faster:>12} {errors}"
        )
    if all(r.error is None for r in runners):
        yield "no errors: the float64 reference would take too long; give smaller sizes"
    if uneven:
        yield (
            f"uneven times (is the machine busy?), so the ratios are those of the best runs: {', '.join(uneven)}"
        )


def _against(theirs: float, ours: float) -> str:
    return f"{theirs / ours:.2f}x faster" if theirs >= ours else f"{ours / theirs:.2f}x slower"
