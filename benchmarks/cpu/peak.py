"""What a processor can do at most: a loop of fused multiply-adds that waits for nothing, and one that reads memory."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

CHAINS = 12
"""Sums that are added to in turn: as many as a multiply-add takes cycles, times the units for it."""


def fused_loop() -> tuple[Callable[[int], None], int]:
    """A function that runs n rounds of independent fused multiply-adds, and the operations of a round."""
    import llvmlite.ir as ir

    from tilec.backends.cpu import jit
    from tilec.backends.cpu.vector import KINDS, POINTER, Emit, constant, function

    module = ir.Module("peak")
    f = function(module, "peak", [POINTER, KINDS["i64"]])
    e = Emit(f, jit.host())
    pointer, rounds = f.args
    x = e.read("f32", pointer, 0, e.lanes)
    start = [constant("f32", n + 1.0, e.lanes) for n in range(CHAINS)]
    sums = e.loop(0, rounds, 1, start, lambda _, ys: [e.fma(y, x, x) for y in ys], some=True)
    for y in sums:
        e.write(y, pointer)
    e.builder.ret_void()
    code = jit.load(jit.compile(module))
    call = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64)(code.address("peak"))
    memory = (ctypes.c_float * 64)()

    def run(n: int) -> None:
        call(ctypes.addressof(memory), n)

    run.code = code  # type: ignore[attr-defined]  # keeps the machine code alive
    return run, 2 * CHAINS * e.lanes


READ = 256 << 20
"""Bytes that the loop reads."""


def read_loop() -> tuple[Callable[[], None], int]:
    """A function that adds up a tensor, and its bytes: PyTorch's memory, in pages like those of the problems."""
    import llvmlite.ir as ir
    import torch

    from tilec.backends.cpu import jit
    from tilec.backends.cpu.vector import KINDS, POINTER, Emit, constant, function

    module = ir.Module("read")
    f = function(module, "read", [POINTER, POINTER, KINDS["i64"]])
    e = Emit(f, jit.host())
    source, target, count = f.args
    zero = [constant("f32", 0.0, e.lanes)] * 8

    def step(i: Any, sums: list[Any]) -> list[Any]:
        at = e.at(source, i, 4)
        return [e.add(x, e.read("f32", at, n * e.lanes, e.lanes)) for n, x in enumerate(sums)]

    for x in e.loop(0, count, 8 * e.lanes, zero, step, some=True):
        e.write(x, target)
    e.builder.ret_void()
    code = jit.load(jit.compile(module))
    call = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)(
        code.address("read")
    )
    data, out = torch.ones(READ // 4), (ctypes.c_float * 64)()

    def run() -> None:
        call(data.data_ptr(), ctypes.addressof(out), data.numel())

    run.code = code  # type: ignore[attr-defined]  # keeps the machine code alive
    return run, READ
