"""Loads cubins and launches kernels through CuPy, on the stream that the caller's library is using."""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

import functools
import importlib
import sys
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

from tilec.errors import ResourceError, UnsupportedError

MAX_DYNAMIC_SHARED = 8
"""CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES"""


@functools.cache
def cupy() -> Any:
    """CuPy. Raises UnsupportedError, naming what to install, where it or a GPU is missing."""
    try:
        module = importlib.import_module("cupy")
    except ImportError as e:
        raise UnsupportedError(
            f"target cuda: CuPy is missing ({e}); install it with: pip install 'tilec[cuda]'; or run on target='cpu'"
        ) from e
    try:
        count = int(module.cuda.runtime.getDeviceCount())
    except (
        Exception
    ) as e:  # CuPy raises an error of its own, which is not known before it is imported
        raise UnsupportedError(
            f"target cuda: no GPU can be used here ({e}); what works is target='cpu'"
        ) from e
    if not count:
        raise UnsupportedError("target cuda: there is no GPU here; what works is target='cpu'")
    return module


def available() -> bool:
    """Whether a GPU answers."""
    try:
        cupy()
    except UnsupportedError:
        return False
    return True


@functools.cache
def capability(device: int) -> int:
    """The compute capability of a device, as 90."""
    return int(cupy().cuda.Device(device).compute_capability)


@functools.cache
def processors(device: int) -> int:
    """The number of multiprocessors of a device."""
    return int(cupy().cuda.Device(device).attributes["MultiProcessorCount"])


def current_device() -> int:
    """The device that CuPy uses at present."""
    return int(cupy().cuda.runtime.getDevice())


def on(device: int) -> AbstractContextManager[Any]:
    """Makes a device the current one for a while."""
    return nullcontext() if current_device() == device else cupy().cuda.Device(device)


def stream(library: str, device: int) -> Any:
    """The stream on which the caller's library works at present."""
    if library == "torch" and "torch" in sys.modules:
        return _external(int(sys.modules["torch"].cuda.current_stream(device).cuda_stream))
    return cupy().cuda.get_current_stream()


@functools.lru_cache(maxsize=64)
def _external(pointer: int) -> Any:
    return cupy().cuda.ExternalStream(pointer)


@dataclass(frozen=True)
class Kernel:
    """A loaded kernel: CuPy's function, and how it is launched."""

    function: Any
    name: str
    threads: int
    shared: int

    def __call__(self, blocks: int, arguments: Sequence[Any], stream: Any) -> None:
        """Launches it. Arguments are NumPy arrays of size 1 (passed by value) and what else CuPy takes.

        Raises ResourceError where the device refuses the launch.
        """
        try:
            self.function((blocks,), (self.threads,), tuple(arguments), self.shared, stream)
        except cupy().cuda.driver.CUDADriverError as e:
            raise ResourceError(
                f"target cuda: the launch of {self.name} failed ({e}); schedule: {blocks} blocks of {self.threads} "
                f"threads, {self.shared:,} bytes of shared memory each"
            ) from e


def load(image: bytes, functions: Sequence[tuple[str, int, int]]) -> list[Kernel]:
    """The kernels of a cubin (or of PTX text), on the current device.

    `functions`: name, threads and bytes of dynamic shared memory of each. Raises ResourceError where the device lacks them.
    """
    c = cupy()
    driver = importlib.import_module("cupy_backends.cuda.api.driver")
    module = c.cuda.function.Module()
    module.load(image)
    out: list[Kernel] = []
    for name, threads, shared in functions:
        function = module.get_function(name)
        try:
            driver.funcSetAttribute(function.ptr, MAX_DYNAMIC_SHARED, shared)
        except Exception as e:  # as above
            raise ResourceError(
                f"target cuda: {name} needs {shared:,} bytes of shared memory per block, which this device does not "
                f"give ({e})"
            ) from e
        out.append(Kernel(function, name, threads, shared))
    return out
