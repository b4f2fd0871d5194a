"""Where the fast path begins: a kernel that is not yet cut in tiles, and what is decided about these."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from tilec.ir import Kernel
from tilec.rows import Rows


@dataclass(frozen=True)
class Untiled:
    """A kernel before it is cut in tiles (after the pass `online`), the sizes it is for, and the fields of its schedule that
    are asked for. `packed`: another axis in the rows of its tiles. `workers`: the streamed axis
    is cut in pieces for so many. `scattered`: its tensors that no wide copy can bring.
    `shared`: the bytes of shared memory that a block may ask for where it will run; None: what its architecture has."""

    kernel: Kernel
    sizes: Mapping[str, int]
    packed: Rows | None = None
    schedule: Mapping[str, object] = field(default_factory=dict[str, object])
    workers: int | None = None
    scattered: frozenset[str] = frozenset()
    shared: int | None = None

    @property
    def unfolded(self) -> Untiled | None:
        """The same with rows as they are, where heads and positions would be one axis."""
        return replace(self, packed=None) if self.packed and self.packed.fold else None
