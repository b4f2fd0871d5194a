"""A GPU that is pretended: memory of this computer, kernels that run on the host, streams that are numbers."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tests.backends.cuda import host
from tilec import arrays, glance, gpu, plans
from tilec.arrays import Array, numpy_dtype, view
from tilec.backends.cuda import driver, execute, launch, nvrtc, words
from tilec.errors import ArgumentError


class Device(np.ndarray):
    """An array that is said to be on a GPU."""

    number = 0
    __cuda_array_interface__ = property(lambda self: {})


def on_device(a: Any, number: int = 0) -> Device:
    """A NumPy array as one on the pretended device."""
    out = np.asarray(a).view(Device)
    out.number = number
    return out


def _see(name: str, x: Any) -> Array:
    if not isinstance(x, Device):
        raise ArgumentError(f"argument {name}: expected an array on a CUDA device")
    a = view(name, np.asarray(x))
    return Array(a.pointer, a.dtype, a.shape, a.strides, x, "cupy", True, x.number)


Run = Callable[[int, int], None]
"""Runs a kernel: the address of the addresses of its parameters, and the number of blocks."""


@dataclass
class Machine:
    """What the device was asked to do. `follows`: of each launch whether it may begin while the one before it runs;
    `stream`: the present one; `capturing`: streams that are being captured, and the number of the capture."""

    launches: list[tuple[str, int]] = field(default_factory=list)
    follows: list[bool] = field(default_factory=list)
    stream: int = 0
    capturing: dict[int, int] = field(default_factory=dict)
    recorded: list[tuple[Run, Any, int]] = field(default_factory=list)
    allocated: list[Any] = field(default_factory=list)
    functions: list[tuple[str, Run]] = field(default_factory=list)

    def kernel(self, name: str, run: Run) -> launch.Kernel:
        """A kernel that the driver of this machine can launch."""
        self.functions.append((name, run))
        return launch.Kernel(SimpleNamespace(ptr=len(self.functions)), name, 32, 0, in_turn=True)

    def cuLaunchKernelEx(self, place: Any, function: int, table: int, extra: None) -> int:
        """What the driver does: at once, or when a capture is replayed, which sees the parameters as they are now."""
        settings, (name, run) = place._obj, self.functions[function - 1]
        blocks = settings.grid[0]
        self.launches.append((name, blocks))
        self.follows.append(settings.count > 0)
        if (settings.stream or 0) not in self.capturing:
            run(table, blocks)
            return 0
        first = ctypes.c_void_p.from_address(table).value or 0
        copy = ctypes.create_string_buffer(ctypes.string_at(first, table - first))
        again = ctypes.c_void_p(ctypes.addressof(copy))
        self.recorded.append((run, (copy, again), blocks))
        return 0

    def replay(self) -> None:
        """Runs what was captured, as it was recorded."""
        for run, (_, table), blocks in self.recorded:
            run(ctypes.addressof(table), blocks)


def _simple(entry: Any) -> Run:
    """A kernel on the host, which has one parameter."""

    def run(table: int, blocks: int) -> None:
        place = ctypes.c_void_p.from_address(table).value
        entry(ctypes.c_void_p(place), ctypes.c_int64(blocks), 0, 1)

    return run


def install(monkeypatch: pytest.MonkeyPatch) -> Machine:
    """Pretends a device of compute capability 8.0, whose arrays are CuPy's."""
    machine = Machine()

    def load(image: bytes, functions: Any, note: str, in_turn: bool) -> list[Any]:
        names = [f[0] for f in functions]
        library = host.build(image.decode(), names)
        return [machine.kernel(n, _simple(getattr(library, f"run_{n}"))) for n in names]

    def allocator(library: str, number: int, shape: Any, dtype: Any) -> Any:
        return lambda: on_device(np.full(shape, 7, numpy_dtype(dtype)), number)

    def memory(size: int, dtype: str) -> Any:
        a = np.zeros(size, dtype)
        machine.allocated.append(a)
        return SimpleNamespace(data=SimpleNamespace(ptr=a.ctypes.data), owner=a)

    runtime = SimpleNamespace(getDevice=lambda: 0, setDevice=lambda n: None)
    stream = SimpleNamespace(synchronize=lambda: None)
    cuda = SimpleNamespace(get_current_stream=lambda: stream, runtime=runtime)

    def look(x: Any) -> Any:
        address = x.__array_interface__["data"][0]
        return (x.dtype, x.shape, x.strides, address & 15, x.number), address

    def address_of(library: str) -> Any:
        return lambda x: x.__array_interface__["data"][0]

    monkeypatch.setattr(arrays, "address_of", address_of)
    monkeypatch.setitem(glance.looks, Device, look)
    monkeypatch.setattr(gpu, "view", _see)
    monkeypatch.setattr(gpu, "allocator", allocator)
    monkeypatch.setattr(gpu, "fresh", lambda library, x: _see("out", x))
    monkeypatch.setattr(plans, "device_of", lambda x: "cuda" if isinstance(x, Device) else "cpu")
    monkeypatch.setattr(launch, "capability", lambda number: 80)
    monkeypatch.setattr(launch, "processors", lambda number: 1)
    monkeypatch.setattr(launch, "shared", lambda number: 163 << 10)
    monkeypatch.setattr(launch, "stream", lambda library, number: machine.stream)
    monkeypatch.setattr(launch, "capture", lambda stream: machine.capturing.get(stream, 0))
    monkeypatch.setattr(
        launch, "cupy", lambda: SimpleNamespace(empty=memory, zeros=memory, cuda=cuda)
    )
    monkeypatch.setattr(launch, "_runtime", lambda: runtime)
    monkeypatch.setattr(launch, "load", load)
    monkeypatch.setattr(driver, "library", lambda: machine)
    monkeypatch.setattr(words, "on", lambda number: machine_words)
    machine_words = words.Words()
    monkeypatch.setattr(execute, "names", lambda arch: [])  # the host runs general code only
    monkeypatch.setattr(
        execute,
        "compiled",
        lambda code: [nvrtc.Compiled(u.text.encode(), {}, ()) for u in code.units],
    )
    return machine
