"""Runs emitted vector code on NumPy arrays, for several vector widths and with and without FMA and F16C."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np

from tilec.backends.cpu import jit, storage
from tilec.backends.cpu import llvmir as ir
from tilec.backends.cpu.vector import KINDS, POINTER, Emit, function
from tilec.dtypes import NUMPY_NAMES, DType

HOST = jit.host()
BASELINE = jit.Machine(HOST.triple, "x86-64", "") if not HOST.arm else HOST
MACHINES = [
    (HOST, HOST.lanes),
    (HOST, 16 if HOST.lanes == 8 else 8),
    (BASELINE, 4),
]
"""The host, registers of another width (LLVM splits or widens them), and a processor with nothing but the basics."""
IDS = ["host", "other-width", "baseline"]


def numpy_type(dtype: DType) -> np.dtype[Any]:
    name = NUMPY_NAMES[dtype]
    return np.dtype(getattr(ml_dtypes, name, None) or name)


def dtype_of(a: np.ndarray) -> DType:
    return next(d for d in NUMPY_NAMES if numpy_type(d) == a.dtype)


def build(
    body: Callable[..., Any], inputs: list[DType], output: DType, machine: jit.Machine, lanes: int
) -> ir.Module:
    """A function `f(out, in…, count)` that runs `body` on vectors (`lanes` > 0) or scalars."""
    module = ir.Module()
    f = function(module, "f", [POINTER] * (len(inputs) + 1) + [KINDS["i64"]])
    e = Emit(f, machine, lanes or None)
    out, *sources, count = f.args

    def step(i: Any, _: list[Any]) -> None:
        xs = [storage.load(e, d, p, i, lanes) for d, p in zip(inputs, sources, strict=True)]
        storage.store(e, output, body(e, *xs), out, i)

    e.loop(0, count, lanes or 1, [], step)
    e.builder.ret_void()
    return module


def run(
    body: Callable[..., Any],
    *arrays: np.ndarray,
    output: DType = "f32",
    machine: jit.Machine = HOST,
    lanes: int | None = None,
) -> np.ndarray:
    """`body` on the elements of 1-d arrays of one length, in vectors of `lanes` (0: scalars)."""
    n, width = len(arrays[0]), machine.lanes if lanes is None else lanes
    full = -(-n // (width or 1)) * (width or 1)
    padded = [np.concatenate([a, np.ones(full - n, a.dtype)]) for a in arrays]
    result = np.zeros(full, numpy_type(output))
    module = build(body, [dtype_of(a) for a in arrays], output, machine, width)
    code = jit.load(jit.compile(module, machine=machine))
    signature = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * (len(arrays) + 1), ctypes.c_int64)
    signature(code.address("f"))(result.ctypes.data, *(a.ctypes.data for a in padded), full)
    return result[:n]
