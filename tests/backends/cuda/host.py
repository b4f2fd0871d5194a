"""Runs CUDA kernels on the host: the generated text is compiled as plain C++, and each block's threads run one by one."""

from __future__ import annotations

import ctypes
import hashlib
import os
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from tilec.arrays import Array, numpy_dtype, view
from tilec.backends.cuda import call
from tilec.backends.cuda.block import WORKSPACE, Address, Block, Layout
from tilec.backends.cuda.simt.lower import lower
from tilec.backends.cuda.source import complete
from tilec.ir import Kernel
from tilec.scalar import Number, evaluate

LIMIT = 96 << 10

_DRIVER = """
extern "C" void run_{name}(const Args* a, i64 blocks, int first, int step) {{
  tl::blocks = blocks; tl::first = first; tl::step = step;
  for (tl::block = 0; tl::block < blocks; ++tl::block) {name}(*a);
}}
"""


def build(text: str, names: list[str]) -> ctypes.CDLL:
    """The kernels of a complete text as a shared library."""
    source = "#define TILEC_HOST\n" + text + "".join(_DRIVER.format(name=n) for n in names)
    folder = Path(tempfile.gettempdir()) / f"tilec_host_{os.getuid()}"
    folder.mkdir(exist_ok=True)
    stem = folder / hashlib.sha256(source.encode()).hexdigest()[:24]
    library = stem.with_suffix(".so")
    if not library.exists():
        stem.with_suffix(".cpp").write_text(source)
        made = stem.with_suffix(f".{os.getpid()}")
        flags = ["-O1", "-std=c++17", "-fPIC", "-shared", "-w", "-fwrapv", "-ffp-contract=off"]
        done = subprocess.run(
            ["g++", *flags, str(stem.with_suffix(".cpp")), "-o", str(made)],
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise RuntimeError(done.stderr[:3000])
        os.replace(made, library)
    return ctypes.CDLL(str(library))


def run(
    kernel: Kernel, arrays: Mapping[str, Any], scalars: Mapping[str, Number], **options: Any
) -> dict[str, Any]:
    """The outputs of a kernel in tiles, as NumPy arrays. Options are those of `run_views`."""
    views = {n: view(n, a) for n, a in arrays.items()}
    known = call.Numbers(kernel).sizes(views, scalars)
    extents = kernel.extents
    out: dict[str, Any] = {}
    for o in kernel.outputs:
        shape = [int(evaluate(extents[a], known)) for a in o.axes]
        out[o.name] = np.full(shape, 77, numpy_dtype(o.dtype))
    run_views(kernel, views, scalars, {n: view(n, a) for n, a in out.items()}, **options)
    return out


def run_views(
    kernel: Kernel,
    tensors: Mapping[str, Array],
    scalars: Mapping[str, Number],
    outputs: Mapping[str, Array],
    *,
    backwards: bool = False,
    blocks: int = 3,
    limit: int = LIMIT,
) -> None:
    """Runs a kernel in tiles. `backwards`: the threads of a block run in the opposite order; `limit`: bytes of shared
    memory."""
    module = lower(kernel, limit)
    library = build(complete(module.text), [f.name for f in module.functions.values()])
    numbers = call.Numbers(kernel)
    known = numbers.sizes(tensors, scalars)
    shapes = numbers.buffers(known)
    kept = {n: np.zeros(shape, numpy_dtype(dtype)) for n, (dtype, shape) in shapes.items()}
    views = {**tensors, **outputs, **{n: view(n, a) for n, a in kept.items()}}
    most = max((f.workspace for f in module.functions.values()), default=0)
    workspace = np.full(most * blocks + 1, 0xFF, np.uint8)
    listed = numbers.list(known, views)
    layout = Layout({0: [module.arguments.parameter(redo=False)]}, numbers.index)
    places = {name: Address(k) for k, name in enumerate([*views, WORKSPACE])}
    block = Block(layout.contents(listed, known, places, views))
    block.fill((*(v.pointer for v in views.values()), workspace.ctypes.data))
    packed = ctypes.c_void_p.from_address(block.tables[0])
    for n, f in module.functions.items():
        tasks = int(listed[numbers.index["tasks", str(n)]])
        first, step = (f.threads - 1, -1) if backwards else (0, 1)
        if tasks:
            entry = getattr(library, f"run_{f.name}")
            entry(packed, ctypes.c_int64(min(tasks, blocks)), first, step)
