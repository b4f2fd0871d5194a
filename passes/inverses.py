"""No pass: sums of weights that another group only divides by, as their inverses; for `fuse`.

    l_2: f32[b, h, i] @hbm = group(…) {            l_2: f32[b, h, i] @hbm = group(…) {
      … l = sum(p, over=j) … yield(l) }              … l = sum(p, over=j) … t = div(1.0, l) …; yield(select(l == 0, 0, t)) }
    … group(axes=[b, h, j]) {                 ->   … group(axes=[b, h, j]) {
      … P_1 = div(p_1, l_2) … }                      … P_1 = mul(p_1, l_2) … }

A quotient for each pair of positions becomes a product, and each sum is divided by once. That is the same to rounding where
the weights are 2 to the power of scores less their maximum, and `p_1` is one of those that were added up: such a sum is at
least 1, or no number, or 0, when all of its weights are.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

from tilec.builder import Builder
from tilec.dataflow import definitions, live, names_in
from tilec.ir import (
    Group,
    Kernel,
    Map,
    Op,
    Operand,
    Reduce,
    Value,
    Yield,
    operands,
    rebuild,
    walk,
)
from tilec.renaming import fresh


def inverted(kernel: Kernel) -> Kernel:
    """The kernel with inverses of the sums that later groups divide by."""
    for reader in [op for op in kernel.body if isinstance(op, Group)]:
        for name in dict.fromkeys(x for op in reader.body for x in names_in(operands(op))):
            kernel = _without(kernel, name, reader.results[0].name)
    return kernel


def _without(kernel: Kernel, name: str, reader: str) -> Kernel:
    """The kernel in which the group that gives `reader` has the inverse of a result of another group, if it may."""
    groups = {v.name: op for op in kernel.body if isinstance(op, Group) for v in op.results}
    if name not in groups:
        return kernel
    quotients = _Quotients(kernel, groups[name], groups[reader], name)
    return quotients.replaced() if quotients.are_products() else kernel


@dataclass(frozen=True)
class _Comparison:
    """Two bodies. `outside`: results of the first one's group that the second may read, as they are called in the first."""

    first: Mapping[str, Op]
    second: Mapping[str, Op]
    outside: Mapping[str, Operand]
    known: dict[tuple[Operand, Operand], bool] = field(
        default_factory=dict[tuple[Operand, Operand], bool]
    )

    def alike(self, x: Operand, y: Operand) -> bool:
        """Whether a value of the first body is computed as one of the second."""
        if (x, y) not in self.known:
            self.known[x, y] = self._compared(x, y)
        return self.known[x, y]

    def _compared(self, x: Operand, y: Operand) -> bool:
        if isinstance(y, str) and y in self.outside:
            return x == self.outside[y]
        p, q = self.first.get(str(x)), self.second.get(str(y))
        if p is None or q is None:
            return x == y and type(x) is type(y)
        return _form(p) == _form(q) and all(
            self.alike(*pair) for pair in zip(operands(p), operands(q), strict=True)
        )


@dataclass(frozen=True)
class _Quotients:
    """What a group divides by a sum that another one has made."""

    kernel: Kernel
    maker: Group
    reader: Group
    name: str

    @cached_property
    def comparison(self) -> _Comparison:
        """What the two groups compute."""
        results = (v.name for v in self.maker.results)
        outside = dict(zip(results, operands(self.maker.body[-1]), strict=True))
        return _Comparison(definitions(self.maker.body), definitions(self.reader.body), outside)

    @property
    def made(self) -> str:
        """The sum where it is made."""
        end = self.maker.body[-1]
        place = [v.name for v in self.maker.results].index(self.name)
        return str(operands(end)[place])

    @cached_property
    def close(self) -> dict[str, Op]:
        """What the reader computes of the sum alone."""
        found: dict[str, Op] = {}
        for op in self.reader.body:
            read = set(names_in(operands(op)))
            if isinstance(op, Map) and read and read <= {self.name, *found}:
                found[op.result.name] = op
        return found

    def are_products(self) -> bool:
        """Whether the sum is used only where weights that it adds up are divided by it, in one way."""
        close = self.close
        own = {self.name, *close}
        used = [
            op
            for op in self.reader.body
            if own & set(names_in(operands(op))) and not own & {v.name for v in op.results}
        ]
        divisors = {op.args[1] for op in used if isinstance(op, Map)}
        return (
            len(divisors) == 1
            and all(isinstance(op, Map) and op.fn == "div" for op in used)
            and (weight := _weight(definitions(self.maker.body), self.made)) is not None
            and all(self.alike(weight, operands(op)[0]) for op in used)
        )

    def alike(self, x: Operand, y: Operand) -> bool:
        """Whether an operand of the maker is what one of the reader is."""
        return self.comparison.alike(x, y)

    def replaced(self) -> Kernel:
        """The kernel with products."""
        shared = any(
            self.name in names_in(operands(op))
            for op in walk(x for x in self.kernel.body if x is not self.reader)
        )
        b = Builder(self.kernel)
        (divisor,) = {operands(op)[1] for op in self.reader.body if self.divides(op)}
        inverse = self.inverse(b, divisor)
        type = next(v.type for v in self.maker.results if v.name == self.name)
        new = Value(fresh(self.name, b.taken) if shared else self.name, type), inverse
        pairs = list(zip(self.maker.results, operands(self.maker.body[-1]), strict=True))
        pairs = [new if v.name == self.name and not shared else (v, x) for v, x in pairs]
        pairs += [new] if shared else []
        results, values = zip(*pairs, strict=True)
        body = (*self.maker.body[:-1], *b.ops, Yield((), values))
        maker = replace(self.maker, results=results, body=live(body))
        products = tuple(self.product(op, new[0].name) for op in self.reader.body)
        reader = replace(self.reader, body=live(products))
        groups = {id(self.maker): maker, id(self.reader): reader}
        return replace(self.kernel, body=tuple(groups.get(id(op), op) for op in self.kernel.body))

    def divides(self, op: Op) -> bool:
        """Whether an op of the reader is one of the quotients."""
        return isinstance(op, Map) and op.fn == "div" and op.args[1] in {self.name, *self.close}

    def product(self, op: Op, inverse: str) -> Op:
        """An op of the reader with the inverse."""
        if not (isinstance(op, Map) and self.divides(op)):
            return op
        return replace(op, fn="mul", args=(op.args[0], inverse))

    def inverse(self, b: Builder, divisor: Operand) -> str:
        """The inverse where the sum is made, from what is there already where it is."""
        own = definitions(self.maker.body)
        names: dict[str, Operand] = {self.name: self.made}
        for name, op in self.close.items():
            there = (x for x in own if self.alike(x, name))
            names[name] = next(there, None) or b.again(op, names)
        inverse = b.map("div", 1.0, names[str(divisor)], name="inverse")
        return b.map("select", b.map("eq", self.made, 0.0), 0.0, inverse, name="inverse")


def _weight(defs: Mapping[str, Op], total: str) -> str | None:
    """What a sum adds up, if that is 2 to the power of values less the greatest of them."""
    match defs.get(total):
        case Reduce(fn="sum", args=(str() as weight,), over=over):
            pass
        case _:
            return None
    match defs.get(weight):
        case Map(fn="exp2", args=(str() as exponent,)) if (
            moved := _moved(defs, exponent)
        ) is not None and _greatest(defs, moved[1]) == (moved[0], over):
            return weight
        case _:
            return None


def _moved(defs: Mapping[str, Op], x: str) -> tuple[Operand, str] | None:
    """The sides of a difference, which may be scaled."""
    match defs.get(x):
        case Map(fn="sub", args=(y, str() as reference)):
            return y, reference
        case Map(fn="mul", args=(str() as y, float() as factor)) if factor > 0:
            return _moved(defs, y)
        case _:
            return None


def _greatest(defs: Mapping[str, Op], x: str) -> tuple[Operand, tuple[str, ...]] | None:
    """What a value is the maximum of, and over which axes; within the range of finite numbers."""
    match defs.get(x):
        case Reduce(fn="maxnum" | "max", args=(y,), over=over):
            return y, over
        case Map(fn="min" | "max", args=(str() as y, float() as end)) if abs(end) > 3.4e38:
            return _greatest(defs, y)
        case _:
            return None


def _form(op: Op) -> Op:
    """An op without names."""
    bare = rebuild(op, lambda _: "", value=lambda v: replace(v, name=""))
    return replace(bare, span=None)
