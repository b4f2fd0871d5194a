"""A call that is ready: everything but the addresses of its arrays is decided, and its kernels' parameters are written."""

from __future__ import annotations

import importlib
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tilec.backends.cuda import launch, words
from tilec.backends.cuda.block import Block, Parameter
from tilec.errors import ResourceError


@dataclass(frozen=True)
class Step:
    """The launch of a kernel. Addresses are numbered: those of the call's arrays, the scratch memory, the stream's words."""

    kernel: launch.Kernel
    blocks: int
    parameters: tuple[Parameter, ...]


KEPT = 64
"""Sets of addresses for which parameters are kept: a model's layers have as many, and come again with every token."""


class Prepared:
    """The launches of calls of one layout, with `size` bytes of scratch memory.

    Parameters are kept in a block for each of the last sets of addresses. A call takes its block out while it uses it, so
    that threads which call at once have blocks of their own.
    """

    def __init__(self, device: int, library: str, steps: tuple[Step, ...], size: int) -> None:
        self.device, self.library, self.steps, self.size = device, library, steps, size
        self._words = words.on(device)
        self._blocks: OrderedDict[tuple[int, ...], Block] = OrderedDict()

    def __call__(self, addresses: Sequence[int]) -> None:
        """Launches the kernels on the stream that the caller's library uses at present."""
        if not self.steps:
            return
        if launch.is_current(self.device):
            self._launch(addresses)
        else:
            with launch.on(self.device):
                self._launch(addresses)

    def _launch(self, addresses: Sequence[int]) -> None:
        stream = launch.stream(self.library, self.device)
        counters, captured = self._words.of(stream)
        size = self.size
        memory, scratch = _scratch(self.library, self.device, size) if size else (None, 0)
        bases = (*addresses, scratch, counters)
        block = self._blocks.pop(bases, None) or self._filled(bases)
        follows = False
        for step, table in zip(self.steps, block.tables, strict=True):
            step.kernel(step.blocks, table, stream, follows)
            follows = True
        self._blocks[bases] = block
        if captured:
            _captured[id(self)] = self
            if self.library != "torch":
                _memory.append(memory)

    def _filled(self, bases: tuple[int, ...]) -> Block:
        """A block for new addresses: that of the oldest ones, or another one."""
        if len(self._blocks) >= KEPT:
            _, block = self._blocks.popitem(last=False)
        else:
            block = Block([s.parameters for s in self.steps])
        block.fill(bases)
        return block


_captured: dict[int, Prepared] = {}
"""What is in CUDA graphs, which may outlive the kernels that they were captured from: it is kept for good."""
_memory: list[Any] = []
"""Scratch memory in CUDA graphs. PyTorch's belongs to the graph, others' would be given to someone else."""


def _scratch(library: str, device: int, size: int) -> tuple[Any, int]:
    """Memory for intermediate tensors, of the caller's library, and its address."""
    try:
        if library == "torch":
            torch = importlib.import_module("torch")
            memory = torch.empty(size, dtype=torch.uint8, device=torch.device("cuda", device))
            return memory, int(memory.data_ptr())
        memory = launch.cupy().empty(size, "uint8")
        return memory, int(memory.data.ptr)
    except (MemoryError, RuntimeError) as e:
        raise ResourceError(f"target cuda: intermediate results take {size:,} bytes: {e}") from e
