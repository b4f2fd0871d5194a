"""What is known of programs: a process that finds it makes no IR, and says the same of every call."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import tilec
from tilec import cache, check, parse, pipeline, plain, sources
from tilec.backends.cpu import image, processor
from tilec.shelf import Shelf

ROOT = Path(__file__).resolve().parents[1]
PROGRAM = """sizes B=1, H=4, HK=2, M=5, N=7, D=8, E=6, P=3

kernel f(Q[B, H, M, D], K[B, HK, N, D], V[B, HK, N, E], len: i32[B], T[P], n: int = 0) -> O[b, h, i, e], L: f32[b, h, i]:
    assert H % HK == 0, "query heads must be a multiple of key heads"
    S = sum[d](Q[b, h, i, d] * K[b, h // (H // HK), j, d]) / sqrt(D) + T[clamp(j, 0, 2) + n]
    S = S if j < len[b] else -inf
    O = sum[j](softmax[j](S) * V[b, h // (H // HK), j, e])
    L = logsumexp[j](S)

kernel g(X[N]) -> Y[i]:
    Y = X[i] + 1
"""
WRONG = {
    "missing": {"V": None},
    "unknown": {"W": np.zeros(1, "f4")},
    "rank": {"T": np.zeros((3, 1), "f4")},
    "dimension": {"V": np.zeros((1, 2, 8, 6), "f4")},
    "type": {"len": np.zeros(1, "i8")},
    "no type": {"T": np.zeros(3, "c8")},
    "assertion": {"K": np.zeros((1, 3, 7, 8), "f4"), "V": np.zeros((1, 3, 7, 6), "f4")},
    "bounds": {"n": 1},
    "bounds below": {"n": -2},
    "scalar": {"n": 0.5},
    "huge scalar": {"n": 1 << 63},
    "out": {"out": np.zeros((1, 4, 5, 6), "f4")},
    "no array": {"Q": 3},
}


@pytest.fixture(autouse=True)
def _empty(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TILEC_CACHE_DIR", str(tmp_path / "cache"))


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "f.tile"
    path.write_text(PROGRAM)
    return path


def arguments(**other: object) -> dict[str, object]:
    rng = np.random.default_rng(0)
    shapes = {"Q": (1, 4, 5, 8), "K": (1, 2, 7, 8), "V": (1, 2, 7, 6), "T": (3,)}
    given: dict[str, object] = {n: rng.standard_normal(s, "f4") for n, s in shapes.items()}
    given |= {"len": np.array([6], "i4"), **other}
    return {n: x for n, x in given.items() if x is not None}


def message(file: Path, **other: object) -> str:
    with pytest.raises(tilec.TilecError) as e:
        tilec.load(file, target="cpu")(**arguments(**other))
    return f"{type(e.value).__name__}: {e.value}"


def forbid(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing may be parsed or passed from here on."""

    def fail(*_: object, **__: object) -> None:
        raise AssertionError("made again")

    monkeypatch.setattr(parse, "parse", fail)
    monkeypatch.setattr(check, "lower", fail)
    monkeypatch.setattr(pipeline, "run", fail)


def test_calls_find_what_earlier_ones_found(file: Path, monkeypatch: pytest.MonkeyPatch):
    first = tilec.load(file, target="cpu")
    want = first(**arguments())
    seen = first.parameters, first.outputs, first.dims, first.axes, first.siblings, repr(first)
    forbid(monkeypatch)
    again = tilec.load(file, target="cpu")
    assert seen == (
        again.parameters, again.outputs, again.dims, again.axes, again.siblings, repr(again),
    )  # fmt: skip
    for a, b in zip(want, again(**arguments()), strict=True):
        np.testing.assert_array_equal(a, b)
    with pytest.raises(AssertionError, match="made again"):
        again.ir()
    with pytest.raises(AssertionError, match="made again"):
        tilec.compile(PROGRAM + "\n", target="cpu")


@pytest.mark.parametrize("wrong", WRONG)
def test_mistakes_read_the_same(wrong: str, file: Path, monkeypatch: pytest.MonkeyPatch):
    tilec.load(file, target="cpu")(**arguments())
    tilec.compile(PROGRAM, target="cpu")
    tmp = file.parent / "cache"
    known = message(file, **WRONG[wrong])
    monkeypatch.setenv("TILEC_CACHE_DIR", str(tmp.with_name("other")))
    assert message(file, **WRONG[wrong]) == known
    if "bounds" in wrong:
        assert str(file) in known
        assert "clamp(j, 0, 2) + n" in known


def test_the_place_of_a_mistake_is_in_the_file_that_is_read(file: Path):
    moved = file.with_name("moved.tile")
    moved.write_text(PROGRAM)
    for wrong in (WRONG["bounds"], WRONG["assertion"]):
        first, second = message(file, **wrong), message(moved, **wrong)
        assert str(moved) in second
        assert second.replace(str(moved), str(file)) == first


def test_all_of_it_can_be_looked_at_after_a_hit(file: Path):
    cold, plan = tilec.load(file, target="cpu"), tilec.load(file, target="cpu").plan(**arguments())
    warm = tilec.load(file, target="cpu")
    assert warm.plan(**arguments()).ir == plan.ir == cold.plan(**arguments()).ir
    assert warm.ir(after="online") == cold.ir(after="online")
    assert warm.signature == cold.signature
    assert warm.text == PROGRAM
    np.testing.assert_allclose(warm(**arguments())[0], warm.reference(**arguments())[0], 2e-5, 2e-5)
    assert warm.sibling("g").siblings == ("f", "g")


def test_a_damaged_row_is_made_anew(file: Path):
    want = tilec.load(file, target="cpu")(**arguments())
    rows = list(cache.directory("rows").iterdir())
    assert len(rows) >= 4
    for damage in (lambda data: data[:-1], lambda data: b"", lambda data: data + b"x"):
        for p in rows:
            p.write_bytes(damage(p.read_bytes()))
        got = tilec.load(file, target="cpu")(**arguments())
        np.testing.assert_array_equal(got[0], want[0])
        assert all(cache.read(p) is not None for p in rows)


@pytest.mark.parametrize(
    "text", ['["Facts"]', '["os", 1]', "[]", "{}", "7", '["Facts",1,2', "null"]
)
def test_a_row_of_another_form_is_made_anew(text: str, file: Path):
    tilec.load(file)
    (row,) = cache.directory("rows").iterdir()
    good = row.read_bytes()
    cache.write(row, cache.Entry(b"", text))
    assert tilec.load(file).name == "f"
    assert row.read_bytes() == good


def test_rows_that_others_may_write_are_not_read(file: Path):
    tilec.load(file)
    (row,) = cache.directory("rows").iterdir()
    row.chmod(0o666)
    assert cache.read(row) is None
    assert tilec.load(file).name == "f"


def test_without_a_folder_nothing_is_kept(file: Path, monkeypatch: pytest.MonkeyPatch):
    (file.parent / "no").write_text("")
    monkeypatch.setenv("TILEC_CACHE_DIR", str(file.parent / "no" / "folder"))
    assert len(tilec.load(file, target="cpu")(**arguments())) == 2


def test_without_a_home_programs_can_be_looked_at(file: Path, monkeypatch: pytest.MonkeyPatch):
    def fail() -> Path:
        raise RuntimeError("no home")

    monkeypatch.delenv("TILEC_CACHE_DIR")
    monkeypatch.setattr(Path, "home", fail)
    assert tilec.load(file).ir()
    assert len(tilec.load(file, target="reference")(**arguments())) == 2


def test_a_program_with_mistakes_has_no_row():
    for _ in range(2):
        with pytest.raises(tilec.SourceError, match="<text>:2:"):
            tilec.compile("kernel f(X[N]) -> Y[i]:\n    Y = Z[i]\n")
    assert not cache.rows() or all("sources" in str(p) for p in cache.rows())


def test_choices_have_rows_of_their_own(file: Path):
    kernels = [
        tilec.load(file, target="cpu", tile=tile, schedule=schedule)
        for tile in (None, {"i": 2, "j": 4}, {"i": 4, "j": 4})
        for schedule in (None, {"workers": 3})
    ]
    for _ in range(2):
        found = [k.plan(**arguments()).tiles.outline.digest for k in kernels]
        kernels = [
            tilec.load(file, target="cpu", tile=k._tile, schedule=k._schedule) for k in kernels
        ]
    assert len(set(found)) >= 3
    tiles = [k.plan(**arguments()).ir for k in kernels]
    assert [Shelf and digest(t) for t in tiles] == found


def digest(kernel: object) -> str:
    from tilec import outline

    return outline.digest(kernel)  # type: ignore[arg-type]


def test_another_length_needs_no_other_row(file: Path, monkeypatch: pytest.MonkeyPatch):
    kernel = tilec.load(file, target="cpu")
    kernel(**arguments())
    forbid(monkeypatch)
    longer = arguments(K=np.ones((1, 2, 9, 8), "f4"), V=np.ones((1, 2, 9, 6), "f4"))
    out, _ = tilec.load(file, target="cpu")(**longer)
    np.testing.assert_allclose(out, np.ones_like(out), rtol=1e-6)


def test_a_new_process_loads_neither_the_parser_nor_the_passes(file: Path):
    script = f"""
import sys
import numpy as np
import tilec
a = np.ones((1, 4, 5, 8), "f4"); k = np.ones((1, 2, 7, 8), "f4"); t = np.ones(3, "f4")
tilec.load({str(file)!r}, target="cpu")(a, k, k, np.array([6], "i4"), t)
print(*(m for m in sys.modules if m.startswith(("lark", "llvmlite.", "networkx", "tilec"))))
"""
    runs = [
        subprocess.run(
            [sys.executable, "-c", script], check=True, capture_output=True, text=True, cwd=ROOT
        ).stdout.split()
        for _ in range(2)
    ]
    made = {"lark", "tilec.parse", "tilec.check", "tilec.text", "tilec.verify", "tilec.passes.tile"}
    made |= {"tilec.backends.cpu.lower", "tilec.tuning.store"}
    assert made - {"tilec.tuning.store"} <= set(runs[0])
    assert not made & set(runs[1])
    assert "llvmlite.binding" in runs[0]
    if image.known(processor.host().triple):
        assert "llvmlite.binding" not in runs[1]


# ---- the form


def values() -> Iterator[object]:
    from tilec.ir import ABSENT, Axis, Cast, Map, Tensor, Type, Value
    from tilec.scalar import Scalar

    size: Scalar = ("add", ("mul", "M", 2), 1)
    x = Value("x", Type("f32", ("i",)))
    yield Tensor("X", "f32", ("M", size, 3))
    yield Axis("i", size)
    yield Map((x,), "select", (True, float("-inf"), ABSENT))
    yield Cast((x,), "y", to="f16")
    yield {"a": (), "b": (1, 1.0, True, None, "1", -0.0, 1 << 70)}


def test_what_is_written_is_read():
    from tilec import outline

    for x in values():
        found = plain.read(plain.write(x), outline.OPS)
        assert found == x
        assert repr(found) == repr(x)
    with pytest.raises(KeyError):
        plain.read(plain.write(next(values())), {})


# ---- the sources


def test_a_changed_source_has_another_hash(tmp_path: Path):
    a, b = tmp_path / "a.py", tmp_path / "b.py"
    a.write_text("1")
    b.write_text("2")

    def digest() -> str:
        return sources.digest(sources.below([str(tmp_path)]))

    first = digest()
    assert sources.digest({str(x): sources.stamp(str(x)) for x in (b, a)}) == first
    b.write_text("3")
    assert digest() != first
    b.write_text("2")
    assert digest() == first
