"""`tilec ir` and `tilec opt`: the IR of a program, and passes over IR text."""

from __future__ import annotations

import difflib
import itertools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import typer

from tilec import scalar
from tilec.cli import files, options
from tilec.errors import ArgumentError, SourceError, UnsupportedError

if TYPE_CHECKING:
    from tilec.dtypes import DType
    from tilec.ir import Kernel as IR
    from tilec.kernel import Kernel
    from tilec.pipeline import Pipeline
    from tilec.scalar import Number

_Known: TypeAlias = "tuple[dict[str, int], dict[str, Number], dict[str, Any]]"
"""Sizes, scalars, and arrays that decide what runs."""

Passes = Annotated[
    str | None,
    typer.Option("--passes", metavar="a,b:x=1,…", help="Another pipeline: passes, with options."),
]
After = Annotated[
    str | None,
    typer.Option(
        "--after",
        metavar="PASS",
        help="The IR after this pass; `pipeline`: the plan for a GPU's warpgroups.",
    ),
]
Every = Annotated[bool, typer.Option("--all", help="The IR after every pass.")]
Diff = Annotated[bool, typer.Option("--diff", help="What each pass changed.")]
List = Annotated[bool, typer.Option("--list", help="The passes of the pipeline.")]
Bytes = Annotated[bool, typer.Option("--bytes", help="The byte budget per op.")]
Locations = Annotated[bool, typer.Option("--locations", help="Where each op comes from.")]
Html = Annotated[
    str | None, typer.Option("--html", metavar="FILE.html", help="Write all of it to one page.")
]
Dot = Annotated[bool, typer.Option("--dot", help="The dataflow graph, in the DOT language.")]


def ir(
    file: options.File,
    after: After = None,
    every: Every = False,
    diff: Diff = False,
    list_: List = False,
    passes: Passes = None,
    bytes_: Bytes = False,
    locations: Locations = False,
    html: Html = None,
    dot: Dot = False,
    size: options.Size = None,
    dtype: options.Dtype = None,
    set_: options.Set = None,
    target: options.Target = None,
    tile: options.Tile = None,
    schedule: options.Schedule = None,
    seed: options.Seed = 0,
    json: options.Json = False,
) -> None:
    """Print the IR at the end of the pipeline, or along it."""
    forms = {"--all": every, "--diff": diff, "--list": list_, "--bytes": bytes_, "--dot": dot}
    chosen = [name for name, wanted in {**forms, "--html": html is not None}.items() if wanted]
    _check(chosen, after, passes, locations, json)
    files.check(html)
    kernel = options.load(file, target, tile, schedule)
    if after == "pipeline" and not chosen:
        _check_planned(target)
        _print_plans(kernel, dtype, size)
        return
    asked = _asked(kernel, passes, dtype, size, set_, seed)
    if list_:
        _print_list(asked)
        return
    stages = asked.stages(after)
    if html is not None:
        _write_page(asked, list(stages), html)
    elif dot:
        from tilec.page.graph import dot as graph

        print(graph(_last(stages)), end="")
    elif diff:
        _print_diff(list(stages), locations)
    elif bytes_:
        _print_bytes(asked, _last(stages), json)
    elif every:
        for name, k in stages:
            print(f"# after {name}\n{_text(k, locations)}")
    else:
        print(_text(_last(stages), locations), end="")


def _check(
    forms: list[str], after: str | None, passes: str | None, locations: bool, json: bool
) -> None:
    """Raises a usage error for options that exclude each other. `forms`: those that say what is shown."""
    one = "give one of these"
    if len(forms) > 1:
        raise typer.BadParameter(one, param_hint=" and ".join(forms))
    if json and forms != ["--bytes"]:
        raise typer.BadParameter("only --bytes has figures", param_hint="--json")
    if after is not None and forms in (["--list"], ["--html"]):
        raise typer.BadParameter(one, param_hint=f"--after and {forms[0]}")
    if locations and forms not in ([], ["--all"], ["--diff"]):
        raise typer.BadParameter(f"{forms[0]} shows none", param_hint="--locations")
    if after == "pipeline" and passes is not None and not forms:
        raise typer.BadParameter(one, param_hint="--passes and --after pipeline")


def _check_planned(target: str | None) -> None:
    """Raises a usage error for a target that has no warpgroups. Without one, a plan is that for Hopper."""
    from tilec.backend import on_gpu

    if target is not None and not on_gpu(target):
        raise typer.BadParameter(
            "--after pipeline is for a GPU: give cuda:sm_90a", param_hint="--target"
        )


@dataclass(frozen=True)
class _Asked:
    """What is looked at: a kernel along a pipeline, its own where there are no `steps`, at these sizes. `scalars` and `seed`
    matter where bytes are counted."""

    kernel: Kernel
    steps: Pipeline | None
    dtype: DType
    sizes: dict[str, int]
    scalars: dict[str, Number]
    seed: int

    @property
    def passes(self) -> tuple[str, ...]:
        """The names of the passes, in order."""
        if self.steps is not None:
            return tuple(s.name for s in self.steps)
        return self.kernel.passes_for(dtype=self.dtype, sizes=self.sizes)

    def stages(self, after: str | None) -> Iterator[tuple[str, IR]]:
        """The IR before and after each pass, up to a pass, None for all."""
        if after is not None:
            _check_after(after, ["lower", *self.passes])
        stages = self.kernel.stages(dtype=self.dtype, sizes=self.sizes, steps=self.steps)
        return _until(after, stages)

    def counted(self, kernels: Iterable[IR]) -> _Known:
        """What is known where these IRs are counted. Where data decides what runs, it is the sample data."""
        sizes, scalars = self.kernel.environment(self.sizes, self.scalars)
        return sizes, scalars, self.kernel.deciding(kernels, self.dtype, sizes, self.seed)


def _asked(
    kernel: Kernel,
    passes: str | None,
    dtype: str | None,
    size: options.Strings,
    set_: options.Strings,
    seed: int,
) -> _Asked:
    from tilec import pipeline

    element, scalars = options.element_type(dtype, kernel.target), options.scalars(set_)
    options.check_scalars(kernel, scalars)
    steps = None if passes is None else pipeline.parse(passes)
    return _Asked(kernel, steps, element, options.sizes(kernel, size), scalars, seed)


def _check_after(after: str, names: list[str]) -> None:
    """Raises ArgumentError for the name of no pass of the pipeline."""
    from tilec import pipeline

    if after in names:
        return
    if after in pipeline.PASSES:
        there = ", ".join(names)
        raise ArgumentError(
            f"--after: {after!r} is not in this pipeline; there are {there} (--passes names others)"
        )
    raise ArgumentError(
        f"--after: {after!r} is not in this pipeline{options.nearest(after, names)}"
    )


def _until(after: str | None, stages: Iterable[tuple[str, IR]]) -> Iterator[tuple[str, IR]]:
    """The stages up to a pass, or all."""
    for name, kernel in stages:
        yield name, kernel
        if name == after:
            return


def _last(stages: Iterable[tuple[str, IR]]) -> IR:
    *_, (_, kernel) = stages
    return kernel


# ---- what is shown


def _text(kernel: IR, locations: bool = False) -> str:
    from tilec.text import show

    return show(kernel, locations=locations)


def _print_plans(kernel: Kernel, dtype: str | None, size: options.Strings) -> None:
    """Which warpgroup does what, and when: the last level before CUDA text."""
    element = None if dtype is None else options.element_type(dtype)
    code = kernel.gpu_code(dtype=element, called=False, **options.sizes(kernel, size))
    if not code.plans:
        why = code.note or f"the emitter for {code.arch} is {code.emitter}"
        raise UnsupportedError(f"--after pipeline: {kernel.name} has no plan for warpgroups: {why}")
    print("\n".join(code.plans), end="")


def _print_list(asked: _Asked) -> None:
    from tilec import pipeline

    for name in asked.passes:
        print(f"{name:12} {pipeline.summary(name)}")


def _print_diff(stages: list[tuple[str, IR]], locations: bool) -> None:
    texts = [(name, _text(k, locations).splitlines()) for name, k in stages]
    for (old, before), (new, now) in itertools.pairwise(texts):
        lines = list(difflib.unified_diff(before, now, f"after {old}", f"after {new}", lineterm=""))
        print("\n".join(lines) if lines else f"# {new} changed nothing")


def _print_bytes(asked: _Asked, ir: IR, json: bool) -> None:
    """The budget per op."""
    from tilec.traffic import budget, facts, show

    found = budget(ir, *asked.counted([ir]))
    if json:
        options.print_json(facts(found))
    else:
        print(show(found), end="")


def _write_page(asked: _Asked, stages: list[tuple[str, IR]], file: str) -> None:
    from tilec import ceilings, least, roofline
    from tilec.page.html import Page
    from tilec.traffic import budget

    kernel = asked.kernel
    known = sizes, scalars, _ = asked.counted(k for _, k in stages)
    roof = ceilings.measured(kernel.target or "cpu")
    online = dict(stages).get("online")
    kept = None if online is None else least.work(online, *known)
    page = Page(
        f"{kernel.name}({scalar.assigned({**sizes, **scalars})})",
        kernel.text,
        stages,
        [roofline.stage(name, k, budget(k, *known), roof, kept) for name, k in stages],
        *_code(asked, stages[-1][1], sizes),
    )
    files.write(file, page.text())
    options.say(f"wrote {file}")


def _code(asked: _Asked, tiles: IR, sizes: dict[str, int]) -> tuple[str, str]:
    """Which language the code of the tiles is in, and this code."""
    from tilec import backend

    target = asked.kernel.target
    if target is not None and backend.on_gpu(target):
        return "CUDA", asked.kernel.source("cuda", dtype=asked.dtype, processor=None, **sizes)
    return "LLVM IR", backend.source(tiles, "llvm", placed=True)


def opt(
    file: Annotated[str, typer.Argument(metavar="FILE.ir", help="IR text; - for standard input.")],
    passes: Annotated[
        str, typer.Option("--passes", metavar="a,b:x=1,…", help="The passes, with options.")
    ] = "",
    size: Annotated[
        options.Strings,
        typer.Option("--size", metavar="D=64,…", help="Sizes that a specialise step fixes."),
    ] = None,
    locations: Locations = False,
) -> None:
    """Read IR text, run passes, print IR text."""
    from tilec import pipeline
    from tilec.source import read
    from tilec.verify import fault

    text = options.standard_input() if file == "-" else read(file)
    name = "<stdin>" if file == "-" else file
    steps = pipeline.parse(passes)
    sizes = options.integers("--size", size, 0)
    for kernel in _kernels(text, name):
        if wrong := fault(kernel):
            raise ArgumentError(f"{name}: {wrong}")
        print(_text(pipeline.run(kernel, steps, sizes=sizes), locations), end="")


def _kernels(text: str, name: str) -> list[IR]:
    """The kernels of a file's IR text. Raises ArgumentError where there is none."""
    from tilec.reader import read

    try:
        kernels = read(text, name)
    except SourceError as e:
        if not name.endswith(".tile"):
            raise
        say = f"{name} is a program, and opt takes IR text: `tilec ir {name}` takes programs, and --passes as well"
        raise ArgumentError(say) from e
    if not kernels:
        raise ArgumentError(f"{name} holds no kernel; `tilec ir FILE` prints one as IR text")
    return kernels
