"""Copies of blocks into scratch, row by row: functions of the module's own, which keys and values share, and all loops over
them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tilec.backends.cpu import storage
from tilec.backends.cpu.memory import gather
from tilec.backends.cpu.vector import KINDS, POINTER, Emit, Kind, constant
from tilec.dtypes import DType

UNROLL = 4
"""Vectors that a copy moves at a time."""


@dataclass(frozen=True)
class Copy:
    """What is known of a copy: from which type by way of which kind to which, the elements of a row, and the elements from
    one to the next in scratch along each axis before the last. `quick`: rows that are consecutive are read as vectors;
    `dense`: all are."""

    dtype: DType
    kind: Kind
    to: Kind
    count: int
    steps: tuple[int, ...]
    quick: bool
    dense: bool

    def call(
        self,
        e: Emit,
        base: Any,
        target: Any,
        offset: Any,
        counts: Sequence[Any],
        strides: Sequence[Any],
        inside: Any | None,
    ) -> None:
        """Copies the block at an offset from `base`. `counts`: of all axes but the last; `strides`: in memory, of all axes;
        `inside`: whether it is there, where that is not certain."""
        words = [e.builder.ptrtoint(x, KINDS["i64"]) for x in (base, target)]
        numbers = [e.index(x) for x in (offset, *counts, *strides)]
        steps = "_".join(map(str, self.steps))
        name = f"copy_{self.dtype}_{self.to}_{self.count}_{steps}{'_quick' * self.quick}{'_dense' * self.dense}"
        some = [] if inside is None else [inside]
        e.outlined(name, self.body, *words, *numbers, *some, result=KINDS["i64"])

    def body(self, e: Emit, base: Any, target: Any, offset: Any, *rest: Any) -> Any:
        """The function, in terms of its arguments."""
        n = len(self.steps)
        counts, strides, inside = rest[:n], rest[n : 2 * n + 1], [*rest[2 * n + 1 :], None][0]
        b = e.builder
        rows = _Rows(
            self, e, b.inttoptr(base, POINTER), b.inttoptr(target, POINTER), strides[-1], inside
        )

        def along(unit: bool) -> None:
            rows.all(unit, list(zip(counts, strides, self.steps, strict=False)), offset, 0)

        if not self.quick:
            along(False)
            return offset
        unit = self.dense or e.compare("==", strides[-1], 1)
        unit = unit if inside is None else e.and_(unit, inside)
        e.branch(unit, lambda: along(True), lambda: along(False))
        return offset


@dataclass(frozen=True)
class _Rows:
    """The rows of a copy. `step`: elements in memory from one element of a row to the next."""

    copy: Copy
    e: Emit
    base: Any
    target: Any
    step: Any
    inside: Any | None

    @property
    def raw(self) -> Kind:
        return storage.MEMORY[self.copy.dtype]

    def all(
        self, unit: bool, axes: Sequence[tuple[Any, Any, int]], source: Any, target: Any
    ) -> None:
        """The rows along some axes, of which count, stride in memory and stride in scratch are given. `unit`: the elements
        of a row are consecutive."""
        if not axes:
            self.row(unit, source, target)
            return
        (count, stride, step), *rest = axes
        e = self.e

        def each(i: Any, _: list[Any]) -> None:
            self.all(unit, rest, e.add(source, e.mul(i, stride)), e.add(target, e.mul(i, step)))

        e.loop(0, count, 1, [], each, name="rows")

    def row(self, unit: bool, source: Any, target: Any) -> None:
        """A row, vector by vector; the last one may overlap with the one before."""
        e, count = self.e, self.copy.count
        length = count // e.lanes
        if not length:
            self.short(unit, source, target)
            return
        unroll = next(n for n in (UNROLL, 2, 1) if length % n == 0) if unit else 1

        def step(i: Any, _: list[Any]) -> None:
            for n in range(unroll):
                self.vector(unit, source, target, e.add(i, n * e.lanes))

        e.loop(0, length * e.lanes, unroll * e.lanes, [], step, name="row")
        if count % e.lanes:
            self.vector(unit, source, target, count - e.lanes)

    def vector(self, unit: bool, source: Any, target: Any, at: Any) -> None:
        """A vector of a row, from the element `at` on."""
        e = self.e
        if unit:
            x = e.read(self.raw, self.base, e.add(source, at), e.lanes)
        else:
            places = e.add(e.mul(e.ramp(at), self.step), source)
            x = gather(e, self.raw, self.base, places, self.inside)
        self.write(storage.widen(e, x, self.copy.dtype, self.copy.kind), e.add(target, at))

    def short(self, unit: bool, source: Any, target: Any) -> None:
        """A row of less than a vector, of elements that are kept as they are."""
        e, count = self.e, self.copy.count
        size = 1 << count.bit_length() - 1
        for at in (0, count - size) if unit else range(count):
            if unit:
                x = e.read(self.raw, self.base, e.add(source, at), size)
            else:
                exists = constant("i1", 1) if self.inside is None else self.inside
                x = e.read_if(self.raw, self.base, e.add(source, e.mul(self.step, at)), exists)
            self.write(x, e.add(target, at))

    def write(self, x: Any, at: Any) -> None:
        e, to = self.e, self.copy.to
        x = e.convert(x, to)
        e.write(e.convert(x, "i8") if to == "i1" else x, self.target, at)
