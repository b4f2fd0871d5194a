"""The tables: which problems they hold, and what each is timed beside."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from benchmarks.gpu.cells import Cell

TABLES = {
    "sdpa": "full and causal attention beside PyTorch's scaled_dot_product_attention",
    "threads": "the same on all threads, beside one thread",
    "heads": "head sizes that are no power of two, beside the nearest one that is",
    "strided": "arrays [B, N, H, D] beside dense ones",
    "decode": "one query row, heads in groups of 1, 4 and 8, beside PyTorch; the share of what memory delivers to a loop, "
    "in order and in four places side by side",
    "variants": "masks and score functions beside compiled FlexAttention, and beside full attention",
}
MASKS = ("full", "causal")
HEADS = (1, 7, 24, 33, 72, 80, 96, 100, 192, 576)
POWERS = (16, 32, 64, 128, 256, 512)
GROUPS = (1, 4, 8)
APART = 64 << 20
"""Bytes of keys and values that no cache holds."""
VARIANTS = ("causal", "window", "softcap", "alibi", "prefix", "documents", "chunks1024")


@dataclass(frozen=True)
class Case:
    """One problem, and the names of what it is timed beside. `strided`: its arrays are slices along the heads."""

    cell: Cell
    beside: tuple[str, ...]
    threads: int = 1
    strided: bool = False

    def __str__(self) -> str:
        c = self.cell
        group = f" G={c.h // c.heads}" if c.hk else ""
        return f"{c.kind} {c.dtype} D={c.d} N={c.n}{group}"

    def near(self) -> Cell:
        """The problem with the power of two that is nearest to the head size."""
        d = self.cell.d
        size = min(POWERS, key=lambda p: max(p, d) / min(p, d))
        return replace(self.cell, d=size)


@dataclass(frozen=True)
class Choice:
    """What the command line asks for."""

    sizes: tuple[int, ...]
    dims: tuple[int, ...]
    dtypes: tuple[str, ...]
    kinds: tuple[str, ...]
    heads: int
    threads: int

    def cells(
        self, table: str, kinds: tuple[str, ...], dims: tuple[int, ...], n: int = 0
    ) -> Iterator[Cell]:
        """Problems of a table. `n`: their length, those asked for unless given."""
        for dtype in self.dtypes:
            for d in dims:
                for size in (n,) if n else self.sizes:
                    for kind in kinds:
                        if not self.kinds or kind in self.kinds:
                            name = f"{kind} {dtype}"
                            yield Cell(
                                table, name, kind, 1, self.heads, size, d, dtype, target="cpu"
                            )


def cases(table: str, choice: Choice) -> list[Case]:
    """The cases of a table."""
    return list(_MADE[table](choice))


def _sdpa(c: Choice) -> Iterator[Case]:
    for cell in c.cells("sdpa", MASKS, c.dims):
        yield Case(cell, ("sdpa",), c.threads)


def _threads(c: Choice) -> Iterator[Case]:
    for cell in c.cells("threads", MASKS, c.dims):
        yield Case(cell, ("sdpa", "alone"), max(2, c.threads))


def _heads(c: Choice) -> Iterator[Case]:
    for cell in c.cells("heads", MASKS, HEADS, max(c.sizes)):
        yield Case(cell, ("near",), c.threads)


def _strided(c: Choice) -> Iterator[Case]:
    for cell in c.cells("strided", MASKS, c.dims):
        yield Case(cell, ("dense",), c.threads, strided=True)


def _decode(c: Choice) -> Iterator[Case]:
    for cell in c.cells("decode", ("full",), c.dims):
        head = 2 * cell.n * cell.d * (4 if cell.dtype == "f32" else 2)
        heads = max(c.heads, -(-APART // head))
        for group in GROUPS:
            yield Case(replace(cell, m=1, h=group * heads, hk=heads), ("sdpa",), c.threads)


def _variants(c: Choice) -> Iterator[Case]:
    for cell in c.cells("variants", VARIANTS, c.dims, max(c.sizes)):
        yield Case(cell, ("flex", "full"), c.threads)


_MADE: dict[str, Callable[[Choice], Iterator[Case]]] = {
    "sdpa": _sdpa,
    "threads": _threads,
    "heads": _heads,
    "strided": _strided,
    "decode": _decode,
    "variants": _variants,
}
