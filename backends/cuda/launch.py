"""Loads cubins and launches kernels through CuPy, on the stream that the caller's library is using."""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

import ctypes
import functools
import importlib
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

from tilec.backends.cuda import driver
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
    return _runtime().getDevice()


@functools.cache
def _runtime() -> Any:
    return cupy().cuda.runtime


class _Known(threading.local):
    """The devices that a thread has been on."""

    def __init__(self) -> None:
        self.devices: set[int] = set()


_known = _Known()


def is_current(device: int) -> bool:
    """Whether a device is the current one of this thread, which has been on it before."""
    return device in _known.devices and current_device() == device


@contextmanager
def on(device: int) -> Generator[None]:
    """Makes a device the current one for a while."""
    runtime, before = _runtime(), current_device()
    # also where it is current: the driver wants a context of each thread, which this makes
    runtime.setDevice(device)
    _known.devices.add(device)
    try:
        yield
    finally:
        runtime.setDevice(before)


def stream(library: str, device: int) -> int:
    """The address of the stream on which the caller's library works at present."""
    return _torch_stream()(device) if library == "torch" else cupy().cuda.get_current_stream().ptr


@functools.cache
def _torch_stream() -> Callable[[int], int]:
    """The address of PyTorch's present stream on a device, without an object for it where there is a way."""
    torch = importlib.import_module("torch")
    quick = getattr(torch._C, "_cuda_getCurrentRawStream", None)
    return quick or (lambda device: torch.cuda.current_stream(device).cuda_stream)


def capture(stream: int) -> int:
    """A number for the CUDA graph that a stream is being captured into; 0 where it is not."""
    if not _runtime().streamIsCapturing(stream):
        return 0
    bindings = importlib.import_module("cuda.bindings.driver")
    status, _, number, *_ = bindings.cuStreamGetCaptureInfo(stream)
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

    def launch(self, blocks: int, table: int, stream: int, follows: bool = False) -> Launch:
        """A launch of it. `table`: the address of the addresses of its parameters. `follows`: the launch before it is one
        of the same call, during which it may begin to start."""
        early = follows and self.in_turn
        settings = driver.settings(blocks, self.threads, self.shared, stream, early)
        return Launch(self, settings, ctypes.byref(settings), int(self.function.ptr), table)

    def failure(self, status: int, blocks: int) -> ResourceError:
        """The error for a launch that the driver refused, or at which it said that an earlier kernel has failed."""
        if status in LATE:
            return late(driver.told(status))
        return ResourceError(
            f"target cuda: the launch of {self.label} failed ({driver.told(status)}): {blocks:,} blocks of {self.threads} "
            f"threads, {self.shared:,} bytes of shared memory each"
        )

    @functools.cached_property
    def label(self) -> str:
        """Its name and schedule."""
        return f"{self.name} ({self.note})" if self.note else self.name


class Launch(NamedTuple):
    """A launch, as the driver takes it: `place` is where the settings are."""

    kernel: Kernel
    settings: driver.Settings
    place: Any
    function: int
    table: int


def start(launches: Iterable[Launch]) -> None:
    """Launches kernels one after the other.

    Raises ResourceError where the device refuses a launch, or says that an earlier kernel has failed.
    """
    begin = driver.library().cuLaunchKernelEx
    for kernel, settings, place, function, table in launches:
        recent.append(kernel.label)
        if status := begin(place, function, table, None):
            raise kernel.failure(status, settings.grid[0])


def late(said: str) -> ResourceError:
    """The error for a kernel that failed while it ran; which one, only the order of the launches tells."""
    last = list(dict.fromkeys(reversed(recent)))
    names = f"; tilec launched last: {', '.join(last)}" if last else ""
    return ResourceError(
        f"target cuda: a kernel failed on the device ({said}){names}; with CUDA_LAUNCH_BLOCKING=1 the failing call raises"
    )


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
    api = importlib.import_module("cupy_backends.cuda.api.driver")
    module = c.cuda.function.Module()
    module.load(image)
    out: list[Kernel] = []
    for name, threads, shared in functions:
        function = module.get_function(name)
        try:
            api.funcSetAttribute(function.ptr, MAX_DYNAMIC_SHARED, shared)
        except Exception as e:  # as above
            raise ResourceError(
                f"target cuda: {name} needs {shared:,} bytes of shared memory per block, which this device does not "
                f"give ({e})"
            ) from e
        out.append(Kernel(function, name, threads, shared, note, in_turn))
    return out
