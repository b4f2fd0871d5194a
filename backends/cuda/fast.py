"""The emitters for grids that look like attention, and what they are asked.

Each is a module: what makes its kernels fast is its own, what a call needs to know of them is here.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from tilec.backends.cuda.block import Parameter
from tilec.backends.cuda.call import View
from tilec.backends.cuda.untiled import Untiled
from tilec.ir import Kernel
from tilec.scalar import Number

if TYPE_CHECKING:
    from tilec.backend import Room
    from tilec.backends.cuda.hopper.source import Facts, Launched
    from tilec.ceilings import Ceilings
    from tilec.passes.split import Options
    from tilec.pipeline import Pipeline
    from tilec.traffic import Alike

HOPPER = "sm_90a"
"""The architecture that `hopper` makes code for; `ampere` makes it for all."""
NAMES = ("hopper", "ampere")
"""The emitters, the fastest first."""

Schedule = Mapping[str, object]


class Refused(Exception):
    """The grid does not fit an emitter; the message says why."""


class Cost(Protocol):
    """What a grid should take, in seconds, by its plan and its tiles."""

    def __call__(
        self, plan: Any, tiles: Sequence[Alike], env: Mapping[str, Number], roof: Ceilings, /
    ) -> float: ...


class Emitter(Protocol):
    """An emitter. Its schedules are its own."""

    @property
    def name(self) -> str: ...

    def fields(self) -> Mapping[str, str]:
        """The fields of a schedule and their types."""
        ...

    def check(self, fields: Schedule) -> None:
        """Raises ArgumentError for fields that no schedule has."""
        ...

    def schedules(self, online: Untiled, arch: str) -> Iterator[Any]:
        """The schedules to try, the best first, with the fields that are asked for. Raises Refused where no grid fits."""
        ...

    def tiles(self, online: Untiled, schedule: Any) -> Kernel:
        """The placed tile IR under a schedule."""
        ...

    def steps(self, online: Untiled, schedule: Any) -> Pipeline:
        """The passes that make these tiles."""
        ...

    def cutting(self, schedule: Any, processors: int) -> Options:
        """How a streamed axis is cut in pieces for so many multiprocessors."""
        ...

    def sources(
        self, online: Untiled, kernel: Kernel, schedule: Any, arch: str
    ) -> Mapping[int, Launched | str]:
        """For each grid of a placed kernel: its source, or why it has none."""
        ...

    def room(self, source: Any) -> Room:
        """What a block of a kernel takes on chip."""
        ...

    def show(self, source: Any) -> str:
        """The plan of a kernel as text."""
        ...

    @property
    def seconds(self) -> Cost | None:
        """The cost model, if there is one."""
        ...


class Launcher(Protocol):
    """What launches the kernels of an emitter."""

    def refusal(
        self, facts: Facts, views: Mapping[str, View], sizes: Mapping[str, Number]
    ) -> str | None:
        """Why a kernel cannot take these tensors, or None."""
        ...

    def in_pieces(
        self, facts: Facts, views: Mapping[str, View], sizes: Mapping[str, Number]
    ) -> frozenset[str]:
        """The tensors that a kernel cannot bring as it does: another one is made, where they are `scattered`."""
        ...

    def blocks(self, facts: Facts, sizes: Mapping[str, Number], processors: int) -> int:
        """The blocks of a launch."""
        ...

    def parameters(self, facts: Facts) -> tuple[Parameter, ...]:
        """The parameters of a launch."""
        ...


@functools.cache
def emitter(name: str) -> Emitter:
    """An emitter by name."""
    if name == "hopper":
        import tilec.backends.cuda.hopper.emitter as hopper

        return hopper
    import tilec.backends.cuda.ampere.emitter as ampere

    return ampere


@functools.cache
def launcher(name: str) -> Launcher:
    """What launches the kernels of an emitter, without what makes them."""
    if name == "hopper":
        import tilec.backends.cuda.hopper.launch as hopper

        return hopper
    import tilec.backends.cuda.ampere.launch as ampere

    return ampere


def names(arch: str) -> list[str]:
    """The names of the emitters that make code for an architecture, the fastest first."""
    return [n for n in NAMES if n != "hopper" or arch == HOPPER]


def makers(arch: str) -> list[Emitter]:
    """These emitters."""
    return [emitter(n) for n in names(arch)]
