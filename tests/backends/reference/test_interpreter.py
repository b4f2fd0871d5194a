"""The interpreter against NumPy: whole programs at every level, and what each op means at the edges."""

from __future__ import annotations

import math
import re
from typing import Any

import numpy as np
import pytest

from tests.kernels import LENGTHS, LEVELS, TILED
from tilec.backends.reference import together as tiles
from tilec.backends.reference.functions import philox
from tilec.backends.reference.interpreter import run
from tilec.errors import CompilerBug
from tilec.reader import read
from tilec.verify import verify

INF, NAN = math.inf, math.nan
Array = np.ndarray[Any, Any]


def causal(q: Array, k: Array, v: Array) -> Array:
    """Causal attention of q[b, h, i, d], k[b, h, j, d], v[b, h, j, e], one row at a time."""
    out = np.zeros((*q.shape[:3], v.shape[3]))
    for b, h, i in np.ndindex(*q.shape[:3]):
        n = max(0, min(k.shape[2], i + k.shape[2] - q.shape[2] + 1))
        s = k[b, h, :n] @ q[b, h, i] / (math.sqrt(q.shape[3]) or 1)
        if n:
            p = np.exp(s - s.max())
            out[b, h, i] = p @ v[b, h, :n] / p.sum()
    return out


SIZES = [
    (2, 3, 37, 45, 8, 5),
    (1, 1, 1, 1, 1, 1),
    (1, 2, 50, 20, 4, 4),
    (1, 1, 0, 5, 2, 2),
    (1, 2, 5, 0, 2, 2),
    (0, 1, 2, 2, 2, 2),
    (1, 2, 3, 4, 2, 0),
]


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_causal(level: str, sizes: tuple[int, ...]) -> None:
    arrays = _attention(*sizes)
    (kernel,) = read(LEVELS[level])
    verify(kernel)
    want = causal(**{n.lower(): a for n, a in arrays.items()})
    np.testing.assert_allclose(run(kernel, arrays).outputs["O"], want, rtol=1e-9, atol=1e-12)
    rounded = run(kernel, arrays, rounding=True).outputs["O"]
    np.testing.assert_allclose(rounded, want, rtol=1e-4, atol=1e-5)
    assert (rounded == rounded.astype(np.float32)).all()


@pytest.mark.parametrize("level", LEVELS)
def test_masked_positions_may_hold_anything(level: str) -> None:
    arrays = _attention(1, 2, 9, 9, 4, 3)
    arrays["K"][:, :, -1], arrays["V"][:, :, -1] = INF, NAN
    got = run(read(LEVELS[level])[0], arrays).outputs["O"]
    assert np.isfinite(got[:, :, :-1]).all()
    assert np.isnan(got[:, :, -1]).all()


def test_tiles_that_run_together_give_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    arrays = _attention(3, 4, 20, 20, 4, 3)
    arrays["V"][1, 2, 3] = NAN
    (kernel,) = read(TILED)
    together = run(kernel, arrays)
    monkeypatch.setattr(tiles, "ROOM", 1)
    one_by_one = run(kernel, arrays)
    np.testing.assert_allclose(together.outputs["O"], one_by_one.outputs["O"], rtol=1e-12)
    assert together.traffic == one_by_one.traffic
    monkeypatch.setattr(tiles, "ROOM", 1500)
    assert run(kernel, arrays).traffic == one_by_one.traffic


def test_bounds_and_conditions_from_data() -> None:
    (kernel,) = read(LENGTHS)
    verify(kernel)
    x = np.arange(30.0).reshape(3, 10)
    got = run(kernel, {"X": x, "len": np.array([0, 1, 4], np.int32)}).outputs
    np.testing.assert_array_equal(got["Y"], [0, x[1, :2].sum(), x[2, :8].sum()])
    np.testing.assert_array_equal(got["Z"], [0, 0, 4])
    got = run(kernel, {"X": x, "len": np.array([1, 1, 1])}, {"w": 9}).outputs
    np.testing.assert_array_equal(got["Y"], x[:, :9].sum(1))


# one op at a time: fn(args) over an axis i that the arrays X and Y have


def _map(
    fn: str, *arrays: list[Any], dtype: str = "f64", result: str = "f64", **more: Any
) -> Array:
    """The function of one or two arrays, loaded with an element type."""
    names = ["X", "Y", "Z"][: len(arrays)]
    loads = "".join(f"  {n.lower()}: {dtype}[i] = load({n}, i)\n" for n in names)
    text = f"""kernel f({", ".join(f"{n}: {dtype}[N]" for n in names)}) -> R: {result}[i] {{
  axis i < N
{loads}  r: {result}[i] = {fn}({", ".join(n.lower() for n in names)})
  store(R, i, value=r)
}}"""
    (kernel,) = read(text)
    verify(kernel)
    held: Any = np.int64 if dtype == "i64" else np.float64
    return run(kernel, {n: np.array(a, held) for n, a in zip(names, arrays, strict=True)}).outputs[
        "R"
    ]


FLOATS = [
    ("add", [-INF, -INF, INF, -INF, 1], [INF, NAN, 1, -INF, 2], [-INF, NAN, INF, -INF, 3]),
    ("sub", [-INF, -INF, INF, 1, -INF], [-INF, NAN, INF, INF, INF], [-INF, NAN, NAN, -INF, -INF]),
    ("div", [0, 0, 1, -1, INF], [0, NAN, 0, 0, INF], [0, NAN, INF, -INF, NAN]),
    ("mul", [0, 2, INF], [NAN, 3, 0], [NAN, 6, NAN]),
    ("min", [1, NAN, 1], [2, 1, NAN], [1, NAN, NAN]),
    ("max", [1, NAN, 1], [2, 1, NAN], [2, NAN, NAN]),
    ("pow", [2, -8, 0], [-1, 1 / 3, 0], [0.5, NAN, 1]),
    ("mod", [-7.5, 7, 1], [2, -2, 0], [0.5, -1, 0]),
    ("floordiv", [-7.5, 7, 1], [2, -2, 0], [-4, -4, 0]),
    ("atan2", [1, -1], [0, 0], [math.pi / 2, -math.pi / 2]),
]


@pytest.mark.parametrize(("fn", "x", "y", "want"), FLOATS, ids=[f[0] for f in FLOATS])
def test_arithmetic(fn: str, x: list[float], y: list[float], want: list[float]) -> None:
    np.testing.assert_array_equal(_map(fn, x, y), want)


SHIFTS = [0, 1, 63, 64, -1, 200]
INTEGERS = [
    ("floordiv", [-7, 7, 7, 5], [2, -2, 0, 5], [-4, -4, 0, 1]),
    ("mod", [-7, 7, 7, 5], [2, -2, 0, 5], [1, -1, 0, 0]),
    ("shl", [3] * 6, SHIFTS, [3, 6, -(2**63), 0, 0, 0]),
    ("shr", [-3] * 6, SHIFTS, [-3, -2, -1, -1, -1, -1]),
    ("shr", [3] * 6, SHIFTS, [3, 1, 0, 0, 0, 0]),
    ("bitxor", [6, -1], [3, 1], [5, -2]),
    ("add", [2**62], [2**61], [2**62 + 2**61]),
]


@pytest.mark.parametrize(("fn", "x", "y", "want"), INTEGERS, ids=[f[0] for f in INTEGERS])
def test_integers(fn: str, x: list[int], y: list[int], want: list[int]) -> None:
    np.testing.assert_array_equal(_map(fn, x, y, dtype="i64", result="i64"), want)


ONE = [
    ("exp", [-INF, 0, NAN], [0, 1, NAN]),
    ("sigmoid", [-INF, 0, INF], [0, 0.5, 1]),
    ("silu", [-INF, 0, INF], [0, 0, INF]),
    ("relu", [-INF, -1, NAN], [0, 0, NAN]),
    ("round", [0.5, 1.5, -0.5], [0, 2, 0]),
    ("erf", [0, INF, -INF], [0, 1, -1]),
    ("rsqrt", [0, 4, -1], [INF, 0.5, NAN]),
    ("log2", [0, 8, -1], [-INF, 3, NAN]),
]


@pytest.mark.parametrize(("fn", "x", "want"), ONE, ids=[f[0] for f in ONE])
def test_functions(fn: str, x: list[float], want: list[float]) -> None:
    np.testing.assert_array_equal(_map(fn, x), want)


# an expression of a zero `a` that is absent for X = -inf, multiplied by NaN: nothing where the result is absent too
ABSENT = {
    "exp(x)": True,
    "exp2(x)": True,
    "sigmoid(x)": True,
    "relu(x)": True,
    "silu(x)": True,
    "neg(a)": True,
    "abs(a)": True,
    "sqrt(a)": True,
    "tanh(a)": True,
    "erf(a)": True,
    "floor(a)": True,
    "div(a, 3.0)": True,
    "div(3.0, a)": False,
    "mul(3.0, a)": True,
    "add(a, a)": True,
    "add(a, z)": False,
    "sub(a, a)": True,
    "sub(a, z)": False,
    "max(a, a)": False,
    "pow(a, 2.0)": False,
    "cos(a)": False,
    "select(true, a, 1.0)": True,
    "select(false, a, z)": False,
    "select(true, absent, 1.0)": True,
    "select(true, 0.0, absent)": False,
}


@pytest.mark.parametrize("expression", ABSENT)
def test_absent_zeros(expression: str) -> None:
    text = f"""kernel f(X: f64[N], Z: f64[N]) -> R: f64[i] {{
  axis i < N
  x: f64[i] = load(X, i)
  z: f64[i] = load(Z, i)
  a: f64[i] = exp(x)
  r: f64[i] = {expression}
  s: f64[i] = mul(r, nan)
  t: f64[i] = add(s, z)
  store(R, i, value=t)
}}"""
    if not re.search(r"\b[axz]\b", expression):
        text = text.replace("r: f64[i]", "r: f64").replace("s: f64[i]", "s: f64")
    (kernel,) = read(text)
    verify(kernel)
    got = run(kernel, {"X": np.array([-INF]), "Z": np.zeros(1)}).outputs["R"]
    np.testing.assert_array_equal(got, [0 if ABSENT[expression] else NAN])


def test_an_underflow_is_no_absent_zero() -> None:
    arrays = {
        "Q": np.array([[[[1.0]]]]),
        "K": np.array([[[[-1e4], [1e4]]]]),
        "V": np.array([[[[NAN], [1.0]]]]),
    }
    for text in LEVELS.values():
        assert np.isnan(run(read(text)[0], arrays).outputs["O"]).all()


REDUCTIONS = [
    ("sum", "f64", [], 0.0),
    ("max", "f64", [], -INF),
    ("min", "f64", [], INF),
    ("maxnum", "f64", [], -INF),
    ("maxnum", "f64", [NAN, NAN], -INF),
    ("maxnum", "f64", [NAN, -2.0], -2.0),
    ("max", "f64", [NAN, -2.0], NAN),
    ("any", "bool", [], False),
    ("all", "bool", [], True),
    ("any", "bool", [0.0, NAN], True),
    ("sum", "i64", [], 0),
    ("max", "i64", [], -(2**63)),
    ("min", "i64", [], 2**63 - 1),
    ("mean", "f64", [1.0, 4.0], 2.5),
    ("mean", "f64", [], NAN),
    ("logsumexp", "f64", [], -INF),
    ("logsumexp", "f64", [-INF, -INF], -INF),
    ("logsumexp", "f64", [INF, 0.0], INF),
    ("logsumexp", "f64", [NAN, 0.0], NAN),
    ("logsumexp", "f64", [1000.0, 1000.0], 1000 + math.log(2)),
]


@pytest.mark.parametrize(("fn", "result", "x", "want"), REDUCTIONS, ids=str)
def test_reductions(fn: str, result: str, x: list[float], want: Any) -> None:
    dtype = "i64" if result == "i64" else "f64"
    text = f"""kernel f(X: {dtype}[N]) -> R: {result}[] {{
  axis j < N
  x: {dtype}[j] = load(X, j)
  r: {result} = {fn}(x, over=j)
  store(R, value=r)
}}"""
    (kernel,) = read(text)
    verify(kernel)
    held: Any = np.int64 if dtype == "i64" else np.float64
    np.testing.assert_array_equal(run(kernel, {"X": np.array(x, held)}).outputs["R"], want)


def test_softmax_with_further_logits() -> None:
    text = """kernel f(X: f64[M, N], S: f64[M]) -> R: f64[i, j], L: f64[i] {
  axis i < M
  axis j < N
  x: f64[i, j] = load(X, i, j)
  s: f64[i] = load(S, i)
  r: f64[i, j] = softmax(x, s, 1.0, over=j)
  l: f64[i] = logsumexp(x, s, 1.0, over=j)
  store(R, i, j, value=r)
  store(L, i, value=l)
}"""
    (kernel,) = read(text)
    verify(kernel)
    x, s = np.array([[1.0, -INF], [-INF, -INF], [2.0, 3.0]]), np.array([0.5, -INF, 2.0])
    total = np.exp(x).sum(1) + np.exp(s) + math.e
    got = run(kernel, {"X": x, "S": s}).outputs
    np.testing.assert_allclose(got["R"], np.exp(x) / total[:, None])
    np.testing.assert_allclose(got["L"], np.log(total))


def test_gathers_that_miss_give_zero() -> None:
    text = """kernel f(X: f32[M, N], at: i32[N]) -> R: f32[j], S: f32[j, i] {
  axis i < M
  axis j < N
  a: i32[j] = load(at, j)
  r: f32[j] = load(X, 1, a)
  jp: i64[j] = add(j, i)
  s: f32[j, i] = load(X, i, jp)
  store(R, j, value=r)
  store(S, j, i, value=s)
}""".replace("jp: i64[j]", "jp: i64[j, i]")
    (kernel,) = read(text)
    verify(kernel)
    x = np.arange(1.0, 9).reshape(2, 4)
    got = run(kernel, {"X": x, "at": np.array([3, -1, 4, 0])}).outputs
    np.testing.assert_array_equal(got["R"], [8, 0, 0, 5])
    np.testing.assert_array_equal(got["S"], [[1, 6], [2, 7], [3, 8], [4, 0]])
    empty = run(kernel, {"X": np.zeros((2, 0)), "at": np.zeros(0, int)}).outputs
    assert empty["R"].shape == (0,)


def test_contractions_with_batch_axes_and_gaps() -> None:
    text = """kernel f(X: f64[B, M, N], Y: f64[B, N], Z: f64[M]) -> R: f64[i, b], S: f64[], T: f64[b] {
  axis b < B
  axis i < M
  axis j < N
  x: f64[b, i, j] = load(X, b, i, j)
  y: f64[b, j] = load(Y, b, j)
  z: f64[i] = load(Z, i)
  r: f64[b, i] = contract(x, y, over=j, init=z)
  s: f64 = contract(x, y, over=[b, i, j])
  t: f64[b] = contract(y, 2.0, over=j)
  store(R, i, b, value=r)
  store(S, value=s)
  store(T, b, value=t)
}"""
    (kernel,) = read(text)
    verify(kernel)
    rng = np.random.default_rng(0)
    x, y, z = rng.standard_normal((2, 3, 4)), rng.standard_normal((2, 4)), rng.standard_normal(3)
    for hole in (0.0, NAN, INF):
        x[0, 1, 2] = hole
        got = run(kernel, {"X": x, "Y": y, "Z": z}).outputs
        np.testing.assert_allclose(got["R"], np.einsum("bij,bj->ib", x, y) + z[:, None])
        np.testing.assert_allclose(got["S"], (x * y[:, None]).sum())
        np.testing.assert_allclose(got["T"], 2 * y.sum(1))


def test_integer_contraction_is_exact() -> None:
    text = """kernel f(X: i64[N], Y: i64[N]) -> R: i64[] {
  axis j < N
  x: i64[j] = load(X, j)
  y: i64[j] = load(Y, j)
  r: i64 = contract(x, y, over=j)
  store(R, value=r)
}"""
    big = np.array([2**31 + 1, 1])
    assert run(read(text)[0], {"X": big, "Y": big}).outputs["R"] == (2**31 + 1) ** 2 + 1


# Philox 4x32-10, the known answers of its authors' test vectors
PHILOX = [
    ((0, 0), (0, 0, 0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
    ((2**32 - 1,) * 2, (2**32 - 1,) * 4, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
    (
        (0xA4093822, 0x299F31D0),
        (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
        (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
    ),
]


@pytest.mark.parametrize(("key", "counter", "want"), PHILOX)
def test_philox(key: Any, counter: Any, want: Any) -> None:
    def words(xs: Any) -> Any:
        return tuple(np.uint64(x) for x in xs)

    assert philox(words(key), words(counter)) == words(want)


def test_uniform_takes_the_top_bits() -> None:
    text = """kernel f(X: f64[N], seed: int) -> R: f64[i] {
  axis i < N
  r: f64[i] = uniform(seed, i, 0, 0)
  store(R, i, value=r)
}"""
    (kernel,) = read(text)
    got = run(kernel, {"X": np.zeros(4)}, {"seed": 0}).outputs["R"]
    assert got[0] == (0x6627E8D5 >> 8) * 2.0**-24
    assert len(set(got)) == 4
    other = run(kernel, {"X": np.zeros(4)}, {"seed": 2**32}).outputs["R"]
    assert (other != got).all()


def test_rounding_where_a_target_rounds() -> None:
    text = """kernel f(P: f32[N], V: f16[N]) -> R: f32[], S: f32[], T: f16[], U: f32[] {
  axis j < N
  p: f32[j] = load(P, j)
  v: f16[j] = load(V, j)
  r: f32 = contract(p, v, over=j)
  w: f32[j] = cast(v, to=f32)
  s: f32 = contract(p, w, over=j)
  t: f32 = sum(p, over=j)
  u: f8e4m3[j] = cast(p, to=f8e4m3)
  u_1: f32 = sum(u, over=j)
  store(R, value=r)
  store(S, value=s)
  store(T, value=t)
  store(U, value=u_1)
}"""
    (kernel,) = read(text)
    verify(kernel)
    arrays = {"P": np.array([1 + 2**-13, 1.0]), "V": np.array([1.0, 2**-13])}
    exact = run(kernel, arrays).outputs
    assert [float(exact[o]) for o in "RSTU"] == [1 + 2**-12, 1 + 2**-12, 2 + 2**-13, 2 + 2**-13]
    rounded = run(kernel, arrays, rounding=True).outputs
    # p becomes f16 beside the loaded v, not beside f32(v); T is an f16 tensor
    assert [float(rounded[o]) for o in "RSTU"] == [1 + 2**-13, 1 + 2**-12, 2, 2]


def test_a_loop_that_is_not_full_is_no_full_loop() -> None:
    text = TILED.replace("tile=16, stop=u2", "tile=16, ragged=false")
    run(read(text)[0], _attention(1, 1, 4, 32, 2, 2))
    with pytest.raises(CompilerBug, match="said not to be ragged"):
        run(read(text)[0], _attention(1, 1, 4, 33, 2, 2))


def test_a_loop_starts_at_a_window() -> None:
    text = TILED.replace("tile=16, stop=u2", "tile=16, start=i1")
    with pytest.raises(CompilerBug, match="in tiles of 16 starts at 3"):
        run(read(text)[0], _attention(1, 1, 4, 8, 2, 2))


def test_a_missing_store_shows() -> None:
    text = """kernel f(X: f64[N]) -> R: f64[i] {
  axis i < N
  grid(axes=[i:2]) {
    x: f64[i:2] = load(X, i)
    c: bool = gt(N, 3)
    if(c) {
      store(R, i, value=x)
      yield()
    } else {
      yield()
    }
  }
}"""
    (kernel,) = read(text)
    verify(kernel)
    assert run(kernel, {"X": np.ones(4)}).outputs["R"].tolist() == [1] * 4
    assert np.isnan(run(kernel, {"X": np.ones(3)}).outputs["R"]).all()


def _attention(b: int, h: int, m: int, n: int, d: int, e: int) -> dict[str, Array]:
    rng = np.random.default_rng(b + 7 * h + 31 * m + n)
    shapes = {"Q": (b, h, m, d), "K": (b, h, n, d), "V": (b, h, n, e)}
    return {name: rng.standard_normal(shape) for name, shape in shapes.items()}
