"""What a tuned schedule is for: a program with its element types, a class of sizes, a machine, a version of the compiler."""

from __future__ import annotations

import functools
import hashlib
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from tilec import __version__, backend, cache, text
from tilec.ir import Kernel


@dataclass(frozen=True, slots=True)
class Key:
    """The key of a stored schedule. `program`: a hash of the IR before any pass; `kernel` and `types`: for people."""

    program: str
    kernel: str
    types: str
    sizes: str
    target: str
    compiler: str

    @property
    def digest(self) -> str:
        """The key as one word."""
        return cache.key(self.program, self.sizes, self.target, self.compiler)


def key(kernel: Kernel, sizes: Mapping[str, int], exact: Iterable[str], target: str) -> Key:
    """The key of a call. `kernel`: the IR before any pass; `exact`: the dimensions that code is compiled for."""
    return Key(
        program=hashlib.sha256(text.show(kernel).encode()).hexdigest()[:32],
        kernel=kernel.name,
        types=", ".join(f"{t.name}: {t.dtype}" for t in kernel.tensors.values()),
        sizes=size_class(sizes, exact),
        target=machine(target),
        compiler=compiler(target),
    )


def size_class(sizes: Mapping[str, int], exact: Iterable[str] = ()) -> str:
    """Sizes that share a schedule: powers of two, the nearest on a logarithmic scale, for all but the `exact` ones."""
    kept = set(exact)
    return ",".join(f"{d}={n if d in kept else near(n)}" for d, n in sorted(sizes.items()))


def near(n: int) -> int:
    """The power of two that a size counts as."""
    return 0 if n < 1 else 1 << round(math.log2(n))


def machine(target: str) -> str:
    """A target on this machine: the processor with a hash of its features and the number of threads, or the GPU."""
    many = backend.threads(target)
    return _processor(target) + ("" if many is None else f" x{many}")


@functools.cache
def _processor(target: str) -> str:
    if target == "cpu":
        from tilec.backends.cpu import jit

        host = jit.host()
        features = hashlib.sha256(host.features.encode()).hexdigest()[:8]
        return f"cpu {host.cpu} {features}"
    if target.startswith("cuda"):
        from tilec.backends.cuda import arch
        from tilec.backends.cuda.target import default_arch

        return f"cuda:{arch.parse(target) or default_arch()}"
    return target


def kind(target: str) -> str:
    """What machines share that schedules are shipped for: the width of their vectors, or the architecture of their GPU."""
    if target != "cpu":
        return machine(target)
    from tilec.backends.cpu import jit

    return f"cpu {jit.host().width}"


@functools.cache
def compiler(target: str) -> str:
    """The version of tilec, and a hash of what makes code for a target."""
    root = Path(__file__).resolve().parents[1]
    digest = hashlib.sha256()
    for folder in (root / "passes", root / "backends" / target.partition(":")[0]):
        for path in sorted(folder.rglob("*.py")):
            digest.update(path.read_bytes())
    return f"{__version__} {digest.hexdigest()[:12]}"
