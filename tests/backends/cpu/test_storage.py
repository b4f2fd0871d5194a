"""Conversions between storage types and arithmetic, bit by bit against NumPy and ml_dtypes."""

from __future__ import annotations

import numpy as np
import pytest

from tests.backends.cpu.harness import IDS, MACHINES, numpy_type, run
from tilec.backends.cpu import jit, storage
from tilec.dtypes import DType

FLOATS: list[DType] = ["f16", "bf16", "f8e4m3", "f8e5m2"]
INTEGERS: list[DType] = ["i64", "i32", "i16", "i8", "u8"]

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")
on_machines = pytest.mark.parametrize(("machine", "lanes"), MACHINES, ids=IDS)


def equal(got: np.ndarray, want: np.ndarray) -> None:
    """The same bits, but any NaN for a NaN."""
    word = f"u{got.dtype.itemsize}"
    nan = np.isnan(want.astype("f8"))
    assert (np.isnan(got.astype("f8")) == nan).all()
    assert (got.view(word)[~nan] == want.view(word)[~nan]).all()


def hard_floats() -> np.ndarray:
    """Random bits, values near every narrow format's ties and limits, and the special ones."""
    r = np.random.default_rng(0)
    bits = r.integers(0, 1 << 32, 200_000, dtype=np.uint64).astype("u4").view("f4")
    every = np.arange(1 << 16, dtype="u2")
    seeds = [every.view(numpy_type(d)).astype("f4") for d in ("f16", "bf16")]
    eight = np.arange(256, dtype="u1")
    seeds += [eight.view(numpy_type(d)).astype("f4") for d in ("f8e4m3", "f8e5m2")]
    base = np.concatenate(seeds)
    ties = [((base.astype("f8") + np.roll(base, 1)) / 2).astype("f4")]
    near = [np.nextafter(ties[0], np.float32(s)) for s in (-np.inf, np.inf)]
    return np.concatenate([bits, base, *ties, *near]).astype("f4")


@on_machines
@pytest.mark.parametrize("dtype", FLOATS)
def test_widens_every_value(dtype: DType, machine: jit.Machine, lanes: int) -> None:
    bits = (
        np.arange(1 << 16, dtype="u2") if dtype in ("f16", "bf16") else np.arange(256, dtype="u1")
    )
    x = bits.view(numpy_type(dtype))
    equal(run(lambda e, v: v, x, machine=machine, lanes=lanes), x.astype("f4"))


@on_machines
@pytest.mark.parametrize("dtype", FLOATS)
def test_narrows_f32(dtype: DType, machine: jit.Machine, lanes: int) -> None:
    x = hard_floats()
    got = run(lambda e, v: v, x, output=dtype, machine=machine, lanes=lanes)
    equal(got, x.astype(numpy_type(dtype)))


@on_machines
@pytest.mark.parametrize("dtype", [*FLOATS, "f32"])
def test_narrows_f64(dtype: DType, machine: jit.Machine, lanes: int) -> None:
    """Ties of f16 and just beside them, by less than f32 can tell, are rounded once."""
    half = np.arange(0x7C00, dtype="u2").view("f2").astype("f8")
    ties = (half[1:] + half[:-1]) / 2
    x = np.concatenate([ties, ties * (1 + 1e-14), ties * (1 - 1e-14), -ties, hard_floats()])
    got = run(lambda e, v: v, x, output=dtype, machine=machine, lanes=lanes)
    equal(got, x.astype(numpy_type(dtype)))


@pytest.mark.parametrize("dtype", FLOATS)
def test_scalars_convert_alike(dtype: DType) -> None:
    x = hard_floats()[::7]
    want = x.astype(numpy_type(dtype))
    equal(run(lambda e, v: v, x, output=dtype, lanes=0), want)
    equal(run(lambda e, v: v, want, lanes=0), want.astype("f4"))


@pytest.mark.parametrize("dtype", FLOATS)
def test_rounded_is_there_and_back(dtype: DType) -> None:
    x = hard_floats()
    got = run(lambda e, v: storage.rounded(e, v, dtype), x)
    equal(got, x.astype(numpy_type(dtype)).astype("f4"))


@on_machines
@pytest.mark.parametrize("dtype", INTEGERS)
def test_integers(dtype: DType, machine: jit.Machine, lanes: int) -> None:
    """They widen exactly and wrap when narrowed; a float is truncated on the way."""
    r = np.random.default_rng(1)
    x = np.concatenate([r.integers(-(1 << 63), 1 << 63, 999), np.arange(-300, 300)])
    t = numpy_type(dtype)
    got = run(lambda e, v: v, x, output=dtype, machine=machine, lanes=lanes)
    assert (got == x.astype(t)).all()
    back = run(lambda e, v: v, got, output="i64", machine=machine, lanes=lanes)
    assert (back == got.astype("i8")).all()
    y = np.array([-2.9, -1.0, -0.5, 0.0, 0.9, 127.5, 3e9, -3e9, np.inf, -np.inf, np.nan], "f4")
    got = run(lambda e, v: v, y, output=dtype, machine=machine, lanes=lanes)
    smallest = np.iinfo("i8").min
    whole = [int(v) if np.isfinite(v) else smallest for v in y]
    assert (got == np.array(whole, "i8").astype(t)).all()


@on_machines
def test_booleans(machine: jit.Machine, lanes: int) -> None:
    x = np.array([True, False, True, True, False])
    options = {"machine": machine, "lanes": lanes}
    assert (run(lambda e, v: v, x, output="f32", **options) == [1, 0, 1, 1, 0]).all()
    assert (run(lambda e, v: v, x, output="i64", **options) == [1, 0, 1, 1, 0]).all()
    assert (run(lambda e, v: e.not_(v), x, output="bool", **options) == ~x).all()
    y = np.array([0.0, -0.0, 1e-45, np.nan, -3], "f4")
    got = run(lambda e, v: v, y, output="bool", **options)
    assert (got == [False, False, True, True, True]).all()
