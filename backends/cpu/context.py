"""The block of 64-bit words through which the host tells a kernel's code what differs from call to call.

Sizes, scalar arguments, and the addresses, shapes and strides of tensors each have a slot. Slot 0 is the counter from
which workers take tasks, slot 1 the number of tasks, slot 2 says whether exact code was missed; then come the addresses: of
parameters, outputs and buffers. For each grid there is the address of its exact code, 0 until there is some.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, TypeAlias

from tilec.ir import Buffer, Grid, Kernel

if TYPE_CHECKING:
    from tilec.backends.cpu.vector import Emit

Key: TypeAlias = tuple[str, str | int] | tuple[str, str | int, str | int]
COUNTER: Key = ("counter", 0)
TASKS: Key = ("tasks", 0)
MISSED: Key = ("missed", 0)
OWN = frozenset({"counter", "tasks", "missed", "exact"})
"""Keys of what is the workers' own affair; the rest is for tasks."""
ADDRESSES = 3
"""The slot of the first address."""


class Context:
    """The slot of everything that a kernel is told. A float argument is held as the bits of an f64."""

    def __init__(self, kernel: Kernel) -> None:
        self.slots: dict[Key, int] = {key: n for n, key in enumerate(_keys(kernel))}
        self.last: list[Key] = [("stride", name, n - 1) for name, n in ranks(kernel).items() if n]
        """The strides along last dimensions."""

    def __len__(self) -> int:
        return len(self.slots)

    def read(self, e: Emit, pointer: Any, key: Key) -> Any:
        """The i64 in a slot."""
        return e.read("i64", pointer, e.index(self.slots[key]))


def ranks(kernel: Kernel) -> dict[str, int]:
    """The number of dimensions of each tensor: parameters, outputs and buffers."""
    out = {name: len(t.dims) for name, t in kernel.tensors.items()}
    out |= {o.name: len(o.axes) for o in kernel.outputs}
    return out | {
        b.result.name: len(b.result.type.axes) for b in kernel.body if isinstance(b, Buffer)
    }


def _keys(kernel: Kernel) -> Iterator[Key]:
    yield COUNTER
    yield TASKS
    yield MISSED
    for name in ranks(kernel):
        yield "pointer", name
    for axis in kernel.axes:
        yield "extent", axis.name
    for name in kernel.dims:
        yield "dim", name
    for name in kernel.arguments:
        yield "scalar", name
    for name, rank in ranks(kernel).items():
        for k in range(rank):
            yield "shape", name, k
            yield "stride", name, k
    for n, op in enumerate(x for x in kernel.body if isinstance(x, Grid)):
        for axis, _ in op.axes:
            yield "tiles", n, axis
        yield "exact", n
