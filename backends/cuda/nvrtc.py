"""From CUDA C++ to a cubin with NVRTC, on any machine: no GPU is needed, and no header or compiler but NVRTC itself."""

from __future__ import annotations

import functools
import importlib
import importlib.util
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tilec.errors import CompilerBug, UnsupportedError

LANGUAGE = ("-std=c++17", "-default-device", "--diag-suppress=177")
"""Options of the language; 177: a function that is not used, of which the header has many."""
SERIALISED = ("C7510", "C7511", "C7512")
"""Warnings of ptxas that mean that asynchronous matrix products run one after another."""


@dataclass(frozen=True, slots=True)
class Usage:
    """What one kernel takes: registers per thread; bytes of static shared memory; stack and spills in bytes."""

    registers: int
    shared: int
    stack: int
    spill_stores: int
    spill_loads: int


@dataclass(frozen=True, slots=True)
class Compiled:
    """A cubin, what each of its kernels uses by name, and what the compiler warned of."""

    cubin: bytes
    usage: dict[str, Usage]
    warnings: tuple[str, ...]


def _nvrtc() -> Any:
    try:
        return importlib.import_module("cuda.bindings.nvrtc")
    except ImportError as e:
        raise UnsupportedError(
            f"target cuda: NVRTC is missing ({e}); install it with: pip install 'tilec[cuda]'"
        ) from e


@functools.cache
def version() -> str:
    """NVRTC's version, as `13.0`."""
    try:
        status, major, minor = _nvrtc().nvrtcVersion()
    except RuntimeError as e:  # the bindings are there, the library is not
        raise UnsupportedError(
            f"target cuda: NVRTC cannot be loaded ({e}); install it with: pip install 'tilec[cuda]'"
        ) from e
    return f"{major}.{minor}" if not int(status) else "unknown"


@functools.cache
def architectures() -> tuple[int, ...]:
    """The architectures that NVRTC knows, as 80 for sm_80."""
    api = _nvrtc()
    version()
    status, count = api.nvrtcGetNumSupportedArchs()
    if int(status):
        return ()
    return tuple(api.nvrtcGetSupportedArchs()[1]) if count else ()


def options(arch: str) -> tuple[str, ...]:
    """NVRTC's options for an architecture such as `sm_90a`."""
    return (f"--gpu-architecture={arch}", *LANGUAGE, "--ptxas-options=-v")


def compile(source: str, arch: str, more: Sequence[str] = ()) -> Compiled:
    """The cubin of a complete text. Raises CompilerBug, with the place in the text, where NVRTC refuses it.

    NVRTC's own cache is off, as the log of a cached compilation is empty.
    """
    program, log = _build(source, [*options(arch), "--no-cache", *more])
    cubin = _bytes(program, "CUBIN")
    _nvrtc().nvrtcDestroyProgram(program)
    return Compiled(cubin, usage(log), warnings(log))


def ptx(source: str, arch: str) -> str:
    """The PTX text of a complete text."""
    virtual = arch.replace("sm_", "compute_")
    program, _ = _build(source, [f"--gpu-architecture={virtual}", *LANGUAGE])
    out = _bytes(program, "PTX").decode().rstrip("\0")
    _nvrtc().nvrtcDestroyProgram(program)
    return out


def _build(source: str, flags: Sequence[str]) -> tuple[Any, str]:
    api = _nvrtc()
    version()
    status, program = api.nvrtcCreateProgram(source.encode(), b"kernel.cu", 0, [], [])
    if int(status):
        raise CompilerBug(f"NVRTC cannot take the program: {status}")
    (status,) = api.nvrtcCompileProgram(program, len(flags), [f.encode() for f in flags])
    log = _bytes(program, "ProgramLog").decode(errors="replace").strip("\0 \n")
    if int(status):
        api.nvrtcDestroyProgram(program)
        if "invalid value for --gpu-architecture" in log:
            known = ", ".join(f"sm_{n}" for n in architectures() if n >= 80)
            raise UnsupportedError(
                f"target cuda: {flags[0]} is unknown to NVRTC {version()}; it knows {known}"
            )
        raise CompilerBug(f"NVRTC refuses the generated code:\n{located(source, log)}")
    return program, log


def _bytes(program: Any, what: str) -> bytes:
    api = _nvrtc()
    status, size = getattr(api, f"nvrtcGet{what}Size")(program)
    if int(status) or not size:
        return b""
    out = b" " * size
    getattr(api, f"nvrtcGet{what}")(program, out)
    return out


def located(source: str, log: str) -> str:
    """A log, and for its first error the lines around it and the op of the program that they came from."""
    found = re.search(r"kernel\.cu\((\d+)\): (?:catastrophic )?error", log)
    if not found:
        return log
    lines, at = source.split("\n"), int(found.group(1)) - 1
    ops = [line.strip() for line in lines[: at + 1] if line.lstrip().startswith("// ")]
    shown = [
        f"{'>' if n == at else ' '} {lines[n]}"
        for n in range(max(0, at - 3), min(len(lines), at + 4))
    ]
    return "\n".join([log, "", *shown, *([f"made from: {ops[-1][3:]}"] if ops else [])])


# ---- the log of ptxas

_FUNCTION = re.compile(r"Compiling entry function '(\w+)'")
_REGISTERS = re.compile(r"Used (\d+) registers")
_SHARED = re.compile(r"(\d+) bytes smem")
_STACK = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")


def usage(log: str) -> dict[str, Usage]:
    """What each kernel uses, from the log of `--ptxas-options=-v`."""
    out: dict[str, Usage] = {}
    for part in re.split(r"(?=Compiling entry function)", log):
        name, registers = _FUNCTION.search(part), _REGISTERS.search(part)
        if name and registers:
            shared, stack = _SHARED.search(part), _STACK.search(part)
            frame, stores, loads = (int(x) for x in stack.groups()) if stack else (0, 0, 0)
            static = int(shared.group(1)) if shared else 0
            out[name.group(1)] = Usage(int(registers.group(1)), static, frame, stores, loads)
    return out


def warnings(log: str) -> tuple[str, ...]:
    """The lines of a log that warn of something."""
    return tuple(
        line.strip()
        for line in log.splitlines()
        if "warning" in line.lower() or any(code in line for code in SERIALISED)
    )


# ---- machine code as text


def _tool(name: str) -> str | None:
    """A program of the CUDA toolkit: on the PATH, or where NVIDIA's Python packages put it."""
    nvidia = importlib.util.find_spec("nvidia")
    packages = list(nvidia.submodule_search_locations or ()) if nvidia else []
    folders = [str(f) for p in packages for f in Path(p).glob("*/bin")]
    return shutil.which(name) or shutil.which(name, path=os.pathsep.join(folders))


def sass(cubin: bytes) -> str:
    """The machine code of a cubin as text. Raises UnsupportedError where no disassembler is installed."""
    tool = _tool("nvdisasm") or _tool("cuobjdump")
    if tool is None:
        raise UnsupportedError(
            "emit: SASS needs nvdisasm or cuobjdump of the CUDA toolkit, and neither is there; install it with "
            "pip install nvidia-cuda-nvdisasm, or use --to ptx or --to cubin"
        )
    flags = ["-c"] if tool.endswith("nvdisasm") else ["-sass"]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "kernel.cubin"
        path.write_bytes(cubin)
        done = subprocess.run(
            [tool, *flags, str(path)], capture_output=True, text=True, check=False
        )
    if done.returncode:
        raise UnsupportedError(f"emit: {tool} cannot read the cubin: {done.stderr.strip()}")
    return done.stdout
