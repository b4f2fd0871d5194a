"""What this machine offers: what tilec can use here, what is missing, and the command that installs it."""

from __future__ import annotations

import ctypes
import importlib.metadata
import os
import platform
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from tilec import cache


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing looked at. `ok` is None where nothing depends on it; `remedy` says what to do where it is missing."""

    name: str
    found: str
    ok: bool | None = None
    remedy: str | None = None


def examine() -> list[Finding]:
    """Everything there is to say about this machine."""
    return [*_software(), *_processor(), *_ceilings(), *_gpu(), *_caches()]


def _software() -> Iterator[Finding]:
    from tilec import __version__

    yield Finding("tilec", __version__)
    yield Finding(
        "python", f"{platform.python_version()} ({sys.executable})", sys.version_info >= (3, 11)
    )
    for name in ("numpy", "llvmlite", "ml_dtypes", "lark", "networkx"):
        yield _package(name, "pip install tilec")
    for name in ("torch", "jax"):
        yield _optional(name, "not installed; not needed")


def _package(name: str, remedy: str) -> Finding:
    version = _version(name)
    return Finding(name, version or "missing", version is not None, None if version else remedy)


def _optional(name: str, otherwise: str, remedy: str | None = None) -> Finding:
    version = _version(name)
    return Finding(name, version or otherwise, None, None if version else remedy)


def _version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def _processor() -> Iterator[Finding]:
    try:
        from tilec.backends.cpu import jit

        machine = jit.host()
    except ImportError as e:
        yield Finding("cpu", f"cannot be asked: {e}", False, "pip install llvmlite")
        return
    yield Finding("cpu", f"{machine.cpu}, {machine.lanes} f32 lanes, {machine.triple}", True)
    wanted = ("avx512f", "avx2", "fma", "f16c", "avx512bf16", "amx-bf16", "neon")
    yield Finding("cpu features", ", ".join(f for f in wanted if machine.has(f)) or "none of note")
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    limit = os.environ.get("TILEC_NUM_THREADS")
    yield Finding(
        "threads", f"{allowed} processors" + (f", TILEC_NUM_THREADS={limit}" if limit else "")
    )


def _gpu() -> Iterator[Finding]:
    driver = next((n for n in ("libcuda.so.1", "nvcuda.dll") if _loads(n)), None)
    yield Finding("cuda driver", driver or "none found: no CUDA device can be used")
    for name in ("cupy-cuda13x", "cuda-bindings", "nvidia-cuda-nvrtc"):
        yield _optional(name, "not installed", "pip install 'tilec[cuda]'")
    yield Finding("nvrtc", _said(_nvrtc))
    yield Finding("cuda target", _said(_device))


def _said(ask: Callable[[], str]) -> str:
    from tilec.errors import UnsupportedError

    try:
        return ask()
    except UnsupportedError as e:
        return str(e)


def _nvrtc() -> str:
    from tilec.backends.cuda import nvrtc

    known = ", ".join(f"sm_{n}" for n in nvrtc.architectures() if n >= 80)
    return f"{nvrtc.version()}, for {known}"


def _device() -> str:
    from tilec.backends.cuda import arch, launch

    device = launch.cupy().cuda.Device()
    name = arch.for_capability(launch.capability(device.id))
    return f"device {device.id}: {name}, {launch.processors(device.id)} multiprocessors"


def _ceilings() -> Iterator[Finding]:
    from tilec import ceilings

    for target in ("cpu", "cuda") if ceilings.gpu("cuda") else ("cpu",):
        c = ceilings.of(target)
        name = "ceilings" if target == "cpu" else "gpu ceilings"
        if c is None:
            yield Finding(name, "not measured yet", None, "tilec doctor --measure")
            continue
        rates = f"memory {c.memory / 1e9:.3g} GB/s, last cache {c.cache / 1e9:.3g} GB/s"
        units = f"{c.matrix / 1e9:.4g} G matrix, {c.fma / 1e9:.4g} G other, {c.special / 1e9:.3g} G special operations"
        yield Finding(name, f"{rates}; per second {units} ({c.origin})")
        fast = "per processor" if target == "cpu" else "of shared memory per multiprocessor"
        yield Finding(
            "caches" if target == "cpu" else "gpu caches",
            f"{c.near >> 10:,} KiB {fast}, {c.far >> 20:,} MiB shared",
        )


def _loads(library: str) -> bool:
    try:
        ctypes.CDLL(library)
    except OSError:
        return False
    return True


def _caches() -> Iterator[Finding]:
    path = cache.root()
    sizes = [p.stat().st_size for p in cache.objects()]
    writable = _writable(path)
    remedy = None if writable else "set TILEC_CACHE_DIR to a folder that can be written"
    found = f"{path}: {len(sizes)} objects, {sum(sizes):,} bytes"
    yield Finding("object cache", found, writable, remedy)


def _writable(path: Path) -> bool:
    """Whether a folder can be written, or made."""
    there = next((p for p in (path, *path.parents) if p.exists()), None)
    return there is not None and there.is_dir() and os.access(there, os.W_OK)
