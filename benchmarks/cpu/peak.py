"""What a processor can do at most: a loop of fused multiply-adds that waits for nothing."""

from __future__ import annotations

import ctypes
from collections.abc import Callable

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
