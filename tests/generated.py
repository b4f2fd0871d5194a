"""Programs and data for differential tests, drawn by hypothesis.

Attention with masks, scores, gathers and normalisers of any kind, at odd sizes.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from hypothesis import strategies as st

SIZES = [0, 1, 2, 3, 5, 7, 16, 17, 33]

PARAMETERS = """kernel drawn(Q[B, H, M, D], K[B, HK, N, D], V[B, HK, N, E], len: i32[B], doc: i32[B, N], row: i32[B, M],
             slope: f32[H], bias: f32[M, N], table: f32[R], sink: f32[H], wide: bool[N], order: i32[N],
             w: int = 3, cap: float = 5.0)"""


@dataclass(frozen=True)
class Drawn:
    """A program, the sizes of its dimensions, and a seed for its data."""

    text: str
    sizes: dict[str, int]
    seed: int

    def arguments(self) -> dict[str, np.ndarray | int | float]:
        """Tensors (float32, small integers) and scalars that fit the parameters."""
        s, rng = self.sizes, np.random.default_rng(self.seed)

        def floats(*dims: str) -> np.ndarray:
            return rng.standard_normal([s[d] for d in dims]).astype(np.float32)

        def ints(low: int, high: int, *dims: str) -> np.ndarray:
            return rng.integers(low, high, [s[d] for d in dims]).astype(np.int32)

        return {
            "Q": floats("B", "H", "M", "D"),
            "K": floats("B", "HK", "N", "D"),
            "V": floats("B", "HK", "N", "E"),
            "len": ints(-1, s["N"] + 2, "B"),
            "doc": np.sort(ints(0, 4, "B", "N"), axis=1),
            "row": ints(-1, s["N"] + 1, "B", "M"),
            "slope": floats("H"),
            "bias": floats("M", "N"),
            "table": floats("R"),
            "sink": floats("H"),
            "wide": rng.random(s["N"]) < 0.2,
            "order": rng.permutation(s["N"]).astype(np.int32),
            "w": int(rng.integers(1, 9)),
            "cap": float(rng.choice([0.5, 5.0])),
        }


@st.composite
def integers(draw: st.DrawFn, depth: int = 2) -> str:
    """An integer expression over a query position i and a key position j."""
    if depth == 0 or draw(st.integers(0, 3)) == 0:
        leaves = [
            "i",
            "j",
            "w",
            "N - M",
            "len[b]",
            "row[b, i]",
            "doc[b, j]",
            "order[j]",
            "h",
            "2",
            "3",
            "7",
            "-1",
        ]
        return f"({draw(st.sampled_from(leaves))})"
    x, y = draw(integers(depth - 1)), draw(integers(depth - 1))
    form = draw(
        st.sampled_from(
            [
                "({x} + {y})",
                "({x} - {y})",
                "({x} * {y})",
                "({x} // {y})",
                "({x} % {y})",
                "min({x}, {y})",
                "max({x}, {y})",
                "clamp({x}, 0, {y})",
                "abs({x})",
                "({x} & {y})",
                "({x} ^ {y})",
                "({x} | {y})",
                "({x} >> 1)",
                "({x} << 2)",
                "-{x}",
                "(~{x})",
                "({x} if {x} < {y} else {y})",
            ]
        )
    )
    return form.format(x=x, y=y)


KNOWN = [
    "j <= i",
    "j <= i + N - M",
    "i - w < j <= i",
    "abs(i - j) <= w",
    "j < len[b]",
    "i // w == j // w",
    "j <= i or j < len[b]",
    "i % w == j % w",
    "wide[j] or j <= i",
    "row[b, i] == doc[b, j]",
    "doc[b, j] <= row[b, i] and j <= i",
    "row[b, i] >= 0",
    "any[t](order[t] == j and t <= i)",
    "clamp(i, w // 2, N - 1 - w // 2) - w // 2 <= j <= i + w",
    "(i ^ j) & 3 != 2",
    "false",
    "true",
]


@st.composite
def masks(draw: st.DrawFn, depth: int = 2) -> str:
    """A boolean expression over i and j."""
    kind = draw(st.integers(0, 5))
    if depth == 0 or kind <= 2:
        return f"({draw(st.sampled_from(KNOWN))})"
    if kind == 3:
        x, y = draw(integers()), draw(integers())
        return f"({x} {draw(st.sampled_from(['<', '<=', '==', '!=', '>', '>=']))} {y})"
    if kind == 4:
        return f"(not {draw(masks(depth - 1))})"
    word = draw(st.sampled_from(["and", "or"]))
    return f"({draw(masks(depth - 1))} {word} {draw(masks(depth - 1))})"


SCORES = [
    "S",
    "S * 0.5",
    "S + slope[h] * (i - j)",
    "S + bias[i, j]",
    "cap * tanh(S / cap)",
    "S + table[clamp(i - j + w, 0, R - 1)]",
    "S + table[(i * 3 + j) % 11]",
    "S if (i + j) % 3 > 0 else S - 1",
    "log(relu(S) + 0.5)",
    "S - abs(S) / 4",
    "S + bias[i, order[j]]",
    "2 * (S + slope[h])",
    "S + (i - j)",
]

TERMS = [
    "sum[d](Q[b, h, i, d] * K[b, g, j, d]) / sqrt(D)",
    "sum[d](Q[b, h, i, d] * K[b, g, j, d] * 0.3)",
    "(sum[d](Q[b, h, i, d] * K[b, g, j, d]) + sum[c](Q[b, h, i, (c + 1) % D] * K[b, g, j, c])) * 0.25",
    "sum[d](Q[b, h, i, d] * rsqrt(mean[d](Q[b, h, i, d] ** 2) + 0.1) * K[b, g, order[j], d])",
    "sum[d](cos(Q[b, h, i, d]) * K[b, g, j, d] * rsqrt(mean[d](K[b, g, j, d] ** 2) + 0.1))",
]

ENDINGS = [
    "    O = sum[j](softmax[j](S) * V[b, g, j, e])",
    "    P = softmax[j](S)\n    O = sum[j](P * V[b, g, j, e])\n    L = logsumexp[j](S)",
    "    O = sum[j](softmax[j](S, sink[h]) * V[b, g, j, e])\n    L = logsumexp[j](S, sink[h])",
    "    m = max[j](S)\n    p = exp(S - m)\n    O = sum[j](p * V[b, g, j, e]) / sum[j](p)\n    L = m",
    "    m = max(max[j](S), sink[h])\n    p = exp(S - m)\n    l = sum[j](p) + exp(sink[h] - m)\n"
    "    O = sum[j](p * V[b, g, j, e]) / l\n    L = m + log(l)",
    "    O = sum[j](sigmoid(S) * V[b, g, j, e])",
    "    P = softmax[j](S) - 0.3 * softmax[j](S * 0.5)\n    O = sum[j](P * V[b, g, j, e])",
    "    P = softmax[j](S)\n    O = sum[j](P * V[b, g, j, e])\n    L = max[j](S)\n    A = mean[i](P)",
    "    P = softmax[j](S)\n    O = sum[j]((P / 0.8 if uniform(w, b, h, i, j) >= 0.2 else 0) * V[b, g, j, e])",
    "    T = S if S > -inf else 0\n    O = sum[j]((T - mean[j](T)) ** 2 * V[b, g, j, e])",
    "    T = S if S > -inf else 0\n    O = sum[j](T * V[b, g, j, e])\n    L = sum[j](T)",
    "    P = softmax[j](S)\n    O = sum[j](P * V[b, g, j, e]) * sigmoid(Q[b, h, i, 0])",
]


@st.composite
def programs(draw: st.DrawFn) -> Drawn:
    """A whole program."""
    lines = ["    g = h // (H // HK)", f"    S = {draw(st.sampled_from(TERMS))}"]
    for _ in range(draw(st.integers(0, 2))):
        lines.append(f"    S = {draw(st.sampled_from(SCORES))}")
    if draw(st.booleans()):
        lines.append(f"    S = S if {draw(masks())} else -inf")
    if draw(st.integers(0, 5)) == 0:
        lines.append(f"    S = {draw(st.sampled_from(SCORES))}")
    ending = draw(st.sampled_from(ENDINGS))
    outputs = (
        "O[b, h, i, e]"
        + ", L: f32[b, h, i]" * ("L =" in ending)
        + ", A: f32[b, h, j]" * ("A =" in ending)
    )
    text = f"{PARAMETERS} -> {outputs}:\n" + "\n".join([*lines, ending]) + "\n"
    group = draw(st.sampled_from([1, 1, 2]))
    heads = draw(st.sampled_from([1, 2]))
    sizes = {
        "B": draw(st.sampled_from([1, 2])),
        "H": heads * group,
        "HK": heads,
        "M": draw(st.sampled_from(SIZES)),
        "N": draw(st.sampled_from(SIZES)),
        "D": draw(st.sampled_from([1, 3, 8])),
        "E": draw(st.sampled_from([1, 4, 9])),
        "R": 11,
    }
    return Drawn(text, sizes, draw(st.integers(0, 2**31)))
