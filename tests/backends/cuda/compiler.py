"""Tests that compile for a GPU: NVRTC does so where there is none."""

from __future__ import annotations

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
