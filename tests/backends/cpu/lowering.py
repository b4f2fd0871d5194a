"""Runs tile IR on the CPU target and compares it with the reference interpreter."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from tilec import arrays
from tilec.arrays import numpy_dtype
from tilec.backends.cpu.target import Executable, compile
from tilec.backends.cpu.view import View
from tilec.backends.reference.interpreter import run
from tilec.dtypes import DType
from tilec.ir import Kernel
from tilec.reader import read
from tilec.scalar import Number, evaluate

Array = np.ndarray[Any, Any]


def kernel(text: str) -> Kernel:
    """The kernel of an IR text."""
    (found,) = read(text)
    return found


def view(a: Array, dtype: DType) -> View:
    """A NumPy array as compiled code sees it."""
    strides = tuple(s // a.itemsize for s in a.strides)
    return arrays.Array(a.__array_interface__["data"][0], dtype, a.shape, strides, a, "numpy")


def on_cpu(
    k: Kernel, given: Mapping[str, Array], scalars: Mapping[str, Number], code: Executable | None
) -> dict[str, Array]:
    """The outputs of a run on the CPU."""
    code = code or compile(k)
    tensors = {n: view(given[n], t.dtype) for n, t in k.tensors.items()}
    sizes = code.sizes(tensors, scalars)
    out: dict[str, Array] = {}
    for o in k.outputs:
        shape = [int(evaluate(k.extents[a], sizes)) for a in o.axes]
        out[o.name] = np.full(shape, 7, numpy_dtype(o.dtype))
    code(tensors, scalars, {o.name: view(out[o.name], o.dtype) for o in k.outputs})
    return out


def check(
    k: Kernel,
    arrays: Mapping[str, Array],
    scalars: Mapping[str, Number] | None = None,
    *,
    code: Executable | None = None,
    tolerance: float = 2e-5,
) -> None:
    """Asserts that the CPU gives what the interpreter gives in float64."""
    got = on_cpu(k, arrays, scalars or {}, code)
    want = run(k, arrays, scalars or {}).outputs
    for name, x in got.items():
        y = want[name]
        if x.dtype.kind in "ib":
            np.testing.assert_array_equal(x, y, err_msg=name)
        else:
            with np.errstate(over="ignore"):
                y = y.astype(x.dtype).astype(np.float64)
            x = x.astype(np.float64)
            np.testing.assert_allclose(x, y, rtol=tolerance, atol=tolerance, err_msg=name)
