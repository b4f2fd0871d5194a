"""Processors: what code for them may use, how it is made, and which one this is."""

from __future__ import annotations

import functools
from dataclasses import dataclass

import llvmlite

from tilec import plain
from tilec.shelf import Shelf


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
    """This machine. LLVM tells, and is asked once for each kind of processor: loading it takes longer than a call."""
    said = _said()
    if said is None:
        return _asked()
    kept = Shelf("processor", llvmlite.__version__, said)
    return kept.kept(Machine, _asked, plain.classes(Machine))


def _asked() -> Machine:
    from tilec.backends.cpu import codegen

    return Machine(*codegen.host())


TELLING = {
    *("vendor_id", "cpu family", "model", "model name", "stepping", "flags"),
    *("CPU implementer", "CPU architecture", "CPU variant", "CPU part", "Features"),
}
"""What the system says of a processor that tells it from others; all else may differ from one moment to the next."""


def _said() -> list[str] | None:
    """What the system says of its first processor; None where it says nothing."""
    try:
        with open("/proc/cpuinfo", "rb", 0) as file:
            text = file.read(1 << 16).split(b"\n\n")[0].decode()
    except (OSError, UnicodeDecodeError):
        return None
    found = [x for x in text.split("\n") if x.split("\t")[0].split(":")[0].rstrip() in TELLING]
    return found if any(x.startswith(("flags", "Features")) for x in found) else None
