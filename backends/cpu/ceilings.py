"""Measures what this machine's processors reach: loops of fused multiply-adds and exponentials, and copies.

Every figure is the best of a few runs on all threads that a kernel would use at once.
"""

from __future__ import annotations

import ctypes
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy

from tilec.backends.cpu import jit, pool
from tilec.backends.cpu import llvmir as ir
from tilec.backends.cpu.exponential import exp2_weight
from tilec.backends.cpu.vector import KINDS, POINTER, Emit, Value, constant, function
from tilec.ceilings import Ceilings

CHAINS = 12
"""Independent sums of a loop: enough for two units of a latency of up to six."""
ROUNDS = 9


def measure(machine: str) -> Ceilings:
    """The ceilings of this machine, called `machine`."""
    threads = pool.threads()
    near, far = cache_sizes()
    lanes = jit.host().lanes
    multiply = _loop("multiply", lambda e, x, y: e.fma(y, x, x))
    add = _loop("add", lambda e, x, y: e.add(y, x))
    power = _loop("power", lambda e, x, y: exp2_weight(e, e.sub(x, y)))
    work = CHAINS * lanes * threads
    return Ceilings(
        machine=machine,
        memory=_copies(256 << 20, threads),
        cache=_copies(min(max(far // 4, 2 * near), 64 << 20), threads),
        matrix=2 * work * _rate(multiply, 2_000_000, threads),
        fma=work * _rate(add, 2_000_000, threads),
        special=work * _rate(power, 200_000, threads),
        shared=True,
        workers=threads,
        near=near,
        far=far,
        origin="measured on this machine",
    )


def cache_sizes() -> tuple[int, int]:
    """Bytes of a processor's own second cache and of the last one; where nobody says, 1 MiB and 8 MiB."""
    found: dict[int, int] = {}
    for index in Path("/sys/devices/system/cpu/cpu0/cache").glob("index*"):
        try:
            kind = (index / "type").read_text().strip()
            level = int((index / "level").read_text())
            size = (index / "size").read_text().strip()
        except (OSError, ValueError):
            continue
        if kind != "Instruction" and size.endswith("K") and size[:-1].isdecimal():
            found[level] = int(size[:-1]) << 10
    near = found.get(2, _configured("SC_LEVEL2_CACHE_SIZE") or 1 << 20)
    return near, found.get(3, _configured("SC_LEVEL3_CACHE_SIZE") or max(near, 8 << 20))


def _configured(name: str) -> int:
    return os.sysconf(name) if name in os.sysconf_names else 0


def _loop(name: str, step: Callable[[Emit, Value, Value], Value]) -> Callable[[int], None]:
    """A function that runs n rounds of `CHAINS` independent vector steps y = step(x, y)."""
    module = ir.Module(name)
    f = function(module, name, [POINTER, KINDS["i64"]])
    e = Emit(f, jit.host())
    pointer, rounds = f.args
    x = e.read("f32", pointer, 0, e.lanes)
    start = [constant("f32", n / CHAINS, e.lanes) for n in range(CHAINS)]
    sums = e.loop(0, rounds, 1, start, lambda _, ys: [step(e, x, y) for y in ys], some=True)
    for n, y in enumerate(sums):
        e.write(y, pointer, n * e.lanes)
    e.builder.ret_void()
    code = jit.load(jit.compile(module))
    call = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64)(code.address(name))

    def run(n: int, _alive: Any = code) -> None:
        memory = (ctypes.c_float * (CHAINS * e.lanes))()
        call(ctypes.addressof(memory), n)

    return run


def _rate(run: Callable[[int], None], rounds: int, threads: int) -> float:
    """Rounds per second of each of some threads."""
    return rounds / _best(lambda _: run(rounds), threads)


def _copies(size: int, threads: int) -> float:
    """Bytes per second, read and written, of threads that copy an array of `size` bytes, each its part."""
    part = max(size // 2 // threads, 1 << 16)
    pairs = [(numpy.ones(part, "u1"), numpy.ones(part, "u1")) for _ in range(threads)]
    times = max(1, (64 << 20) // size)

    def copy(n: int) -> None:
        source, target = pairs[n]
        for _ in range(times):
            numpy.copyto(target, source)

    return 2 * part * threads * times / _best(copy, threads)


def _best(run: Callable[[int], None], threads: int) -> float:
    """The shortest time in which all threads did `run(thread)`, of a few rounds, in seconds.

    It is the threads' own time: what else runs on the machine does not count.
    """
    took = [0.0] * threads

    def work(n: int) -> None:
        start = time.thread_time()
        run(n)
        took[n] = time.thread_time() - start

    times: list[float] = []
    for _ in range(ROUNDS):
        workers = [threading.Thread(target=work, args=(n,)) for n in range(threads)]
        for w in workers:
            w.start()
        for w in workers:
            w.join()
        times.append(max(took))
    return min(times)
