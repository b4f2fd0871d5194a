"""A program beside what else computes it, in one process: all are made ready, compared with float64, and timed in turns."""

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
from typing import TYPE_CHECKING, Any, cast

from tilec import accuracy, backend, scalar
from tilec.errors import UnsupportedError

if TYPE_CHECKING:
    from tilec.formula import Formula, Roles
    from tilec.kernel import Kernel
    from tilec.peers import Peer
    from tilec.plans import Plan
    from tilec.scalar import Number
    from tilec.tuning.store import Winner

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


@dataclass(frozen=True)
class Comparison:
    """A kernel beside its peers. `formula`: which standard variant it is, if it is one; `tuned`: the stored schedule that it
    takes; `runners`: the kernel itself, and the peers after it."""

    kernel: str
    sizes: Mapping[str, int]
    scalars: Mapping[str, Number]
    formula: str | None
    tuned: Winner | None
    runners: Sequence[Runner]

    @property
    def title(self) -> str:
        """The kernel, its sizes and its scalars."""
        return f"{self.kernel}({scalar.assigned({**self.sizes, **self.scalars})})"

    @property
    def by(self) -> str:
        """Which of its times each counts with."""
        return "best" if any(r.uneven for r in self.runners) else "median"


def compared(
    kernel: Kernel,
    arrays: dict[str, Any],
    scalars: Mapping[str, Number],
    named: Sequence[str],
    only: Sequence[str] | None,
    seconds: float,
) -> Comparison:
    """A kernel beside its peers on NumPy arrays. `named`: functions of the user's, `MODULE:FUNCTION`; `only`: words of the
    names of other peers that are wanted; `seconds`: for how long each is timed. Raises UnsupportedError on a GPU without
    PyTorch."""
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
            theirs = _standard(f, r, tensors, arrays, torch, on_gpu)
            runners += [_made(p) for p in theirs if _wanted(p, only)]
        runners += map(_made, yours)
        _check(kernel, runners, arrays, scalars, found, plan)
        take_turns(runners, seconds, _on_gpu if on_gpu else _here)
    name = None if found is None else str(found[0])
    bound = plan.bound
    return Comparison(kernel.name, bound.sizes, bound.scalars, name, plan.tuned, runners)


def _wanted(peer: Peer, only: Sequence[str] | None) -> bool:
    return only is None or any(word.lower() in peer.name.lower() for word in only)


def _standard(
    f: Formula,
    r: Roles,
    tensors: Mapping[str, Any],
    arrays: Mapping[str, Any],
    torch: bool,
    on_gpu: bool,
) -> Iterator[Peer]:
    """The peers that compute a standard variant."""
    from tilec import formula, peers

    if torch:
        yield from peers.standard(f, r, tensors, on_gpu)
    if not on_gpu:
        yield peers.Peer("NumPy in float64", lambda: lambda: formula.evaluate(f, arrays, r.names))


def _made(peer: Peer) -> Runner:
    """A peer made ready, or why it refuses."""
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
    plan: Plan,
) -> None:
    """Each one's error against float64: of the formula, or of the interpreter where the work allows it."""
    from tilec import formula

    some: tuple[slice, ...] = ()
    own: Mapping[str, Any] = arrays
    if found is not None:
        some, own = some_heads(arrays, found[1])
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


def some_heads(
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


def _work(plan: Plan, arrays: Mapping[str, Any]) -> int:
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


def take_turns(
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
