"""What a backend is to the driver: a way to turn a kernel into something that runs on arrays."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tilec.arrays import Array
from tilec.errors import ArgumentError, UnsupportedError
from tilec.ir import Kernel
from tilec.scalar import Number

TARGETS = ("cpu", "reference")
"""The targets that can run."""

Runner = Callable[[Mapping[str, Array], Mapping[str, Number], Mapping[str, Array]], None]
"""Runs a kernel: tensors, scalars and outputs by name. It writes the outputs."""


def check_target(target: str) -> None:
    """Raises UnsupportedError for a target that is planned only, ArgumentError for one that is none."""
    if target in TARGETS:
        return
    if target == "cuda" or target.startswith("cuda:"):
        raise UnsupportedError(
            f"target {target}: tilec has no CUDA backend yet; what works is target='cpu' and target='reference'"
        )
    raise ArgumentError(f"no target is called {target!r}; expected one of {', '.join(TARGETS)}")


def target_of(devices: Mapping[str, str]) -> str:
    """The target for arrays that live on these devices (by argument): the device's own."""
    for name, device in devices.items():
        if device == "cuda":
            raise UnsupportedError(
                f"argument {name} is on a CUDA device, and tilec has no CUDA backend yet; what works is arrays in this "
                "computer's memory, on target='cpu'"
            )
        if device != "cpu":
            raise ArgumentError(
                f"argument {name} is on a device ({device}) that tilec has no target for; expected cpu"
            )
    return "cpu"


def runner(kernel: Kernel, target: str) -> Runner:
    """A kernel made ready to run. For `reference` any level will do, for `cpu` it must be placed tiles."""
    return _cpu(kernel) if target == "cpu" else _reference(kernel)


def _reference(kernel: Kernel) -> Runner:
    def run(
        tensors: Mapping[str, Array], scalars: Mapping[str, Number], outputs: Mapping[str, Array]
    ) -> None:
        import numpy

        from tilec.backends.reference import interpreter

        outcome = interpreter.run(kernel, {n: a.numpy() for n, a in tensors.items()}, scalars)
        with numpy.errstate(all="ignore"):
            for name, array in outputs.items():
                array.numpy()[...] = outcome.outputs[name]

    return run


def _cpu(kernel: Kernel) -> Runner:
    from tilec.backends.cpu.target import compile
    from tilec.backends.cpu.view import View

    executable = compile(kernel)

    def views(arrays: Mapping[str, Array]) -> dict[str, View]:
        return {n: View(a.pointer, a.dtype, a.shape, a.strides) for n, a in arrays.items()}

    def run(
        tensors: Mapping[str, Array], scalars: Mapping[str, Number], outputs: Mapping[str, Array]
    ) -> None:
        executable(views(tensors), scalars, views(outputs))

    return run


def source(kernel: Kernel, form: str) -> str:
    """The code that the CPU target makes for placed tiles: `llvm`, or `asm` for this processor."""
    from tilec.backends.cpu import jit
    from tilec.backends.cpu.lower import lower

    text = lower(kernel, jit.host()).text
    return text if form == "llvm" else jit.assembly(text)
