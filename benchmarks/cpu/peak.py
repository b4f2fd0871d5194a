"""What a processor can do at most: a loop of fused multiply-adds that waits for nothing, and one that reads memory."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

CHAINS = 12
"""Sums that are added to in turn: as many as a multiply-add takes cycles, times the units for it."""


def fused_loop() -> tuple[Callable[[int], None], int]:
    """A function that runs n rounds of independent fused multiply-adds, and the operations of a round."""
    from tilec.backends.cpu import jit
    from tilec.backends.cpu import llvmir as ir
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
STRETCH = 64 << 10
"""Bytes between what it reads side by side."""


def read_loop(stretches: int = 1) -> tuple[Callable[[], None], int]:
    """A function that adds up a tensor, and its bytes: PyTorch's memory, in pages like those of the problems.

    `stretches`: how many places it is read in side by side, 256 bytes of each at a time. 1: from its beginning to its end.
    """
    import torch

    from tilec.backends.cpu import jit
    from tilec.backends.cpu import llvmir as ir
    from tilec.backends.cpu.vector import KINDS, POINTER, Emit, constant, function

    module = ir.Module("read")
    f = function(module, "read", [POINTER, POINTER, KINDS["i64"]])
    length = STRETCH // 4
    e = Emit(f, jit.host())
    source, target, count = f.args
    zero = [constant("f32", 0.0, e.lanes)] * 8

    def block(first: Any, sums: list[Any]) -> list[Any]:
        def step(i: Any, sums: list[Any]) -> list[Any]:
            for k in range(stretches):
                at = e.at(source, e.add(e.add(first, i), k * length), 4)
                own = [e.read("f32", at, n * e.lanes, e.lanes) for n in range(len(sums))]
                sums = [e.add(x, y) for x, y in zip(sums, own, strict=True)]
            return sums

        return e.loop(0, length, len(sums) * e.lanes, sums, step)

    for x in e.loop(0, count, stretches * length, zero, block, some=True):
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
