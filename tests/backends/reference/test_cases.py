"""The interpreter against an independent evaluator of the language, on programs from outside.

They lie in a folder of cases that the variable TILEC_CASES names.
"""

from __future__ import annotations

import importlib
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tilec.backends.reference.interpreter import run
from tilec.check import check, lower
from tilec.dtypes import NUMPY_NAMES
from tilec.parse import parse
from tilec.reader import read
from tilec.text import show
from tilec.traffic import budget
from tilec.verify import verify

FOLDER = Path(os.environ.get("TILEC_CASES", ""))
DTYPES = {name: dtype for dtype, name in NUMPY_NAMES.items()}

if not (FOLDER / "gym.py").exists():
    pytest.skip("there is no folder of cases: set TILEC_CASES", allow_module_level=True)


@pytest.fixture(scope="module")
def modules() -> Any:
    """The modules `gym` and `oracle` of the folder."""
    sys.path.insert(0, str(FOLDER))
    try:
        return importlib.import_module("gym"), importlib.import_module("oracle")
    finally:
        sys.path.remove(str(FOLDER))


@pytest.mark.parametrize("group", ["M", "S", "N", "L"])
def test_programs_mean_the_same(modules: Any, group: str) -> None:
    gym, oracle = modules
    found = 0
    for entry in (e for e in gym.ENTRIES if e.id.startswith(group)):
        try:
            arguments = entry.build()[0]
        except gym.Skip:
            continue
        found += 1
        program = parse(entry.text)
        check(program)
        tensors = {n: a for n, a in arguments.items() if isinstance(a, np.ndarray)}
        kernel = lower(program, entry.name, {n: DTYPES[a.dtype.name] for n, a in tensors.items()})
        scalars = {n: x for n, x in arguments.items() if n not in tensors}
        verify(kernel)
        assert read(show(kernel)) == [kernel], entry.id
        got = run(kernel, tensors, scalars)
        for name, want in oracle.evaluate(entry.text, entry.name, **arguments).items():
            np.testing.assert_allclose(
                got.outputs[name], want, rtol=1e-9, atol=1e-11, err_msg=entry.id
            )
        sizes = {
            d: n
            for t in kernel.tensors.values()
            for d, n in zip(t.dims, tensors[t.name].shape, strict=True)
            if isinstance(d, str)
        }
        assert budget(kernel, sizes, scalars, tensors).traffic == got.traffic, entry.id
    assert found
