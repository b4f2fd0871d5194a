"""Arrays on a CUDA device: PyTorch, CuPy, JAX, and whatever else speaks `__cuda_array_interface__` or DLPack."""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tilec import arrays
from tilec.arrays import Array
from tilec.dtypes import NUMPY_NAMES, SIZES, DType
from tilec.errors import ArgumentError, UnsupportedError


def view(name: str, x: Any) -> Array:
    """The description of the array on a GPU given for the argument `name`. Raises ArgumentError for any other object."""
    if arrays.device_of(x) != "cuda":
        where = (
            "in this computer's memory"
            if arrays.device_of(x) == "cpu"
            else f"on {arrays.device_of(x)!r}"
        )
        raise ArgumentError(
            f"argument {name}: expected an array on a CUDA device, got {arrays.describe(x)} {where}; tilec copies no "
            "tensor between devices: move it first"
        )
    library = arrays.library_of(x)
    if library == "torch":
        return arrays.of_torch(name, x)
    if library == "cupy":
        return _of_cupy(name, x, "cupy")
    if hasattr(x, "__dlpack__"):
        return _of_cupy(name, _cupy().from_dlpack(x), "jax" if library == "jax" else "cupy")
    return _of_cupy(name, _cupy().asarray(x), "cupy")


def _cupy() -> Any:
    from tilec.backends.cuda import launch

    return launch.cupy()


def _of_cupy(name: str, x: Any, library: str) -> Array:
    dtype = arrays.element_type(x.dtype)
    if dtype is None:
        raise arrays.unknown_dtype(name, str(x.dtype))
    size = SIZES[dtype]
    pointer = int(x.data.ptr)
    if pointer % size or any(s % size for s in x.strides):
        raise ArgumentError(
            f"argument {name}: its elements do not lie at multiples of their size; pass {name}.copy()"
        )
    strides = tuple(s // size for s in x.strides)
    return Array(
        pointer, dtype, x.shape, strides, x, library, library == "cupy", int(x.data.device_id)
    )


def allocator(library: str, device: int, shape: Sequence[int], dtype: DType) -> Callable[[], Any]:
    """What makes a new dense array of a library on a device, not initialised."""
    size = tuple(shape)
    if library == "torch":
        torch = importlib.import_module("torch")
        return arrays.torch_maker(shape, dtype, torch.device("cuda", device))
    from tilec.backends.cuda import launch

    c, kind = _cupy(), arrays.numpy_dtype(dtype)

    def make() -> Any:
        if launch.is_current(device):
            return c.empty(size, kind)
        with launch.on(device):
            return c.empty(size, kind)

    return make


def fresh(library: str, x: Any) -> Array:
    """The description of a new array."""
    return arrays.of_torch("out", x) if library == "torch" else _of_cupy("out", x, library)


# ---- from this computer's memory and back, where a command is asked to


def send(arrays_: Mapping[str, Any]) -> dict[str, Any]:
    """NumPy arrays copied to the current device: as CuPy's, or as PyTorch's where CuPy lacks one of the element types."""
    c = _cupy()
    names: dict[str, DType | None] = {n: arrays.element_type(a.dtype) for n, a in arrays_.items()}
    if not any(d == "bf16" or str(d).startswith("f8") for d in names.values()):
        return {n: c.asarray(a) for n, a in arrays_.items()}
    try:
        torch = importlib.import_module("torch")
    except ImportError as e:
        raise UnsupportedError(
            "target cuda: data of bf16 or f8 is sent to the device by PyTorch, which is not installed; use --dtype f16"
        ) from e
    return {n: _to_torch(torch, a, names[n]) for n, a in arrays_.items()}


def _to_torch(torch: Any, a: Any, dtype: DType | None) -> Any:
    if dtype is None or not (dtype == "bf16" or dtype.startswith("f8")):
        return torch.from_numpy(a).cuda()
    raw = torch.from_numpy(a.view("int16" if dtype == "bf16" else "int8")).cuda()
    return raw.view(getattr(torch, NUMPY_NAMES[dtype]))


def receive(x: Any) -> Any:
    """An array on a device copied to a NumPy array."""
    return arrays.of_torch("out", x.cpu()).numpy() if arrays.library_of(x) == "torch" else x.get()


def wait() -> None:
    """Waits until the current device has done all that was asked of it."""
    _cupy().cuda.Device().synchronize()
