"""tilec: a tile compiler for attention. Write the formula, call the kernel.

attend = tilec.load("examples/causal.tile")
o = attend(q, k, v)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tilec.errors import (
    ArgumentError,
    CompilerBug,
    ResourceError,
    SourceError,
    TilecError,
    UnsupportedError,
)

if TYPE_CHECKING:
    from tilec.kernel import Kernel, Parameter, compile, load

__version__ = "0.1.0"

__all__ = [
    "ArgumentError",
    "CompilerBug",
    "Kernel",
    "Parameter",
    "ResourceError",
    "SourceError",
    "TilecError",
    "UnsupportedError",
    "__version__",
    "compile",
    "load",
]


def __dir__() -> list[str]:
    return __all__


def __getattr__(name: str) -> Any:
    # the compiler loads with its first use: `import tilec` alone costs a few milliseconds
    if name not in ("Kernel", "Parameter", "compile", "load"):
        raise AttributeError(f"module 'tilec' has no attribute {name!r}")
    from tilec import kernel

    value = getattr(kernel, name)
    globals()[name] = value
    return value
