"""What `compile` and the sizes of a kernel are given: anything of the wrong kind is named."""

from typing import Any

import numpy as np
import pytest

import tilec

TEXT = "kernel total(Q[M, D]) -> O[i]:\n    O = sum[d](Q[i, d])\nsizes M=3, D=2\n"
Q = np.ones((3, 2), np.float32)


@pytest.mark.parametrize(
    ("choices", "said"),
    [
        ({"tile": {"i": 2.5}}, "expected an integer of 1 or more for axis i, got 2.5"),
        ({"tile": {"i": None}}, "expected an integer of 1 or more for axis i, got None"),
        ({"tile": {"i": 0}}, "expected an integer of 1 or more for axis i, got 0"),
        ({"tile": 3}, "tile: expected a dict"),
        ({"tile": {3: 4}}, "tile: an axis: expected a str"),
        ({"tile": {"x": 4}}, "tile: total has no axis 'x'; its axes are i, d"),
        ({"schedule": 3}, "schedule: expected a dict"),
        ({"target": 3}, "target: expected a str"),
        ({"name": 3}, "name: expected a str"),
    ],
)
def test_a_choice_of_the_wrong_kind_is_named(choices: dict[str, Any], said: str) -> None:
    with pytest.raises(tilec.ArgumentError, match=said):
        tilec.compile(TEXT, **choices)


def test_text_and_path_must_be_texts() -> None:
    wrong: Any = None
    with pytest.raises(tilec.ArgumentError, match="the program's text: expected a str"):
        tilec.compile(wrong)
    with pytest.raises(tilec.ArgumentError, match="path: expected"):
        tilec.load(wrong)
    with pytest.raises(tilec.ArgumentError, match="the path 'examples/causal.tile'; tilec.load"):
        tilec.compile("examples/causal.tile")


def test_a_file_that_is_not_there_may_be_another(tmp_path) -> None:
    (tmp_path / "total.tile").write_text(TEXT)
    for name, said in (
        ("totals.tile", r"did you mean .*total\.tile\?"),
        ("total.tile:total", "name='total'"),
        ("none/total.tile", "there is no folder"),
    ):
        with pytest.raises(tilec.ArgumentError, match=said):
            tilec.load(tmp_path / name)


def test_an_element_type_that_differs_is_named_with_the_remedy() -> None:
    kernel = tilec.compile("kernel f(X[N], n: i32[N]) -> Y[i]:\n    Y = X[i] + n[i]\n")
    with pytest.raises(tilec.ArgumentError, match=r"type i32, got i64: .* declare n: i64\[…\]"):
        kernel(np.ones(3, np.float32), np.ones(3, np.int64))


def test_an_integer_of_numpy_is_a_tile_extent() -> None:
    tile: Any = {"i": np.int64(2)}
    np.testing.assert_array_equal(tilec.compile(TEXT, target="cpu", tile=tile)(Q), [2, 2, 2])


@pytest.mark.parametrize("size", [2.5, -1, "x", None, 1 << 70])
def test_a_size_is_an_integer_of_0_or_more(size: Any) -> None:
    kernel = tilec.compile(TEXT)
    for use in (kernel.ir, kernel.sample, kernel.source, kernel.traffic):
        with pytest.raises(tilec.ArgumentError, match="size M: expected an integer"):
            use(M=size)


def test_a_size_of_another_kernel_is_an_error() -> None:
    with pytest.raises(tilec.ArgumentError, match="no dimension 'N'; its dimensions are M, D"):
        tilec.compile(TEXT).ir(N=3)


def test_a_seed_and_an_element_type_are_checked() -> None:
    kernel, wrong = tilec.compile(TEXT), "f99"
    with pytest.raises(tilec.ArgumentError, match="dtype: expected one of f64"):
        kernel.sample(dtype=wrong)  # type: ignore[arg-type]
    with pytest.raises(tilec.ArgumentError, match="seed: expected an integer of 0 or more, got -1"):
        kernel.sample(seed=-1)
