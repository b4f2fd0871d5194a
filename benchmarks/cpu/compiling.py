"""Where the time goes when a kernel is compiled for the CPU, and how long it takes from the cache."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Spent:
    """Seconds of the process. `miss`: all of it; `emission`: LLVM IR as text; `llvm`: from there to machine code;
    `hit`: another kernel of the same text, whose code is in the cache, of which `loading` is that code's alone."""

    miss: float
    emission: float
    llvm: float
    hit: float
    loading: float
    bytes: int


def measure(text: str, name: str | None, dtype: str, sizes: dict[str, int]) -> Spent:
    """What a program's first call spends before it runs, without and with its code in the cache."""
    import tilec
    from tilec.arrays import view
    from tilec.backends.cpu import jit, lower
    from tilec.results import new

    emission, llvm, loading = (_Clock(f) for f in (lower.lower, jit.compile, jit.load))
    with _other_cache():
        arrays = tilec.compile(text, name=name, target="cpu").sample(dtype=dtype, **sizes)

    def first() -> float:
        begun = time.process_time()
        plan = tilec.compile(text, name=name, target="cpu").plan(**arrays)
        views = {n: view(n, x) for n, x in arrays.items()}
        plan.run.ready(views, plan.bound.scalars, new(plan.outputs, views))
        return time.process_time() - begun

    lower.lower, jit.compile, jit.load = emission, llvm, loading
    try:
        with _other_cache():
            miss, loading.seconds = first(), 0.0
            hit = first()
    finally:
        lower.lower, jit.compile, jit.load = (x.function for x in (emission, llvm, loading))
    size = sum(len(made) for made in llvm.made)
    return Spent(miss, emission.seconds, llvm.seconds, hit, loading.seconds, size)


@contextmanager
def _other_cache() -> Generator[None]:
    """An empty cache for a while."""
    held = os.environ.get("TILEC_CACHE_DIR")
    with tempfile.TemporaryDirectory(prefix="compiling_") as folder:
        os.environ["TILEC_CACHE_DIR"] = folder
        try:
            yield
        finally:
            os.environ.pop("TILEC_CACHE_DIR")
            os.environ |= {} if held is None else {"TILEC_CACHE_DIR": held}


class _Clock:
    """A function, and the seconds that its calls took."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function, self.seconds, self.made = function, 0.0, list[Any]()

    def __call__(self, *args: Any, **named: Any) -> Any:
        begun = time.process_time()
        self.made.append(self.function(*args, **named))
        self.seconds += time.process_time() - begun
        return self.made[-1]
