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
from tilec.errors import ArgumentError, ResourceError, UnsupportedError
from tilec.ir import Kernel
from tilec.results import Result, new
from tilec.tuning import search, shipped, space, store, turn
from tilec.tuning.apart import Apart
from tilec.tuning.bench import Bench, Here
from tilec.tuning.board import Leaderboard
from tilec.tuning.key import Key, key
from tilec.tuning.problem import Options, Problem


def winner(
    kernel: Kernel,
    online: Kernel,
    sizes: Mapping[str, int],
    fixed: Mapping[str, int],
    target: str,
    offers: Sequence[shipped.Default],
) -> store.Winner | None:
    """The stored schedule for a call, or one that is shipped for its program (`offers`), None where there is none that can
    be used; what is wrong with it is a warning."""
    wanted = key(kernel, sizes, fixed, target)
    found = _stored(wanted) or next(
        (d.for_kernel(kernel, wanted) for d in offers if d.serves(kernel, sizes, fixed)), None
    )
    if found is None:
        return None
    if not _fits(found.choice, online, fixed, target):
        _warn(f"the stored schedule {found.choice} does not fit {kernel.name}, and is not used")
        return None
    return found


def _stored(wanted: Key) -> store.Winner | None:
    """What the user's searches found."""
    if not store.exists():
        return None
    try:
        with store.open_store() as s:
            return s.winner(wanted)
    except store.StoreError as e:
        _warn(str(e))
        return None


def _fits(chosen: store.Choice, online: Kernel, fixed: Mapping[str, int], target: str) -> bool:
    """Whether a kernel can be cut as chosen: its axes and the target's fields are named, and the tiles fit on chip."""
    try:
        backend.check_schedule(target, chosen.schedule)
        tiles = space.tiles_of(online, fixed, chosen.tile, target)
    except (ArgumentError, ResourceError, UnsupportedError):
        return False
    return set(chosen.tile) <= set(space.tiled_axes(tiles))


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

    def tune(self, fixed: Mapping[str, int], options: Options) -> Leaderboard:
        """Searches on the arguments of the call."""
        plain: Callable[[Any], Any] = gpu.receive if backend.on_gpu(self.target) else _numpy
        values = {n: plain(give(a)) for n, a in self.arrays.items()}
        problem = Problem(
            key=key(self.kernel, self.bound.sizes, fixed, self.target),
            target=self.target,
            lowered=self.kernel,
            online=self.online,
            sizes=self.bound.sizes,
            scalars=self.bound.scalars,
            fixed=fixed,
            arrays=values,
            reference=functools.partial(self.reference, values),
            bench=lambda: self.bench(values),
        )
        with store.open_store() as s, turn.taken(self.target, s.file.parent, options.notice):
            return search.tune(problem, s, options)

    def bench(self, values: Mapping[str, Any]) -> Bench:
        """What runs candidates: on a GPU a process of their own, where one that crashes or hangs does no harm."""
        if not backend.on_gpu(self.target):
            return Here(self.target, self.run, _numpy)
        arrays = {n: (a, values[n]) for n, a in self.arrays.items()}
        sizes, scalars = self.bound.sizes, self.bound.scalars
        return Apart(self.target, self.online, sizes, scalars, arrays, self.outputs)

    def run(self, runner: backend.Runner) -> dict[str, Any]:
        """The outputs of a call on the CPU."""
        results = new(self.outputs, self.arrays)
        runner(self.arrays, self.bound.scalars, results)
        return {n: give(a) for n, a in results.items()}

    def reference(self, arrays: Mapping[str, Any], plain: bool = False) -> dict[str, Any]:
        """The exact outputs, or those of plain arithmetic."""
        from tilec.backends.reference import interpreter

        how = {"rounding": plain, "in_order": plain}
        return dict(interpreter.run(self.kernel, arrays, self.bound.scalars, **how).outputs)


def _numpy(x: Any) -> Any:
    """An array of the CPU as NumPy's; the view has the library's bits where NumPy lacks the type."""
    from tilec.arrays import view

    return view("", x).numpy()
