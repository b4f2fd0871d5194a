"""The tensors of a cell, and its exact result."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from benchmarks.gpu import formulas
from benchmarks.gpu.cells import Cell

BLOCK = 128
"""Rows and columns of the blocks that are counted."""
ROWS = 1024
"""The most rows of a head that are compared with the exact result."""
LIMITS = {"bf16": 1.2e-2, "f16": 2e-3, "f32": 1e-5}
"""The largest relative error that a result in a type may have."""


@dataclass(frozen=True)
class Problem:
    """q, k, v, and the further arguments of a cell."""

    cell: Cell
    q: Any
    k: Any
    v: Any
    extra: Mapping[str, Any]

    @property
    def arguments(self) -> dict[str, Any]:
        """The further arguments of tilec's program."""
        return {n: x for n, x in self.extra.items() if n != "shift"}

    def keep(self) -> formulas.Keep | None:
        """The mask function; None where nothing is masked."""
        make = self.cell.formula.keep
        return make(self.extra) if make else None

    def change(self) -> formulas.Change | None:
        """The score function; None where scores stay as they are."""
        make = self.cell.formula.change
        return make(self.extra) if make else None

    def seen(self, rows: Any = None) -> Any:
        """Which keys the rows see, in the first batch: true or false by row and key."""
        import torch

        device, n = self.q.device, self.k.shape[2]
        i = torch.arange(self.q.shape[2], device=device) if rows is None else rows
        j = torch.arange(n, device=device)[None, :]
        keep = self.keep()
        if keep is None:
            return torch.ones((len(i), n), dtype=torch.bool, device=device)
        return keep(0, 0, i[:, None], j)

    def operations(self) -> float:
        """Floating-point operations of the two products, on what is seen."""
        c = self.cell
        return 2.0 * (c.d + c.width) * c.b * c.h * float(self.seen().sum())

    def bytes(self) -> float:
        """The bytes of keys and values."""
        return float(sum(x.numel() * x.element_size() for x in (self.k, self.v)))

    def kept(self) -> float:
        """Which part of the blocks of 128 by 128 has something that is seen."""
        seen = self.seen()
        m, n = (-(-x // BLOCK) * BLOCK for x in seen.shape)
        full = seen.new_zeros((m, n))
        full[: seen.shape[0], : seen.shape[1]] = seen
        return full.view(m // BLOCK, BLOCK, n // BLOCK, BLOCK).any(3).any(1).double().mean().item()

    def exact(self, b: int, h: int, rows: Any) -> tuple[Any, Any]:
        """Some rows of the result of a head in float64, and their log-sum-exp."""
        import torch

        g = h // (self.cell.h // self.cell.heads)
        q, k, v = self.q[b, h, rows].double(), self.k[b, g].double(), self.v[b, g].double()
        s = q @ k.T / self.cell.d**0.5
        change, j = self.change(), torch.arange(len(k), device=k.device)[None, :]
        if change is not None:
            s = change(s, b, h, rows[:, None], j)
        s = s.masked_fill(~self.seen(rows), float("-inf"))
        if "s" in self.extra:
            s = torch.cat([s, self.extra["s"][h].double().expand(len(rows), 1)], 1)
        return torch.softmax(s, 1)[:, : len(k)] @ v, torch.logsumexp(s, 1)

    def error(self, o: Any) -> float:
        """The relative error of a result in some rows of the first and the last head; infinite where it has a NaN."""
        worst = 0.0
        for b, h in {(0, 0), (self.cell.b - 1, self.cell.h - 1)}:
            rows = self.some_rows()
            want = self.exact(b, h, rows)[0]
            e = ((o[b, h, rows].double() - want).norm() / want.norm()).item()
            worst = max(worst, e if e == e else float("inf"))
        return worst

    def some_rows(self) -> Any:
        """All rows, or as many as are compared, the first and the last among them."""
        import torch

        m, device = self.cell.rows, self.q.device
        if m <= ROWS:
            return torch.arange(m, device=device)
        return torch.linspace(0, m - 1, ROWS, device=device).long()

    @property
    def limit(self) -> float:
        """The largest error that a right result may have."""
        return LIMITS[self.cell.dtype]


def draw(cell: Cell, seed: int, device: str = "cuda", ramp: bool = False) -> Problem:
    """Random tensors for a cell. `ramp`: scores to ±400 whose maxima grow along the keys."""
    import torch

    made = torch.Generator(device=device).manual_seed(seed)
    types = {"bf16": torch.bfloat16, "f16": torch.float16, "f32": torch.float32}
    dtype = types[cell.dtype]
    shapes = [
        (cell.b, cell.h, cell.rows, cell.d),
        (cell.b, cell.heads, cell.n, cell.d),
        (cell.b, cell.heads, cell.n, cell.width),
    ]
    q, k, v = (torch.randn(s, device=device, generator=made) for s in shapes)
    if ramp:
        q, k = q * 3, k * torch.linspace(0.2, 12, cell.n, device=device)[:, None]
    extra = _extra(cell, made, device)
    return Problem(cell, q.to(dtype), k.to(dtype), v.to(dtype), extra)


def _extra(cell: Cell, made: Any, device: str) -> dict[str, Any]:
    """The further arguments of a formula, the same for all batches."""
    import torch

    out: dict[str, Any] = {"shift": cell.n - cell.rows}
    heads = torch.arange(1, cell.h + 1, device=device)
    match cell.kind:
        case "alibi":
            out["slope"] = torch.exp2(-8.0 * heads / cell.h)
        case "prefix":
            out["len"] = torch.full((cell.b,), formulas.PREFIX, dtype=torch.int32, device=device)
        case "relative":
            width = 2 * formulas.REACH + 1
            out["table"] = torch.randn((cell.h, width), device=device, generator=made)
        case "documents":
            marks = torch.randint(
                formulas.DOCUMENTS, (cell.n,), device=device, generator=made, dtype=torch.int32
            )
            out["doc"] = marks.sort().values.expand(cell.b, cell.n).contiguous()
        case "sink":
            out["s"] = (heads - cell.h / 2) * 0.25  # exact in bf16
        case _:
            pass
    return out
