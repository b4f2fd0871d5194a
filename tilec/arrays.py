"""The arrays of a call: NumPy, PyTorch, JAX and whatever else speaks DLPack, seen through one description.

Nothing is copied, except an array whose elements do not lie at multiples of their size (a field of a structured array,
say). No library is imported here unless the caller already uses it.
"""

from __future__ import annotations

import ctypes
import functools
import importlib
import math
import operator
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, cast

from tilec.dtypes import NUMPY_NAMES, SIZES, DType
from tilec.errors import ArgumentError

_BY_NAME: dict[str, DType] = {name: dtype for dtype, name in NUMPY_NAMES.items()}


@dataclass(frozen=True, slots=True)
class Array:
    """An array in this process's memory. `strides` count elements; `owner` keeps the memory alive.

    `library` is the module that results should come from: `numpy`, `torch`, `cupy` or `jax`. `device`: the number of the
    CUDA device that it is on; None for this computer's memory.
    """

    pointer: int
    dtype: DType
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    owner: Any
    library: str
    writable: bool = True
    device: int | None = None

    def bare(self) -> Array:
        """The description alone, which keeps no memory alive."""
        more = self.library, self.writable, self.device
        return Array(self.pointer, self.dtype, self.shape, self.strides, None, *more)

    def numpy(self) -> Any:
        """The same memory as a NumPy array."""
        return _torch_to_numpy(self.owner) if self.library == "torch" else self.owner


def library_of(x: Any) -> str:
    """The top module of an object's type: `numpy`, `torch`, `jax`, … (`jaxlib` counts as `jax`).

    A class that someone derived from such a library's counts as that library's.
    """
    return _library_of(type(x))  # pyright: ignore[reportUnknownArgumentType]


@functools.lru_cache(maxsize=64)
def _library_of(cls: type) -> str:
    tops = [c.__module__.partition(".")[0] for c in cls.__mro__]
    top = next((t for t in tops if t in ("numpy", "torch", "jax", "cupy")), tops[0])
    return "jax" if top == "jaxlib" else top


def device_of(x: Any) -> str:
    """Where an array lives: `cpu`, `cuda`, or another library's word for it."""
    library = library_of(x)
    if library == "torch" and hasattr(x, "device"):
        return str(getattr(x.device, "type", "cpu"))
    if library == "jax" and hasattr(x, "devices") and not _is_traced(x):
        platforms = {str(d.platform) for d in x.devices()}
        return "cuda" if platforms & {"gpu", "cuda"} else platforms.pop() if platforms else "cpu"
    if library == "numpy":
        return "cpu"
    if hasattr(x, "__cuda_array_interface__"):
        return "cuda"
    if hasattr(x, "__dlpack_device__"):
        return _dlpack_device(x)
    return "cpu"


def _dlpack_device(x: Any) -> str:
    try:
        number = int(x.__dlpack_device__()[0])
    except Exception:
        return (
            "cpu"  # whatever a foreign class does wrong, reading it will do wrong again, and say so
        )
    return {1: "cpu", 2: "cuda", 3: "cpu", 10: "rocm"}.get(number, "other")


def describe(x: Any) -> str:
    """What an object is, for a message: `a float32 array of shape (2, 3)`, `an object of type list`, `None`."""
    shape = getattr(x, "shape", None)
    if x is None:
        return "None"
    if not isinstance(shape, tuple) or not hasattr(x, "dtype"):
        return f"an object of type {type(x).__name__}"
    return f"a {str(x.dtype).removeprefix('torch.')} array of shape {tuple(cast('tuple[int, ...]', shape))}"


def view(name: str, x: Any) -> Array:
    """The description of the array given for the argument `name`.

    Raises ArgumentError for an object that is no array, an element type that tilec lacks, and an array that is not in
    this process's memory.
    """
    library = library_of(x)
    if library == "torch" and hasattr(x, "data_ptr"):
        if x.device.type != "cpu":
            raise _elsewhere(name, x.device.type)
        return of_torch(name, x)
    if library == "numpy":
        return _of_numpy(name, x, "numpy")
    if library == "jax" and _is_traced(x):
        raise ArgumentError(
            f"argument {name}: expected an array, got one that jax is tracing; call the kernel outside jit and grad, or "
            "through jax.pure_callback"
        )
    if device_of(x) != "cpu":
        raise _elsewhere(name, device_of(x))
    if library == "jax" and hasattr(x, "__array__"):
        return _of_numpy(name, _asarray(x), "jax")
    if hasattr(x, "__dlpack__"):
        return _of_numpy(name, _from_dlpack(name, x), "numpy")
    listed = isinstance(x, list | tuple) and not name.startswith("out (")
    hint = "; numpy.asarray makes one of it" if listed else ""
    raise ArgumentError(
        f"argument {name}: expected an array (NumPy, PyTorch, JAX or DLPack), got {describe(x)}{hint}"
    )


def _is_traced(x: Any) -> bool:
    return "Tracer" in type(x).__name__


def _elsewhere(name: str, device: str) -> ArgumentError:
    return ArgumentError(
        f"argument {name}: expected an array in this computer's memory, got one on the device {device!r}; "
        "tilec copies no tensor between devices: move it first"
    )


def _asarray(x: Any) -> Any:
    import numpy

    return x if type(x) is numpy.ndarray else numpy.asarray(x)


def _from_dlpack(name: str, x: Any) -> Any:
    import numpy

    try:
        return numpy.from_dlpack(x)
    except Exception as e:  # a foreign class may raise anything
        raise ArgumentError(
            f"argument {name}: {describe(x)} cannot be read through DLPack: {e}"
        ) from e


# ---- NumPy


def _of_numpy(name: str, x: Any, library: str) -> Array:
    import numpy

    if not isinstance(x, (numpy.ndarray, numpy.generic)):
        raise ArgumentError(f"argument {name}: expected an array, got {describe(x)}")
    masked = sys.modules.get("numpy.ma")  # it takes a while to load: where it is not, there is none
    if masked is not None and isinstance(x, masked.MaskedArray):
        raise ArgumentError(
            f"argument {name}: expected a plain array, got a masked array, whose mask would be ignored; pass the mask "
            "as an argument of its own"
        )
    # a subclass (a matrix, say) may mean other things by the same operators
    return _of_plain(name, _asarray(cast(Any, x)), library)


def _of_plain(name: str, x: Any, library: str) -> Array:
    dtype = _dtype_of_numpy(name, x)
    size = x.itemsize
    pointer, read_only = x.__array_interface__["data"]
    if pointer % size or any(s % size for s in x.strides):
        x = x.copy()
        pointer, read_only = x.__array_interface__["data"][0], True
    strides = tuple(s // size for s in x.strides)
    return Array(pointer, dtype, x.shape, strides, x, library, not read_only and library == "numpy")


def _dtype_of_numpy(name: str, x: Any) -> DType:
    dtype = element_type(x.dtype)
    if dtype is not None:
        return dtype
    if x.dtype.name in _BY_NAME:
        raise ArgumentError(
            f"argument {name}: its bytes are in the other order (dtype {x.dtype.str!r}); .astype({x.dtype.name!r}) gives "
            "an array in this machine's order"
        )
    raise unknown_dtype(name, x.dtype.name)


@functools.cache
def element_type(dtype: Any) -> DType | None:
    """The element type of a library's dtype object; None for one that tilec lacks, or in the other byte order."""
    if not getattr(dtype, "isnative", True):
        return None
    return _BY_NAME.get(getattr(dtype, "name", None) or str(dtype).removeprefix("torch."))


def unknown_dtype(name: str, dtype: str) -> ArgumentError:
    """The error for an array whose element type tilec lacks."""
    parts = "; pass its real and imaginary parts as two" if "complex" in dtype else ""
    return ArgumentError(
        f"argument {name}: elements of type {dtype} are not supported; expected one of {', '.join(_BY_NAME)}{parts}"
    )


# ---- PyTorch


def of_torch(name: str, x: Any) -> Array:
    """The description of a PyTorch tensor, in this computer's memory or on a CUDA device."""
    dtype = element_type(x.dtype)
    if dtype is None:
        raise unknown_dtype(name, str(x.dtype))
    if not _is_strided(x.layout):
        raise ArgumentError(
            f"argument {name}: expected a dense tensor, got one of layout {x.layout}"
        )
    negative = x.is_neg()
    if negative:
        x = x.resolve_neg()
    try:
        # a tensor's shape is a tuple of its own class, which would be slow as a key
        pointer, shape, strides = x.data_ptr(), tuple(x.shape), x.stride()
    except RuntimeError as e:  # nested, or inside vmap or grad
        raise _without_memory(name, x) from e
    if not pointer and 0 not in shape:  # fake, or its storage was freed
        raise _without_memory(name, x)
    device = None if x.device.type == "cpu" else x.device.index
    return Array(pointer, dtype, shape, strides, x, "torch", not negative, device)


def check_gradient(name: str, x: Any, called: str | None = None) -> None:
    """Raises ArgumentError for a PyTorch tensor that records what is computed from it: the result would have no gradient.

    `called`: what the tensor is called in the remedy, if not by its name.
    """
    if library_of(x) != "torch" or not getattr(x, "requires_grad", False):
        return
    if importlib.import_module("torch").is_grad_enabled():
        raise ArgumentError(
            f"argument {name}: it requires a gradient, and a kernel's result would have none; pass "
            f"{called or name}.detach(), or call the kernel under torch.no_grad()"
        )


def _without_memory(name: str, x: Any) -> ArgumentError:
    return ArgumentError(
        f"argument {name}: expected a tensor with memory of its own, got one without ({type(x).__name__}: fake, nested, "
        "freed, or traced by a transform of PyTorch); call the kernel on plain tensors"
    )


@functools.cache
def _is_strided(layout: Any) -> bool:
    return str(layout) == "torch.strided"


def _torch_to_numpy(x: Any) -> Any:
    """A NumPy array over a tensor's memory. NumPy has no bfloat16 of its own: the bytes are seen as ml_dtypes' type."""
    torch = importlib.import_module("torch")
    x = x.detach()
    name = str(x.dtype).removeprefix("torch.")
    if name != "bfloat16" and not name.startswith("float8"):
        return x.numpy()
    raw = x.view(torch.int16 if name == "bfloat16" else torch.int8)
    return raw.numpy().view(numpy_dtype(_BY_NAME[name]))


# ---- new arrays


@functools.cache
def numpy_dtype(dtype: DType) -> Any:
    """The NumPy element type; bf16 and f8 are those of ml_dtypes."""
    import numpy

    if dtype == "bf16" or dtype.startswith("f8"):
        import ml_dtypes

        return numpy.dtype(getattr(ml_dtypes, NUMPY_NAMES[dtype]))
    return numpy.dtype(NUMPY_NAMES[dtype])


def allocator(library: str, shape: Sequence[int], dtype: DType) -> Callable[[], Any]:
    """What makes a new dense array of a library, not initialised. JAX gets a NumPy array, turned over by `give`."""
    if library == "torch":
        torch = importlib.import_module("torch")
        return torch_maker(shape, dtype, torch.device("cpu"))
    import numpy

    return functools.partial(numpy.empty, tuple(shape), numpy_dtype(dtype))


def torch_maker(shape: Sequence[int], dtype: DType, device: Any) -> Callable[[], Any]:
    """What makes a new dense PyTorch tensor on a device; `empty` would look for twice as long at what it is given."""
    torch = importlib.import_module("torch")
    steps = tuple(math.prod(max(n, 1) for n in shape[k + 1 :]) for k in range(len(shape)))
    kind = getattr(torch, NUMPY_NAMES[dtype])
    return functools.partial(torch.empty_strided, tuple(shape), steps, dtype=kind, device=device)


def address_of(library: str) -> Callable[[Any], int]:
    """What tells the address of an array of a library."""
    match library:
        case "torch":
            return operator.methodcaller("data_ptr")
        case "cupy":
            return operator.attrgetter("data.ptr")
        case _:
            return numpy_address


def numpy_address(x: Any) -> int:
    """The address of a NumPy array, by the array interface's C struct: it is read in half the time of the dictionary."""
    capsule = x.__array_struct__
    return ctypes.c_void_p.from_address(_struct()(capsule, None) + _DATA).value or 0


_DATA = 24 + 2 * ctypes.sizeof(ctypes.c_void_p)
"""Where the pointer is, after four integers, flags and the pointers to shape and strides."""


@functools.cache
def _struct() -> Any:
    read = ctypes.pythonapi.PyCapsule_GetPointer
    read.restype, read.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    return read


def fresh(library: str, x: Any, dtype: DType) -> Array:
    """The description of a new array."""
    if library == "torch":
        return of_torch("out", x)
    strides = tuple(s // x.itemsize for s in x.strides)
    return Array(numpy_address(x), dtype, x.shape, strides, x, library)


def give(array: Array) -> Any:
    """The array as an object of its library."""
    if array.library == "jax" and array.device is not None:
        return importlib.import_module("jax.dlpack").from_dlpack(array.owner)
    if array.library == "jax":
        return importlib.import_module("jax.numpy").asarray(array.owner)
    return array.owner


def reach(x: Array) -> tuple[int, int]:
    """The first byte of an array and the one after its last, counted from its address."""
    size = SIZES[x.dtype]
    steps = [(n - 1) * s for n, s in zip(x.shape, x.strides, strict=True)]
    if 0 in x.shape:
        return 0, 0
    return sum(min(s, 0) for s in steps) * size, (sum(max(s, 0) for s in steps) + 1) * size


def overlap(x: Array, y: Array) -> bool:
    """Whether two arrays share an element. Where that is too hard to say, they do."""
    import numpy

    if not math.prod(x.shape) or not math.prod(y.shape) or x.device != y.device:
        return False
    (a0, a1), (b0, b1) = reach(x), reach(y)
    if x.pointer + a1 <= y.pointer + b0 or y.pointer + b1 <= x.pointer + a0:
        return False
    if x.device is not None:
        return True
    try:
        work: Any = 10_000  # more than the stubs allow
        return bool(numpy.shares_memory(x.numpy(), y.numpy(), max_work=work))
    except Exception:  # the class moved between versions of NumPy
        return True


def repeats(x: Array) -> bool:
    """Whether two positions of an array may be the same element: along some axis its steps are not past all shorter ones.

    Never false where there are two; true for a few odd layouts where there are none.
    """
    reach = 0
    steps = [(abs(s), n) for n, s in zip(x.shape, x.strides, strict=True) if n > 1]
    for step, n in sorted(steps):
        if step <= reach:
            return True
        reach += (n - 1) * step
    return reach == 0 and len(steps) > 0
