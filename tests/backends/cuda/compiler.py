"""The compilers that some tests need: NVRTC, which works where there is no GPU, and that of C++, which builds kernels for
the processor."""

from __future__ import annotations

import shutil

import pytest

from tilec.backends.cuda import nvrtc
from tilec.errors import UnsupportedError


def _found() -> bool:
    """Whether NVRTC can be loaded."""
    try:
        nvrtc.version()
    except UnsupportedError:
        return False
    return True


needs_nvrtc = pytest.mark.skipif(not _found(), reason="no NVRTC here")
needs_cpp = pytest.mark.skipif(shutil.which("g++") is None, reason="no g++ here")
