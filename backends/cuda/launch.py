"""Loads cubins and launches kernels through CuPy, on the stream that the caller's library is using."""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

import ctypes
import functools
import importlib
import os
import sys
import threading
from collections import deque
from collections.abc import Generator, Sequence
from contextlib import contextmanager
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


@functools.cache
def shared(device: int) -> int:
    """The most bytes of shared memory that a block may ask for on a device."""
    return int(cupy().cuda.Device(device).attributes["MaxSharedMemoryPerBlockOptin"])


def current_device() -> int:
    """The device that CuPy uses at present."""
    return int(cupy().cuda.runtime.getDevice())


_known = threading.local()


def is_current(device: int) -> bool:
    """Whether a device is the current one of this thread, which has been on it before."""
    return current_device() == device and device in getattr(_known, "devices", ())


@contextmanager
def on(device: int) -> Generator[None]:
    """Makes a device the current one for a while."""
    runtime, before = cupy().cuda.runtime, current_device()
    runtime.setDevice(
        device
    )  # also where it is current: the driver wants a context of each thread, which this makes
    _known.devices = {*getattr(_known, "devices", ()), device}
    try:
        yield
    finally:
        runtime.setDevice(before)


def stream(library: str, device: int) -> int:
    """The address of the stream on which the caller's library works at present."""
    if library == "torch" and "torch" in sys.modules:
        return sys.modules["torch"].cuda.current_stream(device).cuda_stream
    return cupy().cuda.get_current_stream().ptr


def capture(stream: int) -> int:
    """A number for the CUDA graph that a stream is being captured into; 0 where it is not."""
    if not cupy().cuda.runtime.streamIsCapturing(stream):
        return 0
    driver = importlib.import_module("cuda.bindings.driver")
    status, _, number, *_ = driver.cuStreamGetCaptureInfo(stream)
    return 1 if int(status) else int(number)


recent: deque[str] = deque(maxlen=8)
"""The kernels launched last, and their schedules, for errors that the device reports late."""
LATE = (700, 702, *range(710, 720))
"""What the driver says of a kernel that has gone wrong while it ran, at any later call."""


@dataclass(frozen=True)
class Kernel:
    """A loaded kernel: CuPy's function, and how it is launched. `note`: its schedule. `in_turn`: its code waits for the
    kernel before it."""

    function: Any
    name: str
    threads: int
    shared: int
    note: str = ""
    in_turn: bool = False

    def __call__(self, blocks: int, table: int, stream: int, follows: bool = False) -> None:
        """Launches it. `table`: the address of the addresses of its parameters. `follows`: the launch before it is one of
        the same call, during which it may begin to start.

        Raises ResourceError where the device refuses the launch, or says that an earlier kernel has failed.
        """
        recent.append(self.label)
        f, threads, shared = self.function.ptr, self.threads, self.shared
        try:
            if follows and self.in_turn:
                _start_early(f, _early(blocks, threads, shared, stream), table)
            else:
                _start()(f, blocks, 1, 1, threads, 1, 1, shared, stream, table, 0)
        except RuntimeError as e:  # the base of CuPy's own
            raise self._failure(e, blocks) from e

    def _failure(self, e: RuntimeError, blocks: int) -> ResourceError:
        if getattr(e, "status", None) in LATE:
            return late(e)
        return ResourceError(
            f"target cuda: the launch of {self.label} failed ({e}): {blocks:,} blocks of {self.threads} threads, "
            f"{self.shared:,} bytes of shared memory each"
        )

    @functools.cached_property
    def label(self) -> str:
        """Its name and schedule."""
        return f"{self.name} ({self.note})" if self.note else self.name


def late(e: Exception) -> ResourceError:
    """The error for a kernel that failed while it ran; which one, only the order of the launches tells."""
    last = list(dict.fromkeys(reversed(recent)))
    names = f"; tilec launched last: {', '.join(last)}" if last else ""
    return ResourceError(
        f"target cuda: a kernel failed on the device ({e}){names}; with CUDA_LAUNCH_BLOCKING=1 the failing call raises"
    )


@functools.cache
def _start() -> Any:
    return importlib.import_module("cupy_backends.cuda.api.driver").launchKernel


class Refusal(RuntimeError):
    """What the driver says of a launch that it refuses."""

    def __init__(self, status: int) -> None:
        super().__init__(f"CUDA error {status}")
        self.status = status


def _start_early(function: int, settings: Any, table: int) -> None:
    """A launch that may begin before the kernel before it is done. Raises Refusal."""
    if status := _driver().cuLaunchKernelEx(settings.getPtr(), function, table, None):
        raise Refusal(status)


@functools.cache
def _driver() -> Any:
    """The driver itself: its bindings for Python take longer for a launch than the launch does."""
    library = ctypes.CDLL("nvcuda.dll" if os.name == "nt" else "libcuda.so.1")
    library.cuLaunchKernelEx.argtypes = [ctypes.c_void_p] * 4
    return library


@functools.lru_cache(maxsize=256)
def _early(blocks: int, threads: int, shared: int, stream: int) -> Any:
    """The settings of such a launch."""
    driver = importlib.import_module("cuda.bindings.driver")
    out, early = driver.CUlaunchConfig(), driver.CUlaunchAttribute()
    kinds = driver.CUlaunchAttributeID
    early.id = kinds.CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION
    early.value.programmaticStreamSerializationAllowed = 1
    out.gridDimX, out.gridDimY, out.gridDimZ = blocks, 1, 1
    out.blockDimX, out.blockDimY, out.blockDimZ = threads, 1, 1
    out.sharedMemBytes, out.hStream = shared, driver.CUstream(stream)
    out.attrs, out.numAttrs = [early], 1
    return out


def load(
    image: bytes,
    functions: Sequence[tuple[str, int, int]],
    note: str = "",
    in_turn: bool = False,
) -> list[Kernel]:
    """The kernels of a cubin (or of PTX text), on the current device.

    `functions`: name, threads and bytes of dynamic shared memory of each. `in_turn`: see `Kernel`. Raises ResourceError
    where the device lacks them.
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
        out.append(Kernel(function, name, threads, shared, note, in_turn))
    return out
