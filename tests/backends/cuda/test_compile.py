"""Every example as the compiler sees it, for two architectures: it takes the code without a warning, and everything fits."""

from __future__ import annotations

from pathlib import Path

import pytest

import tilec
from tests.programs import CAUSAL
from tilec.backends.cuda import arch as architectures
from tilec.backends.cuda.code import Code, compiled
from tilec.backends.cuda.nvrtc import Usage

EXAMPLES = sorted(Path(__file__).parents[3].glob("examples/*.tile"))
REGISTERS = 1 << 16
"""The registers of a multiprocessor."""


def body(code: Code) -> str:
    """The text without the line that names the architecture."""
    return "\n".join(u.text.split("\n", 1)[1] for u in code.units)


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda p: p.stem)
def test_it_compiles(path):
    pytest.importorskip("cuda.bindings.nvrtc", reason="NVRTC is not installed")
    old, new = (
        tilec.load(path, target=f"cuda:{a}").gpu_code(dtype="f16") for a in ("sm_80", "sm_90a")
    )
    check(old)
    if body(old) != body(new):  # a text for both is compiled once: that takes a second or two
        check(new)


def check(code: Code) -> None:
    """Compiles a code, and looks at what its kernels take."""
    images = compiled(code)
    assert not [w for i in images for w in i.warnings]
    used = {name: use for i in images for name, use in i.usage.items()}
    kernels = [*code.functions.values(), *code.fast.values()]
    assert set(used) == {k.name for k in kernels} == {n for u in code.units for n in u.names}
    for k in kernels:
        use: Usage = used[k.name]
        assert (use.stack, use.spill_stores, use.spill_loads) == (0, 0, 0), k.name
        assert use.registers * k.threads <= REGISTERS
        assert use.shared + k.shared <= architectures.shared_limit(code.arch)


@pytest.mark.parametrize("gpu", ["cuda:sm_90a", "cuda:sm_80"])
@pytest.mark.parametrize("sizes", [{"D": 0}, {"E": 0}, {"D": 0, "E": 0}])
def test_empty_heads_are_left_to_the_general_emitter(gpu: str, sizes: dict[str, int]) -> None:
    code = tilec.compile(CAUSAL, target=gpu).gpu_code(**sizes)
    assert code.emitter == "simt"
    assert "is empty" in code.note
