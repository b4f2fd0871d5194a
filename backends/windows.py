"""Windows of axes, and what varies along them: what code generators share that evaluate operands point by point."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Generic, Protocol, TypeVar

from tilec.errors import UnsupportedError
from tilec.ir import Kernel, Operand, Type


class Window(Protocol):
    """The stretch of an axis that the present tile covers, as a generator has it."""

    @property
    def scalar(self) -> bool:
        """Whether the tile holds one position, so that the axis is in no type."""
        ...


W = TypeVar("W", bound=Window)


class Windows(ABC, Generic[W]):
    """The windows that loops and grids move now, by axis. `aside`: the axes of copies, which the kernel has no name for."""

    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel
        self.windows: dict[str, W] = {}
        self.aside: dict[str, tuple[str, ...]] = {}

    def axes(self, x: Operand) -> tuple[str, ...]:
        """The axes along which an operand varies within the present tile."""
        if not isinstance(x, str):
            return ()
        if x in self.aside:
            return self.aside[x]
        if x in self.kernel.values:
            return self.kernel.values[x].type.axes
        if x in self.kernel.extents:
            return () if self.window(x).scalar else (x,)
        return ()

    def window(self, axis: str) -> W:
        """The window of an axis; all of it where no loop moves one."""
        return self.windows[axis] if axis in self.windows else self.whole(axis)

    @abstractmethod
    def whole(self, axis: str) -> W:
        """An axis that no loop moves a window of."""


def extent_in(kernel: Kernel, type: Type, axis: str, target: str) -> int:
    """How many positions a tile of this type has on an axis. Raises UnsupportedError where nobody knows in compiling."""
    tile, whole = type.tile[type.axes.index(axis)], kernel.extents[axis]
    if tile is not None:
        return tile
    if isinstance(whole, int):
        return whole
    raise UnsupportedError(
        f"target {target}: axis {axis} of {kernel.name} is held whole in a tile, so its extent must be known when "
        f"the kernel is compiled; give a size of {whole}, or tile it"
    )
