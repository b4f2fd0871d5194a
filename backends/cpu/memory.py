"""Loads from tensors in memory and stores to them, at any strides.

Where the vectors of a point turn out to be consecutive, they are read and written as such; that is a test at run time, of
the stride and of the distance to the window's end. Else lane by lane.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tilec.backends.cpu import storage
from tilec.backends.cpu.context import Key
from tilec.backends.cpu.functions import kind_for
from tilec.backends.cpu.points import Val
from tilec.backends.cpu.vector import (
    BYTES,
    KINDS,
    POINTER,
    Emit,
    Kind,
    constants,
    is_value,
    lanes_of,
    type_of,
)
from tilec.dtypes import DType, kind
from tilec.ir import Kernel


@dataclass(frozen=True)
class Index:
    """An index of a load or a store. `sure`: it is in range; `start`: its first value where it counts up in lanes."""

    value: Val
    sure: bool
    start: Any | None = None

    @property
    def first(self) -> Any:
        """The index of the first lane."""
        return self.value.parts[0] if self.start is None else self.start


class Memory:
    """The tensors of a kernel. `slots` holds their addresses, shapes and strides."""

    def __init__(self, e: Emit, kernel: Kernel, float: Kind, slots: Mapping[Key, Any]) -> None:
        self.e, self.kernel, self.slots = e, kernel, slots
        self.float: Kind = float
        self.found: Any | None = None
        """Where it is remembered that a NaN was stored; None where nobody asks."""

    def dtype_of(self, tensor: str) -> DType:
        """The element type of a parameter, an output or a buffer."""
        if tensor in self.kernel.tensors:
            return self.kernel.tensors[tensor].dtype
        for o in self.kernel.outputs:
            if o.name == tensor:
                return o.dtype
        return self.kernel.values[tensor].type.dtype

    def stride(self, tensor: str, k: int) -> Any:
        """A stride, in elements."""
        return self.slots["stride", tensor, k]

    def address(self, tensor: str, index: Sequence[tuple[Any, bool]]) -> tuple[Any, Any | None]:
        """The offset of an element, and the condition under which it exists (None: it does).

        `index`: for each dimension an integer and whether it is known to be in range.
        """
        e = self.e
        offset: Any = 0
        inside: Any | None = None
        for k, (x, sure) in enumerate(index):
            x = e.convert(x, "i64")
            offset = e.add(offset, e.mul(x, self.stride(tensor, k)))
            if sure:
                continue
            ok = e.below(x, self.slots["shape", tensor, k])
            if inside is not None and lanes_of(inside) != lanes_of(ok):
                inside, ok = (y if lanes_of(y) else e.splat(y, e.lanes) for y in (inside, ok))
            inside = ok if inside is None else e.and_(inside, ok)
        return offset, inside

    # ---- loads

    def read(self, tensor: str, index: Sequence[Index], near: Any | None) -> Val:
        """Elements of a tensor; 0 where they do not exist.

        `near`: the condition under which the vectors are consecutive; None where they never are.
        """
        n = max((len(x.value.parts) for x in index), default=1)
        if near is None:
            return Val(tuple(self._element(tensor, index, part) for part in range(n)))
        offset, inside = self.address(tensor, [(x.first, x.sure) for x in index])
        near = near if inside is None else self.e.and_(near, inside)
        parts = self.e.branch(
            near,
            lambda: [self._vector(tensor, offset, part) for part in range(n)],
            lambda: [self._element(tensor, index, part) for part in range(n)],
        )
        return Val(tuple(parts))

    def row(self, tensor: str, index: Sequence[tuple[Any, bool]], count: int) -> Any:
        """The address of `count` consecutive elements; of as many zeros where they do not exist."""
        e, size = self.e, BYTES[storage.MEMORY[self.dtype_of(tensor)]]
        offset, inside = self.address(tensor, index)
        address = e.at(self.slots["pointer", tensor], offset, size)
        return (
            address if inside is None else e.builder.select(inside, address, e.zeros(count * size))
        )

    def along(self, tensor: str, row: Any, at: Any, count: int) -> Val:
        """A vector of a row's elements from `at` on. One that does not fit the row is at a known place; its last lanes
        repeat the last element."""
        e, raw = self.e, storage.MEMORY[self.dtype_of(tensor)]
        if not isinstance(at, int) or at + e.lanes <= count:
            x = e.read(raw, row, at, e.lanes)
        elif count < e.lanes:
            x = e.gather(raw, row, constants("i64", [min(n, count - 1) for n in range(e.lanes)]))
        else:
            last = e.read(raw, row, count - e.lanes, e.lanes)
            lanes = [min(at + n, count - 1) - (count - e.lanes) for n in range(e.lanes)]
            x = e.shuffle(last, last, lanes)
        return Val((self._widen(tensor, x),))

    def _vector(self, tensor: str, offset: Any, part: int) -> Any:
        """One part of a load, of consecutive elements."""
        raw, lanes = storage.MEMORY[self.dtype_of(tensor)], self.e.lanes
        at = self.e.add(offset, part * lanes)
        return self._widen(tensor, self.e.read(raw, self.slots["pointer", tensor], at, lanes))

    def _element(self, tensor: str, index: Sequence[Index], part: int) -> Any:
        """One part of a load, lane by lane."""
        e, raw = self.e, storage.MEMORY[self.dtype_of(tensor)]
        base = self.slots["pointer", tensor]
        offset, inside = self.address(tensor, [(x.value.part(part), x.sure) for x in index])
        if is_value(offset) and lanes_of(offset):
            x = gather(e, raw, base, offset, inside)
        elif inside is None:
            x = e.read(raw, base, offset)
        else:
            x = e.read_if(raw, base, offset, inside)
        return self._widen(tensor, x)

    def _widen(self, tensor: str, x: Any) -> Any:
        dtype = self.dtype_of(tensor)
        return storage.widen(self.e, x, dtype, kind_for(dtype, self.float))

    # ---- stores

    def write(
        self,
        tensor: str,
        index: Sequence[Index],
        value: Val,
        near: Any | None,
        inside: Sequence[Any] | None,
    ) -> None:
        """Sets elements of a tensor. `near` as for `read`; `inside`: which lanes of each part count; None: all."""
        e, dtype = self.e, self.dtype_of(tensor)
        n = max((len(x.value.parts) for x in index), default=1)
        wide = [e.convert(value.part(part), kind_for(dtype, self.float)) for part in range(n)]
        if kind(dtype) == "float":
            self.look(wide, inside)
        narrow = [storage.narrow(e, x, dtype) for x in wide]
        if near is None:
            self._scatter(tensor, index, narrow)
            return

        def together() -> None:
            offset, _ = self.address(tensor, [(x.first, True) for x in index])
            for part, x in enumerate(narrow):
                x = x if lanes_of(x) else e.splat(x)
                e.write(x, self.slots["pointer", tensor], e.add(offset, part * e.lanes))

        e.branch(near, together, lambda: self._scatter(tensor, index, narrow))

    def _scatter(self, tensor: str, index: Sequence[Index], parts: Sequence[Any]) -> None:
        """Writes lane by lane. Lanes past a window's end, which repeat its last position, come first, so that what the
        last position itself has stays."""
        e, base = self.e, self.slots["pointer", tensor]
        for part, x in reversed(list(enumerate(parts))):
            offset, _ = self.address(tensor, [(i.value.part(part), True) for i in index])
            if is_value(offset) and lanes_of(offset):
                scatter_back(e, x if lanes_of(x) else e.splat(x), base, offset)
            else:
                e.write(x, base, offset)

    def look(self, parts: Sequence[Any], inside: Sequence[Any] | None = None) -> None:
        """Remembers whether a stored value is NaN. `inside` as for `write`: what other lanes hold is nobody's value."""
        if self.found is None:
            return
        e = self.e
        each = [e.is_nan(x) for x in parts]
        if inside is not None and lanes_of(parts[0]):
            each = [e.and_(x, ok) for x, ok in zip(each, inside, strict=True)]
        bad = functools.reduce(e.or_, each)
        word = e.convert(e.any(bad), "i64")
        e.write(e.or_(e.read("i64", self.found), word), self.found)


def gather(e: Emit, raw: Kind, base: Any, offsets: Any, inside: Any | None) -> Any:
    """One element per lane, as a call: the code for it is long."""

    def body(f: Emit, word: Any, offsets: Any, inside: Any | None = None) -> Any:
        return f.gather(raw, f.builder.inttoptr(word, POINTER), offsets, inside)

    xs = [e.builder.ptrtoint(base, KINDS["i64"]), offsets]
    if inside is not None:
        xs.append(inside if lanes_of(inside) else e.splat(inside))
    return e.outlined(f"gather_{raw}", body, *xs, result=type_of(raw, lanes_of(offsets)))


def scatter_back(e: Emit, x: Any, base: Any, offsets: Any) -> None:
    """Stores lane by lane, the last first, as a call.

    Lanes past a window's end repeat its last position and need not hold its value: what that lane itself has must stay.
    """

    def body(f: Emit, x: Any, word: Any, offsets: Any) -> Any:
        address = f.builder.inttoptr(word, POINTER)
        for lane in reversed(range(lanes_of(x))):
            f.write(f.lane(x, lane), address, f.lane(offsets, lane))
        return x

    e.outlined("scatter", body, x, e.builder.ptrtoint(base, KINDS["i64"]), offsets)
