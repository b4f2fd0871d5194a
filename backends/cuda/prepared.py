"""A call that is ready: everything but the addresses of its arrays is decided, and its kernels' parameters are written."""

from __future__ import annotations

import importlib
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from tilec.backends.cuda import launch, words
from tilec.backends.cuda.block import Block, Contents
from tilec.errors import ResourceError


@dataclass(frozen=True)
class Step:
    """The launch of a kernel. `number`: that of the kernel among those of its part."""

    kernel: launch.Kernel
    number: int
    blocks: int


@dataclass(frozen=True)
class Part:
    """The launches of some code, their parameters, and the bytes of scratch memory that they need. Addresses are numbered:
    those of the call's arrays, the scratch memory, the stream's words."""

    steps: tuple[Step, ...]
    contents: Contents
    size: int


KEPT = 64
"""Sets of addresses for which launches are kept: a model's layers have as many, and come again with every token."""


class Filled(NamedTuple):
    """The launches of a call on a stream, and their parameters."""

    blocks: list[Block]
    launches: list[launch.Launch]
    stream: int


class Prepared:
    """The launches of calls of one layout.

    They are kept for each of the last sets of addresses. A call takes its set out while it uses it, so that threads which
    call at once have sets of their own.
    """

    def __init__(self, device: int, library: str, parts: Sequence[Part]) -> None:
        self.device, self.library = device, library
        self.parts = [p for p in parts if p.steps]
        self.size = max((p.size for p in parts), default=0)
        self._kept: OrderedDict[tuple[int, ...], Filled] = OrderedDict()

    def __call__(self, addresses: Sequence[int]) -> None:
        """Launches the kernels on the stream that the caller's library uses at present."""
        if not self.parts:
            return
        if launch.is_current(self.device):
            self._launch(addresses)
        else:
            with launch.on(self.device):
                self._launch(addresses)

    def _launch(self, addresses: Sequence[int]) -> None:
        stream = launch.stream(self.library, self.device)
        capture = launch.capture(stream)
        size = self.size
        memory, scratch = _scratch(self.library, self.device, size) if size else (None, 0)
        key = (*addresses, scratch, stream, capture)
        filled = self._kept.pop(key, None) or self._filled(key)
        launch.start(filled.launches)
        self._kept[key] = filled
        if capture:
            _captured[id(self)] = self
            if self.library != "torch":
                _memory.append(memory)

    def _filled(self, key: tuple[int, ...]) -> Filled:
        """The launches for new addresses, written over those of the oldest ones where there are enough."""
        *bases, stream, capture = key
        words_ = words.on(self.device).of(stream, capture)
        if len(self._kept) < KEPT:
            blocks, old = [Block(p.contents) for p in self.parts], None
        else:
            _, (blocks, launches, before) = self._kept.popitem(last=False)
            old = launches if before == stream else None
        for block in blocks:
            block.fill((*bases, words_))
        return Filled(blocks, old or self._launches(blocks, stream), stream)

    def _launches(self, blocks: Sequence[Block], stream: int) -> list[launch.Launch]:
        out: list[launch.Launch] = []
        for part, block in zip(self.parts, blocks, strict=True):
            for s in part.steps:
                table = block.tables[s.number]
                out.append(s.kernel.launch(s.blocks, table, stream, follows=bool(out)))
        return out


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
