"""What a kernel becomes on the way to a target: the IR after each pass, and the generated code."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from tilec import backend, pipeline
from tilec.dtypes import DType
from tilec.errors import UnsupportedError
from tilec.ir import Kernel
from tilec.versions import Versions

if TYPE_CHECKING:
    from tilec.backends.cuda.code import Code


class Stages:
    """A kernel on its way to a target, None for that of this machine."""

    def __init__(self, versions: Versions, target: str | None) -> None:
        self.versions, self.target = versions, target
        self.source, self.tile, self.schedule = versions.source, versions.tile, versions.schedule

    # ---- the IR

    def along(
        self, dtype: DType, sizes: Mapping[str, int], steps: pipeline.Pipeline | None = None
    ) -> Iterator[tuple[str, Kernel]]:
        """The name of each pass and the IR after it, the first being `lower`. `steps`: another pipeline."""
        known = self._known(sizes)
        kernel = self.versions.all_of(dtype).lowered
        yield "lower", kernel
        if steps is not None:
            yield from pipeline.stages(kernel, steps, sizes=known)
            return
        target = self.target or "cpu"
        if target == "reference":
            return
        online = kernel
        for name, online in pipeline.stages(kernel, pipeline.tensor_pipeline()):
            yield name, online
        yield from pipeline.stages(online, self._tile_steps(target, online, known), sizes=known)

    def last(
        self, dtype: DType, sizes: Mapping[str, int], steps: pipeline.Pipeline | None = None
    ) -> Kernel:
        """The IR at the end."""
        *_, (_, kernel) = self.along(dtype, sizes, steps)
        return kernel

    def steps(self, dtype: DType, sizes: Mapping[str, int]) -> pipeline.Pipeline:
        """The passes that run on the way to a target, in order, as far as the sizes decide on them."""
        target = self.target or "cpu"
        if target == "reference":
            return ()
        online = self.versions.all_of(dtype).online
        return pipeline.tensor_pipeline() + self._tile_steps(target, online, self._known(sizes))

    def _known(self, sizes: Mapping[str, int]) -> dict[str, int]:
        """The sizes of the program, and those that are given on top."""
        return {**self.source.sizes, **self.source.own(sizes)}

    def _tile_steps(
        self, target: str, online: Kernel, sizes: Mapping[str, int]
    ) -> pipeline.Pipeline:
        """The passes that cut a kernel into the tiles that run on a target, as far as the sizes decide on them."""
        found: pipeline.Pipeline = ()
        if not self.tile and all(d in sizes for d in online.dims):
            needed = {d: sizes[d] for d in online.dims}
            found = backend.tile_steps(online, needed, target, self.schedule)
        return found or self._default_tile_steps(target)

    def _default_tile_steps(self, target: str) -> pipeline.Pipeline:
        asked = backend.WORKERS in self.schedule
        workers = backend.workers(target, self.schedule) if asked else None
        steps = pipeline.tile_pipeline({}, self.tile, target, workers)
        # the sizes that specialise fixes are known only after the tensor passes
        return tuple(pipeline.Step(s.name) if s.name == "specialise" else s for s in steps)

    # ---- the code

    def code(
        self, form: str, dtype: DType | None, processor: str | None, sizes: Mapping[str, int]
    ) -> str:
        """Generated code in one of the forms of a backend. Raises UnsupportedError for others."""
        if form in backend.CPU_FORMS:
            tiles = self.last(dtype or "f32", sizes)
            return backend.source(tiles, form, processor=processor)
        if form not in backend.GPU_FORMS:
            forms = ", ".join(backend.CPU_FORMS + backend.GPU_FORMS)
            raise UnsupportedError(
                f"no code of the kind {form!r} can be made; what works is {forms}"
            )
        if processor is not None:
            raise UnsupportedError(
                f"processor={processor!r} goes with {' and '.join(backend.CPU_FORMS)}; {form} is code for a GPU"
            )
        from tilec.backends.cuda.code import source

        return source(self.on_gpu(dtype, sizes), form)

    def on_gpu(
        self, dtype: DType | None, sizes: Mapping[str, int], *, called: bool = False
    ) -> Code:
        """The CUDA text for a GPU, and what its kernels take. `called`: what a call on this machine would run."""
        from tilec.backends.cuda import target as cuda
        from tilec.backends.cuda.untiled import Untiled

        own = self.target if self.target and backend.on_gpu(self.target) else "cuda"
        steps = pipeline.tensor_pipeline() + self._default_tile_steps(own)
        tiles = self.last(dtype or "f16", sizes, steps)
        known = self.source.all_sizes(sizes)
        before = None
        if not self.tile:
            online = self.versions.all_of(dtype or "f16").online
            before = Untiled(online, {d: known[d] for d in online.dims})
            before = cuda.here(before, cuda.arch_of(own)) if called else before
        return cuda.code_for(tiles, own, self.schedule, before)
