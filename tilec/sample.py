"""Sample data: what a kernel's tensors hold where the user gives none."""

from __future__ import annotations

import math
import os
from collections.abc import Collection, Mapping
from typing import Any

from tilec import scalar
from tilec.arrays import numpy_dtype
from tilec.dtypes import SIZES, kind
from tilec.errors import ArgumentError, ResourceError, Span
from tilec.ir import Kernel, Tensor
from tilec.source import Source
from tilec.syntax import AxisLine, Item, KernelDef, Let, Name, Program, Sample

MOST = 1 << 47
"""Bytes that no array can take; NumPy's own limits beyond are errors of other kinds."""
CHUNK = 1 << 20
"""Values that are drawn at once: the generator makes them as float64."""


def draw(
    source: Source,
    kernel: Kernel,
    sizes: Mapping[str, int],
    seed: int,
    only: Collection[str] | None = None,
) -> dict[str, Any]:
    """A NumPy array per tensor parameter, with its element type and shape. `only`: of these parameters, the same arrays.

    A `sample` line of the program decides; else floats are standard normal, drawn in the order of the parameters from
    one generator seeded with `seed`, and integers are zero. Raises ArgumentError for a shape that makes no sense.
    """
    import numpy

    random = numpy.random.default_rng(seed)
    wanted = list(kernel.tensors) if only is None else [n for n in kernel.tensors if n in only]
    out: dict[str, Any] = {}
    _check_room(kernel, sizes, wanted)
    for t in kernel.tensors.values():
        drawn = t.name not in source.program.samples and kind(t.dtype) == "float"
        if len(out) == len(wanted) or not (drawn or t.name in wanted):
            continue
        shape, dtype = _shape(t, sizes), numpy_dtype(t.dtype)
        if drawn:  # also where it is not wanted: those after it depend on it
            a = _normal(random, shape, dtype)
        elif t.name in source.program.samples:
            sample = source.program.samples[t.name]
            with numpy.errstate(all="ignore"):
                a = _evaluate(source, sample, t, shape, sizes)
        else:
            a = numpy.zeros(shape, dtype)
        if t.name in wanted:
            out[t.name] = a.astype(dtype, copy=False)
    return out


def _normal(random: Any, shape: tuple[int, ...], dtype: Any) -> Any:
    """An array of standard normal values, which takes no more memory than it has."""
    import numpy

    out = numpy.empty(shape, dtype)
    flat = out.reshape(-1)
    for start in range(0, flat.size, CHUNK):
        part = flat[start : start + CHUNK]
        part[...] = random.standard_normal(part.size)
    return out


def _check_room(kernel: Kernel, sizes: Mapping[str, int], wanted: Collection[str]) -> None:
    """Raises ResourceError for sample data that the machine has no memory for: drawn, they would have it end something."""
    need = sum(
        math.prod(_shape(kernel.tensors[n], sizes)) * SIZES[kernel.tensors[n].dtype] for n in wanted
    )
    if need > (room := _memory()):
        raise ResourceError(
            f"no sample data for {kernel.name}: they would take {need / 1e9:,.0f} GB, this machine has {room / 1e9:,.0f}; "
            "what works is smaller sizes"
        )


def _memory() -> int:
    """The bytes of memory of this machine."""
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):  # outside of POSIX
        return MOST


def _shape(t: Tensor, sizes: Mapping[str, int]) -> tuple[int, ...]:
    shape = tuple(int(scalar.evaluate(d, sizes)) for d in t.dims)
    if any(n < 0 for n in shape):
        raise ArgumentError(f"no sample data for {t.name}: its shape would be {shape}")
    if math.prod(max(n, 1) for n in shape) * 8 > MOST:
        raise ResourceError(f"no sample data for {t.name}: a shape of {shape} is past all memory")
    return shape


def _evaluate(
    source: Source, sample: Sample, t: Tensor, shape: tuple[int, ...], sizes: Mapping[str, int]
) -> Any:
    """The value of a `sample` line: that of a kernel with the line as its only statement."""
    import numpy

    from tilec.backends.reference import interpreter
    from tilec.check import lower

    program, name = _kernel_of(source, sample)
    kernel = lower(program, name, {})
    hollow = numpy.broadcast_to(numpy.float32(0), ())
    arrays = {p.name: numpy.broadcast_to(hollow, _shape(p, sizes)) for p in kernel.tensors.values()}
    got = interpreter.run(kernel, arrays, {}).outputs[name]
    return numpy.broadcast_to(numpy.asarray(got), shape)


def _kernel_of(source: Source, sample: Sample) -> tuple[Program, str]:
    """A program whose only kernel gives the sample; its parameters are the kernel's tensors, for their dimensions."""
    definition, span, name = source.definition, sample.span, sample.name.name
    params = tuple(_hollow(p) for p in definition.params if p.dims is not None)
    dims = next(p.dims for p in definition.params if p.name.name == name)
    assert dims is not None
    bounds = tuple(AxisLine(i.span, i, d) for i, d in zip(sample.index, dims, strict=True))
    result = Item(span, sample.name, Name(span, "f64"), sample.index, None)
    body = (*bounds, Let(span, sample.name, sample.value))
    kernel = KernelDef(span, sample.name, params, (result,), body)
    program = source.program
    return Program(program.text, program.file, {name: kernel}, program.functions), name


def _hollow(p: Item) -> Item:
    """A parameter that lends its dimensions only: under a name that no program can use."""
    span: Span = p.name.span
    return Item(p.span, Name(span, f"{p.name.name} of the call"), Name(span, "f32"), p.dims, None)
