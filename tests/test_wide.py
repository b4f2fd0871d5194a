"""Whole numbers near the ends of 64 bits, in data and as scalars: bounds that do not overflow."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import tilec
from tilec import binding, scalar
from tilec.ir import Operand
from tilec.wide import MOST, counted, saturated, wide

ENDS = [MOST, MOST - 1, -MOST, -MOST - 1, 1 << 62, -1, 0, 1, 5, 7]
MASKS = [
    "j < len[b]",
    "j > len[b] and j <= i",
    "j + 5 >= len[b]",
    "j // w < row[b, i]",
    "j // 4 <= len[b]",
    "abs(i - j) <= len[b]",
    "j != len[b]",
    "row[b, i] == doc[b, j]",
    "row[b, i] < doc[b, j]",
    "i + 2 < doc[b, j]",
    "doc[b, j] < row[b, i] or j < 3 and j <= row[b, i]",
]
ATTENTION = """
kernel a(Q[B, M, D], K[B, N, D], V[B, N, E], doc: i64[B, N], row: i64[B, M], len: i64[B], w: int = 3) -> O[b, i, e]:
    S = sum[d](Q[b, i, d] * K[b, j, d])
    O = sum[j](softmax[j](S if {} else -inf) * V[b, j, e])
"""


def attention(mask: str) -> tuple[tilec.Kernel, dict[str, np.ndarray]]:
    """A kernel with a mask, in tiles of a few positions, and floats for it."""
    rng = np.random.default_rng(1)
    shapes = {"Q": (2, 13, 4), "K": (2, 21, 4), "V": (2, 21, 3)}
    floats = {n: rng.standard_normal(s).astype(np.float32) for n, s in shapes.items()}
    return tilec.compile(ATTENTION.format(mask), target="cpu", tile={"i": 8, "j": 4}), floats


def same(kernel: tilec.Kernel, **arguments: np.ndarray | int) -> None:
    """Whether a call gives what the interpreter gives for the program as it is written."""
    want = kernel.reference(**arguments)
    np.testing.assert_allclose(kernel(**arguments), want, atol=1e-5, err_msg=str(arguments))


@pytest.mark.parametrize("mask", MASKS)
def test_data_near_the_ends_of_64_bits(mask: str) -> None:
    kernel, floats = attention(mask)
    rng = np.random.default_rng(2)
    for n in range(8):
        at = [np.roll(ENDS, n)[:2], rng.choice(ENDS, (2, 13)), rng.choice(ENDS, (2, 21))]
        if n % 2:
            at[1:] = [np.repeat(at[0][:, None], 13, 1), np.sort(at[2], axis=1)]
        length, row, doc = (np.asarray(x, np.int64) for x in at)
        same(kernel, **floats, doc=doc, row=row, len=length)


@pytest.mark.parametrize("mask", ["j // w <= len[b]", "j // w >= len[b] - 8", "i - w < j"])
def test_scalars_near_the_ends_of_64_bits(mask: str) -> None:
    kernel, floats = attention(mask)
    data = {"doc": np.zeros((2, 21), int), "row": np.zeros((2, 13), int)}
    for w in (1, 1 << 31, 1 << 40, 1 << 61, MOST, -(1 << 61), -MOST - 1):
        same(kernel, **floats, **data, len=np.array([7, (1 << 31) - 1]), w=w)


def test_sums_stop_at_the_ends() -> None:
    """Operands that are no literals are written here as strings, and each step wraps as the machine's do."""

    def make(fn: str, *xs: Operand) -> Operand:
        a = [int(x) for x in xs]  # type: ignore[arg-type]
        value = (a[1] if a[0] else a[2]) if fn == "select" else scalar.evaluate((fn, *a), {})
        return str((int(value) + MOST + 1) % (1 << 64) - MOST - 1)

    exact = {"add": int.__add__, "sub": int.__sub__, "mul": int.__mul__}
    literals = [0, 1, -1, 3, -128, 1 << 20]
    for fn, true in exact.items():
        for x, y in itertools.product(ENDS, [*map(str, ENDS), *literals]):
            for a, b in [(str(x), y), (y, str(x))]:
                got, want = int(saturated(make, fn, (a, b))), true(int(a), int(b))  # type: ignore[arg-type]
                assert np.sign(got) == np.sign(float(want)), (fn, a, b)
                assert got == want or min(abs(got), abs(want)) >= 1 << 62, (fn, a, b)


def test_which_values_are_wide() -> None:
    text = "kernel f(X[N], a: i64[N], c: i32[N], s: int, seed: int) -> O: i64[i]:\n"
    text += "    O = a[i] + c[i] + (1 if uniform(seed, i) > 0.5 else s)\n"
    kernel = tilec.compile(text)._versions.for_types({"X": "f32"}).lowered
    loads = {op.tensor: op.result.name for op in kernel.body if op.word == "load"}  # type: ignore[attr-defined]
    found = wide(kernel)
    assert {"a", loads["a"]} <= found
    assert loads["c"] not in found
    assert "s" in counted(kernel)
    assert "seed" not in counted(kernel)
    assert binding.far(counted(kernel), {"s": 1 << 40})
    assert not binding.far(counted(kernel), {"seed": 1 << 62, "s": 1})


def test_floats_beside_data_of_64_bits_are_no_whole_numbers() -> None:
    text = "kernel f(y[N], m: i64[B, M]) -> O: bool[q, i]:\n    O = any[b](y[q] + m[b, i] < 3)\n"
    kernel = tilec.compile(text, target="cpu", tile={"b": 2})
    same(kernel, y=np.linspace(-2, 2, 5), m=np.arange(-6, 9).reshape(3, 5))
