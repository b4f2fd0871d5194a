"""The tables: which problems they hold, and who is timed on each."""

from __future__ import annotations

from dataclasses import dataclass, replace

from benchmarks.gpu.formulas import FORMULAS, Formula

LENGTHS, WIDTHS, MASKS = (1024, 4096, 16384), (64, 128, 256), ("full", "causal")
TABLES = {
    "peers": "head sizes 64, 128, 256, three lengths, full and causal",
    "heads": "head sizes 80, 96, 192 with values of 128; lengths 512, 2048, 8192",
    "variants": "masks and score functions at N=8192, beside plain causal attention",
    "shapes": "few rows on many keys, a single block of rows, many small problems",
    "ampere": "the target cuda:sm_80 beside FlashAttention-2",
    "decode": "one query row on many keys, eight key heads for 32 query heads",
    "errors": "errors against float64 beside those of cuDNN on the same inputs",
    "bits": "whether 100 launches give the same bits",
}
SDPA = {
    "cudnn": "CUDNN_ATTENTION",
    "fa2": "FLASH_ATTENTION",
    "efficient": "EFFICIENT_ATTENTION",
    "math": "MATH",
}
"""PyTorch's kernels, which need no compiling."""


@dataclass(frozen=True)
class Cell:
    """One problem: q of [b, h, m, d] on keys [b, hk, n, d] and values [b, hk, n, e].

    `splits`: what FlashAttention-4 is told about cutting the keys, 0 for its own choice. `checked`: the kernel is first run
    on odd shapes. `order`: a field of tilec's schedule.
    """

    table: str
    name: str
    kind: str
    b: int
    h: int
    n: int
    d: int
    dtype: str
    peers: tuple[str, ...] = ()
    m: int = 0
    hk: int = 0
    e: int = 0
    target: str = "cuda:sm_90a"
    splits: int = 1
    checked: bool = False
    unit: str = "TFLOPS"
    order: str | None = None

    @property
    def formula(self) -> Formula:
        """What is computed."""
        return FORMULAS[self.kind]

    @property
    def rows(self) -> int:
        """The queries of a head."""
        return self.m or self.n

    @property
    def heads(self) -> int:
        """The key heads."""
        return self.hk or self.h

    @property
    def width(self) -> int:
        """The width of a value."""
        return self.e or self.d

    @property
    def key(self) -> str:
        """A name without spaces."""
        return f"{self.table}/{self.name}".replace(" ", "_")

    @property
    def program(self) -> str:
        """Its program for tilec."""
        return self.formula.program(self.kind, bool(self.hk), self.table == "errors")

    @property
    def sizes(self) -> dict[str, int]:
        """The dimensions of the program."""
        return {
            "B": self.b,
            "H": self.h,
            "HK": self.heads,
            "M": self.rows,
            "N": self.n,
            "D": self.d,
            "E": self.width,
        }

    def matches(self, words: list[str]) -> bool:
        """Whether all words are in its name."""
        return set(words) <= set(self.name.split())


def cells(tables: list[str], dtype: str, pattern: str | None = None) -> list[Cell]:
    """The cells of some tables whose names have all words of a pattern such as `D128,causal`. `64:8192` is the table of a
    head size and a length."""
    words = [w for w in (pattern or "").split(",") if w]
    made = {
        "peers": _peers,
        "heads": _heads,
        "variants": _variants,
        "shapes": _shapes,
        "ampere": _ampere,
        "decode": _decode,
        "errors": _errors,
        "bits": _bits,
    }
    found = [c for t in tables for c in (_sized(t, dtype) if ":" in t else made[t](dtype))]
    return [c for c in found if c.matches(words)]


def _name(*words: object) -> str:
    return " ".join(map(str, words))


def _tokens(
    table: str, d: int, n: int, mask: str, dtype: str, peers: tuple[str, ...], *, e: int = 0
) -> Cell:
    """16,384 tokens of 2,048 features, or the nearest."""
    name, b, h = _name(f"D{d}", f"N{n}", mask, dtype), max(1, 16384 // n), max(1, 2048 // d)
    return Cell(table, name, mask, b, h, n, d, dtype, peers, e=e, checked=True)


def _grid(table: str, dtype: str, *peers: str) -> list[Cell]:
    """Head sizes by lengths by masks."""
    return [
        _tokens(table, d, n, mask, dtype, peers) for d in WIDTHS for n in LENGTHS for mask in MASKS
    ]


def _sized(table: str, dtype: str) -> list[Cell]:
    """The two cells of `head size:length`."""
    d, n = map(int, table.split(":"))
    return [_tokens("peers", d, n, mask, dtype, ("cudnn", "fa4")) for mask in MASKS]


def _peers(dtype: str) -> list[Cell]:
    return _grid("peers", dtype, "cudnn", "fa4")


def _ampere(dtype: str) -> list[Cell]:
    return [replace(c, target="cuda:sm_80") for c in _grid("ampere", dtype, "fa2")]


def _heads(dtype: str) -> list[Cell]:
    shapes = [(80, 4096, 0), (96, 4096, 0), (192, 4096, 128)]
    shapes += [(128, n, 0) for n in (512, 2048, 8192)]
    return [
        _tokens("heads", d, n, mask, dtype, ("cudnn", "fa4"), e=e)
        for d, n, e in shapes
        for mask in MASKS
    ]


def _variants(dtype: str) -> list[Cell]:
    kinds = ["causal", *(k for k in FORMULAS if k != "causal")]
    return [
        Cell("variants", _name(k, dtype), k, 2, 16, 8192, 128, dtype, ("fa4", "flex"))
        for k in kinds
    ]


def _shapes(dtype: str) -> list[Cell]:
    fused = ("cudnn", "fa2", "fa4", "efficient")

    def rows(b: int, m: int, n: int, mask: str) -> Cell:
        name = _name(f"M{m}", f"N{n}", "D128", mask, dtype)
        return Cell("shapes", name, mask, b, 16, n, 128, dtype, fused, m=m, splits=0)

    def small(n: int, d: int) -> Cell:
        name = _name("B4096", "H4", f"{n}x{n}", f"D{d}", "full", dtype)
        return Cell("shapes", name, "full", 4096, 4, n, d, dtype, (*fused, "math"))

    some = [rows(*s, mask) for s in ((2, 1024, 8192), (1, 128, 65536)) for mask in MASKS]
    return [*some, small(49, 32), small(64, 64)]


def _decode(dtype: str) -> list[Cell]:
    peers = ("cudnn", "fa2", "fa4", "flex")

    def row(n: int) -> Cell:
        cell = Cell("decode", _name(f"N{n}", dtype), "full", 16, 32, n, 128, dtype, peers)
        return replace(cell, m=1, hk=8, splits=0, unit="GB/s")

    return [row(8192), row(65536)]


def _errors(_: str) -> list[Cell]:
    return [
        Cell("errors", _name(f"D{d}", "N2048", mask, t), mask, 2, 4, 2048, d, t, ("cudnn",))
        for t in ("bf16", "f16")
        for d in WIDTHS
        for mask in MASKS
    ]


def _bits(dtype: str) -> list[Cell]:
    def cell(kind: str, d: int, *words: str) -> Cell:
        name = _name(kind, *words, f"D{d}", dtype)
        return Cell("bits", name, kind, 2, 2048 // d, 8192, d, dtype)

    plain = [cell(k, 128) for k in ("full", "causal", "window", "documents", "softcap")]
    dealt = replace(cell("full", 128, "dealt"), order="longest")
    row = replace(cell("full", 128, "row"), m=1)
    return [*plain, cell("full", 64), cell("causal", 64), dealt, row]
