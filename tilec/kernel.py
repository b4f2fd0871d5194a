"""A kernel as Python sees it: compiled from text, called on arrays, and looked into."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn

from tilec import backend, binding, choices, pipeline, scalar
from tilec.arrays import view
from tilec.dtypes import DType, kind
from tilec.errors import ArgumentError, UnsupportedError
from tilec.ir import Argument, Tensor
from tilec.ir import Kernel as IR
from tilec.plans import Plan, Plans, results
from tilec.scalar import Number, Scalar
from tilec.source import Source, read
from tilec.stages import Stages
from tilec.versions import Versions

if TYPE_CHECKING:
    from tilec.backends.cuda.code import Code
    from tilec.traffic import Budget
    from tilec.tuning.board import Leaderboard
    from tilec.tuning.store import Winner


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
        self._header = source.header
        choices.tiled(self._tile, source.name, self._header.extents)
        self._versions = Versions(source, self._tile, self._schedule)
        self._stages = Stages(self._versions, target)
        self._calls = Plans(self._versions, target)

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
        return tuple(map(self._parameter, self._header.params))

    def _parameter(self, p: Tensor | Argument) -> Parameter:
        if isinstance(p, Argument):
            default = None if p.default is None else scalar.show(p.default)
            return Parameter(p.name, p.type, None, default)
        dtype = None if p.name in self._source.untyped else p.dtype
        return Parameter(p.name, dtype, tuple(scalar.show(d) for d in p.dims))

    @property
    def outputs(self) -> tuple[Parameter, ...]:
        """The outputs in order. Their `dims` are axes."""
        follow = self._source.facts.following
        return tuple(
            Parameter(o.name, None if o.name in follow else o.dtype, o.axes)
            for o in self._header.outputs
        )

    @property
    def text(self) -> str:
        """The text of the program."""
        return self._source.text

    @property
    def signature(self) -> IR:
        """The program's IR with f32 for every untyped tensor: for what does not depend on element types."""
        return self._source.lowered({})

    @property
    def dims(self) -> tuple[str, ...]:
        """The names of the dimensions, in order of appearance."""
        return self._header.dims

    @property
    def axes(self) -> dict[str, Scalar]:
        """The axes and how far each ranges."""
        return dict(self._header.extents)

    @property
    def siblings(self) -> tuple[str, ...]:
        """The names of all kernels of the program."""
        return self._source.facts.kernels

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
        source = self._source
        chosen = self._target, dict(self._tile), dict(self._schedule)
        return _again, (source.text, source.file, self.name, *chosen)

    # ---- calling

    def __call__(self, /, *tensors: Any, out: Any = None, **named: Any) -> Any:
        """Runs the kernel on arrays of NumPy, PyTorch, JAX or DLPack; gives arrays of the library that came in.

        Tensors are given by position or name, scalars by name. `out`: the array to write, for several outputs a tuple
        in the order of the signature. One output comes as an array, several as a tuple. Raises ArgumentError for
        arguments that do not fit, UnsupportedError and ResourceError for what the target cannot do.
        """
        return self._calls.call(tensors, named, out)

    def plan(self, /, *tensors: Any, **named: Any) -> Plan:
        """What a call with these arguments would run. Raises what the call would."""
        return self._calls.plan(self._calls.arguments(tensors, named))

    def tuned(self, *, dtype: DType = "f32", sizes: Mapping[str, int]) -> Winner | None:
        """The schedule that a search stored, or that is shipped, for calls of these sizes; None where the rule decides, or
        the `tile` and `schedule` of this kernel."""
        versions = self._versions
        return versions.tuned(self._target or "cpu", versions.all_of(dtype), sizes)

    # ---- looking into it

    @property
    def passes(self) -> tuple[str, ...]:
        """The names of the passes of the default pipeline, in order."""
        return () if self._target == "reference" else pipeline.TENSOR + pipeline.TILE

    def passes_for(
        self, *, dtype: DType = "f32", sizes: Mapping[str, int] | None = None
    ) -> tuple[str, ...]:
        """The names of the passes that run for these sizes, in order. Sizes that are not given are the program's."""
        return tuple(s.name for s in self._stages.steps(dtype, sizes or {}))

    def ir(self, after: str | None = None, **sizes: int) -> str:
        """The IR text at the end of the pipeline, or after a pass (`lower`: before the first one).

        Untyped tensors are f32; the sizes are those of the program's `sizes` line, unless given.
        """
        from tilec.text import show

        if after is None:
            return show(self._stages.last("f32", sizes))
        found = next((k for n, k in self.stages(sizes=sizes) if n == after), None)
        if found is None:
            names = ", ".join(["lower", *self.passes_for(sizes=sizes)])
            raise ArgumentError(f"no pass is called {after!r} here; expected one of {names}")
        return show(found)

    def stages(
        self,
        *,
        dtype: DType = "f32",
        sizes: Mapping[str, int] | None = None,
        steps: pipeline.Pipeline | None = None,
    ) -> Iterator[tuple[str, IR]]:
        """The name of each pass and the IR after it, the first being `lower`. `steps`: another pipeline."""
        return self._stages.along(dtype, sizes or {}, steps)

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
        return self._stages.code(target, dtype, processor, sizes)

    def gpu_code(self, *, dtype: DType | None = None, called: bool = False, **sizes: int) -> Code:
        """The CUDA text for a GPU, and what its kernels take. Untyped tensors are f16 unless `dtype` says otherwise.

        The GPU is that of the kernel's target; where that is no GPU, the one of this machine, else an H100. `called`: what
        a call would run, which on a device with more shared memory than that GPU has may be something else.
        """
        return self._stages.on_gpu(dtype, sizes, called=called)

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
        known = self._source.all_sizes(sizes)
        given = binding.numbers(self._header, dict(scalars or {}))
        lacking = [
            n for n, p in self._header.arguments.items() if p.default is None and n not in given
        ]
        if lacking:
            raise ArgumentError(f"argument {lacking[0]} is missing: it has no default")
        return known, binding.scalar_values(self._header, given, known)

    def sample(self, seed: int = 0, *, dtype: DType = "f32", **sizes: int) -> dict[str, Any]:
        """NumPy arrays that fit the tensor parameters, by name.

        They come from the program's `sample` lines; else floats are standard normal and integers zero. Sizes that are
        not given are those of the program's `sizes` line.
        """
        from tilec.sample import draw

        kernel = self._versions.all_of(dtype).lowered
        return draw(self._source, kernel, self._source.all_sizes(sizes), choices.seed(seed))

    def deciding(
        self, kernels: Iterable[IR], dtype: DType, sizes: Mapping[str, int], seed: int = 0
    ) -> dict[str, Any]:
        """Sample data for the tensors whose contents decide which ops of some IRs of this kernel run; mostly none."""
        from tilec.control import Control
        from tilec.sample import draw

        names = {t for k in kernels for t in Control(k, usual=True).tensors}
        kernel, seed = self._versions.all_of(dtype).lowered, choices.seed(seed)
        return draw(self._source, kernel, sizes, seed, names) if names else {}

    def reference(self, /, *tensors: Any, **named: Any) -> Any:
        """The result of the interpreter in float64, as NumPy arrays: what the program means, exactly."""
        return self._interpreted(tensors, named)

    def plain(self, /, *tensors: Any, **named: Any) -> Any:
        """The same in the program's own types, one term of a sum of products after the other: how far off rounding leads."""
        return self._interpreted(tensors, named, rounding=True, in_order=True)

    def _interpreted(self, tensors: Sequence[Any], named: Mapping[str, Any], **how: bool) -> Any:
        import numpy

        from tilec.backends.reference import interpreter

        given = binding.by_name(self._header, tensors, named)
        names = self._header.tensors
        arrays = {n: view(n, given[n]) for n in names}
        typed, bound = self._calls.bound(arrays, binding.numbers(self._header, given))
        kernel, plain = typed.lowered, {n: a.numpy() for n, a in arrays.items()}
        outcome = interpreter.run(kernel, plain, bound.scalars, **how)
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
        notice: Callable[[str], None] | None = None,
        **named: Any,
    ) -> Leaderboard:
        """Searches tile extents (and schedule fields, where the target has some) on these arguments.

        The winner is stored for these element types and near sizes; later calls take it where the user gave no `tile`.
        `budget`: seconds. `space`: what to try, as in `"i=64,128 j=32,64"`. `jobs`: compiling processes, 0 for none.
        `resume`: keep what an earlier search measured. `progress(done, total, last, best)` sees every candidate;
        `notice(text)` hears what is done before, where that takes long, and that another search is waited for. Raises
        ArgumentError for a space or a budget of no use, ResourceError where a call takes longer than the budget,
        UnsupportedError for the target `reference`.
        """
        from tilec.tuning import problem, use

        asked = None if space is None else [space]
        options = problem.Options(budget, asked, jobs, resume, progress, notice)
        problem.check(options)
        arguments = self._calls.arguments(tensors, named)
        target, arrays = arguments.target, arguments.arrays
        if target == "reference":
            raise UnsupportedError(
                "tune: the target reference has no schedule; what works is cpu, cuda"
            )
        typed, bound = self._calls.bound(arrays, arguments.scalars)
        kernel = typed.lowered
        call = use.Call(kernel, typed.online, arrays, bound, results(kernel, bound), target)
        self._calls.clear()
        return call.tune(typed.fixed(bound.sizes), options)


def _again(
    text: str,
    file: str,
    name: str,
    target: str | None,
    tile: Mapping[str, int],
    schedule: Mapping[str, object],
) -> Kernel:
    """A kernel that was pickled."""
    return Kernel(Source(text, file, name), target=target, tile=tile, schedule=schedule)


def compile(
    text: str,
    *,
    name: str | None = None,
    target: str | None = None,
    tile: Mapping[str, int] | None = None,
    schedule: Mapping[str, object] | None = None,
) -> Kernel:
    """A kernel from a program's text.

    `name`: which kernel of the program, None for the first. `target`: `cpu`, `cuda` or a kind of GPU (`cuda:sm_90a`),
    `reference`, or None for that of the arrays of each call. `tile`: positions of a tile by axis, such as
    `{"i": 128, "j": 64}`. `schedule`: fields by name, such as `{"stages": 3}` on a GPU, `{"workers": 8}` on a CPU; a search
    or a rule chooses where neither is given. Raises SourceError for mistakes in the program, ArgumentError for a kernel, a
    target, an axis or a field that there is not, UnsupportedError for a GPU that is too old.
    """
    return Kernel(
        Source(choices.program(text), "<text>", name),
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
    return Kernel(Source(read(file), file, name), target=target, tile=tile, schedule=schedule)
