"""No pass: what a sum adds up, as products, for `contract`.

x · y / z         a division by z
x · y if c else 0 a condition, where the 0 is an absent one
-(x · y)          a negative product
x · y ± u · w     two of them
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

from tilec.ir import ABSENT, Map, Op, Operand

Definitions = Mapping[str, Op]


@dataclass(frozen=True, slots=True)
class Product:
    """Factors over divisors; an absent zero where a condition does not hold."""

    factors: tuple[Operand, ...]
    divisors: tuple[Operand, ...] = ()
    conditions: tuple[Operand, ...] = ()
    negative: bool = False

    def __mul__(self, other: Product) -> Product:
        return Product(
            self.factors + other.factors,
            self.divisors + other.divisors,
            self.conditions + other.conditions,
            self.negative != other.negative,
        )

    def renamed(self, of: Callable[[tuple[Operand, ...]], tuple[Operand, ...]]) -> Product:
        """The same of other operands."""
        return Product(of(self.factors), of(self.divisors), of(self.conditions), self.negative)


def plain(x: Operand, defs: Definitions) -> Product:
    """A product of what is multiplied, as it stands."""
    match _op(x, defs):
        case Map(fn="mul", args=(a, b)):
            return plain(a, defs) * plain(b, defs)
        case _:
            return Product((x,))


def opened(x: Operand, defs: Definitions) -> Product:
    """A product of what is multiplied under divisions, signs and conditions."""
    match _op(x, defs):
        case Map(fn="mul", args=(a, b)):
            return opened(a, defs) * opened(b, defs)
        case Map(fn="div", args=(a, z)):
            return opened(a, defs) * Product((), divisors=(z,))
        case Map(fn="neg", args=(a,)):
            return opened(a, defs) * Product((), negative=True)
        case Map(fn="select", args=(c, a, b)) if b is ABSENT:
            return opened(a, defs) * Product((), conditions=(c,))
        case _:
            return Product((x,))


def terms(x: Operand, defs: Definitions, negative: bool = False) -> Iterator[Product]:
    """The products whose sum an operand is."""
    match _op(x, defs):
        case Map(fn="add" | "sub" as fn, args=(a, b)):
            yield from terms(a, defs, negative)
            yield from terms(b, defs, negative != (fn == "sub"))
        case _:
            p = opened(x, defs)
            yield replace(p, negative=p.negative != negative)


def _op(x: Operand, defs: Definitions) -> Op | None:
    return defs.get(x) if isinstance(x, str) else None
