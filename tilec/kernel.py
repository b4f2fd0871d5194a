"""A kernel as Python sees it: compiled from text, called on arrays, and looked into."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from tilec import backend, binding, bounds, choices, pipeline, scalar
from tilec.arrays import Array, check_gradient, device_of, give, reach, view
from tilec.dtypes import DType, kind
from tilec.errors import (
    ArgumentError,
    Diagnostic,
    SourceError,
    Span,
    UnsupportedError,
)
from tilec.ir import Argument, Tensor
from tilec.ir import Kernel as IR
from tilec.repeat import Look, Ready, Repeats
from tilec.results import Maker, Result, given, makers
from tilec.scalar import Number, Scalar
from tilec.source import Source

if TYPE_CHECKING:
    from tilec.backends.cuda.target import Code
    from tilec.rows import Chooser
    from tilec.traffic import Budget
    from tilec.tuning.board import Leaderboard
    from tilec.tuning.shipped import Default
    from tilec.tuning.store import Winner

PLANS = 256
"""How many different calls (shapes, strides, element types, scalars) a kernel remembers."""


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter or an output of a kernel.

    `type` is an element type, `int`, `float` or `bool` for a scalar, or None: a parameter's is then that of the array
    it is given, an output's that of the first float tensor. `dims` holds dimensions (of an output: axes) as the
    language writes them; None for a scalar.
    """

    name: str
    type: str | None
    dims: tuple[str, ...] | None
    default: str | None = None

    def __str__(self) -> str:
        text = self.name if self.type is None else f"{self.name}: {self.type}"
        text += "" if self.dims is None else f"[{', '.join(self.dims)}]"
        return text if self.default is None else f"{text} = {self.default}"


@dataclass(frozen=True, slots=True)
class Plan:
    """A checked call: its sizes and scalars, the IR that runs, what runs it, and what its outputs look like.

    `tuned`: the stored schedule that it takes, None where it has the default one or the user's.
    """

    bound: binding.Bound
    ir: IR
    run: backend.Runner
    outputs: tuple[Result, ...]
    tuned: Winner | None = None


class Kernel:
    """A compiled kernel. Made by `tilec.compile` and `tilec.load`.

    Machine code is made at the first call for the element types and sizes at hand, and kept.
    """

    def __init__(
        self,
        source: Source,
        *,
        target: str | None = None,
        tile: Mapping[str, int] | None = None,
        schedule: Mapping[str, object] | None = None,
    ) -> None:
        if target is not None:
            backend.check_target(choices.text("target", target))
        self._source = source
        self._target = target
        self._tile = choices.extents(tile)
        self._schedule = choices.schedule(schedule)
        backend.check_schedule(target, self._schedule)
        self._signature = source.signature
        self._lowered: dict[tuple[DType, ...], IR] = {}
        self._online: dict[tuple[DType, ...], IR] = {}
        self._checked: dict[tuple[DType, ...], tuple[bounds.Index, ...]] = {}
        self._static: dict[tuple[str, ...], tuple[str, ...]] = {}
        self._rows: dict[object, Chooser] = {}
        self._tiled: dict[object, IR] = {}
        self._pieces: dict[object, tuple[scalar.Compiled, ...]] = {}
        self._ready: dict[object, tuple[IR, backend.Runner]] = {}
        self._plans: dict[object, Plan] = {}
        self._offers: dict[object, tuple[Default, ...]] = {}
        self._repeats = Repeats(source.signature)

    # ---- the signature

    @property
    def name(self) -> str:
        """The kernel's name."""
        return self._source.name

    @property
    def target(self) -> str | None:
        """The target it was compiled for; None: the arrays of each call decide."""
        return self._target

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        """The parameters in order."""
        return tuple(map(self._parameter, self._signature.params))

    def _parameter(self, p: Tensor | Argument) -> Parameter:
        if isinstance(p, Argument):
            default = None if p.default is None else scalar.show(p.default)
            return Parameter(p.name, p.type, None, default)
        dtype = None if p.name in self._source.untyped else p.dtype
        return Parameter(p.name, dtype, tuple(scalar.show(d) for d in p.dims))

    @property
    def outputs(self) -> tuple[Parameter, ...]:
        """The outputs in order. Their `dims` are axes."""
        follow = self._source.untyped_outputs
        return tuple(
            Parameter(o.name, None if o.name in follow else o.dtype, o.axes)
            for o in self._signature.outputs
        )

    @property
    def text(self) -> str:
        """The text of the program."""
        return self._source.program.text

    @property
    def signature(self) -> IR:
        """The program's IR with f32 for every untyped tensor: for what does not depend on element types."""
        return self._signature

    @property
    def dims(self) -> tuple[str, ...]:
        """The names of the dimensions, in order of appearance."""
        return self._signature.dims

    @property
    def axes(self) -> dict[str, Scalar]:
        """The axes and how far each ranges."""
        return dict(self._signature.extents)

    @property
    def siblings(self) -> tuple[str, ...]:
        """The names of all kernels of the program."""
        return tuple(self._source.program.kernels)

    def sibling(self, name: str) -> Kernel:
        """Another kernel of the same program, for the same target."""
        return Kernel(
            self._source.other(name), target=self._target, tile=self._tile, schedule=self._schedule
        )

    def __repr__(self) -> str:
        params, outputs = (", ".join(map(str, x)) for x in (self.parameters, self.outputs))
        return f"<tilec kernel {self.name}({params}) -> {outputs}>"

    def __reduce__(self) -> tuple[Callable[..., Kernel], tuple[object, ...]]:
        """Pickles and copies are of the program and the choices; code is made anew, or found in the cache."""
        program = self._source.program
        chosen = self._target, dict(self._tile), dict(self._schedule)
        return _again, (program.text, program.file, self.name, *chosen)

    # ---- calling

    def __call__(self, /, *tensors: Any, out: Any = None, **named: Any) -> Any:
        """Runs the kernel on arrays of NumPy, PyTorch, JAX or DLPack; gives arrays of the library that came in.

        Tensors are given by position or name, scalars by name. `out`: the array to write, for several outputs a tuple
        in the order of the signature. One output comes as an array, several as a tuple. Raises ArgumentError for
        arguments that do not fit, UnsupportedError and ResourceError for what the target cannot do.
        """
        look = self._repeats.look(tensors, named, out)
        ready = None if look is None else self._repeats.find(look)
        if look is None or ready is None:
            return self._first(tensors, named, out, look)
        return ready(look[1], out)

    def _first(
        self, tensors: Sequence[Any], named: Mapping[str, Any], out: Any, look: Look | None
    ) -> Any:
        """A call that is checked in full; others that look like it will be repeats."""
        plan, arrays = self._planned(tensors, named)
        make = makers(plan.outputs, arrays) if out is None else ()
        results = (
            {m.result.name: m.array() for m in make}
            if out is None
            else given(plan.outputs, arrays, out)
        )
        launch = None if look is None else plan.run.ready(arrays, plan.bound.scalars, results)
        if look is None or launch is None:
            plan.run(arrays, plan.bound.scalars, results)
        else:
            launch([a.pointer for a in (*arrays.values(), *results.values())])
            self._keep(look, launch, arrays, make, {} if out is None else results)
        if out is not None:
            return out
        values = tuple(give(a) for a in results.values())
        return values[0] if len(values) == 1 else values

    def _keep(
        self,
        look: Look,
        launch: backend.Launch,
        arrays: Mapping[str, Array],
        make: tuple[Maker, ...],
        given: Mapping[str, Array],
    ) -> None:
        """Remembers a call, unless it ran on copies of arrays that tilec cannot take as they are."""
        seen = [a.pointer for a in (*arrays.values(), *given.values())]
        if seen != look[1]:
            return
        if given:
            spans = tuple(reach(a) for a in (*arrays.values(), *given.values()))
            self._repeats.keep(look, Ready(launch, reach=spans))
        else:
            self._repeats.keep(look, Ready(launch, make=make))

    def plan(self, /, *tensors: Any, **named: Any) -> Plan:
        """What a call with these arguments would run. Raises what the call would."""
        return self._planned(tensors, named)[0]

    def _planned(
        self, tensors: Sequence[Any], named: Mapping[str, Any]
    ) -> tuple[Plan, dict[str, Array]]:
        given = binding.by_name(self._signature, tensors, named)
        names = self._signature.tensors
        target = self._target or backend.target_of({n: device_of(given[n]) for n in names})
        for n, x in given.items():
            check_gradient(n, x)
        arrays = {n: backend.see(n, given[n], target) for n in names}
        return self._plan(target, arrays, binding.numbers(self._signature, given)), arrays

    def _plan(
        self, target: str, arrays: Mapping[str, Array], scalars: Mapping[str, Number]
    ) -> Plan:
        """The plan of a call, made at the first call of its kind."""
        layout = tuple((a.dtype, a.shape, a.strides) for a in arrays.values())
        key = (target, layout, tuple((n, repr(x)) for n, x in scalars.items()))
        plan = self._plans.get(key)
        if plan is None:
            plan = self._new_plan(target, arrays, scalars)
            while len(self._plans) >= PLANS:
                self._plans.pop(next(iter(self._plans)), None)
            self._plans[key] = plan
        return plan

    def _new_plan(
        self, target: str, arrays: Mapping[str, Array], scalars: Mapping[str, Number]
    ) -> Plan:
        kernel = self._typed(arrays)
        bound = binding.bind(kernel, arrays, scalars)
        bounds.check(kernel, self._indices(kernel), bound, self._source.written)
        outputs = self._results(kernel, bound)
        tuned = self._tuned(target, kernel, bound.sizes)
        return Plan(bound, *self._compiled(target, kernel, bound, tuned), outputs, tuned)

    def _fixed(self, online: IR, sizes: Mapping[str, int]) -> dict[str, int]:
        """The sizes that code is compiled for."""
        types: tuple[str, ...] = tuple(t.dtype for t in online.tensors.values())
        if types not in self._static:
            self._static[types] = pipeline.module("specialise").static_dims(online)
        return {d: sizes[d] for d in self._static[types]}

    def _indices(self, kernel: IR) -> tuple[bounds.Index, ...]:
        """The indices whose range is checked at a call."""
        types: tuple[DType, ...] = tuple(t.dtype for t in kernel.tensors.values())
        if types not in self._checked:
            self._checked[types] = bounds.indices(kernel)
        return self._checked[types]

    @staticmethod
    def _results(kernel: IR, bound: binding.Bound) -> tuple[Result, ...]:
        return tuple(
            Result(o.name, o.dtype, tuple(bound.extents[a] for a in o.axes)) for o in kernel.outputs
        )

    def _typed(self, arrays: Mapping[str, Array]) -> IR:
        """The tensor IR for the element types of the arrays. Raises ArgumentError for one that the program excludes."""
        for t in self._signature.tensors.values():
            got = arrays[t.name].dtype
            if t.name not in self._source.untyped and got != t.dtype:
                raise ArgumentError(
                    f"argument {t.name}: expected elements of type {t.dtype}, got {got}: "
                    f"convert it, or declare {t.name}: {got}[…]"
                )
        return self._for_types({n: arrays[n].dtype for n in self._source.untyped})

    def _for_types(self, dtypes: Mapping[str, DType]) -> IR:
        key = tuple(dtypes.values())
        if key not in self._lowered:
            self._lowered[key] = self._source.lowered(dtypes)
        return self._lowered[key]

    def _all_of(self, dtype: DType) -> IR:
        """The tensor IR with one element type for the untyped tensors. Raises ArgumentError for one that is none."""
        return self._for_types(self._source.types(choices.dtype(dtype)))

    def _compiled(
        self, target: str, kernel: IR, bound: binding.Bound, tuned: Winner | None
    ) -> tuple[IR, backend.Runner]:
        """The IR that runs and what runs it, for given element types and the sizes that must be known to compile."""
        sizes = bound.sizes
        types: tuple[DType, ...] = tuple(t.dtype for t in kernel.tensors.values())
        key: tuple[object, ...] = (target, types)
        as_written = target == "reference" and not self._tile
        if as_written and key not in self._ready:
            self._ready[key] = kernel, backend.runner(kernel, target)
        if as_written:
            return self._ready[key]
        from tilec import rows  # the passes behind it take a while to load

        online = self._after_tensor_passes(types, kernel)
        fixed = self._fixed(online, sizes)
        tile = self._tile if tuned is None else dict(tuned.choice.tile)
        schedule = self._schedule if tuned is None else dict(tuned.choice.schedule)
        known = {**sizes, **bound.scalars}
        if key not in self._rows:
            self._rows[key] = rows.Chooser(online, pipeline.target_of(target))
        chosen = None if tile else self._rows[key](known)
        extents = chosen.extents if chosen else tile
        fixed |= {d: sizes[d] for d in chosen.dims} if chosen else {}
        far = binding.far(kernel, bound.scalars)
        key += (*fixed.items(), *extents.items(), *schedule.items(), far)
        steps = functools.partial(pipeline.tile_pipeline, fixed, extents, target, far=far)
        tiles = self._in_tiles(key, online, steps)
        workers = backend.workers(target, schedule)
        if workers and self._few(key, tiles, workers, known):
            key += ("workers", workers)
            tiles = self._in_tiles(key, online, functools.partial(steps, workers))
        if key not in self._ready:
            before = None if tile or far else (online, sizes)
            runner = backend.runner(tiles, target, schedule, before, tuned is not None, chosen)
            self._ready[key] = tiles, runner
        return self._ready[key]

    def _in_tiles(self, key: object, online: IR, steps: Callable[[], pipeline.Pipeline]) -> IR:
        """The tile IR of a key, made once."""
        if key not in self._tiled:
            self._tiled[key] = pipeline.run(online, steps())
        return self._tiled[key]

    def _few(self, key: object, tiles: IR, workers: int, known: Mapping[str, Number]) -> bool:
        """Whether there are fewer tiles than workers; how many, as an expression of the sizes, is found out once."""
        split = pipeline.module("split")
        counts = self._pieces.get((key, workers))
        if counts is None:
            counts = self._pieces[key, workers] = split.pieces(
                tiles, split.Options(workers=workers)
            )
        return split.cut(counts, known)

    def _tuned(self, target: str, kernel: IR, sizes: Mapping[str, int]) -> Winner | None:
        """The stored schedule for a call, where the user chose none; a file that cannot be trusted gives a warning."""
        if self._tile or self._schedule or target == "reference":
            return None
        from tilec.tuning import shipped, store

        types: tuple[DType, ...] = tuple(t.dtype for t in kernel.tensors.values())
        if (target, types) not in self._offers:
            self._offers[target, types] = shipped.offers(kernel, target)
        offers = self._offers[target, types]
        if not offers and not store.exists():
            return None
        from tilec.tuning import use  # the tuner's parts, not needed where nothing was ever tuned

        online = self._after_tensor_passes(types, kernel)
        return use.winner(kernel, online, sizes, self._fixed(online, sizes), target, offers)

    def tuned(self, *, dtype: DType = "f32", sizes: Mapping[str, int]) -> Winner | None:
        """The schedule that a search stored, or that is shipped, for calls of these sizes; None where the rule decides, or
        the `tile` and `schedule` of this kernel."""
        return self._tuned(self._target or "cpu", self._all_of(dtype), sizes)

    def _after_tensor_passes(self, types: tuple[DType, ...], kernel: IR) -> IR:
        if types not in self._online:
            self._online[types] = pipeline.run(kernel, pipeline.tensor_pipeline())
        return self._online[types]

    # ---- looking into it

    @property
    def passes(self) -> tuple[str, ...]:
        """The names of the passes of the default pipeline, in order."""
        return () if self._target == "reference" else pipeline.TENSOR + pipeline.TILE

    def ir(self, after: str | None = None, **sizes: int) -> str:
        """The IR text at the end of the pipeline, or after a pass (`lower`: before the first one).

        Untyped tensors are f32; the sizes are those of the program's `sizes` line, unless given.
        """
        from tilec.text import show

        names = ["lower", *self.passes]
        if after is not None and after not in names:
            raise ArgumentError(
                f"no pass is called {after!r} here; expected one of {', '.join(names)}"
            )
        stages = self.stages(sizes=sizes)
        found = next(k for n, k in stages if n == after) if after else _last(stages)
        return show(found)

    def stages(
        self,
        *,
        dtype: DType = "f32",
        sizes: Mapping[str, int] | None = None,
        steps: pipeline.Pipeline | None = None,
    ) -> Iterator[tuple[str, IR]]:
        """The name of each pass and the IR after it, the first being `lower`. `steps`: another pipeline."""
        known = {**self._source.sizes, **self._own(sizes or {})}
        kernel = self._all_of(dtype)
        yield "lower", kernel
        if steps is not None:
            yield from pipeline.stages(kernel, steps, sizes=known)
            return
        target = self._target or "cpu"
        if target == "reference":
            return
        online = kernel
        for name, online in pipeline.stages(kernel, pipeline.tensor_pipeline()):
            yield name, online
        yield from pipeline.stages(online, self._tile_steps(target, online, known), sizes=known)

    def _tile_steps(self, target: str, online: IR, sizes: Mapping[str, int]) -> pipeline.Pipeline:
        """The passes that cut a kernel into the tiles that run on a target, as far as the sizes decide on them."""
        found: pipeline.Pipeline = ()
        if not self._tile and all(d in sizes for d in online.dims):
            needed = {d: sizes[d] for d in online.dims}
            found = backend.tile_steps(online, needed, target, self._schedule)
        return found or self._default_steps(target)[len(pipeline.TENSOR) :]

    def _default_steps(self, target: str) -> pipeline.Pipeline:
        if target == "reference":
            return ()
        workers = (
            backend.workers(target, self._schedule) if backend.WORKERS in self._schedule else None
        )
        tensor, tiles = (
            pipeline.tensor_pipeline(),
            pipeline.tile_pipeline({}, self._tile, target, workers),
        )
        # the sizes that specialise fixes are known only after the tensor passes
        return tensor + tuple(pipeline.Step(s.name) if s.name == "specialise" else s for s in tiles)

    def source(
        self,
        target: str = "llvm",
        *,
        dtype: DType | None = None,
        processor: str | None = None,
        **sizes: int,
    ) -> str:
        """The generated code: `llvm` for LLVM IR, `asm` for assembly; `cuda`, `ptx` or `sass`.

        A target stands for its first form: `cpu` for LLVM IR, `cuda:sm_80` for CUDA for this GPU. `dtype`: the element type
        of untyped tensors; without one f32 on a CPU, f16 on a GPU. `processor`: sse, avx, avx2, avx512 or neon for LLVM IR
        and assembly of another processor than this machine's.
        """
        if target == "cpu":
            target = "llvm"
        if backend.on_gpu(choices.text("source", target)) and target != "cuda":
            there = Kernel(self._source, target=target, tile=self._tile, schedule=self._schedule)
            return there.source("cuda", dtype=dtype, processor=processor, **sizes)
        if target in backend.CPU_FORMS:
            tiles = _last(self.stages(dtype=dtype or "f32", sizes=sizes))
            return backend.source(tiles, target, processor=processor)
        if target not in backend.GPU_FORMS:
            forms = ", ".join(backend.CPU_FORMS + backend.GPU_FORMS)
            raise UnsupportedError(
                f"no code of the kind {target!r} can be made; what works is {forms}"
            )
        if processor is not None:
            raise UnsupportedError(
                f"processor={processor!r} goes with {' and '.join(backend.CPU_FORMS)}; {target} is code for a GPU"
            )
        from tilec.backends.cuda import target as cuda

        return cuda.source(self.gpu_code(dtype=dtype, called=False, **sizes), target)

    def gpu_code(self, *, dtype: DType | None = None, called: bool = False, **sizes: int) -> Code:
        """The CUDA text for a GPU, and what its kernels take. Untyped tensors are f16 unless `dtype` says otherwise.

        The GPU is that of the kernel's target; where that is no GPU, the one of this machine, else an H100. `called`: what
        a call would run, which on a device with more shared memory than that GPU has may be something else.
        """
        from tilec.backends.cuda import target as cuda

        own = self._target if self._target and backend.on_gpu(self._target) else "cuda"
        steps = self._default_steps(own)
        tiles = _last(self.stages(dtype=dtype or "f16", sizes=sizes, steps=steps))
        online = self._after_tensor_passes(
            tuple(t.dtype for t in tiles.tensors.values()),
            self._all_of(dtype or "f16"),
        )
        known = self._sizes(sizes)
        before = None if self._tile else cuda.Online(online, {d: known[d] for d in online.dims})
        if called and before is not None:
            before = cuda.here(before, cuda.arch_of(own))
        return cuda.code_for(tiles, own, self._schedule, before)

    def traffic(self, *, dtype: DType = "f32", **sizes: int) -> list[tuple[str, Budget]]:
        """The bytes between HBM and on-chip memory as the program stands (`lower`) and after each pass.

        Where data decides what runs, it is that of `sample`.
        """
        from tilec.traffic import budget

        known, scalars = self.environment(sizes)
        stages = list(self.stages(dtype=dtype, sizes=known))
        arrays = self.deciding([kernel for _, kernel in stages], dtype, known)
        return [(name, budget(kernel, known, scalars, arrays)) for name, kernel in stages]

    def environment(
        self, sizes: Mapping[str, int], scalars: Mapping[str, Number] | None = None
    ) -> tuple[dict[str, int], dict[str, Number]]:
        """All sizes and all scalars, those that are not given from the program's `sizes` line and the defaults."""
        known = self._sizes(sizes)
        given = binding.numbers(self._signature, dict(scalars or {}))
        lacking = [
            n for n, p in self._signature.arguments.items() if p.default is None and n not in given
        ]
        if lacking:
            raise ArgumentError(f"argument {lacking[0]} is missing: it has no default")
        return known, binding.scalar_values(self._signature, given, known)

    def _sizes(self, sizes: Mapping[str, int]) -> dict[str, int]:
        """The program's sizes with those given on top. Raises ArgumentError for one that is missing or unknown."""
        known = {**self._source.sizes, **self._own(sizes)}
        dims = self._signature.dims
        lacking = [d for d in dims if d not in known]
        if lacking:
            raise ArgumentError(
                f"no size is known for {', '.join(lacking)}; give it, or add `sizes {lacking[0]}=…` to the program"
            )
        return {d: known[d] for d in dims}

    def _own(self, sizes: Mapping[str, object]) -> dict[str, int]:
        """Sizes given by the user. Raises ArgumentError for one of a dimension that the kernel lacks, or of no use."""
        dims = self._signature.dims
        for n in sizes:
            if n not in dims:
                raise ArgumentError(
                    f"{self.name} has no dimension {n!r}; its dimensions are {', '.join(dims)}"
                )
        return choices.sizes(sizes)

    def sample(self, seed: int = 0, *, dtype: DType = "f32", **sizes: int) -> dict[str, Any]:
        """NumPy arrays that fit the tensor parameters, by name.

        They come from the program's `sample` lines; else floats are standard normal and integers zero. Sizes that are
        not given are those of the program's `sizes` line.
        """
        from tilec.sample import draw

        kernel = self._all_of(dtype)
        return draw(self._source, kernel, self._sizes(sizes), choices.seed(seed))

    def deciding(
        self, kernels: Iterable[IR], dtype: DType, sizes: Mapping[str, int]
    ) -> dict[str, Any]:
        """Sample data for the tensors whose contents decide which ops of some IRs of this kernel run; mostly none."""
        from tilec.control import Control
        from tilec.sample import draw

        names = {t for k in kernels for t in Control(k, usual=True).tensors}
        return draw(self._source, self._all_of(dtype), sizes, 0, names) if names else {}

    def reference(self, /, *tensors: Any, **named: Any) -> Any:
        """The result of the interpreter in float64, as NumPy arrays: what the program means, exactly."""
        import numpy

        from tilec.backends.reference import interpreter

        given = binding.by_name(self._signature, tensors, named)
        names = self._signature.tensors
        arrays = {n: view(n, given[n]) for n in names}
        kernel = self._typed(arrays)
        bound = binding.bind(kernel, arrays, binding.numbers(kernel, given))
        bounds.check(kernel, bounds.indices(kernel), bound, self._source.written)
        outcome = interpreter.run(kernel, {n: a.numpy() for n, a in arrays.items()}, bound.scalars)
        values = tuple(
            numpy.asarray(outcome.outputs[o.name], "float64" if kind(o.dtype) == "float" else None)
            for o in kernel.outputs
        )
        return values[0] if len(values) == 1 else values

    def grad(self, wrt: Sequence[str] | None = None) -> NoReturn:
        """The backward kernel. Not there yet: raises UnsupportedError."""
        raise UnsupportedError(
            f"{self.name}.grad: tilec makes no backward kernels yet; what works is the forward call"
        )

    def tune(
        self,
        /,
        *tensors: Any,
        budget: float = 60.0,
        space: str | None = None,
        jobs: int = 1,
        resume: bool = False,
        progress: Callable[..., None] | None = None,
        **named: Any,
    ) -> Leaderboard:
        """Searches tile extents (and schedule fields, where the target has some) on these arguments.

        The winner is stored for these element types and near sizes; later calls take it where the user gave no `tile`.
        `budget`: seconds. `space`: what to try, as in `"i=64,128 j=32,64"`. `jobs`: compiling processes, 0 for none.
        `resume`: keep what an earlier search measured. `progress(done, total, last, best)` sees every candidate. Raises
        ArgumentError for a space or a budget of no use, UnsupportedError for the target `reference`.
        """
        from tilec.tuning import search, use

        options = search.Options(budget, None if space is None else [space], jobs, resume, progress)
        search.check(options)
        given = binding.by_name(self._signature, tensors, named)
        names = self._signature.tensors
        target = self._target or backend.target_of({n: device_of(given[n]) for n in names})
        if target == "reference":
            raise UnsupportedError(
                "tune: the target reference has no schedule; what works is cpu, cuda"
            )
        arrays = {n: backend.see(n, given[n], target) for n in names}
        kernel = self._typed(arrays)
        bound = binding.bind(kernel, arrays, binding.numbers(self._signature, given))
        bounds.check(kernel, bounds.indices(kernel), bound, self._source.written)
        online = self._after_tensor_passes(tuple(t.dtype for t in kernel.tensors.values()), kernel)
        call = use.Call(kernel, online, arrays, bound, self._results(kernel, bound), target)
        self._plans.clear()
        self._repeats.clear()
        return call.tune(self._fixed(online, bound.sizes), options)


def _again(
    text: str,
    file: str,
    name: str,
    target: str | None,
    tile: Mapping[str, int],
    schedule: Mapping[str, object],
) -> Kernel:
    """A kernel that was pickled."""
    return Kernel(Source.of(text, file, name), target=target, tile=tile, schedule=schedule)


def _last(stages: Iterator[tuple[str, IR]]) -> IR:
    """The IR at the end of a pipeline."""
    *_, (_, kernel) = stages
    return kernel


def compile(
    text: str,
    *,
    name: str | None = None,
    target: str | None = None,
    tile: Mapping[str, int] | None = None,
    schedule: Mapping[str, object] | None = None,
) -> Kernel:
    """A kernel from a program's text.

    `name`: which kernel of the program, None for the first. `target`: `cpu`, `reference`, or None for that of the
    arrays of each call. `tile`: extents by axis, such as `{"i": 128, "j": 64}`. Raises SourceError for mistakes in the
    program.
    """
    return Kernel(
        Source.of(choices.program(text), "<text>", name),
        target=target,
        tile=tile,
        schedule=schedule,
    )


def load(
    path: str | os.PathLike[str],
    *,
    name: str | None = None,
    target: str | None = None,
    tile: Mapping[str, int] | None = None,
    schedule: Mapping[str, object] | None = None,
) -> Kernel:
    """A kernel from a `.tile` file; like `compile` otherwise. Raises ArgumentError for a file that cannot be read."""
    file = choices.path(path)
    return Kernel(Source.of(read(file), file, name), target=target, tile=tile, schedule=schedule)


def read(file: str) -> str:
    """The text of a program's file. Raises ArgumentError where it cannot be read, SourceError where it is not UTF-8."""
    try:
        data = Path(file).read_bytes()
    except (OSError, ValueError) as e:  # ValueError: a NUL in the name
        raise ArgumentError(f"cannot read {file}: {getattr(e, 'strerror', None) or e}") from e
    try:
        return data.decode("utf-8-sig").replace("\r\n", "\n")
    except UnicodeDecodeError as e:
        text = data.decode("latin-1")
        line, column = text.count("\n", 0, e.start) + 1, e.start - text.rfind("\n", 0, e.start)
        span = Span(file, line, column, line, column + 1)
        hint = "save the file as UTF-8"
        raise SourceError([Diagnostic(span, "this byte is not UTF-8", hint)], text) from e
