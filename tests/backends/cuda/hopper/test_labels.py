"""Elements of a row or a position that come with the keys, on the emulated Hopper."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest

import tilec
from tests.backends.cuda.answers import LIMIT, off, prepared
from tests.backends.cuda.compiler import needs_cpp
from tests.backends.cuda.hopper import emulator, running
from tests.backends.cuda.hopper.mistakes import noticed, without
from tilec.backends.cuda.hopper import steps

pytestmark = needs_cpp

LABELS = {
    "documents": ("doc: i32[B, N]", "s if doc[b, i] == doc[b, j] else -inf"),
    "long numbers": ("doc: i64[B, N]", "s if doc[b, i] == doc[b, j] and j <= i else -inf"),
    "padding": ("there: bool[B, N]", "s if there[b, j] else -inf"),
    "a bias and a mask": ("bias: f32[N], there: u8[N]", "s + bias[j] if there[j] > 1 else -inf"),
    "a short bias": ("bias: bf16[H, N]", "s + bias[h, j]"),
}


def labelled(name: str, n: int) -> tuple[tilec.Kernel, dict[str, Any]]:
    """A program that reads labels, and its arguments."""
    more, score = LABELS[name]
    kernel = tilec.compile(f"""
kernel labels(Q[B, H, N, D], K[B, H, N, D], V[B, H, N, E], {more}) -> O[b, h, i, e]:
    s = sum[d](Q[b, h, i, d] * K[b, h, j, d]) / sqrt(D)
    O = sum[j](softmax[j]({score}) * V[b, h, j, e])
""")
    arrays = kernel.sample(3, dtype="f16", B=2, H=2, N=n, D=16, E=16)
    rng = np.random.default_rng(5)
    if "doc" in arrays:
        marks = np.sort(rng.integers(0, 4, arrays["doc"].shape), -1)
        arrays["doc"] = (marks << (33 if name == "long numbers" else 0)).astype(arrays["doc"].dtype)
    if "there" in arrays:
        arrays["there"] = rng.integers(0, 3, arrays["there"].shape).astype(arrays["there"].dtype)
    return kernel, arrays


@pytest.mark.parametrize(("columns", "n"), [(16, 100), (48, 150), (64, 129)])
@pytest.mark.parametrize("name", LABELS)
def test_labels(name: str, columns: int, n: int) -> None:
    kernel, arrays = labelled(name, n)
    sizes = {"B": 2, "H": 2, "N": n, "D": 16, "E": 16}
    _, sources = running.tiles(kernel, "f16", sizes, columns=columns)
    assert any(s.plan.labels for s in sources.values())
    got = running.run(kernel, arrays, "f16", sizes, columns=columns)
    assert off(got, kernel, arrays) < LIMIT["f16"]


def test_a_document_that_begins_within_a_window_needs_no_exact_arm() -> None:
    sizes = {"B": 1, "H": 1, "N": 128, "D": 16, "E": 16}
    kernel, arrays = prepared("document", "bf16", sizes)
    arrays["doc"] = (np.arange(128, dtype=arrays["doc"].dtype) + 4)[None] // 16
    placed, sources = running.tiles(kernel, "bf16", sizes, columns=128)
    ((n, source),) = sources.items()
    exact = re.compile(r"\} else \{\n(?=.*maxnum)")
    assert len(exact.findall(source.text)) > 2
    watched = exact.sub('} else { race = "an exact arm";\n', source.text)

    def launch(_: int, memory: Mapping[str, np.ndarray], known: Mapping[str, Any]) -> None:
        emulator.run(dataclasses.replace(source, text=watched), memory, known, processors=1)

    running.completed(placed, [n], launch, arrays, sizes)


def test_words_that_all_threads_of_a_warp_read_are_noticed() -> None:
    sizes = {"B": 1, "H": 1, "N": 300, "D": 16, "E": 16}
    kernel, arrays = prepared("document", "bf16", sizes)
    placed, sources = running.tiles(kernel, "bf16", sizes, columns=16)
    ((n, source),) = sources.items()
    told = re.compile(r"shared_told\(([^;]*), lane\)")
    careless = told.sub(r"__shfl_sync(FULL, shared_get(\1), 0)", source.text)
    assert careless != source.text

    def launch(_: int, memory: Mapping[str, np.ndarray], known: Mapping[str, Any]) -> None:
        emulator.run(dataclasses.replace(source, text=careless), memory, known, processors=1)

    with pytest.raises(RuntimeError, match="while it is read"):
        running.completed(placed, [n], launch, arrays, sizes)


def test_labels_that_are_never_given_back_are_noticed() -> None:
    kernel, arrays = labelled("a short bias", 200)
    sizes = {"B": 2, "H": 2, "N": 200, "D": 16, "E": 16}
    _, sources = running.tiles(kernel, "f16", sizes, columns=16)
    unwanted: Callable[[Any], bool] = lambda s: s == steps.Release("labels")  # noqa: E731
    broken = dataclasses.replace(sources[0].plan, steps=without(unwanted, sources[0].plan.steps))
    assert broken != sources[0].plan
    noticed(broken, kernel, arrays, sizes, "f16")


def test_labels_that_one_thread_gives_back_for_its_warp_are_noticed() -> None:
    kernel, arrays = labelled("a short bias", 200)
    sizes = {"B": 2, "H": 2, "N": 200, "D": 16, "E": 16}
    placed, sources = running.tiles(kernel, "f16", sizes, columns=16)
    ((n, source),) = sources.items()
    free, count, _ = source.plan.barriers["labels_free"]
    begun, given = f"barrier_init(shared + {free} + 8 * n, ", f"arrive(shared + {free} + "
    careless = source.text.replace(f"{begun}{count})", f"{begun}{count // 32})")
    careless = careless.replace(given, f"__syncwarp(); if (lane == 0) {given}")
    assert careless.count("__syncwarp(); if (lane == 0)") > 1

    def launch(_: int, memory: Mapping[str, np.ndarray], known: Mapping[str, Any]) -> None:
        emulator.run(dataclasses.replace(source, text=careless), memory, known, processors=1)

    with pytest.raises(RuntimeError, match="while it is read"):
        running.completed(placed, [n], launch, arrays, sizes)
