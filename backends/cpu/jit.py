"""Machine code for this process: compiled from LLVM IR, kept on disk, loaded.

An object is a few kilobytes and is kept on disk, so that the second process that runs a kernel neither builds IR nor
compiles: `cached` looks an object up by a key that the caller derives from the program. LLVM is loaded where something is
to be compiled, and for objects of systems that `image` does not know.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

import llvmlite

from tilec import cache, sources
from tilec.backends.cpu import image
from tilec.backends.cpu.processor import PROCESSORS, Machine, Options, host
from tilec.cache import Entry

__all__ = [
    "PROCESSORS",
    "Code",
    "Machine",
    "Options",
    "assembly",
    "cached",
    "compile",
    "host",
    "load",
]

FORMAT = 2
"""Of a cache entry; part of every key."""
RULES = ("dtypes", "functions", "ieee", "wide")
"""The modules that say what an op means, for any target."""


def compile(module: object, options: Options = Options(), machine: Machine | None = None) -> bytes:
    """The machine code of an LLVM module (its text, or anything whose `str()` is), as `load` takes it.

    Raises CompilerBug, with the place in the IR, where LLVM refuses it.
    """
    from tilec.backends.cpu import codegen

    return image.linked(codegen.compile(str(module), machine or host(), options))


def assembly(module: object, options: Options = Options(), machine: Machine | None = None) -> str:
    """The assembly text of an LLVM module."""
    from tilec.backends.cpu import codegen

    return codegen.assembly(str(module), machine or host(), options)


class Code(Protocol):
    """Loaded machine code. The addresses hold as long as this object is alive."""

    def address(self, name: str) -> int:
        """The entry address of a function; KeyError where there is none of that name."""
        ...


def load(code: bytes) -> Code:
    """Makes machine code executable in this process. What it calls in libc and libm is resolved here."""
    if image.is_image(code):
        return image.Loaded(image.Image.unpack(code))
    from tilec.backends.cpu import codegen

    return codegen.Engine(code)


# ---- the object cache


def cache_directory() -> Path:
    """Where objects are kept: `cpu` in `$TILEC_CACHE_DIR`, or in `~/.cache/tilec`."""
    return cache.directory("cpu")


@functools.cache
def generator() -> str:
    """A digest of the code generator, the sources of this package and of the rules that it follows: a change of it makes
    every entry stale."""
    rules = (os.path.join(os.path.dirname(cache.__file__), f"{name}.py") for name in RULES)
    own = sources.below([os.path.dirname(__file__)])
    return sources.digest(own | {file: sources.stamp(file) for file in rules})


def cache_key(program: str, options: Options = Options(), machine: Machine | None = None) -> str:
    """The name of an entry: a hash of everything that the object depends on."""
    m = machine or host()
    versions = [FORMAT, generator(), llvmlite.__version__]
    parts = [versions, m.triple, m.cpu, m.features, options.passes, options.codegen, program]
    return cache.key(*parts)


def cached(
    program: str, build: Callable[[], tuple[object, str]], options: Options = Options()
) -> Entry:
    """The object for a program, compiled on the first use.

    `program` says everything about it that is neither the machine nor this package (the printed tile IR, say). `build`
    gives the LLVM module and the notes to keep with the object; a hit does not call it. Any number of processes may do
    this at once. A damaged entry is written anew; where the directory cannot be written, nothing is kept.
    """
    path = cache_directory() / f"{cache_key(program, options)}.o"

    def make() -> Entry:
        module, notes = build()
        return Entry(compile(module, options), notes)

    return cache.cached(path, make)
