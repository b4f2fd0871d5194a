"""The examples at sizes of real use on a GPU, beside what their bytes or their products must take.

    python benchmarks/gpu_examples.py [--only paged,int8_cache] [--seconds 60] [--out X.jsonl] [--schedule columns=64,…]

`least` is the larger of two times: that of the bytes of all arguments and results at 4.2 TB/s, and that of the products that
masks leave at 780 TFLOP/s, what an H200 reaches in either. It is no bound of the program (exponentials, integers and masks
cost time, too) but says where much is left. Examples that were not run are named.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks.gpu import record, timing

BYTES, FLOPS = 4.2e9, 780e9
"""Per millisecond."""


@dataclass(frozen=True)
class Shape:
    """The sizes of plain attention: `hk` key heads, and the part of the scores that masks leave."""

    b: int = 2
    h: int = 16
    m: int = 8192
    n: int = 8192
    d: int = 128
    hk: int = 16
    part: float = 1.0

    @property
    def least(self) -> float:
        """The milliseconds that its bytes and products take at least, in f16."""
        size = 2 * self.b * self.d * (2 * self.hk * self.n + 2 * self.h * self.m)
        return max(size / BYTES, 4 * self.b * self.h * self.m * self.n * self.d * self.part / FLOPS)

    def arrays(self) -> list[Any]:
        """Queries, keys and values."""
        rows = (self.b, self.hk, self.n, self.d)
        return [floats(self.b, self.h, self.m, self.d), floats(*rows), floats(*rows)]


@dataclass(frozen=True)
class Run:
    """An example, its arguments, and what it must take, in ms."""

    example: str
    what: str
    make: Callable[[], list[Any]]
    least: float
    scalars: Mapping[str, int] = field(default_factory=dict[str, int])


def floats(*shape: int, dtype: str = "float16") -> Any:
    """Normal numbers on the GPU."""
    import torch

    return torch.randn(*shape, device="cuda", dtype=getattr(torch, dtype))


def integers(*shape: int, low: int = 0, high: int, dtype: str = "int32") -> Any:
    """Integers on the GPU."""
    import torch

    return torch.randint(low, high, shape, device="cuda", dtype=getattr(torch, dtype))


def full(value: int, *shape: int) -> Any:
    """One number everywhere."""
    return integers(*shape, low=value, high=value + 1)


def plain(example: str, shape: Shape, *more: Callable[[], Any]) -> Run:
    """An example that takes queries, keys, values, and some more."""
    what = f"B={shape.b} H={shape.h}/{shape.hk} M={shape.m} N={shape.n} D={shape.d}"
    return Run(example, what, lambda: [*shape.arrays(), *(f() for f in more)], shape.least)


def paged(b: int, m: int, n: int) -> Run:
    """Pages of 16 keys in random order, all of them in use; 32 heads on 8 key heads."""
    shape = Shape(b, 32, m, n, 128, 8)

    def make() -> list[Any]:
        import torch

        pages = torch.randperm(b * n // 16, device="cuda").view(b, n // 16).int()
        rows = (b * n // 16, 16, 8, 128)
        return [floats(b, 32, m, 128), floats(*rows), floats(*rows), pages, full(n, b)]

    return Run("paged", f"B={b} M={m} N={n}", make, shape.least)


def int8(b: int, m: int, n: int) -> Run:
    """Keys and values in bytes; 16 heads on 4 key heads."""
    size = 2 * b * 4 * n * 128 + 4 * b * 16 * m * 128

    def make() -> list[Any]:
        rows = (b, 4, n, 128)
        keys, values = (integers(*rows, low=-127, high=128, dtype="int8") for _ in range(2))
        scales = [floats(b, 4, n, dtype="float32").abs() / 50 for _ in range(2)]
        return [floats(b, 16, m, 128), keys, values, *scales, full(n, b)]

    products = 4 * b * 16 * m * n * 128 / FLOPS
    return Run("int8_cache", f"B={b} M={m} N={n}", make, max(size / BYTES, products))


def latent(b: int, h: int, m: int, n: int, part: float = 1.0) -> Run:
    """Latents of 512 numbers and 64 with positions, for all heads: decoding with many of these is bound by products."""
    size = 2 * b * (n * 576 + h * m * (576 + 512))
    products = 2 * b * h * m * n * (576 + 512) * part / FLOPS

    def make() -> list[Any]:
        queries = [floats(b, h, m, 512), floats(b, h, m, 64)]
        return [*queries, floats(b, n, 512), floats(b, n, 64)]

    return Run("mla", f"B={b} H={h} M={m} N={n}", make, max(size / BYTES, products))


def nsa(b: int, n: int, blocks: int) -> Run:
    """Blocks of 16 keys before each query, drawn by chance, that 16 of 64 heads share."""
    shape = Shape(b, 64, n, n, 128, 4, 16 * blocks / n)

    def make() -> list[Any]:
        import torch

        present = torch.arange(n, device="cuda").view(1, 1, n, 1) // 16 + 1
        chosen = torch.rand(b, 4, n, blocks, device="cuda") * present
        return [*shape.arrays(), chosen.int()]

    return Run("nsa", f"B={b} N={n} T={blocks}", make, shape.least)


def bigbird(n: int) -> Run:
    """Each block of 16 sees 8 others."""
    shape = Shape(m=n, n=n, part=8 * 16 / n)
    blocks = n // 16
    return plain("bigbird", shape, lambda: integers(16, blocks, 3, high=blocks))


def natten(side: int) -> Run:
    """An image as a square; the part counts the rows of a neighbourhood, whole."""
    shape = Shape(2, 8, side**2, side**2, 64, 8, 7 / side)
    return Run("natten2d", f"{side}x{side} D=64", shape.arrays, shape.least, {"W": side, "size": 7})


def t5() -> Run:
    """A bias from a table of 32."""
    shape = Shape(m=4096, n=4096, d=64)
    return plain("t5", shape, lambda: floats(32, 16, dtype="float32"))


def swin(windows: int) -> Run:
    """Windows of 49 tokens."""
    shape = Shape(windows, 6, 49, 49, 32, 6)
    return plain("swin", shape, lambda: floats(169, 6, dtype="float32"))


def sparse(m: int, n: int, chosen: int, width: int) -> Run:
    """Latent attention of 128 heads over keys that each query has chosen."""
    pairs = 128 * m * chosen
    size = 2 * (128 * m + n) * (width + 64) + 2 * 128 * m * width + 4 * m * chosen

    def make() -> list[Any]:
        queries = [floats(1, 128, m, width), floats(1, 128, m, 64)]
        keys = [floats(1, n, width), floats(1, n, 64)]
        return [*queries, *keys, integers(1, m, chosen, high=n)]

    products = 2 * pairs * (2 * width + 64) / FLOPS
    return Run("mla_sparse", f"M={m} N={n} C={width}", make, max(size / BYTES, products))


def merge(s: int, b: int, h: int, m: int) -> Run:
    """Parts of a decoding, of 128 columns, put together."""
    size = 2 * b * h * m * 128 * (s + 1) + 4 * b * h * m * (s + 1)

    def make() -> list[Any]:
        return [floats(s, b, h, m, 128), floats(s, b, h, m, dtype="float32")]

    return Run("merge", f"S={s} B={b} H={h} M={m} E=128", make, size / BYTES)


def pair_bias(b: int, h: int, n: int, d: int = 64) -> Run:
    """A bias in f32 for each pair of residues; all batches share it."""
    size = 2 * 5 * b * h * n * d + 4 * h * n * n + 4 * b * n

    def make() -> list[Any]:
        rows = [floats(b, h, n, d) for _ in range(4)]
        keep = (floats(b, n, dtype="float32") > -1).float()
        return [*rows, floats(h, n, n, dtype="float32"), keep]

    least = max(size / BYTES, 4 * b * h * n * n * d / FLOPS)
    return Run("pair_bias", f"B={b} H={h} N={n} D={d}", make, least)


def differential(n: int) -> Run:
    """Two scores of 64 and two sums of values of 128, as neither softmax has its own sum before the last key."""
    rows = (2, 16, n, 64)
    products = 2 * 32 * n * n * (2 * 64 + 2 * 128) / FLOPS

    def make() -> list[Any]:
        return [
            *(floats(*rows) for _ in range(4)),
            floats(2, 16, n, 128),
            floats(16, dtype="float32"),
        ]

    return Run("differential", f"B=2 H=16 N={n} D=64 E=128", make, products)


def documents(count: int, n: int) -> Any:
    """Which of so many documents of one length each position belongs to."""
    import torch

    return (torch.arange(n, device="cuda") * count // n).int()


def runs() -> list[Run]:
    """What is timed."""
    half, square = Shape(part=0.5), Shape()
    grouped, normed = Shape(hk=8, part=0.05), Shape(hk=4, part=0.5)
    apart = Shape(part=1 / 24)

    def slopes() -> Any:
        return floats(16, dtype="float32").abs() / 10

    return [
        plain("naive", square),
        plain("causal", half),
        plain("alibi", half, slopes),
        plain("prefix", Shape(part=0.51), lambda: full(1024, 2)),
        plain("sink", half, slopes),
        plain("retention", half, lambda: floats(16, dtype="float32").sigmoid()),
        plain("gemma2", grouped),
        plain("chunked", Shape(part=1 / 64)),
        plain("document", apart, lambda: documents(12, 8192).expand(2, 8192).contiguous()),
        plain("qk_norm", normed, *2 * [lambda: floats(128, dtype="float32").abs()]),
        plain("dropout", square),
        plain("sigmoid", half),
        plain("variance", Shape(part=1.5)),
        differential(8192),
        merge(8, 4, 32, 4096),
        *(pair_bias(b, 16, 2048) for b in (1, 4)),
        plain("watched", Shape(n=4096, m=4096, d=64)),
        *(int8(2, m, n) for m, n in ((8192, 8192), (1, 65536), (16, 65536))),
        *(paged(b, m, n) for b, m, n in ((32, 1, 8192), (32, 4, 8192), (4, 1, 65536))),
        paged(4, 2048, 8192),
        plain("naive", Shape(b=1, m=4096, n=4096, d=512)),
        plain("causal", Shape(b=1, m=4096, n=4096, d=320, part=0.5)),
        latent(32, 128, 1, 8192),
        latent(1, 128, 1, 65536),
        latent(32, 16, 1, 8192),
        latent(1, 16, 4096, 4096, 0.5),
        nsa(1, 8192, 16),
        bigbird(8192),
        natten(64),
        t5(),
        swin(4096),
        *(sparse(1024, 8192, 2048, c) for c in (256, 512)),
    ]


def timed(run: Run, schedule: str) -> float:
    """The time of a call, in ms. `schedule`: fields that it shall have, as `name=value` with commas between."""
    import torch

    import tilec

    fields = dict(x.split("=") for x in schedule.split(",") if x)
    file = ROOT / "examples" / f"{run.example}.tile"
    kernel = tilec.load(file, target="cuda", schedule=fields)
    arrays = run.make()
    kernel(*arrays, **run.scalars)
    torch.cuda.synchronize()
    return timing.timed({"tilec": lambda: kernel(*arrays, **run.scalars)}, 3)["tilec"]


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", default="", help="names of examples, or of their sizes")
    parser.add_argument("--schedule", default="", help="fields of the schedule")
    parser.add_argument("--seconds", type=float, default=300.0, help="none begins after that")
    parser.add_argument("--out", type=Path, default=Path("gpu_examples.jsonl"))
    options = parser.parse_args()
    only = {x for x in str(options.only).split(",") if x}
    begun = time.monotonic()
    facts = record.circumstances()
    for run in runs():
        if only and not only & {run.example, f"{run.example} {run.what}"}:
            continue
        if time.monotonic() - begun > options.seconds:
            print(f"# not run: {run.example} {run.what}")
            continue
        ms = timed(run, options.schedule)
        row = {"example": run.example, "sizes": run.what, "ms": ms, "least_ms": run.least}
        row |= {"schedule": options.schedule} if options.schedule else {}
        record.write(options.out, {**row, **facts})
        over = f"{ms / run.least:6.2f} x least"
        print(f"{run.example:12} {run.what:32} {ms:8.4f} ms {over}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
