"""The CUDA texts of three programs, as they are, for two architectures: what a change of an emitter changes."""

from __future__ import annotations

from pathlib import Path

import pytest

import tilec

HERE = Path(__file__).parent
ROOT = HERE.parents[2]
HEADERS = sorted((ROOT / "backends" / "cuda").rglob("*.cuh"))


def generated(text: str) -> str:
    """What was generated: a text without the headers, which are files of their own, the version and the folder."""
    for path in HEADERS:
        header = path.read_text(encoding="utf-8")
        text = text.replace(header, f"// … {path.name}\n")
        for part in header.split("\n// ---- ")[1:]:  # some kernels take parts of one only
            text = text.replace(f"// ---- {part}", f"// … {path.name}: {part.split(chr(10))[0]}")
    return text.replace(f"tilec {tilec.__version__}", "tilec").replace(f"{ROOT}/", "")


@pytest.mark.parametrize("arch", ["sm_90a", "sm_80"])
@pytest.mark.parametrize("name", ["naive", "causal", "paged"])
def test_text(name, arch, golden):
    """Plain rows of tiles; blocks left out and masked; and rows that are gathered."""
    kernel = tilec.load(ROOT / "examples" / f"{name}.tile", target=f"cuda:{arch}")
    text = generated(kernel.gpu_code(dtype="f16").text)
    assert all(x in text for x in (f"// {name} for {arch}", ".cuh", f"{name}.tile:"))
    golden(HERE / "golden" / f"{name}.{arch}.cu", text)
