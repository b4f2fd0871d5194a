"""Calls that look like earlier ones: none is taken for another."""

from __future__ import annotations

import gc
import weakref

import numpy as np
import pytest

import tilec
from tests.programs import CAUSAL
from tilec import repeat
from tilec.backends.cpu import pool
from tilec.errors import ArgumentError

SUM = """
kernel total(X[M, N], s: float = 1.0, n: int = 1, flip: bool = false) -> Y: f32[i]:
    y = sum[j](X[i, j]) * s + n
    Y = -y if flip else y
sizes M=3, N=5
"""


@pytest.fixture
def total():
    return tilec.compile(SUM, target="cpu")


@pytest.fixture
def torch():
    return pytest.importorskip("torch")


def seen(kernel):
    return len(kernel._calls.repeats._ready)


def want(x, s=1.0, n=1, flip=False):
    y = np.asarray(x, np.float64).sum(1) * s + n
    return -y if flip else y


def array(seed=0, shape=(3, 5)):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def test_the_second_call_is_a_repeat_and_gives_the_same(total):
    for seed in range(5):
        x = array(seed)
        np.testing.assert_allclose(total(x), want(x), 1e-5, 1e-5)
    assert seen(total) == 1


def test_scalars_tell_calls_apart(total):
    x = array()
    for s in (1.0, 0.0, -0.0, 2, True, float("inf"), np.float32(3), 1.0):
        np.testing.assert_allclose(total(x, s=s), want(x, float(s)), 1e-5, 1e-5)
    for n in (0, 1, True, -5, 3.0, np.int64(7)):
        np.testing.assert_allclose(total(x, n=n), want(x, n=int(n)), 1e-5, 1e-5)
    for flip in (True, False, True):
        np.testing.assert_allclose(total(x, flip=flip), want(x, flip=flip), 1e-5, 1e-5)
    for _ in range(2):
        with pytest.raises(ArgumentError, match="flip"):
            total(x, flip=2)
    np.testing.assert_allclose(total(s=0.5, X=x, n=2), want(x, 0.5, 2), 1e-5, 1e-5)
    np.testing.assert_allclose(total(n=2, X=x, s=0.5), want(x, 0.5, 2), 1e-5, 1e-5)


def test_layouts_and_types_tell_calls_apart(total):
    x = array(shape=(6, 10))
    views = [x[:3, :5], x[::2, ::2], x[2::-1, 4::-1], x[:3, :1], x[:0, :5], x[:3, 1:6]]
    views += [x[:3, :5].astype(t) for t in (np.float64, np.float16)]
    views += [np.broadcast_to(np.float32(2), (3, 5)), x.T[:3, :5]]
    for _ in range(2):
        for v in views:
            np.testing.assert_allclose(total(v), want(v), 1e-2, 1e-2)


def test_arrays_that_must_be_copied_are_copied_each_time(total):
    fields = np.zeros((3, 5), dtype=[("pad", "i1"), ("x", "f4")])
    for seed in range(3):
        fields["x"] = array(seed)
        np.testing.assert_allclose(total(fields["x"]), want(fields["x"]), 1e-5, 1e-5)
    assert seen(total) == 0


def test_mistakes_stay_mistakes_after_a_good_call(total):
    x = array()
    out = np.empty(3, np.float32)
    for _ in range(2):
        assert total(x, out=out) is out
        np.testing.assert_allclose(out, want(x), 1e-5, 1e-5)
    for arguments in ({"Z": x}, {"X": x, "m": 1}, {}, {"X": [1.0]}):
        with pytest.raises(ArgumentError):
            total(**arguments)
    with pytest.raises(ArgumentError, match="twice"):
        total(x, X=x)
    with pytest.raises(ArgumentError, match="takes 1 tensors"):
        total(x, x)
    with pytest.raises(ArgumentError, match="shares memory"):
        total(x, out=x.reshape(-1)[:3])
    fixed = np.empty(3, np.float32)
    fixed.flags.writeable = False
    with pytest.raises(ArgumentError, match="cannot be written"):
        total(x, out=fixed)
    with pytest.raises(ArgumentError, match="shape"):
        total(x, out=np.empty(4, np.float32))
    with pytest.raises(ArgumentError, match="object of type tuple"):
        total(x, out=(out,))


def test_an_output_between_the_rows_of_an_input_is_no_overlap(total):
    whole = array(shape=(3, 6))
    x, out = whole[:, :5], whole[:, 5]
    for _ in range(2):
        expected = want(x)
        np.testing.assert_allclose(total(x, out=out), expected, 1e-5, 1e-5)


def test_no_more_calls_are_kept_than_promised(total, monkeypatch):
    monkeypatch.setattr(repeat, "KEPT", 3)
    for _ in range(2):
        for n in range(1, 6):
            x = array(n, (3, n))
            np.testing.assert_allclose(total(x), want(x), 1e-5, 1e-5)
            assert seen(total) <= 3


def test_no_array_is_kept(torch):
    kernel = tilec.compile(CAUSAL, target="cpu")
    for make in (lambda: array(0, (1, 1, 4, 8)), lambda: torch.zeros(1, 1, 4, 8)):
        for _ in range(2):
            x = make()
            refs = [weakref.ref(x), weakref.ref(kernel(x, x, x))]
            del x
            gc.collect()
            assert [r() for r in refs] == [None, None]


def test_torch_tensors_that_look_alike(total, torch):
    x = torch.from_numpy(array())
    np.testing.assert_allclose(total(x), want(x), 1e-5, 1e-5)
    negative = torch._neg_view(x)
    np.testing.assert_allclose(total(negative), want(-x), 1e-5, 1e-5)
    with torch.no_grad():
        parameter = torch.nn.Parameter(x)
        np.testing.assert_allclose(total(parameter), want(x), 1e-5, 1e-5)
    with pytest.raises(ArgumentError):
        total(torch.empty(3, 5, device="meta"))


@pytest.mark.filterwarnings("ignore:Accessing the data pointer")
def test_no_result_is_written_to_a_fake_tensor(total, torch):
    fake = pytest.importorskip("torch._subclasses.fake_tensor")
    x = torch.from_numpy(array())
    total(x)
    with fake.FakeTensorMode(), pytest.raises(ArgumentError, match="memory of its own"):
        total(x)
    assert total(x[:0]).shape == total(x[:0]).shape == (0,)


def test_a_tensor_that_needs_a_gradient_is_refused(total, torch):
    x = torch.from_numpy(array())
    for _ in range(2):
        with pytest.raises(ArgumentError, match=r"argument X: .*X\.detach\(\).*no_grad"):
            total(x.clone().requires_grad_())
        total(x)
    out = torch.empty(3)
    total(x, out=out)
    with pytest.raises(ArgumentError, match=r"out \(Y\): it requires a gradient"):
        total(x, out=torch.empty(3, requires_grad=True))
    with torch.no_grad():
        needs = x.clone().requires_grad_()
        np.testing.assert_allclose(total(needs), want(x), 1e-5, 1e-5)
        assert not total(needs).requires_grad
    np.testing.assert_allclose(total(x.requires_grad_().detach()), want(x.detach()), 1e-5, 1e-5)


def test_calls_from_threads_at_once(total):
    from concurrent.futures import ThreadPoolExecutor

    xs = [array(n, (3, 5)) for n in range(16)]

    def run(n):
        return np.asarray(total(xs[n % 16]))

    with ThreadPoolExecutor(4) as pool:
        got = list(pool.map(run, range(200)))
    for n, y in enumerate(got):
        np.testing.assert_allclose(y, want(xs[n % 16]), 1e-5, 1e-5)


def test_a_repeat_is_cut_for_the_threads_there_are(monkeypatch):
    if pool.threads() < 2:
        pytest.skip("one processor")
    monkeypatch.setenv("TILEC_NUM_THREADS", "1")
    kernel = tilec.compile(CAUSAL, target="cpu")
    data = kernel.sample(B=1, H=1, M=1, N=16384, D=8, E=8)
    want = kernel.reference(**data)
    cuts = []
    for threads in "1", "1", "2", "2", "1":
        monkeypatch.setenv("TILEC_NUM_THREADS", threads)
        np.testing.assert_allclose(kernel(**data), want, atol=1e-5)
        cuts.append((len(kernel._calls.known), seen(kernel)))
    assert cuts == [(1, 1), (1, 1), (2, 1), (2, 1), (2, 1)]
    one, two = (p.ir for p in kernel._calls.known.values())
    assert one != two
