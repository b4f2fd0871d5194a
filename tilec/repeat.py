"""Calls like earlier ones: found by what their arguments look like, and run with nothing but the addresses of the arrays."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from tilec.backend import Launch
from tilec.glance import looks, writable
from tilec.ir import Kernel as IR
from tilec.results import Maker

Key = tuple[object, ...]
Reach = tuple[int, int]
"""The first byte of an array and the one after its last, counted from its address."""

KEPT = 64
"""How many calls a kernel is ready to repeat."""


@dataclass(frozen=True, slots=True)
class Ready:
    """A call that can be repeated. `make`: its outputs, where they were not given; `reach`: all arrays, where they were."""

    launch: Launch
    make: tuple[Maker, ...] = ()
    reach: tuple[Reach, ...] = ()

    def __call__(self, addresses: list[int], out: Any) -> Any:
        """Runs it; gives its outputs."""
        if out is not None:
            self.launch(addresses)
            return out
        made: list[Any] = []
        for make in self.make:
            x = make()
            made.append(x)
            addresses.append(make.address(x) or make.describe(x).pointer)
        self.launch(addresses)
        return made[0] if len(made) == 1 else tuple(made)


Look = tuple[Key, list[int]]
"""What a call looks like, and the addresses of its arrays: tensors in the order of the signature, then outputs."""


class Repeats:
    """The calls that a kernel is ready to repeat."""

    def __init__(self, signature: IR) -> None:
        self._tensors, self._scalars = tuple(signature.tensors), frozenset(signature.arguments)
        self._count, self._outputs = len(self._tensors), len(signature.outputs)
        self._ready: OrderedDict[Key, Ready] = OrderedDict()

    def look(self, tensors: Sequence[Any], named: Mapping[str, Any], out: Any) -> Look | None:
        """What a call looks like; None where its arguments need a closer look."""
        key: list[object] = []
        if named or len(tensors) != self._count:
            found = self._named(tensors, named)
            if found is None:
                return None
            tensors, key = found
        addresses: list[int] = []
        for x in tensors if out is None else (*tensors, *_given(out, self._outputs)):
            seen = looks[type(x)](x)
            if seen is None:
                return None
            key.append(seen[0])
            addresses.append(seen[1])
        return tuple(key), addresses

    def find(self, look: Look) -> Ready | None:
        """What a call that looks so runs; None for the first one, and where an output reaches into another array."""
        found = self._ready.get(look[0])
        if found is None or (found.reach and _meet(found.reach, look[1], self._count)):
            return None
        return found

    def keep(self, look: Look, ready: Ready) -> None:
        """Remembers a call."""
        if len(self._ready) >= KEPT:
            self._ready.popitem(last=False)
        self._ready[look[0]] = ready

    def drop(self, look: Look | None) -> None:
        """Forgets a call."""
        if look is not None:
            self._ready.pop(look[0], None)

    def clear(self) -> None:
        """Forgets all calls."""
        self._ready.clear()

    def _named(
        self, tensors: Sequence[Any], named: Mapping[str, Any]
    ) -> tuple[list[Any], list[object]] | None:
        """The tensors in order, and the scalars as parts of a key."""
        arrays = list(tensors)
        for name in self._tensors[len(arrays) :]:
            if name not in named:
                return None
            arrays.append(named[name])
        scalars: list[object] = []
        for name, x in named.items():
            if name in self._scalars and type(x) in (int, float, bool):
                scalars += name, repr(x)  # tells 0.0 from -0.0, and True from 1
            elif name not in self._tensors[len(tensors) :]:
                return None
        return (arrays, scalars) if len(arrays) == len(self._tensors) else None


def _given(out: Any, count: int) -> Sequence[Any]:
    """The arrays of `out`, or something that is no array where they cannot be written, or are not `count`."""
    arrays = (out,) if count == 1 else cast("tuple[Any, ...]", out)
    if type(arrays) is tuple and len(arrays) == count and all(map(writable, arrays)):
        return arrays
    return (None,)


def _meet(reach: Sequence[Reach], addresses: Sequence[int], first: int) -> bool:
    """Whether an array from number `first` on reaches into an earlier one."""
    for n in range(first, len(addresses)):
        low, high = addresses[n] + reach[n][0], addresses[n] + reach[n][1]
        for a, (start, end) in zip(addresses[:n], reach, strict=False):
            if low < a + end and a + start < high:
                return True
    return False
