"""Runs the IR at every level, whole tensors and tile programs alike, and counts the bytes that cross HBM.

In exact arithmetic (`rounding=False`) every float is a float64 and nothing is rounded to a storage type: this decides what
a program means. With `rounding=True` the results are rounded where those of a target are; with `in_order=True` beside it
sums of products are as far off as those of any target.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import cast

import numpy as np

from tilec.backends.reference.functions import Array
from tilec.backends.reference.machine import Machine
from tilec.ir import Kernel, Type
from tilec.meter import Traffic
from tilec.scalar import Number, Scalar, evaluate
from tilec.work import Work


@dataclass(frozen=True)
class Outcome:
    """What a run gives: the outputs by name (float64, int64 or bool), and what each op moved and did."""

    outputs: dict[str, Array]
    traffic: Traffic
    work: Work

    @property
    def bytes(self) -> dict[str, int]:
        """Bytes read and written per op."""
        return dict(self.traffic.reads + self.traffic.writes)


def run(
    kernel: Kernel,
    arrays: Mapping[str, Array],
    scalars: Mapping[str, Number] | None = None,
    *,
    rounding: bool = False,
    in_order: bool = False,
) -> Outcome:
    """Runs a kernel on its tensor parameters `arrays` and its scalar parameters `scalars`; defaults are filled in.

    The arguments are taken as they are: that they fit the signature is checked by `tilec.kernel`.
    """
    env = bind(kernel, arrays, scalars or {})
    machine = Machine(kernel, env, arrays, rounding=rounding, in_order=in_order)
    for o in kernel.outputs:
        machine.allocate(o.name, Type(o.dtype, o.axes))
    with np.errstate(all="ignore"):
        machine.body(kernel.body)
    outputs = {o.name: machine.output(o.name) for o in kernel.outputs}
    return Outcome(outputs, machine.meter.traffic, machine.meter.work)


def bind(
    kernel: Kernel, arrays: Mapping[str, Array], scalars: Mapping[str, Number]
) -> dict[str, Number]:
    """The values of the dimensions, read off the arrays' shapes, and of the scalar parameters."""
    dims: dict[str, int] = {}
    for name, tensor in kernel.tensors.items():
        shape = np.shape(arrays[name])
        dims.update((d, n) for d, n in zip(tensor.dims, shape, strict=True) if isinstance(d, str))
    return with_scalars(kernel, dims, scalars)


def with_scalars(
    kernel: Kernel, dims: Mapping[str, int], scalars: Mapping[str, Number]
) -> dict[str, Number]:
    """The values of the dimensions and of the scalar parameters, defaults filled in. KeyError if one has none."""
    env: dict[str, Number] = dict(dims)
    for name, argument in kernel.arguments.items():
        if name not in scalars and argument.default is None:
            raise KeyError(f"the scalar {name} has no value and no default")
        found = scalars[name] if name in scalars else evaluate(cast(Scalar, argument.default), env)
        env[name] = {"int": int, "float": float, "bool": bool}[argument.type](found)
    return env
