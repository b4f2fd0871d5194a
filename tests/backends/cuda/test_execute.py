"""Calls on GPU arrays, with a device that is pretended: its memory is this computer's, its kernels run on the host."""

from __future__ import annotations

import contextlib
import ctypes
from types import SimpleNamespace

import numpy as np
import pytest

import tilec
from tests.backends.cuda import host
from tests.programs import CAUSAL
from tilec import gpu
from tilec.arrays import Array, numpy_dtype, view
from tilec.backends.cuda import execute, launch, nvrtc
from tilec.errors import ArgumentError, UnsupportedError

pytestmark = pytest.mark.skipif(
    host.COMPILER is None, reason="no g++ here to run kernels on the host"
)

NEGATIVE = """
kernel minima(X[M, N]) -> Y: f32[i, j]:
    p = softmax[j](X[i, j])
    q = softmax[i](p)
    Y = q * p
sizes M=5, N=300
"""


class Device(np.ndarray):
    """An array that is said to be on a GPU."""

    number = 0
    __cuda_array_interface__ = property(lambda self: {})


def on_device(a, number=0):
    out = np.asarray(a).view(Device)
    out.number = number
    return out


def see(name, x):
    if not isinstance(x, Device):
        raise ArgumentError(f"argument {name}: expected an array on a CUDA device")
    a = view(name, np.asarray(x))
    return Array(a.pointer, a.dtype, a.shape, a.strides, x, "cupy", True, x.number)


@pytest.fixture
def device(monkeypatch):
    """Pretends a device of compute capability 8.0; gives the list of launches."""
    launches: list[tuple[str, int]] = []

    class Kernel:
        def __init__(self, library, name):
            self.entry, self.name = getattr(library, f"run_{name}"), name

        def __call__(self, blocks, arguments, stream):
            launches.append((self.name, blocks))
            packed = ctypes.create_string_buffer(arguments[0].tobytes())
            self.entry(packed, ctypes.c_int64(blocks), 0, 1)

    def load(image, functions):
        names = [f[0] for f in functions]
        library = host.build(image.decode(), names)
        return [Kernel(library, n) for n in names]

    def empty(library, number, shape, dtype):
        return see("out", on_device(np.full(shape, 7, numpy_dtype(dtype)), number))

    def memory(size, dtype):
        a = np.empty(size, dtype)
        return SimpleNamespace(data=SimpleNamespace(ptr=a.ctypes.data), owner=a)

    monkeypatch.setattr(gpu, "view", see)
    monkeypatch.setattr(gpu, "empty", empty)
    monkeypatch.setattr(
        "tilec.kernel.device_of", lambda x: "cuda" if isinstance(x, Device) else "cpu"
    )
    monkeypatch.setattr(launch, "capability", lambda number: 80)
    monkeypatch.setattr(launch, "processors", lambda number: 1)
    monkeypatch.setattr(launch, "on", lambda number: contextlib.nullcontext())
    monkeypatch.setattr(launch, "stream", lambda library, number: None)
    monkeypatch.setattr(launch, "cupy", lambda: SimpleNamespace(empty=memory))
    monkeypatch.setattr(launch, "load", load)
    monkeypatch.setattr(
        execute,
        "compiled",
        lambda code: [nvrtc.Compiled(u.text.encode(), {}, ()) for u in code.units],
    )
    return launches


def test_arrays_choose_the_target(device):
    kernel = tilec.compile(CAUSAL)
    arrays = kernel.sample(1)
    want = kernel(**arrays)
    got = kernel(**{n: on_device(a) for n, a in arrays.items()})
    assert isinstance(got, Device)
    np.testing.assert_allclose(np.asarray(got), want, 1e-5, 1e-6)
    assert device == [("causal_0", 2)]


def test_intermediate_tensors_and_repeated_calls(device):
    kernel = tilec.compile(NEGATIVE, target="cuda")
    for seed in (1, 1, 2):
        arrays = kernel.sample(seed)
        got = kernel(on_device(arrays["X"]))
        np.testing.assert_allclose(np.asarray(got), kernel.reference(**arrays), 1e-4, 1e-6)
    assert len({name for name, _ in device}) > 1
    (plan,) = kernel._plans.values()
    assert len(plan.run.templates) == 1


def test_nothing_to_do_launches_nothing(device):
    kernel = tilec.compile(CAUSAL, target="cuda")
    arrays = kernel.sample(1, B=0)
    assert kernel(**{n: on_device(a) for n, a in arrays.items()}).shape == (0, 2, 20, 12)
    assert device == []


def test_out(device):
    kernel = tilec.compile(CAUSAL, target="cuda")
    arrays = {n: on_device(a) for n, a in kernel.sample(1).items()}
    out = on_device(np.zeros((1, 2, 20, 12), np.float32))
    assert kernel(**arrays, out=out) is out
    assert np.asarray(out).any()
    with pytest.raises(ArgumentError, match="shares memory"):
        kernel(**arrays, out=arrays["V"][:, :, :20])


def test_refusals(device):
    kernel = tilec.compile(CAUSAL, target="cuda")
    arrays = kernel.sample(1)
    with pytest.raises(ArgumentError, match="Q: expected an array on a CUDA device"):
        kernel(**arrays)
    there = {n: on_device(a) for n, a in arrays.items()}
    with pytest.raises(ArgumentError, match="device 1, others on 0"):
        kernel(**there | {"K": on_device(arrays["K"], 1)})
    with pytest.raises(UnsupportedError, match="sm_90a.*sm_80"):
        tilec.compile(CAUSAL, target="cuda:sm_90a", schedule={"emitter": "simt"})(**there)
    with pytest.raises(UnsupportedError, match="emitter=hopper"):
        tilec.compile(CAUSAL, target="cuda", schedule={"emitter": "hopper"})(**there)
