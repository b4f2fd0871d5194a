"""Runs the text of a kernel on mma.sync on the CPU: `emulate.h` takes the place of its instructions."""

from __future__ import annotations

import ctypes
import re
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from tests.backends.cuda.hopper import emulator
from tilec.backends.cuda.ampere.launch import blocks
from tilec.backends.cuda.ampere.source import Source
from tilec.backends.cuda.hopper.source import Facts
from tilec.scalar import Number

HERE = Path(__file__).parent
FRAGMENTS = "// Tiles of 16-bit elements"
"""Where the part of the header begins that is plain C++."""


def translate(facts: Facts, text: str) -> str:
    """The kernel's text for the CPU."""
    held = re.search(r"#define HELD_ROWS \d+", text)
    assert held is not None
    header, _, kernel = text.partition('extern "C" __global__')
    instructions, _, plain = header.partition(FRAGMENTS)
    kernel = kernel.replace("extern __shared__ __align__(1024) unsigned char memory[];", "")
    return "\n".join(
        [
            held[0],
            '#include "emulate.h"',
            *emulator.picked(instructions),
            FRAGMENTS + plain,
            'extern "C"' + kernel,
            emulator.entry(facts),
        ]
    )


def build(facts: Facts, text: str) -> ctypes.CDLL:
    """The kernel as a library of this machine."""
    return emulator.build(translate(facts, text), HERE)


def run(
    source: Source,
    arrays: Mapping[str, np.ndarray],
    sizes: Mapping[str, Number],
    *,
    seed: int = 1,
) -> bool:
    """Runs the kernel on NumPy arrays: it writes the outputs among them, and says whether it asks to be redone.

    Raises RuntimeError where it hangs.
    """
    return emulator.launch(
        build(source.facts, source.text),
        source,
        arrays,
        sizes,
        blocks(source.facts, sizes, 1),
        seed,
    )
