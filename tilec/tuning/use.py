"""Where stored schedules meet calls: the one to take for a call, and the search on a call's arguments."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tilec import backend, gpu
from tilec.arrays import Array, give
from tilec.binding import Bound
from tilec.ir import Kernel
from tilec.results import Result, new
from tilec.tuning import search, space, store
from tilec.tuning.key import key


def winner(
    kernel: Kernel,
    online: Kernel,
    sizes: Mapping[str, int],
    fixed: Mapping[str, int],
    target: str,
) -> store.Winner | None:
    """The stored schedule for a call, None where there is none that can be used; what is wrong with it is a warning."""
    if not store.exists():
        return None
    try:
        with store.open_store() as s:
            found = s.winner(key(kernel, sizes, fixed, target))
    except store.StoreError as e:
        _warn(str(e))
        return None
    if found is None:
        return None
    unfit = set(found.choice.tile) - _axes(online, fixed, target)
    unknown = set(found.choice.schedule) - set(backend.schedule_fields(target))
    if unfit or unknown:
        _warn(f"the stored schedule {found.choice} does not fit {kernel.name}, and is not used")
        return None
    return found


def _axes(online: Kernel, fixed: Mapping[str, int], target: str) -> set[str]:
    return set(space.tiled_axes(space.tiles_of(online, fixed, store.Choice(), target)))


@functools.cache
def _warn(message: str) -> None:
    """Says something once."""
    warnings.warn(message, RuntimeWarning, stacklevel=2)


@dataclass(frozen=True)
class Call:
    """A checked call of a kernel. `kernel`: the IR before any pass, `online` after the tensor passes."""

    kernel: Kernel
    online: Kernel
    arrays: Mapping[str, Array]
    bound: Bound
    outputs: Sequence[Result]
    target: str

    def tune(self, fixed: Mapping[str, int], options: search.Options) -> search.Leaderboard:
        """Searches on the arguments of the call."""
        on_gpu = backend.on_gpu(self.target)
        values: dict[str, Any] = {n: give(a) for n, a in self.arrays.items()}
        plain: Callable[[Any], Any] = gpu.receive if on_gpu else _numpy
        problem = search.Problem(
            key=key(self.kernel, self.bound.sizes, fixed, self.target),
            target=self.target,
            lowered=self.kernel,
            online=self.online,
            sizes=self.bound.sizes,
            scalars=self.bound.scalars,
            fixed=fixed,
            arrays={n: plain(x) for n, x in values.items()},
            run=self.run,
            reference=lambda: self.reference({n: plain(x) for n, x in values.items()}),
            plain=plain,
        )
        with store.open_store() as s:
            return search.tune(problem, s, options)

    def run(self, runner: backend.Runner) -> dict[str, Any]:
        """The outputs of a call; it is over when this returns."""
        results = new(self.outputs, self.arrays)
        runner(self.arrays, self.bound.scalars, results)
        if backend.on_gpu(self.target):
            gpu.wait()
        return {n: give(a) for n, a in results.items()}

    def reference(self, arrays: Mapping[str, Any]) -> dict[str, Any]:
        """The exact outputs."""
        from tilec.backends.reference import interpreter

        return dict(interpreter.run(self.kernel, arrays, self.bound.scalars).outputs)


def _numpy(x: Any) -> Any:
    """An array of the CPU as NumPy's; the view has the library's bits where NumPy lacks the type."""
    from tilec.arrays import view

    return view("", x).numpy()
