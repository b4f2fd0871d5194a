"""Making ops: a builder that infers the types of their results."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Literal

from tilec.dtypes import DType, kind
from tilec.errors import Span
from tilec.functions import FUNCTIONS, REDUCTIONS
from tilec.ir import Cast, Contract, Edge, Kernel, Load, Map, Op, Operand, Reduce, Type, Value
from tilec.renaming import fresh, used_names


class Builder:
    """Makes ops with fresh names and inferred types, in order, into `ops`.

    `tiles` holds the tile extent of each axis that has a window (1: the axis is a scalar here).
    """

    def __init__(self, kernel: Kernel, taken: set[str] | None = None) -> None:
        self.kernel = kernel
        self.taken: set[str] = used_names(kernel) if taken is None else taken
        self.types: dict[str, Type] = {v.name: v.type for v in kernel.values.values()}
        self.tiles: dict[str, int | None] = {}
        self.ops: list[Op] = []
        self.span: Span | None = None

    def type_of(self, x: Operand) -> Type:
        """The type of an operand. A literal and a dimension have no axes."""
        if isinstance(x, str):
            if x in self.types:
                return self.types[x]
            if x in self.kernel.extents:
                tile = self.tiles.get(x)
                return Type("i64") if tile == 1 else Type("i64", (x,), (tile,))
            if x in self.kernel.arguments:
                by: dict[str, DType] = {"int": "i64", "float": self.kernel.compute, "bool": "bool"}
                return Type(by[self.kernel.arguments[x].type])
            if x in self.kernel.dims:
                return Type("i64")
            raise KeyError(f"no value, axis, dimension or scalar is called {x!r}")
        if isinstance(x, bool):
            return Type("bool")
        if isinstance(x, float):
            return Type(self.kernel.compute)
        return Type("i64")

    def join(self, types: Iterable[Type]) -> tuple[tuple[str, ...], tuple[int | None, ...]]:
        """The axes of a broadcast, in the kernel's order, with their tile extents."""
        seen: dict[str, int | None] = {}
        for t in types:
            for a, n in zip(t.axes, t.tile, strict=True):
                seen.setdefault(a, n)
        order = list(self.kernel.extents)
        axes = tuple(sorted(seen, key=order.index))
        return axes, tuple(seen[a] for a in axes)

    def add(self, op: Op) -> str:
        """Appends an op with one result; gives the result's name."""
        self.ops.append(op)
        for v in op.results:
            self.types[v.name] = v.type
            self.taken.add(v.name)
        return op.results[0].name if op.results else ""

    def value(self, name: str | None, type: Type) -> Value:
        """A new value with a name like `name`."""
        return Value(fresh(name or "t", self.taken), type)

    def number(self, types: Iterable[Type]) -> DType:
        """f32 or f64 if one of the types is a float, else i64."""
        return self.kernel.compute if any(kind(t.dtype) == "float" for t in types) else "i64"

    def map(self, fn: str, *args: Operand, name: str | None = None) -> str:
        """A pointwise function."""
        types = [self.type_of(x) for x in args]
        rule = FUNCTIONS[fn].result
        if rule == "number":
            dtype = self.number(types)
        elif rule == "float":
            dtype = self.kernel.compute
        elif rule == "bool":
            dtype = "bool"
        elif rule == "int":
            dtype = "i64"
        elif rule == "bits":
            dtype = "bool" if all(t.dtype == "bool" for t in types) else "i64"
        else:
            arms = types[1:]
            dtype = "bool" if all(t.dtype == "bool" for t in arms) else self.number(arms)
        axes, tile = self.join(types)
        return self.add(Map((self.value(name, Type(dtype, axes, tile)),), fn, args, span=self.span))

    def cast(self, x: Operand, to: DType, name: str | None = None) -> str:
        """A conversion."""
        t = self.type_of(x)
        return self.add(
            Cast((self.value(name, Type(to, t.axes, t.tile)),), x, to=to, span=self.span)
        )

    def load(
        self, tensor: str, *index: Operand, guarded: bool = False, name: str | None = None
    ) -> str:
        """Elements of a parameter, an output or a buffer."""
        axes, tile = self.join(self.type_of(x) for x in index)
        t = Type(self.dtype_of(tensor), axes, tile)
        return self.add(
            Load(
                (self.value(name or tensor.lower(), t),),
                tensor,
                index,
                guarded=guarded,
                span=self.span,
            )
        )

    def dtype_of(self, tensor: str) -> DType:
        """The element type of a parameter, an output or a buffer."""
        if tensor in self.kernel.tensors:
            return self.kernel.tensors[tensor].dtype
        if tensor in self.types and self.types[tensor].space == "hbm":
            return self.types[tensor].dtype
        return next(o.dtype for o in self.kernel.outputs if o.name == tensor)

    def reduce(
        self, fn: str, *args: Operand, over: tuple[str, ...], name: str | None = None
    ) -> str:
        """A reduction."""
        types = [self.type_of(x) for x in args]
        rule = REDUCTIONS[fn]
        dtype: DType = (
            "bool"
            if rule == "bool"
            else self.kernel.compute
            if rule == "float"
            else self.number(types)
        )
        joined, extents = self.join(types)
        keep = [
            (a, n) for a, n in zip(joined, extents, strict=True) if fn == "softmax" or a not in over
        ]
        t = Type(dtype, tuple(a for a, _ in keep), tuple(n for _, n in keep))
        return self.add(Reduce((self.value(name, t),), fn, args, over=over, span=self.span))

    def contract(
        self,
        x: Operand,
        y: Operand,
        over: tuple[str, ...],
        init: Operand | None = None,
        name: str | None = None,
    ) -> str:
        """A sum of products."""
        parts = [x, y] if init is None else [x, y, init]
        axes, tile = self.join(self.type_of(p) for p in parts)
        keep = [(a, n) for a, n in zip(axes, tile, strict=True) if a not in over]
        dtype = self.number(self.type_of(p) for p in parts)
        t = Type(dtype, tuple(a for a, _ in keep), tuple(n for _, n in keep))
        return self.add(
            Contract((self.value(name, t),), x, y, over=over, init=init, span=self.span)
        )

    def edge(self, which: Literal["first", "last"], axis: str, name: str | None = None) -> str:
        """The first or last position of an axis's window."""
        return self.add(
            Edge((self.value(name or f"{axis}_{which}", Type("i64")),), which, axis, span=self.span)
        )

    def again(self, op: Op, mapping: Mapping[str, Operand]) -> str:
        """A copy of a Load, Map, Cast, Reduce or Contract with operands replaced, types inferred anew."""
        held, self.span = self.span, op.span

        def of(x: Operand) -> Operand:
            return mapping.get(x, x) if isinstance(x, str) else x

        name = op.result.name
        if isinstance(op, Load):
            out = self.load(op.tensor, *(of(x) for x in op.index), guarded=op.guarded, name=name)
        elif isinstance(op, Map):
            out = self.map(op.fn, *(of(x) for x in op.args), name=name)
        elif isinstance(op, Cast):
            out = self.cast(of(op.x), op.to, name=name)
        elif isinstance(op, Reduce):
            out = self.reduce(op.fn, *(of(x) for x in op.args), over=op.over, name=name)
        elif isinstance(op, Contract):
            out = self.contract(
                of(op.x), of(op.y), op.over, None if op.init is None else of(op.init), name=name
            )
        else:
            raise TypeError(f"{op.word} cannot be copied with new operands")
        self.span = held
        return out
