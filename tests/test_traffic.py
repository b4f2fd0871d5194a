"""The byte budget: stated numbers by hand, and equal to what the interpreter counts."""

from __future__ import annotations

import numpy as np
import pytest

from tests.kernels import GROUPED, LENGTHS, LEVELS, TILED, WHOLE
from tilec.backends.reference.interpreter import run
from tilec.errors import ArgumentError
from tilec.reader import read
from tilec.traffic import budget, show

SIZES = [
    (2, 3, 37, 45, 8, 5),
    (1, 1, 1, 1, 1, 1),
    (1, 2, 50, 20, 4, 4),
    (1, 1, 0, 5, 2, 2),
    (1, 2, 5, 0, 2, 2),
    (0, 1, 2, 2, 2, 2),
]


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("numbers", SIZES, ids=str)
def test_stated_is_counted(level: str, numbers: tuple[int, ...]) -> None:
    sizes = dict(zip("BHMNDE", numbers, strict=True))
    dims = {"Q": "BHMD", "K": "BHND", "V": "BHNE"}
    arrays = {t: np.zeros([sizes[d] for d in ds]) for t, ds in dims.items()}
    (kernel,) = read(LEVELS[level])
    stated, counted = budget(kernel, sizes), run(kernel, arrays)
    assert stated.traffic == counted.traffic
    assert stated.work == counted.work


def test_bytes_of_whole_tensors() -> None:
    b = budget(read(WHOLE)[0], {"B": 1, "H": 2, "M": 3, "N": 5, "D": 7, "E": 4}).traffic
    # a view moves nothing, its reader does; c is one byte per element; t is an i64
    assert "q" not in b.reads
    assert (b.reads["qk"], b.writes["qk"]) == (2 * 3 * 7 * 4 + 2 * 5 * 7 * 4, 2 * 3 * 5 * 7 * 4)
    assert (b.reads["t"], b.writes["t"]) == (3 * 8, 3 * 8)
    assert (b.reads["c"], b.writes["c"]) == (3 * 8, 3 * 5)
    assert (b.reads["x"], b.writes["x"]) == (3 * 5 + 2 * 3 * 5 * 4, 2 * 3 * 5 * 4)
    assert (b.reads["r"], b.writes["r"]) == (0, 0)
    assert (b.reads["store O"], b.writes["store O"]) == (2 * 3 * 4 * 4, 2 * 3 * 4 * 4)


def test_operations_of_whole_tensors() -> None:
    work = budget(read(WHOLE)[0], {"B": 1, "H": 2, "M": 3, "N": 5, "D": 7, "E": 4}).work
    assert work.ops["fma"]["qk"] == 2 * 3 * 5 * 7, "a product is an operation per element"
    assert work.ops["fma"]["c"] == 3 * 5
    assert work.total("special") > 0


def test_operations_of_tiles() -> None:
    b = budget(read(TILED)[0], {"B": 2, "H": 1, "M": 64, "N": 64, "D": 2, "E": 4})
    # rows 0-31 see 2 windows of 16 columns, rows 32-63 see 4; scores and values are contracted over 2 and 4 columns
    pairs = 2 * 32 * (2 + 4) * 16
    assert b.work.total("matrix") == 2 * pairs * (2 + 4)


def test_bytes_of_groups() -> None:
    b = budget(read(GROUPED)[0], {"B": 1, "H": 2, "M": 3, "N": 5, "D": 7, "E": 4}).traffic
    assert b.reads["q"] == 2 * 3 * 7 * 4
    assert b.reads["k"] == 2 * 5 * 7 * 4
    assert b.reads["t0"] == 3 * 8, "t comes from outside the group"
    assert (b.writes["O_1"], b.writes["L"]) == (2 * 3 * 4 * 4, 2 * 3 * 4)
    assert (b.reads["o"], b.writes["O_2"]) == (2 * 3 * 4 * 4 + 2 * 3 * 4, 2 * 3 * 4 * 4)
    assert "s0" not in b.reads
    assert "s0" not in b.writes


def test_bytes_of_tiles() -> None:
    b = budget(read(TILED)[0], {"B": 2, "H": 1, "M": 64, "N": 64, "D": 2, "E": 4}).traffic
    # rows 0-31 see 2 windows of 16 columns, rows 32-63 see 4
    assert b.reads["k"] == 2 * (2 + 4) * 16 * 2 * 4
    assert b.reads["q"] == 2 * 64 * 2 * 4
    assert b.writes["store A"] == b.reads["a_2"] == b.writes["store O"] == 2 * 64 * 4 * 4
    assert b.total == b.read + b.written


def test_a_budget_needs_no_time_for_large_sizes() -> None:
    b = budget(read(TILED)[0], {"B": 64, "H": 64, "M": 2**14, "N": 2**14, "D": 128, "E": 128})
    tiles = 2**14 // 32
    windows = sum(2 * (n + 1) for n in range(tiles))
    assert b.traffic.reads["k"] == 64 * 64 * windows * 16 * 128 * 4


def test_bytes_that_depend_on_data() -> None:
    (kernel,) = read(LENGTHS)
    arrays = {"X": np.zeros((3, 10), np.float16), "len": np.array([0, 1, 4], np.int32)}
    sizes = {"B": 3, "N": 10}
    with pytest.raises(ArgumentError, match="depends on what len holds"):
        budget(kernel, sizes)
    b = budget(kernel, sizes, arrays={"len": arrays["len"]}).traffic
    assert b == run(kernel, arrays).traffic
    assert b.reads["x"] == (0 + 4 + 8) * 2
    assert b.reads["n"] == 3 * 4
    wide = budget(kernel, sizes, {"w": 9}, arrays).traffic
    assert wide == run(kernel, arrays, {"w": 9}).traffic
    assert wide.reads["x"] == (0 + 10 + 10) * 2


def test_what_is_missing_is_named() -> None:
    (kernel,) = read(WHOLE)
    with pytest.raises(ArgumentError, match="size of dimension N"):
        budget(kernel, {"B": 1, "H": 1, "M": 1, "D": 1, "E": 1})
    (kernel,) = read("kernel f(X: f32[N], s: int) -> {\n}")
    with pytest.raises(ArgumentError, match="the scalar s is missing"):
        budget(kernel, {"N": 1})


def test_table() -> None:
    text = show(budget(read(GROUPED)[0], {"B": 1, "H": 2, "M": 3, "N": 500, "D": 7, "E": 4}))
    assert text.split("\n")[0] == "causal(B=1, H=2, M=3, D=7, N=500, E=4)"
    rows = {line.split("  ")[0].strip(): line.split()[-2:] for line in text.split("\n")[2:-1]}
    assert rows["k"] == ["28,000", "0"]
    assert rows["O_1"] == ["0", "96"]
    assert "s0" not in rows
