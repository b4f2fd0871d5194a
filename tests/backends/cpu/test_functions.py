"""Pointwise functions and element types on the CPU against the interpreter, on numbers of all kinds."""

from __future__ import annotations

import numpy as np
import pytest

from tests.backends.cpu.lowering import check, kernel
from tilec.arrays import numpy_dtype

RNG = np.random.default_rng(0)

REAL = [
    "add", "sub", "mul", "div", "min", "max", "pow", "atan2",
]  # fmt: skip
UNARY = [
    "neg", "abs", "exp", "exp2", "log", "log2", "tanh", "sigmoid", "sqrt", "rsqrt", "erf", "sin", "cos",
    "floor", "ceil", "round", "relu", "silu",
]  # fmt: skip
INTEGER = [
    "add",
    "sub",
    "mul",
    "floordiv",
    "mod",
    "min",
    "max",
    "shl",
    "shr",
    "bitand",
    "bitor",
    "bitxor",
]
SPECIAL = np.array(
    [0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan, 1e-40, 1e18, 0.5, -2.5, 7.0], np.float32
)


def pointwise(fn: str, args: str, dtype: str = "f32", out: str = "f32") -> str:
    return f"""
kernel f(X: {dtype}[N], Y: {dtype}[N]) -> O: {out}[i] {{
  axis i < N
  grid(axes=[i:24]) {{
    x: {dtype}[i:24] = load(X, i)
    y: {dtype}[i:24] = load(Y, i)
    o: {out}[i:24] = {fn}({args})
    store(O, i, value=o)
  }}
}}"""


def pairs(values: np.ndarray) -> dict[str, np.ndarray]:
    x, y = np.meshgrid(values, values)
    return {"X": x.ravel().copy(), "Y": y.ravel().copy()}


@pytest.mark.parametrize("fn", REAL)
def test_real_functions_of_two(fn: str) -> None:
    values = np.concatenate([SPECIAL, RNG.standard_normal(12).astype(np.float32)])
    check(kernel(pointwise(fn, "x, y")), pairs(values), tolerance=1e-4)


@pytest.mark.parametrize("fn", UNARY)
def test_real_functions_of_one(fn: str) -> None:
    x = np.concatenate([SPECIAL, 3 * RNG.standard_normal(30).astype(np.float32)])
    check(kernel(pointwise(fn, "x")), {"X": x, "Y": x}, tolerance=1e-5)


@pytest.mark.parametrize("fn", INTEGER)
def test_integer_functions(fn: str) -> None:
    values = np.array([0, 1, -1, 2, -3, 7, 63, 64, -64, 100, 2**40, -(2**40)])
    check(kernel(pointwise(fn, "x, y", "i64", "i64")), pairs(values))


@pytest.mark.parametrize("fn", ["lt", "le", "gt", "ge", "eq", "ne"])
def test_comparisons(fn: str) -> None:
    check(kernel(pointwise(fn, "x, y", "f32", "bool")), pairs(SPECIAL))
    check(kernel(pointwise(fn, "x, y", "i64", "bool")), pairs(np.array([-2, 0, 3, 2**40])))


@pytest.mark.parametrize("fn", ["and", "or", "bitand", "bitor", "bitxor", "eq", "ne"])
def test_conditions(fn: str) -> None:
    check(kernel(pointwise(fn, "x, y", "bool", "bool")), pairs(np.array([False, True])))


def test_an_absent_zero_times_nan_is_nothing() -> None:
    text = """
kernel f(X: f32[N], Y: f32[N], P: bool[N]) -> O: f32[i], Z: f32[i] {
  axis i < N
  grid(axes=[i:16]) {
    x: f32[i:16] = load(X, i)
    y: f32[i:16] = load(Y, i)
    p: bool[i:16] = load(P, i)
    e: f32[i:16] = exp(x)
    o: f32[i:16] = mul(e, y)
    s: f32[i:16] = select(p, x, absent)
    n: f32[i:16] = neg(s)
    z: f32[i:16] = mul(y, n)
    store(O, i, value=o)
    store(Z, i, value=z)
  }
}"""
    arrays = pairs(np.array([-np.inf, np.inf, np.nan, 0.0, 1.0, -1e30, 2.0], np.float32))
    check(kernel(text), arrays | {"P": np.arange(49) % 3 > 0})


@pytest.mark.parametrize(
    "dtype", ["f64", "f32", "f16", "bf16", "f8e4m3", "f8e5m2", "i32", "i16", "i8", "u8"]
)
def test_storage_types(dtype: str) -> None:
    text = pointwise("add", "x, y", dtype, dtype)
    text = text.replace(
        f"o: {dtype}", f"o: {'f64' if dtype == 'f64' else 'f32' if dtype[0] in 'fb' else 'i64'}"
    )
    k = kernel(text)
    data = (
        np.arange(-9, 10).astype(numpy_dtype(dtype))
        if dtype != "u8"
        else np.arange(20).astype(np.uint8)
    )
    check(k, {"X": data, "Y": data[::-1].copy()})


def test_uniform_is_that_of_the_language() -> None:
    text = """
kernel f(X: f32[N], seed: int) -> O: f32[i] {
  axis i < N
  grid(axes=[i:16]) {
    x: f32[i:16] = load(X, i)
    u: f32[i:16] = uniform(seed, i, 3)
    c: f16[i:16] = cast(x, to=f16)
    n: i32[i:16] = cast(x, to=i32)
    p: i64[i:16] = ipow(n, 3)
    y: f32[i:16] = add(c, p)
    o: f32[i:16] = add(u, y)
    store(O, i, value=o)
  }
}"""
    check(
        kernel(text),
        {"X": (3 * RNG.standard_normal(37)).astype(np.float32)},
        {"seed": 2**40 + 5},
        tolerance=2e-3,
    )
