"""The kinds of attention that are timed: each as a program of tilec, and as the mask and score functions that peers take.

Mask functions `keep(b, h, i, j)` and score functions `change(s, b, h, i, j)` are those of FlexAttention. They are also what
the exact result is made with, on tensors of positions.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

Extra = Mapping[str, Any]
"""What a formula takes beside q, k, v: tensors by name; and `shift`, the keys before the first query."""
Keep = Callable[[Any, Any, Any, Any], Any]
Change = Callable[[Any, Any, Any, Any, Any], Any]

PROGRAM = """
kernel {name}(Q[B, H, {rows}, D], K[B, {heads}, N, D], V[B, {heads}, N, E]{more}) -> O[b, h, i, e]{outputs}:
    S = sum[d](Q[b, h, i, d] * K[b, {head}, j, d]) / sqrt(D)
    O = sum[j](softmax[j]({score}) * V[b, {head}, j, e])
"""
SUMS = "    L = logsumexp[j]({score})\n"
WIDTH, CAP, PREFIX, DOCUMENTS, REACH = 1024, 50.0, 1024, 12, 128


@dataclass(frozen=True)
class Formula:
    """A kind of attention.

    `more`, `score`, `sink`: its parts of the program. `square`: queries and keys are the same positions. `keep`, `change`:
    from the further arguments to the mask and the score function. `flash4`: the arguments of FlashAttention-4, a name of
    the further arguments standing for the tensor. `segments`: the lengths of what is causal in itself, for kernels of
    variable length.
    """

    more: str = ""
    score: str = "S"
    sink: str = ""
    square: bool = True
    keep: Callable[[Extra], Keep] | None = None
    change: Callable[[Extra], Change] | None = None
    flash4: Mapping[str, Any] | None = None
    segments: Callable[[int, Extra], list[int]] | None = None

    def program(self, name: str, grouped: bool = False, sums: bool = False) -> str:
        """The program. `grouped`: several query heads to a key head. `sums`: with the log-sum-exp as a second output."""
        text = PROGRAM + SUMS if sums else PROGRAM
        return text.format(
            name=name,
            rows="N" if self.square else "M",
            heads="HK" if grouped else "H",
            head="h // (H // HK)" if grouped else "h",
            more=self.more,
            score=self.score + self.sink,
            outputs=", L: f32[b, h, i]" if sums else "",
        )


def _causal(x: Extra) -> Keep:
    shift = x["shift"]
    return lambda b, h, i, j: j <= i + shift


def _window(x: Extra) -> Keep:
    return lambda b, h, i, j: (j <= i) & (j > i - WIDTH)


def _prefix(x: Extra) -> Keep:
    length = x["len"]
    return lambda b, h, i, j: (j <= i) | (j < length[b])


def _documents(x: Extra) -> Keep:
    doc = x["doc"]
    return lambda b, h, i, j: (doc[b, i] == doc[b, j]) & (j <= i)


def _chunks(chunk: int) -> Callable[[Extra], Keep]:
    return lambda x: lambda b, h, i, j: (i // chunk == j // chunk) & (j <= i)


def _capped(x: Extra) -> Change:
    return lambda s, b, h, i, j: CAP * (s / CAP).tanh()


def _sloped(x: Extra) -> Change:
    slope = x["slope"]
    return lambda s, b, h, i, j: s - slope[h] * (i - j)


def _relative(x: Extra) -> Change:
    table = x["table"]
    return lambda s, b, h, i, j: s + table[h, (i - j).clamp(-REACH, REACH) + REACH]


def _cut(n: int, x: Extra) -> list[int]:
    """The lengths of the documents of a row."""
    return x["doc"][0].unique_consecutive(return_counts=True)[1].tolist()


def _chunked(chunk: int) -> Formula:
    return Formula(
        f", chunk: int = {chunk}",
        "S if i // chunk == j // chunk and j <= i else -inf",
        keep=_chunks(chunk),
        segments=lambda n, x: [min(chunk, n - at) for at in range(0, n, chunk)],
    )


CAUSAL = Formula(
    score="S if j <= i + N - M else -inf", square=False, keep=_causal, flash4={"causal": True}
)
FORMULAS = {
    "full": Formula(square=False, flash4={}),
    "causal": CAUSAL,
    "window": Formula(
        f", width: int = {WIDTH}",
        "S if i - width < j <= i else -inf",
        keep=_window,
        flash4={"causal": True, "window_size": (WIDTH - 1, 0)},
    ),
    "softcap": Formula(
        f", cap: float = {CAP}",
        "cap * tanh(S / cap) if j <= i else -inf",
        keep=_causal,
        change=_capped,
        flash4={"causal": True, "softcap": CAP},
    ),
    "alibi": Formula(
        ", slope: f32[H]",
        "S - slope[h] * (i - j) if j <= i else -inf",
        keep=_causal,
        change=_sloped,
    ),
    "prefix": Formula(", len: i32[B]", "S if j <= i or j < len[b] else -inf", keep=_prefix),
    "relative": Formula(
        f", table: f32[H, {2 * REACH + 1}]",
        f"S + table[h, clamp(i - j, -{REACH}, {REACH}) + {REACH}]",
        change=_relative,
    ),
    "documents": Formula(
        ", doc: i32[B, N]",
        "S if doc[b, i] == doc[b, j] and j <= i else -inf",
        keep=_documents,
        segments=_cut,
    ),
    "chunks1024": _chunked(1024),
    "chunks2048": _chunked(2048),
    "sink": Formula(
        f", s: f32[H], width: int = {WIDTH}",
        "S if i - width < j <= i else -inf",
        sink=", s[h]",
        keep=_window,
        flash4={"causal": True, "window_size": (WIDTH - 1, 0), "learnable_sink": "s"},
    ),
}
"""`relative`: a learned bias by distance, which is cut off at REACH. `sink`: one more logit per head, without a value."""
