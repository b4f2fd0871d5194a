"""stage: an operand of a contraction that is dear to compute is made once, in HBM, not again by each tile that reads it.

Requires: tiles (after prune). Changes: such operands are loads of buffers, which a grid of its own fills.

    grid(axes=[b:1, h:1, i:128]) { …              grid(axes=[b:1, g_1:1, j:128]) {
      for(axis=j, tile=128) {                       k: bf16[j:128, d] = load(K, b, g_1, j, d)
        k: bf16[j:128, d] = load(K, b, g, j, d)     …
        t: f32[j:128, d] = cos(mul(j, f))           store(x_all, b, g_1, j, d, value=x)
        x: f32[j:128, d] = mul(k, t)        ->    }
        s = contract(q, x, over=d) …              grid(axes=[b:1, h:1, i:128]) { …
                                                    for(axis=j, tile=128) {
                                                      x_1: bf16[j:128, d] = load(x_all, b, g, j, d)
                                                      s = contract(q, x_1, over=d) …

What is made has one position for each position that the operand looks up, `g` above, where the operand depends on the grid
by it alone. It is kept in the 16-bit type that it is computed from, if there is one, else in f32. A value that the 16-bit
type does not hold becomes NaN, so that it shows.

With `all`, for tiles of many rows, whatever is computed from keys and values as they lie is made once: bytes that become
numbers, keys that are scaled. What data look up is not, since there may be more places to look it up than keys.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from tilec.builder import Builder
from tilec.dataflow import live
from tilec.dtypes import DType
from tilec.ir import (
    Axis,
    Body,
    Buffer,
    Cast,
    Contract,
    For,
    Grid,
    If,
    Kernel,
    Load,
    Map,
    Op,
    Operand,
    Reduce,
    Store,
    Type,
    Value,
    defined,
    operands,
    rebuild,
    walk,
)
from tilec.renaming import fresh
from tilec.scalar import Scalar

ELEMENTARY = frozenset({"sin", "cos", "tan", "pow", "exp", "exp2", "log", "log2"})
DEAR = ELEMENTARY | {"tanh", "erf", "sigmoid", "silu", "uniform"}
"""Functions that an element is not computed with again and again."""
LARGEST: dict[DType, float] = {"f16": 65504.0, "bf16": 3.3895313892515355e38}
"""The largest value of the 16-bit types."""
BYTES: frozenset[DType] = frozenset({"i8", "u8", "f8e4m3", "f8e5m2"})
"""The types whose values the 16-bit types hold."""


@dataclass(frozen=True)
class Options:
    """`all`: what is not dear to compute is made once, too."""

    all: bool = False


def stage(kernel: Kernel, options: Options = Options()) -> Kernel:
    """The kernel with dear operands made once."""
    return _Stager(kernel, options.all).run()


@dataclass(frozen=True)
class _Staged:
    """A buffer, and where a tile of it is loaded from."""

    buffer: Value
    index: tuple[Operand, ...]


class _Stager:
    def __init__(self, kernel: Kernel, all: bool) -> None:
        self.kernel, self.all = kernel, all
        self.taken = Builder(kernel).taken
        self.axes: list[Axis] = []
        self.before: list[Op] = []

    def run(self) -> Kernel:
        body: list[Op] = []
        for op in self.kernel.body:
            grid = _Grid(self, op).run() if isinstance(op, Grid) else op
            body += [*self.before, grid]
            self.before = []
        return replace(self.kernel, axes=(*self.kernel.axes, *self.axes), body=tuple(body))


class _Grid:
    """Stages the operands of one grid."""

    def __init__(self, stager: _Stager, grid: Grid) -> None:
        self.stager, self.grid, self.kernel = stager, grid, stager.kernel
        self.ops = list(walk(grid.body))
        self.defs: dict[str, Op] = {v.name: op for op in self.ops for v in op.results}
        self.types = {v.name: v.type for op in self.ops for v in defined(op)}
        loops = [op for op in self.ops if isinstance(op, For)]
        self.windows = {a: n for a, n in grid.axes if n > 1}
        self.windows |= {f.axis: f.tile for f in loops if f.tile is not None}
        self.single = [a for a, n in grid.axes if n == 1]
        self.stepped = {f.axis for f in loops if f.tile == 1}
        self.made: dict[object, _Staged] = {}
        self.fixed: dict[str, Op] = {}

    def run(self) -> Grid:
        body = self.body(self.grid.body)
        if body == self.grid.body:
            return self.grid
        loop = next(n for n, op in enumerate(body) if isinstance(op, (For, Contract)))
        return replace(self.grid, body=live((*body[:loop], *self.fixed.values(), *body[loop:])))

    def body(self, body: Body) -> Body:
        """A body whose contractions read what is staged."""
        out: list[Op] = []
        for op in body:
            if isinstance(op, (For, If)):
                out.append(rebuild(op, region=self.body))
                continue
            if isinstance(op, Contract) and not set(op.over) & set(self.windows):
                op = replace(op, x=self.operand(op.x, out), y=self.operand(op.y, out))
            elif isinstance(op, Contract):
                op = replace(op, y=self.operand(op.y, out))
            out.append(op)
        return tuple(out)

    def operand(self, x: Operand, out: list[Op]) -> Operand:
        """An operand: the load of what is staged, or as it is."""
        staged = self.staged(x) if isinstance(x, str) else None
        if staged is None:
            return x
        buffer = staged.buffer.name
        if buffer in self.fixed:
            return self.fixed[buffer].results[0].name
        b = Builder(self.kernel, self.stager.taken)
        b.types.update({**self.types, buffer: staged.buffer.type})
        b.tiles = {**dict(self.grid.axes), **self.windows}
        name = b.load(buffer, *staged.index, name=str(x))
        if staged.index[-2] in dict(self.grid.axes):
            self.fixed[buffer] = b.ops[0]  # the same in each window
        else:
            out += b.ops
        return name

    # ---- which operands

    def staged(self, x: str) -> _Staged | None:
        """Where an operand is staged; None where it is not."""
        axes = self.types[x].axes if x in self.types else ()
        along = [a for a in axes if a in self.windows]
        if len(axes) != 2 or len(along) != 1:
            return None
        names = self.expression(x)
        if names is None:
            return None
        dear = any(self.is_dear(self.defs[n], along[0]) for n in names)
        if not dear and not (self.stager.all and self.is_computed(x, names, along[0])):
            return None
        key = self.tree(x, names)
        if key not in self.made:
            self.made[key] = self.make(x, names, along[0])
        return self.made[key]

    def expression(self, x: str) -> set[str] | None:
        """The values of the grid that an operand is computed from; None where one of them is bound to a loop."""
        out: set[str] = set()
        todo: list[Operand] = [x]
        while todo:
            y = todo.pop()
            if not isinstance(y, str) or y in out or y not in self.types:
                continue
            op = self.defs.get(y)
            if not isinstance(op, (Load, Map, Cast, Reduce)):
                return None
            if isinstance(op, Reduce) and set(op.over) & set(self.windows):
                return None
            if self.stepped & set(operands(op)):
                return None  # it is another one for each position of a loop
            out.add(y)
            todo += operands(op)
        return out

    def is_dear(self, op: Op, along: str) -> bool:
        """Whether an op is one that should be done once for each element or row."""
        if isinstance(op, Reduce):
            return along in op.result.type.axes
        wide = len(op.result.type.axes) == 2 and along in op.result.type.axes
        return isinstance(op, Map) and op.fn in DEAR and wide

    def is_computed(self, x: str, names: set[str], along: str) -> bool:
        """Whether an operand over the streamed axis is computed from elements that lie in order, for products of 16 bits."""
        op = self.defs[x]
        as_it_is = isinstance(op, Load) and op.result.type.dtype in LARGEST
        if as_it_is or along in dict(self.grid.axes) or self.element(names) is None:
            return False
        loads = [op for n in names if isinstance(op := self.defs[n], Load)]
        found = [y for op in loads for y in op.index if isinstance(y, str) and y in names]
        return not any(self.types[y].axes for y in found)

    def tree(self, x: Operand, names: set[str]) -> object:
        """An operand as an expression, without names: equal for equal operands."""
        if not isinstance(x, str) or x not in names:
            return x
        op = self.defs[x]
        parts = tuple(self.tree(y, names) for y in operands(op))
        match op:
            case Load():
                return ("load", op.tensor, *parts)
            case Map():
                return (op.fn, *parts)
            case Cast():
                return ("cast", op.to, *parts)
            case Reduce():
                return (op.fn, op.over, *parts)
            case _:
                return x

    # ---- the grid that makes one

    def make(self, x: str, names: set[str], along: str) -> _Staged:
        """The buffer and the grid that fills it."""
        (feature,) = set(self.types[x].axes) - {along}
        looked = self.looked_up(names)
        if looked is not None:
            names = names - self.below(looked[0], names)
        used = {y for n in names for y in operands(self.defs[n]) if isinstance(y, str)}
        single = [a for a in self.single if a in used]
        index: list[Operand] = [*single, along, feature]
        axes = [*single, along, feature]
        rename: dict[str, Operand] = {}
        if looked is not None:
            name, extent = looked
            axis = fresh(f"{name}_all", self.stager.taken)
            self.stager.axes.append(Axis(axis, extent))
            rename[name] = axis
            index.insert(len(single), name)
            axes.insert(len(single), axis)
        kernel = replace(self.kernel, axes=(*self.kernel.axes, *self.stager.axes))
        b = Builder(kernel, self.stager.taken)
        rows = self.windows[along]
        b.tiles = {**dict.fromkeys(axes[:-2], 1), along: rows}
        for op in self.ops:
            if op.results and op.results[0].name in names:
                rename[op.result.name] = b.again(op, rename)
        value = rename[x]
        dtype = self.element(names) or "f32"
        if dtype in LARGEST:
            fits = b.map("le", b.map("abs", value), LARGEST[dtype])
            value = b.map("select", fits, value, float("nan"))
        buffer = Value(
            fresh(f"{x}_all", self.stager.taken),
            Type(dtype, tuple(axes), (), "hbm"),
        )
        store = Store((), buffer.name, tuple(axes), value)
        sizes = tuple((a, 1 if a != along else rows or 1) for a in axes[:-1])
        self.stager.before += [Buffer((buffer,)), Grid((), axes=sizes, body=(*b.ops, store))]
        return _Staged(buffer, tuple(index))

    def looked_up(self, names: set[str]) -> tuple[str, Scalar] | None:
        """A scalar by which alone values depend on a grid axis, an index of one dimension; and the length of that."""
        for n in sorted(names):
            if self.types[n].axes or self.types[n].dtype not in ("i64", "i32"):
                continue
            inner = self.below(n, names)
            mine = {a for a in self.single if any(a in operands(self.defs[y]) for y in inner)}
            rest = names - inner
            if not mine or any(isinstance(self.defs[y], Load) for y in inner):
                continue
            if any(a in operands(self.defs[y]) for y in rest for a in mine):
                continue
            extents = set(self.indexed(n, rest))
            if len(extents) == 1 and None not in extents:
                (extent,) = extents
                assert extent is not None
                return n, extent
        return None

    def below(self, x: str, names: set[str]) -> set[str]:
        """A value and what it is computed from."""
        if x not in names:
            return set()
        return {x}.union(
            *(self.below(y, names) for y in operands(self.defs[x]) if isinstance(y, str))
        )

    def indexed(self, x: str, names: set[str]) -> Iterator[Scalar | None]:
        """The lengths of the dimensions that a scalar is an index of; None for any other use."""
        for n in names:
            op = self.defs[n]
            if x not in operands(op):
                continue
            if not isinstance(op, Load) or op.tensor not in self.kernel.tensors:
                yield None
                continue
            dims = self.kernel.tensors[op.tensor].dims
            yield from (d for y, d in zip(op.index, dims, strict=True) if y == x)

    def element(self, names: set[str]) -> DType | None:
        """The 16-bit type that an operand is computed from; that of the products where it is computed from bytes."""
        loads = [op.result.type for n in names if isinstance(op := self.defs[n], Load)]
        types = {t.dtype for t in loads if len(t.axes) == 2}
        if types and types <= BYTES:
            types = {
                op.result.type.dtype
                for op in self.ops
                if isinstance(op, Load) and len(op.result.type.axes) == 2
            }
        found: list[DType] = [t for t in LARGEST if t in types]
        return found[0] if len(found) == 1 else None
