"""Calls that come again on a pretended GPU: new addresses, captures into graphs, and what is kept."""

from __future__ import annotations

import ctypes
import gc
import weakref

import numpy as np
import pytest

import tilec
from tests.backends.cuda import pretended
from tests.backends.cuda.compiler import needs_cpp
from tests.backends.cuda.pretended import on_device
from tests.programs import CAUSAL
from tilec.backends.cuda import driver, launch, prepared, words
from tilec.errors import ResourceError

pytestmark = needs_cpp

TWICE = """
kernel minima(X[M, N]) -> Y: f32[i, j]:
    p = softmax[j](X[i, j])
    q = softmax[i](p)
    Y = q * p
sizes M=5, N=70
"""


@pytest.fixture
def device(monkeypatch):
    monkeypatch.setattr(prepared, "_captured", {})
    monkeypatch.setattr(prepared, "_memory", [])
    return pretended.install(monkeypatch)


def there(kernel, seed, **sizes):
    return [on_device(a) for a in kernel.sample(seed, **sizes).values()]


def right(kernel, arrays, got):
    want = kernel.reference(*(np.asarray(a) for a in arrays))
    np.testing.assert_allclose(np.asarray(got), want, 1e-4, 1e-6)


@pytest.mark.parametrize("text", [CAUSAL, TWICE])
def test_other_arrays_of_one_layout(device, text):
    kernel = tilec.compile(text, target="cuda")
    sets = [there(kernel, seed) for seed in range(4)]
    for arrays in [*sets, *sets[::-1]]:
        right(kernel, arrays, kernel(*arrays))
    (plan,) = kernel._calls.known.values()
    (ready,) = plan.run.known.values()
    assert len(ready._kept) <= prepared.KEPT


def test_blocks_of_the_oldest_addresses_are_used_again(device, monkeypatch):
    monkeypatch.setattr(prepared, "KEPT", 2)
    kernel = tilec.compile(CAUSAL, target="cuda")
    sets = [there(kernel, seed) for seed in range(5)]
    outs = [on_device(np.zeros((1, 2, 20, 12), np.float32)) for _ in sets]
    for arrays, out in [*zip(sets, outs, strict=True)] * 2:
        right(kernel, arrays, kernel(*arrays, out=out))
    (plan,) = kernel._calls.known.values()
    for ready in plan.run.known.values():
        assert len(ready._kept) == 2


@pytest.mark.parametrize("text", [CAUSAL, TWICE])
def test_a_captured_call_runs_again_on_new_data(device, text):
    kernel = tilec.compile(text, target="cuda")
    arrays = there(kernel, 1)
    kernel(*arrays)
    device.stream, device.capturing = 9, {9: 41}
    out = kernel(*arrays)
    device.capturing = {}
    assert (np.asarray(out) == 7).all()  # nothing has run yet
    del kernel
    gc.collect()
    kernel = tilec.compile(text, target="cuda")
    for seed in (2, 3):
        for a, b in zip(arrays, kernel.sample(seed).values(), strict=True):
            np.asarray(a)[...] = b
        device.replay()
        right(kernel, arrays, out)
    assert len(prepared._captured) == 1
    assert len(prepared._memory) == 1


def test_the_kernels_of_a_call_overlap(device):
    kernel = tilec.compile(TWICE, target="cuda")
    kernel(*there(kernel, 1))
    assert len(device.follows) > 1
    assert device.follows == [False] + [True] * (len(device.follows) - 1)


def test_what_was_not_called_before_a_capture_cannot_be_captured(device):
    kernel = tilec.compile(CAUSAL, target="cuda")
    device.capturing = {0: 5}
    with pytest.raises(ResourceError, match="call it once before the capture"):
        kernel(*there(kernel, 1))
    device.capturing = {}
    kernel(*there(kernel, 1))
    device.capturing = {0: 5}
    kernel(*there(kernel, 1))


def test_words_belong_to_a_stream_or_to_a_capture(device):
    w = words.Words()
    asked = [(1, 0), (2, 0), (1, 100), (1, 101)]
    places = [w.of(*x) for x in asked]
    assert [w.of(*x) for x in asked] == places
    assert len(set(places)) == 4
    assert all(abs(a - places[0]) >= words.SLOT for a in places[1:])


def test_words_run_out_only_where_nothing_can_be_allocated(device):
    w = words.Words()
    w.of(0, 0)
    for n in range(1, words.SLOTS):
        w.of(0, n)
    with pytest.raises(ResourceError, match="once outside of any"):
        w.of(0, words.SLOTS)
    w.of(1, 0)
    w.of(0, words.SLOTS)


def test_streams_have_launches_of_their_own(device, monkeypatch):
    monkeypatch.setattr(prepared, "KEPT", 1)
    kernel = tilec.compile(CAUSAL, target="cuda")
    arrays, streams = there(kernel, 1), []
    begin = device.cuLaunchKernelEx
    monkeypatch.setattr(
        device, "cuLaunchKernelEx", lambda s, *a: streams.append(s._obj.stream) or begin(s, *a)
    )
    for device.stream in (3, 4, 4, 3):
        right(kernel, arrays, kernel(*arrays))
    assert streams == [3, 4, 4, 3]


def test_no_array_of_the_user_is_kept(device):
    kernel = tilec.compile(TWICE, target="cuda")
    arrays = there(kernel, 1)
    out = kernel(*arrays)
    seen = [weakref.ref(a) for a in (*arrays, out)]
    del arrays, out
    gc.collect()
    assert [r() for r in seen] == [None] * len(seen)


class Function:
    ptr = 5


class Driver:
    """A driver whose launches are noted, and fail from the second on where there is a status for that."""

    def __init__(self, status: int = 0) -> None:
        self.status = status
        self.begun: list[tuple[int, bool, int]] = []

    def cuLaunchKernelEx(self, settings, function, table, extra) -> int:
        assert function == Function.ptr
        assert extra is None
        s = settings._obj
        assert list(s.grid)[1:] == list(s.block)[1:] == [1, 1]
        self.begun.append((s.grid[0], s.count == 1 and bool(s.attributes), s.stream or 0))
        return self.status if len(self.begun) > 1 else 0

    def cuGetErrorName(self, status, place) -> int:
        ctypes.c_char_p.from_address(place).value = b"NAME"
        return 0

    cuGetErrorString = cuGetErrorName


@pytest.mark.parametrize(
    ("status", "text"),
    [
        (
            701,
            r"the launch of two \(schedule x=2\) failed \(NAME.*3 blocks of 128 threads, 1,024 b",
        ),
        (
            700,
            r"a kernel failed.*NAME.*launched last: two \(schedule x=2\), one.*CUDA_LAUNCH_BLOCKING",
        ),
    ],
)
def test_failures_name_kernels_and_schedules(monkeypatch, status, text):
    library = Driver(status)
    monkeypatch.setattr(driver, "library", lambda: library)
    launch.recent.clear()
    one, two = (
        launch.Kernel(Function, "one", 64, 0),
        launch.Kernel(Function, "two", 128, 1024, "schedule x=2"),
    )
    with pytest.raises(ResourceError, match=text):
        launch.start([one.launch(1, 0, 0), two.launch(3, 0, 0)])


def test_a_kernel_that_waits_may_begin_before_the_one_before_it_is_done(monkeypatch):
    library = Driver()
    monkeypatch.setattr(driver, "library", lambda: library)
    one, old = (
        launch.Kernel(Function, "one", 64, 0, in_turn=True),
        launch.Kernel(Function, "old", 64, 0),
    )
    asked = ((one, 2, 7, False), (one, 3, 7, True), (old, 4, 7, True), (one, 3, 8, True))
    launches = [k.launch(blocks, 0, stream, follows) for k, blocks, stream, follows in asked]
    for _ in range(2):
        launch.start(launches)
    assert library.begun == [(2, False, 7), (3, True, 7), (4, False, 7), (3, True, 8)] * 2


def test_settings_are_those_of_the_driver():
    bindings = pytest.importorskip("cuda.bindings.driver")
    want = bindings.CUlaunchConfig()
    want.gridDimX, want.gridDimY, want.gridDimZ = 7, 1, 1
    want.blockDimX, want.blockDimY, want.blockDimZ = 128, 1, 1
    want.sharedMemBytes, want.hStream = 1024, bindings.CUstream(99)
    early = bindings.CUlaunchAttribute()
    early.id = bindings.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION
    early.value.programmaticStreamSerializationAllowed = 1
    want.attrs, want.numAttrs = [early], 1
    size = ctypes.sizeof(driver.Settings)
    made = driver.settings(7, 128, 1024, 99, early=True)
    got = driver.Settings.from_buffer_copy(ctypes.string_at(want.getPtr(), size))
    attribute = ctypes.string_at(made.attributes, ctypes.sizeof(driver.Attribute))
    assert attribute == ctypes.string_at(early.getPtr(), len(attribute))
    got.attributes = made.attributes
    assert bytes(got) == bytes(made)
    assert not driver.settings(7, 128, 1024, 99, early=False).count
