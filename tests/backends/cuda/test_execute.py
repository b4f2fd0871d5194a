"""Calls on GPU arrays, with a device that is pretended: its memory is this computer's, its kernels run on the host."""

from __future__ import annotations

import numpy as np
import pytest

import tilec
from tests.backends.cuda import pretended
from tests.backends.cuda.compiler import needs_cpp
from tests.backends.cuda.pretended import Device, on_device
from tests.programs import CAUSAL
from tilec.errors import ArgumentError, UnsupportedError

pytestmark = needs_cpp

NEGATIVE = """
kernel minima(X[M, N]) -> Y: f32[i, j]:
    p = softmax[j](X[i, j])
    q = softmax[i](p)
    Y = q * p
sizes M=5, N=300
"""


@pytest.fixture
def device(monkeypatch):
    """Pretends a device of compute capability 8.0."""
    return pretended.install(monkeypatch)


def test_arrays_choose_the_target(device):
    kernel = tilec.compile(CAUSAL)
    arrays = kernel.sample(1)
    want = kernel(**arrays)
    got = kernel(**{n: on_device(a) for n, a in arrays.items()})
    assert isinstance(got, Device)
    np.testing.assert_allclose(np.asarray(got), want, 1e-5, 1e-6)
    assert device.launches == [("causal_0", 2)]


def test_intermediate_tensors_and_repeated_calls(device):
    kernel = tilec.compile(NEGATIVE, target="cuda")
    for seed in (1, 1, 2):
        arrays = kernel.sample(seed)
        got = kernel(on_device(arrays["X"]))
        np.testing.assert_allclose(np.asarray(got), kernel.reference(**arrays), 1e-4, 1e-6)
    assert len({name for name, _ in device.launches}) > 1
    (plan,) = kernel._calls.known.values()
    assert len(plan.run.known) == 1


def test_nothing_to_do_launches_nothing(device):
    kernel = tilec.compile(CAUSAL, target="cuda")
    arrays = kernel.sample(1, B=0)
    assert kernel(**{n: on_device(a) for n, a in arrays.items()}).shape == (0, 2, 20, 12)
    assert device.launches == []


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
