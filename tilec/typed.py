"""A kernel for element types: its IR, made when somebody looks, and what calls need to know of it without that."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass, replace

from tilec import bounds, cut, outline, pipeline, plain
from tilec.bounds import Index
from tilec.cut import Before, Cutter, Needs
from tilec.dtypes import DType
from tilec.ir import Kernel, Op, operands, walk
from tilec.source import Source


@dataclass(frozen=True)
class Facts:
    """What a call is checked against. `kernel`: the header, and the ops that make the indices; `indices`: those whose range
    is checked; `counted`: the scalars that are taken as numbers, not as seeds; `program`: its hash among those that
    schedules are shipped for; `shipped`: whether there are some."""

    kernel: Kernel
    indices: tuple[Index, ...]
    counted: tuple[str, ...]
    program: str
    shipped: bool


KNOWN = outline.OPS | plain.classes(Facts, Index)


class Typed:
    """A kernel for element types of its untyped tensors."""

    def __init__(self, source: Source, dtypes: Mapping[str, DType]) -> None:
        self._source, self._dtypes = source, dtypes
        self.shelf = source.shelf.under("types", list(dtypes.values()))
        self._cutters: dict[str, Cutter] = {}

    @functools.cached_property
    def lowered(self) -> Kernel:
        """The tensor IR."""
        return self._source.lowered(self._dtypes)

    @functools.cached_property
    def online(self) -> Kernel:
        """The tensor IR after the passes that need no sizes."""
        return pipeline.run(self.lowered, pipeline.tensor_pipeline())

    @functools.cached_property
    def facts(self) -> Facts:
        """What a call is checked against."""
        found = self.shelf.kept(Facts, self._facts, KNOWN)
        file = self._source.file
        indices = (replace(i, span=outline.moved(i.span, file)) for i in found.indices)
        kernel = outline.placed(found.kernel, file)
        return replace(found, kernel=kernel, indices=tuple(indices))

    @functools.cached_property
    def needs(self) -> Needs:
        """What must be known to cut it in tiles."""
        return self.shelf.kept(Needs, lambda: cut.needs(self.online), cut.KNOWN)

    def fixed(self, sizes: Mapping[str, int]) -> dict[str, int]:
        """The sizes that code is compiled for."""
        return {d: sizes[d] for d in self.needs.static}

    def cutter(self, target: str) -> Cutter:
        """What cuts it in tiles for a target."""
        if target not in self._cutters:
            shelf = self.shelf.under("target", target)
            self._cutters[target] = Cutter(self.needs, lambda: self.online, target, shelf)
        return self._cutters[target]

    def before(self, sizes: Mapping[str, int]) -> Before:
        """It, not cut yet."""
        return Before(self.needs, sizes, lambda: self.online, self.shelf)

    def _facts(self) -> Facts:
        from tilec.tuning import shipped

        indices = bounds.indices(self.lowered, self._source.written)
        kernel = replace(self.lowered, body=_makers(self.lowered, indices))
        program = shipped.program(self.lowered)
        numbers = outline.numbers(self.lowered)
        return Facts(kernel, indices, numbers, program, shipped.has(program))


def _makers(kernel: Kernel, indices: tuple[Index, ...]) -> tuple[Op, ...]:
    """The ops that indices are made by."""
    ops = {op.results[0].name: op for op in walk(kernel.body) if op.results}
    found: dict[str, Op] = {}
    waiting = [index.operand for index in indices]
    while waiting:
        x = waiting.pop()
        if isinstance(x, str) and x in ops and x not in found:
            found[x] = replace(ops[x], span=None)
            waiting += operands(ops[x])
    return tuple(found.values())
