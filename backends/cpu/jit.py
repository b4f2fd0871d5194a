"""From LLVM IR to machine code: the host machine, code generation, the object cache and loading.

The IR that tilec emits holds its final loops, so no IR pass runs by default: LLVM only selects instructions and
registers. An object is a few kilobytes and is kept on disk, so that the second process that runs a kernel neither
builds IR nor compiles: `cached` looks an object up by a key that the caller derives from the program.
"""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import llvmlite
import llvmlite.binding as llvm

from tilec import cache, sources
from tilec.cache import Entry
from tilec.errors import CompilerBug

FORMAT = 1
"""Of a cache entry; part of every key."""
RULES = ("dtypes", "functions", "ieee", "wide")
"""The modules that say what an op means, for any target."""


@dataclass(frozen=True, slots=True)
class Machine:
    """A processor to compile for: LLVM's triple, its name and its full feature string."""

    triple: str
    cpu: str
    features: str

    def has(self, feature: str) -> bool:
        """Whether LLVM's feature of this name is on."""
        return f"+{feature}," in f"{self.features},"

    @property
    def arm(self) -> bool:
        """Whether it is a 64-bit Arm processor."""
        return self.triple.startswith(("aarch64", "arm64"))

    @property
    def lanes(self) -> int:
        """f32 lanes of a vector register."""
        return 16 if self.has("avx512f") else 8 if self.has("avx") else 4

    @property
    def registers(self) -> int:
        """Vector registers."""
        return 32 if self.has("avx512f") or self.arm else 16

    @property
    def width(self) -> str:
        """The name of what decides the width of its vectors, one of `PROCESSORS`."""
        if self.arm:
            return "neon"
        names = {"avx512f": "avx512", "avx2": "avx2", "avx": "avx"}
        return next((name for feature, name in names.items() if self.has(feature)), "sse")

    @property
    def fma(self) -> bool:
        """Whether a fused multiply-add is one instruction."""
        return self.arm or self.has("fma")

    @property
    def half(self) -> bool:
        """Whether f16 is converted in hardware."""
        return self.arm or self.has("f16c") or self.has("avx512f")


_INTEL = "x86_64-unknown-linux-gnu"
_AVX2 = "+avx,+avx2,+fma,+f16c"
PROCESSORS = {
    "sse": Machine(_INTEL, "x86-64", ""),
    "avx": Machine(_INTEL, "x86-64", "+avx"),
    "avx2": Machine(_INTEL, "x86-64-v3", _AVX2),
    "avx512": Machine(
        _INTEL, "x86-64-v4", f"{_AVX2},+avx512f,+avx512bw,+avx512cd,+avx512dq,+avx512vl"
    ),
    "neon": Machine("aarch64-unknown-linux-gnu", "neoverse-n1", "+neon"),
}
"""A processor for each width of vectors, to look at the code for it on any machine."""


@dataclass(frozen=True, slots=True)
class Options:
    """`passes`: LLVM's IR pass level (0 none, 1 `O1`, …); `codegen`: the level of the code generator."""

    passes: int = 0
    codegen: int = 3


@functools.cache
def host() -> Machine:
    """This machine."""
    _initialize()
    features = llvm.get_host_cpu_features().flatten()
    # The name alone is not enough: a hypervisor may mask features that LLVM derives from it.
    return Machine(llvm.get_process_triple(), llvm.get_host_cpu_name(), features)


@functools.cache
def _initialize() -> None:
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()


@functools.cache
def _initialize_others() -> None:
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()


def _target_machine(machine: Machine, options: Options) -> Any:
    _initialize()
    if machine.arm != host().arm:
        _initialize_others()
    target = llvm.Target.from_triple(machine.triple)
    return target.create_target_machine(
        cpu=machine.cpu, features=machine.features, opt=options.codegen
    )


def _excerpt(text: str, message: str) -> str:
    """The lines around the place that an LLVM message names, or the beginning."""
    lines = text.split("\n")
    found = re.search(r":(\d+):\d+: error", message)
    at = int(found.group(1)) - 1 if found else 0
    first = max(0, at - 6)
    shown = lines[first : at + 7 if found else 40]
    return "\n".join(
        f"{'>' if found and n == at else ' '} {line}" for n, line in enumerate(shown, first)
    )


def _module(text: str, machine: Machine, options: Options, tm: Any) -> Any:
    try:
        module = llvm.parse_assembly(text)
        module.verify()
    except RuntimeError as e:
        raise CompilerBug(f"LLVM refuses the emitted IR: {e}\n{_excerpt(text, str(e))}") from e
    module.triple = machine.triple
    if options.passes:
        tuning = llvm.create_pipeline_tuning_options(speed_level=options.passes)
        tuning.loop_vectorization = tuning.slp_vectorization = tuning.loop_unrolling = False
        builder = llvm.create_pass_builder(tm, tuning)
        builder.getModulePassManager().run(module, builder)
    return module


def compile(module: object, options: Options = Options(), machine: Machine | None = None) -> bytes:
    """The object file of an LLVM module: its text, or anything whose `str()` is (an `llvmlite.ir.Module`).

    Raises CompilerBug, with the place in the IR, where LLVM refuses it.
    """
    machine = machine or host()
    tm = _target_machine(machine, options)
    return bytes(tm.emit_object(_module(str(module), machine, options, tm)))


def assembly(module: object, options: Options = Options(), machine: Machine | None = None) -> str:
    """The assembly text of an LLVM module."""
    machine = machine or host()
    tm = _target_machine(machine, options)
    return str(tm.emit_assembly(_module(str(module), machine, options, tm)))


class Code:
    """Loaded machine code. The addresses hold as long as this object is alive."""

    def __init__(self, engine: Any) -> None:
        self._engine = engine

    def address(self, name: str) -> int:
        """The entry address of a function; KeyError where there is none of that name."""
        found = int(self._engine.get_function_address(name))
        if not found:
            raise KeyError(name)
        return found


def load(object: bytes) -> Code:
    """Makes an object file executable in this process. What it calls in libc and libm is resolved here."""
    machine = host()
    empty = llvm.parse_assembly(f'target triple = "{machine.triple}"\n')
    engine = llvm.create_mcjit_compiler(empty, _target_machine(machine, Options()))
    engine.add_object_file(llvm.ObjectFileRef.from_data(object))
    engine.finalize_object()
    return Code(engine)


# ---- the object cache


def cache_directory() -> Path:
    """Where objects are kept: `cpu` in `$TILEC_CACHE_DIR`, or in `~/.cache/tilec`."""
    return cache.directory("cpu")


@functools.cache
def generator() -> str:
    """A digest of the code generator, the sources of this package and of the rules that it follows: a change of it makes
    every entry stale."""
    rules = Path(cache.__file__).parent
    own = sorted(Path(__file__).parent.glob("*.py"))
    return sources.digest([str(p) for p in (*own, *(rules / f"{name}.py" for name in RULES))])


def cache_key(program: str, options: Options = Options(), machine: Machine | None = None) -> str:
    """The name of an entry: a hash of everything that the object depends on."""
    m = machine or host()
    versions = [FORMAT, generator(), llvmlite.__version__, list(llvm.llvm_version_info)]
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
