"""From the arguments of a call to tensors, scalars and dimension sizes, or to an error that names what does not fit."""

from __future__ import annotations

import difflib
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, SupportsIndex, cast

from tilec import scalar
from tilec.arrays import Array, describe
from tilec.errors import ArgumentError, Span
from tilec.ir import Argument, Kernel, Tensor
from tilec.scalar import Number, Scalar
from tilec.wording import count


@dataclass(frozen=True)
class Bound:
    """A checked call. `sizes`: every dimension's; `extents`: every axis's; `scalars`: every scalar argument's value."""

    sizes: dict[str, int]
    scalars: dict[str, Number]
    extents: dict[str, int]


FAR = 1 << 31
"""The product of two whole numbers of this magnitude fits 64 bits, with many positions added."""


def far(counted: Collection[str], scalars: Mapping[str, Number]) -> bool:
    """Whether a bound that some scalar is part of may not fit 64 bits. `counted`: the names that are taken as numbers; a
    seed is none."""
    return any(isinstance(x, int) and abs(x) > FAR and n in counted for n, x in scalars.items())


def by_name(
    kernel: Kernel, tensors: Sequence[object], named: Mapping[str, object]
) -> dict[str, object]:
    """The arguments by name: tensors by position in the order of the signature, anything by name.

    Raises ArgumentError for too many, unknown, doubly given and missing ones.
    """
    order = list(kernel.tensors)
    if len(tensors) > len(order):
        raise ArgumentError(_too_many(kernel, len(tensors)))
    given = dict(zip(order, tensors, strict=False))
    for name, x in named.items():
        if name in given:
            raise ArgumentError(f"argument {name} is given twice: by position and by name")
        if name not in kernel.tensors and name not in kernel.arguments:
            raise ArgumentError(f"{kernel.name} has no parameter {name!r}{_near(name, kernel)}")
        given[name] = x
    for p in kernel.params:
        if p.name not in given and (isinstance(p, Tensor) or p.default is None):
            raise ArgumentError(
                f"argument {p.name} is missing: {kernel.name} takes {show_parameter(p)}"
            )
    return given


def _too_many(kernel: Kernel, count: int) -> str:
    order = ", ".join(kernel.tensors) or "none"
    scalars = ", ".join(f"{n}=…" for n in kernel.arguments)
    more = f"; scalars are given by name: {scalars}" if scalars else ""
    return f"{kernel.name} takes {len(kernel.tensors)} tensors ({order}), got {count}{more}"


def _near(name: str, kernel: Kernel) -> str:
    names = [p.name for p in kernel.params]
    near = difflib.get_close_matches(name, names, 1)
    return f"; did you mean {near[0]}?" if near else f"; its parameters are {', '.join(names)}"


def show_parameter(p: Tensor | Argument) -> str:
    """A parameter as the language writes it."""
    if isinstance(p, Tensor):
        return f"{p.name}[{', '.join(scalar.show(d) for d in p.dims)}]"
    default = "" if p.default is None else f" = {scalar.show(p.default)}"
    return f"{p.name}: {p.type}{default}"


def bind(kernel: Kernel, arrays: Mapping[str, Array], given: Mapping[str, Number]) -> Bound:
    """Sizes, scalars and axis extents of a call, checked against the signature and the assertions.

    `given`: the scalars of the call, as `numbers` makes them; the others take their defaults.

    Raises ArgumentError that names the argument, what was expected and what came.
    """
    shapes = {name: a.shape for name, a in arrays.items()}
    sizes = dimensions(kernel, shapes)
    scalars = scalar_values(kernel, given, sizes)
    check_assertions(kernel, sizes, scalars)
    return Bound(sizes, scalars, axis_extents(kernel, sizes | scalars))


# ---- dimensions


_REPEAT = (
    "; to repeat {} along that dimension, pass an expanded view (numpy.broadcast_to, Tensor.expand)"
)


def dimensions(kernel: Kernel, shapes: Mapping[str, tuple[int, ...]]) -> dict[str, int]:
    """The size of each dimension, from the shapes of all tensors. Raises ArgumentError where two do not agree."""
    sizes: dict[str, int] = {}
    owner: dict[str, str] = {}
    for t in kernel.tensors.values():
        shape = shapes[t.name]
        if len(shape) != len(t.dims):
            raise ArgumentError(
                f"argument {t.name}: expected {count(len(t.dims), 'dimension')}, {show_parameter(t)}, got {len(shape)}: "
                f"shape {shape}"
            )
        for d, n in zip(t.dims, shape, strict=True):
            if isinstance(d, str) and sizes.setdefault(d, n) != n:
                single = t.name if n == 1 else owner[d] if sizes[d] == 1 else None
                raise ArgumentError(
                    f"argument {t.name}: dimension {d} is {n}, but {sizes[d]} in {owner[d]}; expected "
                    f"{show_parameter(t)}, got shape {shape}{_REPEAT.format(single) if single else ''}"
                )
            if isinstance(d, str):
                owner.setdefault(d, t.name)
    for t in kernel.tensors.values():
        check_expressions(t, shapes[t.name], sizes)
    return sizes


def check_expressions(t: Tensor, shape: tuple[int, ...], sizes: Mapping[str, int]) -> None:
    """The dimensions that are numbers or expressions of others."""
    for d, n in zip(t.dims, shape, strict=True):
        if isinstance(d, str) or (want := scalar.evaluate(d, sizes)) == n:
            continue
        used = values_of(d, sizes)
        why = f"{scalar.show(d)} is {want} for {used}" if used else f"expected {want}"
        raise ArgumentError(
            f"argument {t.name}: a dimension is {n}, but {why}; expected {show_parameter(t)}, got shape {shape}"
        )


def values_of(e: Scalar, env: Mapping[str, Number]) -> str:
    """The names of an expression with their values: `H = 5, HK = 2`."""
    return ", ".join(f"{n} = {show_number(env[n])}" for n in dict.fromkeys(scalar.names(e)))


def show_number(x: Number) -> str:
    """A number as the language writes it."""
    return scalar.show(x)


def axis_extents(kernel: Kernel, env: Mapping[str, Number]) -> dict[str, int]:
    """How far each axis ranges. Raises ArgumentError for a negative extent."""
    out: dict[str, int] = {}
    for a in kernel.axes:
        n = scalar.evaluate(a.extent, env)
        if n < 0:
            raise ArgumentError(
                f"{_at(a.span)}axis {a.name} ranges over {scalar.show(a.extent)}, which is {n} for "
                f"{values_of(a.extent, env)}; expected 0 or more"
            )
        out[a.name] = int(n)
    return out


# ---- scalars


def numbers(kernel: Kernel, given: Mapping[str, object]) -> dict[str, Number]:
    """The scalar arguments among those of a call, as Python numbers. Raises ArgumentError for one of another type."""
    return {n: _convert(p, given[n]) for n, p in kernel.arguments.items() if n in given}


def scalar_values(
    kernel: Kernel, given: Mapping[str, Number], sizes: Mapping[str, int]
) -> dict[str, Number]:
    """The value of each scalar argument: what was given, else its default."""
    env: dict[str, Number] = dict(sizes)
    out: dict[str, Number] = {}
    for p in kernel.arguments.values():
        if p.name in given:
            value = given[p.name]
        else:
            assert p.default is not None
            value = _default(p, scalar.evaluate(p.default, env), env)
        out[p.name] = env[p.name] = value
    return out


def _default(p: Argument, value: Number, env: Mapping[str, Number]) -> Number:
    if p.type == "int" and not (math.isfinite(value) and value == int(value)):
        assert p.default is not None
        raise ArgumentError(
            f"argument {p.name}: its default {scalar.show(p.default)} is {value} for {values_of(p.default, env)}; "
            "expected an integer"
        )
    return {"int": int, "float": float, "bool": bool}[p.type](value)


def _convert(p: Argument, x: object) -> Number:
    """The Python number of a scalar argument: a number, or an array without axes that holds one."""
    value = _item(x)
    if p.type == "bool":
        if isinstance(value, (int, float)) and value in (0, 1):
            return bool(value)
        raise _not_a(p, "True or False", x)
    if p.type == "float":
        if isinstance(value, (int, float)):
            return _float(p, value)
        raise _not_a(p, "a number", x)
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if not isinstance(value, int):
        raise _not_a(p, "an integer", x)
    if not -(1 << 63) <= value < 1 << 63:
        raise _not_a(p, "an integer of 64 bits", x)
    return int(value)


def _float(p: Argument, value: float) -> float:
    try:
        return float(value)
    except OverflowError:
        raise _not_a(p, "a number in the range of a float", value) from None


def _item(x: object) -> object:
    """What is in a NumPy scalar or an array without axes; other objects as they are."""
    if getattr(x, "shape", None) == () and hasattr(x, "item"):
        return _only(x)
    if isinstance(x, (int, float)) or not hasattr(x, "__index__"):
        return x
    try:
        return cast(SupportsIndex, x).__index__()
    except TypeError:
        return x


def _only(x: object) -> object:
    """The number in an array without axes; the array where it gives none (a tensor without memory, say)."""
    try:
        return cast(Any, x).item()
    except Exception:
        return x


def _not_a(p: Argument, expected: str, x: object) -> ArgumentError:
    long = isinstance(x, int) and x.bit_length() > 128
    got = f"{x!r}" if isinstance(x, (int, float, str)) and not long else describe(x)
    return ArgumentError(f"argument {p.name}: expected {expected} ({p.name}: {p.type}), got {got}")


def check_assertions(
    kernel: Kernel, sizes: Mapping[str, int], scalars: Mapping[str, Number]
) -> None:
    """Raises ArgumentError with the message of the first assertion that is false, and the values of its names."""
    env: dict[str, Number] = {**sizes, **scalars}
    for a in kernel.assertions:
        if not scalar.evaluate(a.condition, env):
            values = values_of(a.condition, env)
            raise ArgumentError(_at(a.span) + (f"{a.message} ({values})" if values else a.message))


def _at(span: Span | None) -> str:
    """Where in the program, in front of a message."""
    return "" if span is None else f"{span}: "
