"""The vector functions against NumPy in f64: the error in units of the last place, and the special values."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.backends.cpu.harness import IDS, MACHINES, run
from tilec.backends.cpu import jit
from tilec.backends.cpu import math as vm
from tilec.backends.cpu.vector import Emit

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")
on_machines = pytest.mark.parametrize(("machine", "lanes"), MACHINES, ids=IDS)
Truth = Callable[..., np.ndarray]

SPECIAL = np.array(
    [
        *(
            0.0,
            -0.0,
            1,
            -1,
            0.5,
            2,
            3,
            -3,
            2.5,
            -2.5,
            1e-45,
            -1e-45,
            1e-39,
            1.1754944e-38,
            3.4028235e38,
        ),
        *(
            -3.4028235e38,
            np.inf,
            -np.inf,
            np.nan,
            -126,
            -126.5,
            -127,
            -149,
            -150,
            -151,
            127.5,
            127.99999,
        ),
        *(
            128,
            88.72,
            88.73,
            -87.33,
            -103.9,
            -104,
            -1e30,
            16777216,
            8388607.5,
            1e10,
            -1e10,
            268435456,
        ),
    ],
    "f4",
)


def function(name: str) -> Callable[..., Any]:
    """What emits a function of the language."""
    return getattr(vm, name, None) or getattr(Emit, name)


def every(low: float, high: float, count: int = 60_000) -> np.ndarray:
    """Floats of both random bits and an even spread over an interval."""
    r = np.random.default_rng(0)
    spread = r.uniform(low, high, count)
    bits = r.integers(0, 1 << 32, count, dtype=np.uint64).astype("u4").view("f4")
    bits = bits[(bits >= low) & (bits <= high)]
    tiny = r.uniform(-1, 1, count // 4) * 2.0 ** -r.integers(0, 40, count // 4)
    near_one = 1 + tiny / 2
    parts = [spread, bits, tiny, near_one, SPECIAL]
    x = np.concatenate([np.asarray(p, "f4") for p in parts])
    return x[((x >= low) & (x <= high)) | ~np.isfinite(x) | (x == 0)]


def ulps(got: np.ndarray, want: np.ndarray, least: float = 2.0**-149) -> np.ndarray:
    """The error of f32 values against f64 truth, in units of f32's last place at the truth (but at least `least`)."""
    rounded = want.astype("f4")
    exact = (got == rounded) | (np.isnan(got) & np.isnan(rounded))
    unit = np.maximum(np.exp2(np.floor(np.log2(np.abs(np.where(want == 0, 1, want)))) - 23), least)
    error = np.abs(got.astype("f8") - want) / unit
    return np.where(exact, np.where(np.isfinite(want), np.minimum(error, 0.5), 0), error)


def worst(got: np.ndarray, want: np.ndarray, *xs: np.ndarray, least: float = 2.0**-149) -> float:
    """The largest error; printed with its argument."""
    error = np.nan_to_num(ulps(got, want, least), nan=np.inf)
    k = int(error.argmax())
    print(
        f"max error {error[k]:.3f} ulp at {[float(x[k]) for x in xs]}: {got[k]!r}, not {want[k]!r}"
    )
    return float(error[k])


def erf(x: np.ndarray) -> np.ndarray:
    return np.vectorize(math.erf, otypes=[float])(x)


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


def silu(x: np.ndarray) -> np.ndarray:
    return np.where(x == -np.inf, 0, x * sigmoid(x))


UNARY: dict[str, tuple[Truth, float, float, float]] = {
    "exp2": (np.exp2, -160, 130, 1.5),
    "exp": (np.exp, -110, 90, 1.5),
    "log2": (np.log2, -3.5e38, 3.5e38, 0.6),
    "log": (np.log, -3.5e38, 3.5e38, 0.6),
    "tanh": (np.tanh, -12, 12, 4),
    "sigmoid": (sigmoid, -110, 110, 4),
    "silu": (silu, -110, 110, 5),
    "relu": (lambda x: np.maximum(x, 0), -3.5e38, 3.5e38, 0.5),
    "erf": (erf, -5, 5, 0.6),
    "sin": (np.sin, -1e6, 1e6, 2),
    "cos": (np.cos, -1e6, 1e6, 2),
    "sqrt": (np.sqrt, -1, 3.5e38, 0.5),
    "rsqrt": (lambda x: 1 / np.sqrt(x), -1, 3.5e38, 1.6),
    "floor": (np.floor, -1e8, 1e8, 0),
    "ceil": (np.ceil, -1e8, 1e8, 0),
    "round": (np.rint, -1e8, 1e8, 0),
}
"""For each function: its truth, the interval to look at closely, and the error allowed in ulp."""

LEAST = {"silu": 2.0**-142}
"""Where the last place is not the measure for subnormal results: x times a sigmoid that is subnormal itself."""


@on_machines
@pytest.mark.parametrize("name", UNARY)
def test_f32(name: str, machine: jit.Machine, lanes: int) -> None:
    truth, low, high, allowed = UNARY[name]
    x = np.concatenate([every(low, high), SPECIAL])
    got = run(function(name), x, machine=machine, lanes=lanes)
    assert worst(got, truth(x.astype("f8")), x, least=LEAST.get(name, 2.0**-149)) <= allowed


@pytest.mark.parametrize("name", UNARY)
def test_f64(name: str) -> None:
    truth, low, high, _ = UNARY[name]
    x = np.concatenate([every(low, high, 5000), SPECIAL]).astype("f8")
    got, want = run(function(name), x, output="f64"), truth(x)
    np.testing.assert_allclose(got, want, rtol=1e-14, atol=1e-300, equal_nan=True)


@on_machines
@pytest.mark.parametrize("name", ["exp", "exp2"])
def test_exponentials_in_f64(name: str, machine: jit.Machine, lanes: int) -> None:
    """To the last place or so over the whole range, subnormal results and overflow included."""
    truth, r = (np.exp2 if name == "exp2" else np.exp), np.random.default_rng(1)
    x = np.concatenate([r.uniform(-1100, 1030, 30_000), r.uniform(-1, 1, 9000), SPECIAL])
    want = truth(x)
    near = np.spacing(np.abs(want))
    for body in (function(name), getattr(vm, f"{name}_weight")):
        got = run(body, x, output="f64", machine=machine, lanes=lanes)
        if body is not function(name):
            flushed = np.where(want < 2.0**-1022, 0, got)
            keep = (x <= 0) | np.isnan(x)
            got, want, near = flushed[keep], np.where(want < 2.0**-1022, 0, want)[keep], near[keep]
        fits = (np.abs(got - want) <= 2 * near) | (got == want) | (np.isnan(got) & np.isnan(want))
        assert fits.all()


@pytest.mark.parametrize("name", UNARY)
def test_scalars(name: str) -> None:
    truth, low, high, allowed = UNARY[name]
    x = np.concatenate([every(low, high, 500), SPECIAL])
    got = run(function(name), x, lanes=0)
    assert worst(got, truth(x.astype("f8")), x, least=LEAST.get(name, 2.0**-149)) <= allowed


@on_machines
@pytest.mark.parametrize("name", ["exp", "exp2"])
@pytest.mark.parametrize(("degree", "allowed"), [(4, 64), (5, 2.4), (6, 1.5)])
def test_weights(name: str, degree: int, allowed: float, machine: jit.Machine, lanes: int) -> None:
    """The exponentials of softmax: exact 0 for masked and far entries, 1 at 0, NaN kept."""
    truth, least = (np.exp2, -126.0) if name == "exp2" else (np.exp, -87.3)
    body = getattr(vm, f"{name}_weight")
    x = every(least, 0.0)
    got = run(lambda e, v: body(e, v, degree), x, machine=machine, lanes=lanes)
    finite = np.isfinite(x)
    assert worst(got[finite], truth(x[finite].astype("f8")), x[finite]) <= allowed
    odd = np.array([np.inf, -np.inf, np.nan, -1e30, -200, 0, -0.0, -128], "f4")
    odd = np.append(odd, np.array([0x7FC00001, 0x7FFFFFFF, 0xFFC12345], "u4").view("f4"))
    got = run(lambda e, v: body(e, v, degree), odd, machine=machine, lanes=lanes)
    assert np.isnan(got[[2, 8, 9, 10]]).all()
    assert (got[[1, 3, 4]] == 0).all()
    assert (got[[5, 6]] == 1).all()
    assert 0 <= got[7] < 2.0**-126


def pairs() -> tuple[np.ndarray, np.ndarray]:
    """Random arguments, and all pairs of the special ones."""
    r = np.random.default_rng(2)
    n = 30_000
    x = np.concatenate([np.exp2(r.uniform(-30, 30, n)) * r.choice([-1, 1], n), r.uniform(0, 4, n)])
    y = np.concatenate([r.integers(-9, 9, n), r.uniform(-60, 60, n)])
    special = np.meshgrid(SPECIAL, SPECIAL)
    return (
        np.concatenate([x, special[0].ravel()]).astype("f4"),
        np.concatenate([y, special[1].ravel()]).astype("f4"),
    )


@on_machines
@pytest.mark.parametrize(("name", "allowed"), [("pow", 0.6), ("atan2", 0.6)])
def test_two_operands(name: str, allowed: float, machine: jit.Machine, lanes: int) -> None:
    x, y = pairs()
    truth = np.power if name == "pow" else np.arctan2
    got = run(function(name), x, y, machine=machine, lanes=lanes)
    assert worst(got, truth(x.astype("f8"), y.astype("f8")), x, y) <= allowed


def test_atan2_keeps_the_sign_of_zero() -> None:
    y, x = np.array([0.0, -0.0, 0.0, -0.0], "f4"), np.array([1, 1, -1, -0.0], "f4")
    got, want = run(vm.atan2, y, x), np.arctan2(y, x)
    assert (np.signbit(got) == np.signbit(want)).all()


@on_machines
def test_minimum_maximum_and_finiteness(machine: jit.Machine, lanes: int) -> None:
    x, y = (a.ravel() for a in np.meshgrid(SPECIAL, SPECIAL))
    options: dict[str, Any] = {"machine": machine, "lanes": lanes}
    for name, truth in (("max", np.maximum), ("min", np.minimum)):
        got = run(function(name), x, y, **options)
        np.testing.assert_array_equal(got, truth(x, y))
    got = run(vm.isfinite, x, output="bool", **options)
    assert (got == np.isfinite(x)).all()


INTEGERS = np.array(
    [
        *(0, 1, -1, 2, -2, 3, 7, -7, 63, 64, 65, -64, 100, -101, 1 << 31, -(1 << 31), 1 << 62),
        *(5_000_000_000, -5_000_000_001, (1 << 63) - 1, -(1 << 63)),
    ],
    "i8",
)


def whole(f: Truth) -> Truth:
    return lambda a, b: np.where(b == 0, 0, f(a, np.where(b == 0, 1, b)))


INTEGER: dict[str, tuple[Truth, Callable[..., Any]]] = {
    "floordiv": (whole(np.floor_divide), vm.floordiv),
    "mod": (whole(np.mod), vm.mod),
    "shl": (np.left_shift, vm.shl),
    "shr": (lambda a, b: np.right_shift(a, np.where(b < 0, 63, np.clip(b, 0, 63))), vm.shr),
}


@on_machines
@pytest.mark.parametrize("name", INTEGER)
def test_integers(name: str, machine: jit.Machine, lanes: int) -> None:
    truth, body = INTEGER[name]
    r = np.random.default_rng(3)
    x, y = (a.ravel() for a in np.meshgrid(INTEGERS, INTEGERS))
    x = np.concatenate([x, r.integers(-(1 << 62), 1 << 62, 3000), r.integers(-999, 999, 3000)])
    y = np.concatenate([y, r.integers(-99, 99, 6000)])
    got = run(body, x, y, output="i64", machine=machine, lanes=lanes)
    assert (got == truth(x, y)).all()
    got = run(body, x, y, output="i64", lanes=0)
    assert (got == truth(x, y)).all()
    for known in (0, 1, -1, 2, 64, 3, 7, -7, 100, -64, np.iinfo("i8").min):
        if name in ("floordiv", "mod"):
            divide = functools.partial(lambda k, e, a: body(e, a, k), int(known))
            got = run(divide, x, output="i64", machine=machine, lanes=lanes)
            assert (got == truth(x, np.int64(known))).all(), known


@on_machines
@pytest.mark.parametrize("name", ["floordiv", "mod"])
def test_floats_divide_whole(name: str, machine: jit.Machine, lanes: int) -> None:
    truth, body = INTEGER[name]
    r = np.random.default_rng(4)
    x, y = r.uniform(-50, 50, 4000).astype("f4"), r.uniform(-9, 9, 4000).astype("f4")
    x, y = np.append(x, [5, -5, 6, -6, 1, 0, np.nan]), np.append(y, [3, 3, -3, -3, 0, 2, 2])
    x, y = np.append(x, [1, -1, 0, 1, -1, 0]), np.append(y, [np.inf] * 3 + [-np.inf] * 3)
    x, y = x.astype("f4"), y.astype("f4")
    got = run(body, x, y, machine=machine, lanes=lanes)
    np.testing.assert_array_equal(got, truth(x, y))


def test_powers_of_integers() -> None:
    x = np.array([0, 1, -1, 3, -7, 10], "i8")
    for n in range(8):
        got = run(lambda e, v: vm.ipow(e, v, n), x, output="i64")  # noqa: B023
        assert (got == x**n).all()


def oracle_uniform(seed: np.ndarray, *words: np.ndarray) -> np.ndarray:
    """Philox 4x32-10 with Python integers."""

    def one(seed: int, *words: int) -> float:
        low = 0xFFFFFFFF
        k0, k1 = seed & low, (seed >> 32) & low
        c = [w & low for w in words] + [0] * (4 - len(words))
        for step in range(10):
            if step:
                k0, k1 = (k0 + 0x9E3779B9) & low, (k1 + 0xBB67AE85) & low
            p0, p1 = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
            c = [(p1 >> 32) ^ c[1] ^ k0, p1 & low, (p0 >> 32) ^ c[3] ^ k1, p0 & low]
        return (c[0] >> 8) * 2.0**-24

    return np.array([one(*map(int, xs)) for xs in zip(seed, *words, strict=True)])


@on_machines
@pytest.mark.parametrize("count", range(5))
def test_uniform(count: int, machine: jit.Machine, lanes: int) -> None:
    r = np.random.default_rng(5)
    args = [r.integers(-(1 << 63), 1 << 63, 200) for _ in range(count + 1)]
    got = run(vm.uniform, *args, machine=machine, lanes=lanes)
    assert (got == oracle_uniform(*args)).all()
    wide = run(lambda e, *xs: vm.uniform(e, *xs, kind="f64"), *args, output="f64", lanes=0)
    assert (wide == oracle_uniform(*args)).all()


def test_uniform_of_scalars_and_lanes() -> None:
    """The seed and most words are the same in all lanes."""
    j = np.arange(100, dtype="i8")
    got = run(lambda e, v: vm.uniform(e, 2**40 + 5, 3, v), j)
    seed = np.full(100, 2**40 + 5)
    assert (got == oracle_uniform(seed, np.full(100, 3), j)).all()
    assert 0 <= got.min() < 0.1
    assert 0.9 < got.max() < 1


def test_uniform_is_the_known_philox() -> None:
    """The known answer of Random123 for key and counter 0."""
    zero = np.zeros(1, "i8")
    assert run(vm.uniform, zero, output="f32", lanes=0)[0] == (0x6627E8D5 >> 8) * 2.0**-24
