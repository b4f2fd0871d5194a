"""Checks that a kernel keeps the rules of the IR, in time linear in the number of ops.

What it holds to: every name is defined once, before it is used, in a region that its user can see; a result has the
type that `Builder` infers from the operands; the tile extents in types are those of the windows at that place;
values cross the borders of regions with the types that are declared there.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import assert_never, cast

from tilec.builder import Builder
from tilec.dtypes import SIZES, kind
from tilec.errors import CompilerBug
from tilec.functions import FUNCTIONS, REDUCTIONS
from tilec.ir import (
    Absent,
    AnyOp,
    Body,
    Buffer,
    Cast,
    Contract,
    Edge,
    For,
    Grid,
    Group,
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
    Yield,
)
from tilec.scalar import Scalar, is_natural, names
from tilec.text import show, show_operand, show_type


def verify(kernel: Kernel) -> None:
    """Raises CompilerBug, with the IR and the failing op marked, if the kernel breaks a rule."""
    if wrong := fault(kernel):
        raise CompilerBug(wrong)


def fault(kernel: Kernel) -> str | None:
    """Which rule a kernel breaks, with the IR and the failing op marked; None where it keeps them all."""
    checker = _Checker(kernel)
    try:
        checker.header()
        checker.body(kernel.body)
        checker.outputs()
    except _Broken as e:
        return f"{kernel.name} is not valid IR: {e}\n\n{show(kernel, mark=checker.at)}"
    return None


class _Broken(Exception):
    """A broken rule, in words."""


def _require(holds: bool, message: str) -> None:
    if not holds:
        raise _Broken(message)


def _once(found: Iterable[str], what: str) -> None:
    seen: set[str] = set()
    for name in found:
        _require(name not in seen, f"{name} is listed twice among the {what}")
        seen.add(name)


class _Checker:
    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel
        self.at: Op | None = None
        # The builder knows the types of the values in scope and the windows, and infers types from them.
        self.builder = Builder(dataclasses.replace(kernel, body=()), taken=set())
        self.scope, self.windows = self.builder.types, self.builder.tiles
        self.buffers: dict[str, Type] = {}
        self.stored: set[str] = set()
        self.nested = False
        self.taken = {p.name for p in kernel.params} | {o.name for o in kernel.outputs}
        self.taken |= {*kernel.extents, *kernel.dims}

    def header(self) -> None:
        """The signature and the axes."""
        kernel = self.kernel
        parameters = [p.name for p in kernel.params] + [o.name for o in kernel.outputs]
        _once(parameters, "parameters and outputs")
        _once([a.name for a in kernel.axes], "axes")
        for a in kernel.axes:
            _require(
                a.name not in {*parameters, *kernel.dims},
                f"axis {a.name} has the name of a parameter or dimension",
            )
        expressions: list[Scalar] = [
            *kernel.extents.values(),
            *(a.condition for a in kernel.assertions),
        ]
        expressions += [p.default for p in kernel.arguments.values() if p.default is not None]
        for name in (n for e in expressions for n in names(e)):
            known = name in kernel.dims or name in kernel.arguments
            _require(known, f"{name}, in the header, is no dimension and no scalar")
        for o in kernel.outputs:
            _once(o.axes, f"axes of output {o.name}")
            self.axes(o.axes)

    def outputs(self) -> None:
        """Every output is written."""
        self.at = None
        for o in self.kernel.outputs:
            _require(o.name in self.stored, f"nothing is stored to output {o.name}")

    def axes(self, axes: Iterable[str]) -> None:
        """Names that must be axes."""
        for a in axes:
            _require(a in self.kernel.extents, f"no axis is called {a}")

    # scopes

    def body(self, body: Body) -> None:
        """Ops in the present scope, none of them a yield."""
        for op in body:
            self.at = op
            self.op(op)

    def region(
        self, owner: Op, body: Body, results: tuple[Value, ...] | None, args: tuple[Value, ...] = ()
    ) -> None:
        """A region; it yields `results`, up to broadcasting, unless they are None."""
        size, outer, self.nested = len(self.scope), self.nested, True
        for v in args:
            self.define(v)
        end = body[-1] if body else None
        if results is None:
            self.body(body)
        else:
            _require(isinstance(end, Yield), f"a region of {owner.word} does not end in a yield")
            self.body(body[:-1])
            self.at = end
            self.carry(cast(Yield, end).values, results)
        while len(self.scope) > size:
            self.scope.popitem()
        self.nested, self.at = outer, owner

    def define(self, v: Value) -> None:
        """A new name, of a type that fits the windows here."""
        _require(
            v.name not in self.taken,
            f"{v.name} is defined twice, or has the name of something in the header",
        )
        _require(v.type.dtype in SIZES, f"{v.type.dtype} is no element type")
        self.axes(v.type.axes)
        _once(v.type.axes, f"axes of {v.name}")
        self.fits(v.name, v.type)
        self.taken.add(v.name)
        self.scope[v.name] = v.type

    def fits(self, name: str, t: Type) -> None:
        """The tile extents of a type are those of the windows here."""
        for a, n in zip(t.axes, t.tile, strict=True):
            here = self.windows.get(a)
            _require(here != 1, f"{name} has axis {a}, whose tile is 1 here: a scalar")
            _require(
                n == here,
                f"{name} has {a}:{n or 'all'}, but the window of {a} is {here or 'all'} here",
            )

    # operands

    def operand(self, x: Operand) -> Type:
        """The type of an operand that is in scope."""
        try:
            t = self.builder.type_of(x)
        except KeyError:
            raise _Broken(f"{x} is not defined here") from None
        if isinstance(x, str):
            self.fits(x, t)
        return t

    def whole(self, x: Operand, what: str) -> Type:
        """The type of an operand that is an integer or a boolean."""
        t = self.operand(x)
        _require(kind(t.dtype) != "float", f"{what} {show_operand(x)} is a float")
        return t

    def scalar(self, x: Operand | None, what: str) -> None:
        """An operand that is an integer without axes, or nothing."""
        if x is not None:
            _require(not self.whole(x, what).axes, f"{what} {show_operand(x)} has axes")

    def carry(self, given: tuple[Operand, ...], into: tuple[Value, ...]) -> None:
        """Operands that become values of declared types; they may lack axes."""
        _require(
            len(given) == len(into), f"{len(given)} values are given where {len(into)} are declared"
        )
        for x, v in zip(given, into, strict=True):
            t = self.operand(x)
            fits = _literal_fits(x, v.type) if not isinstance(x, str) else t.dtype == v.type.dtype
            fits = fits and _extents(t).items() <= _extents(v.type).items()
            _require(
                fits,
                f"{show_operand(x)}: {show_type(t)} cannot become {v.name}: {show_type(v.type)}",
            )

    # ops

    def op(self, op: Op) -> None:
        """One op: its operands, its results, its regions."""
        op = cast(AnyOp, op)
        match op:
            case Load() | Map() | Cast() | Reduce() | Contract() | Edge():
                self.leaf(op)
            case Store():
                self.store(op)
            case Buffer():
                _require(not self.nested, "a buffer is made at the top level only")
                _require(op.result.type.space == "hbm", "a buffer is @hbm")
                self.define(op.result)
                self.buffers[op.result.name] = op.result.type
            case Group():
                _require(not self.nested, "a group stands at the top level only")
                self.axes(op.axes)
                self.region(op, op.body, op.results)
                self.results(op)
            case Grid():
                self.grid(op)
            case For():
                self.loop(op)
            case If():
                t = self.operand(op.cond)
                _require(
                    t.dtype == "bool" and not t.axes, "the condition of an if is a scalar bool"
                )
                self.region(op, op.then, op.results)
                self.region(op, op.orelse, op.results)
                self.results(op)
            case Yield():
                raise _Broken("a yield that does not end a region with results")
            case _:
                assert_never(op)

    def results(self, op: Op) -> None:
        """The results of an op with regions: named after them, for what follows."""
        for v in op.results:
            self.define(v)

    def leaf(self, op: Load | Map | Cast | Reduce | Contract | Edge) -> None:
        """An op whose result type follows from its operands."""
        _require(len(op.results) == 1, f"{op.word} has one result")
        _require(
            op.result.name not in self.taken,
            f"{op.result.name} is defined twice, or has the name of something in the header",
        )
        match op:
            case Load():
                self.load(op)
            case Map():
                self.map(op)
            case Reduce():
                self.reduce(op)
            case Contract():
                self.contract(op)
            case Cast():
                self.operand(op.x)
                _require(op.to in SIZES, f"{op.to} is no element type")
            case Edge():
                self.axes([op.axis])
                _require(op.which in ("first", "last"), f"an axis has no {op.which}")
        inferred = Type("i64") if isinstance(op, Edge) else self.inferred(op)
        same = inferred.dtype == op.result.type.dtype and _extents(inferred) == _extents(
            op.result.type
        )
        _require(same, f"{op.result.name} should be {show_type(inferred)}")
        self.define(op.result)

    def inferred(self, op: Op) -> Type:
        """The type that the builder gives the result of an op."""
        name = self.builder.again(op, {})
        self.builder.ops.clear()
        self.builder.taken.clear()
        return self.scope.pop(name)

    def load(self, op: Load) -> None:
        """A load from something that exists, with an integer for each dimension."""
        rank = self.rank(op.tensor)
        _require(len(op.index) == rank, f"{op.tensor} has {rank} dimensions, not {len(op.index)}")
        for x in op.index:
            self.whole(x, "index")

    def rank(self, tensor: str) -> int:
        """The number of dimensions of a parameter, output or buffer."""
        if tensor in self.kernel.tensors:
            return len(self.kernel.tensors[tensor].dims)
        return len(self.target(tensor).axes)

    def target(self, tensor: str) -> Type:
        """The type of an output or buffer."""
        if tensor in self.buffers:
            return self.buffers[tensor]
        for o in self.kernel.outputs:
            if o.name == tensor:
                return Type(o.dtype, o.axes)
        raise _Broken(f"there is no tensor {tensor} here")

    def store(self, op: Store) -> None:
        """A store to an output or a buffer, by its own axes."""
        _require(not op.results, "a store has no result")
        target = self.target(op.tensor)
        _require(
            op.index == target.axes,
            f"{op.tensor} is stored by its axes, ({', '.join(target.axes)})",
        )
        t = self.operand(op.value)
        missing = [a for a in t.axes if a not in target.axes]
        _require(not missing, f"the value stored to {op.tensor} has axis {', '.join(missing)} too")
        lossy = kind(t.dtype) == "float" and kind(target.dtype) != "float"
        _require(
            not lossy, f"a float is stored to {op.tensor}, which is {target.dtype}: it needs a cast"
        )
        self.stored.add(op.tensor)

    def map(self, op: Map) -> None:
        """A pointwise function that exists, of the right number and kinds of operands."""
        _require(op.fn in FUNCTIONS, f"there is no function {op.fn}")
        f = FUNCTIONS[op.fn]
        _require(
            f.least <= len(op.args) <= f.most, f"{op.fn} does not take {len(op.args)} operands"
        )
        types = [self.operand(x) for x in op.args]
        booleans = (
            types[:1] if op.fn == "select" else types if op.fn in ("and", "or", "not") else []
        )
        _require(all(t.dtype == "bool" for t in booleans), f"{op.fn} needs a bool")
        if f.result in ("bits", "int") or op.fn == "uniform":
            for x in op.args:
                self.whole(x, f"{op.fn} of")
        if op.fn == "ipow":
            power = op.args[1]
            _require(
                not isinstance(power, Absent) and is_natural(power),
                "ipow needs a literal power >= 0",
            )

    def reduce(self, op: Reduce) -> None:
        """A reduction over axes that its operand has."""
        _require(op.fn in REDUCTIONS, f"there is no reduction {op.fn}")
        _require(
            len(op.args) == 1 or (len(op.args) > 1 and op.fn in ("softmax", "logsumexp")),
            f"{op.fn} takes one operand",
        )
        first, *more = (self.operand(x) for x in op.args)
        self.over(op.over, first)
        for t in more:
            _require(
                not set(t.axes) & set(op.over), "a further logit has the axis that is reduced over"
            )

    def contract(self, op: Contract) -> None:
        """A sum of products over axes of its operands, that the initial value has not."""
        self.over(op.over, self.operand(op.x), self.operand(op.y))
        if op.init is not None:
            t = self.operand(op.init)
            _require(
                not set(t.axes) & set(op.over), "the initial value has the axis that is summed over"
            )

    def over(self, over: tuple[str, ...], *types: Type) -> None:
        """Axes to reduce over: one of the operands has each, unless its tile is 1 here."""
        self.axes(over)
        _once(over, "axes reduced over")
        for a in over:
            has = any(a in t.axes for t in types) or self.windows.get(a) == 1
            _require(has, f"no operand has axis {a}")

    def grid(self, op: Grid) -> None:
        """A grid over axes that have no window yet."""
        _require(not self.nested, "a grid stands at the top level only")
        _require(not op.results, "a grid has no results")
        _once([a for a, _ in op.axes], "axes of the grid")
        self.axes(a for a, _ in op.axes)
        for a, n in op.axes:
            _require(n >= 1, f"the tile of {a} is {n}")
        self.windows.update(op.axes)
        self.region(op, op.body, None)
        self.windows.clear()

    def loop(self, op: For) -> None:
        """A loop over an axis that has no window yet."""
        self.axes([op.axis])
        _require(op.axis not in self.windows, f"{op.axis} has a window here already")
        _require(op.tile is None or op.tile >= 1, f"the tile of {op.axis} is {op.tile}")
        bounded = op.start is not None or op.stop is not None
        _require(
            op.tile is not None or not bounded, "a loop without a tile runs over the whole axis"
        )
        self.scalar(op.start, "start")
        self.scalar(op.stop, "stop")
        if isinstance(op.start, int):
            _require(
                op.start >= 0 and op.start % (op.tile or 1) == 0, "start is a multiple of the tile"
            )
        shapes = [(v.type.dtype, _extents(v.type)) for v in op.results]
        agree = shapes == [(v.type.dtype, _extents(v.type)) for v in op.args]
        _require(agree, "the arguments and the results of a loop have the same types")
        self.carry(op.init, op.args)
        self.windows[op.axis] = op.tile
        self.region(op, op.body, op.results, op.args)
        del self.windows[op.axis]
        self.results(op)


def _extents(t: Type) -> dict[str, int | None]:
    return dict(zip(t.axes, t.tile, strict=True))


def _literal_fits(x: Operand, t: Type) -> bool:
    if isinstance(x, bool):
        return t.dtype == "bool"
    return kind(t.dtype) == "float" if isinstance(x, float) else t.dtype != "bool"
