"""What decides which ops of a kernel run, and how often: found backwards from the bounds of loops and from conditions."""

from __future__ import annotations

from collections.abc import Iterator

from tilec.ir import (
    Body,
    Edge,
    For,
    If,
    Kernel,
    Load,
    Op,
    Operand,
    Store,
    defined,
    operands,
    regions,
    walk,
)


class Control:
    """The ops of a kernel that decide how often others run, and every name that they use.

    `usual`: conditions under which a shorter course is right (`If.relaxed`) count as true, and decide nothing.
    """

    def __init__(self, kernel: Kernel, usual: bool = False) -> None:
        self.ops: set[int] = set()
        self.names: set[str] = set()
        self.tensors: list[str] = []
        """The tensor parameters that these ops load."""
        self._kernel = kernel
        self._by_name = {v.name: op for op in walk(kernel.body) for v in defined(op)}
        self._stores: dict[str, list[Op]] = {}
        for op in walk(kernel.body):
            if isinstance(op, Store):
                self._stores.setdefault(op.tensor, []).append(op)
        for op in walk(kernel.body):
            if isinstance(op, If) and op.relaxed and usual:
                continue
            if isinstance(op, (For, If)):
                self._follow(operands(op) if isinstance(op, If) else (op.start, op.stop))

    def __contains__(self, op: Op) -> bool:
        return id(op) in self.ops

    def inside(self, body: Body) -> bool:
        """Whether one of the ops is in a body."""
        return any(op in self for op in walk(body))

    def _follow(self, found: tuple[Operand | None, ...]) -> None:
        todo: list[Op] = list(self._definers(found))
        while todo:
            op = todo.pop()
            if op in self:
                continue
            self.ops.add(id(op))
            # Of an op with regions, one of whose results is needed, everything is.
            todo.extend(inner for r in regions(op) for inner in r)
            todo.extend(self._definers(operands(op)))
            if isinstance(op, Edge):
                self.names.add(op.axis)
            elif isinstance(op, Store):
                todo.append(self._by_name[op.tensor])
            elif isinstance(op, Load):
                todo.extend(self._stores.get(op.tensor, ()))
                if op.tensor in self._kernel.tensors and op.tensor not in self.tensors:
                    self.tensors.append(op.tensor)

    def _definers(self, found: tuple[Operand | None, ...]) -> Iterator[Op]:
        for x in found:
            if isinstance(x, str):
                self.names.add(x)
                if x in self._by_name:
                    yield self._by_name[x]
