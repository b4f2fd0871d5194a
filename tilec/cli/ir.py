"""`tilec ir` and `tilec opt`: the IR of a program, and passes over IR text."""

from __future__ import annotations

import difflib
import itertools
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from tilec.cli import options
from tilec.errors import ArgumentError, SourceError, UnsupportedError

if TYPE_CHECKING:
    from tilec.ir import Kernel as IR
    from tilec.kernel import Kernel

Passes = Annotated[
    str | None,
    typer.Option("--passes", metavar="a,b:x=1,…", help="Another pipeline: passes, with options."),
]


def ir(
    file: options.File,
    after: Annotated[
        str | None,
        typer.Option(
            "--after",
            metavar="PASS",
            help="The IR after this pass; `pipeline`: the plan for a GPU's warpgroups.",
        ),
    ] = None,
    every: Annotated[bool, typer.Option("--all", help="The IR after every pass.")] = False,
    diff: Annotated[bool, typer.Option("--diff", help="What each pass changed.")] = False,
    list_: Annotated[bool, typer.Option("--list", help="The passes of the pipeline.")] = False,
    passes: Passes = None,
    bytes_: Annotated[bool, typer.Option("--bytes", help="The byte budget per op.")] = False,
    locations: Annotated[
        bool, typer.Option("--locations", help="Where each op comes from.")
    ] = False,
    html: Annotated[
        str | None,
        typer.Option("--html", metavar="FILE.html", help="Write all of it to one page."),
    ] = None,
    dot: Annotated[
        bool, typer.Option("--dot", help="The dataflow graph, in the DOT language.")
    ] = False,
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
    if len(chosen) > 1:
        raise typer.BadParameter("give one of these", param_hint=" and ".join(chosen))
    if json and not bytes_:
        raise typer.BadParameter("only --bytes has figures", param_hint="--json")
    if after is not None and chosen in (["--list"], ["--html"]):
        raise typer.BadParameter("give one of these", param_hint=f"--after and {chosen[0]}")
    if locations and chosen not in ([], ["--all"], ["--diff"]):
        raise typer.BadParameter(f"{chosen[0]} shows none", param_hint="--locations")
    kernel = options.load(file, target, tile, schedule)
    if after == "pipeline" and not chosen:
        if passes is not None:
            raise typer.BadParameter(
                "give one of these", param_hint="--passes and --after pipeline"
            )
        _print_plans(kernel, dtype, size)
        return
    stages = _stages(kernel, passes, dtype, size, after)
    if html is not None:
        _write_page(kernel, list(stages), html, dtype, size, set_, seed)
    elif dot:
        from tilec.page.graph import dot as graph

        print(graph(_last(stages)), end="")
    elif list_:
        _print_list(kernel, passes)
    elif diff:
        _print_diff(list(stages), locations)
    elif bytes_:
        _print_bytes(kernel, _last(stages), dtype, size, set_, seed, json)
    elif every:
        for name, k in stages:
            print(f"# after {name}\n{_text(k, locations)}")
    else:
        print(_text(_last(stages), locations), end="")


def _print_plans(kernel: Kernel, dtype: str | None, size: options.Strings) -> None:
    """Which warpgroup does what, and when: the last level before CUDA text."""
    sizes = options.integers("--size", size, 0)
    options.check_sizes(kernel, sizes)
    element = None if dtype is None else options.element_type(dtype)
    code = kernel.gpu_code(dtype=element, called=False, **sizes)
    if not code.plans:
        why = code.note or f"the emitter for {code.arch} is {code.emitter}"
        raise UnsupportedError(f"--after pipeline: {kernel.name} has no plan for warpgroups: {why}")
    print("\n".join(code.plans), end="")


def _stages(
    kernel: Kernel,
    passes: str | None,
    dtype: str | None,
    size: options.Strings,
    after: str | None,
) -> Iterator[tuple[str, IR]]:
    """The IR before and after each pass, up to that of `--after`."""
    from tilec import pipeline

    sizes = options.integers("--size", size, 0)
    options.check_sizes(kernel, sizes)
    steps = None if passes is None else pipeline.parse(passes)
    names = ["lower", *(kernel.passes if steps is None else (s.name for s in steps))]
    if after is not None and after not in names:
        raise ArgumentError(
            f"--after: {after!r} is not in this pipeline{options.nearest(after, names)}"
        )
    element = options.element_type(dtype, kernel.target)
    return _until(after, kernel.stages(dtype=element, sizes=sizes, steps=steps))


def _text(kernel: IR, locations: bool = False) -> str:
    from tilec.text import show

    return show(kernel, locations=locations)


def _until(after: str | None, stages: Iterable[tuple[str, IR]]) -> Iterator[tuple[str, IR]]:
    """The stages up to a pass, or all."""
    for name, kernel in stages:
        yield name, kernel
        if name == after:
            return


def _last(stages: Iterable[tuple[str, IR]]) -> IR:
    *_, (_, kernel) = stages
    return kernel


def _print_list(kernel: Kernel, passes: str | None) -> None:
    from tilec import pipeline

    names = kernel.passes if passes is None else [s.name for s in pipeline.parse(passes)]
    for name in names:
        print(f"{name:12} {pipeline.summary(name)}")


def _print_diff(stages: list[tuple[str, IR]], locations: bool) -> None:
    texts = [(name, _text(k, locations).splitlines()) for name, k in stages]
    for (old, before), (new, now) in itertools.pairwise(texts):
        lines = list(difflib.unified_diff(before, now, f"after {old}", f"after {new}", lineterm=""))
        print("\n".join(lines) if lines else f"# {new} changed nothing")


def _print_bytes(
    kernel: Kernel,
    ir: IR,
    dtype: str | None,
    size: options.Strings,
    set_: options.Strings,
    seed: int,
    json: bool,
) -> None:
    """The budget per op. Where data decides what runs, it is the sample data."""
    from tilec.traffic import budget, facts, show

    given = options.integers("--size", size, 0)
    sizes, scalars = kernel.environment(given, options.scalars(set_))
    arrays = kernel.deciding([ir], options.element_type(dtype, kernel.target), sizes, seed)
    found = budget(ir, sizes, scalars, arrays)
    if json:
        options.print_json(facts(found))
    else:
        print(show(found), end="")


def _write_page(
    kernel: Kernel,
    stages: list[tuple[str, IR]],
    file: str,
    dtype: str | None,
    size: options.Strings,
    set_: options.Strings,
    seed: int,
) -> None:
    from pathlib import Path

    from tilec import backend, ceilings, least, roofline
    from tilec.page.html import Page
    from tilec.traffic import budget

    given = options.integers("--size", size, 0)
    sizes, scalars = kernel.environment(given, options.scalars(set_))
    element = options.element_type(dtype, kernel.target)
    arrays = kernel.deciding([k for _, k in stages], element, sizes, seed)
    on_gpu = kernel.target is not None and backend.on_gpu(kernel.target)
    roof = ceilings.measured(kernel.target or "cpu")
    env = {**sizes, **scalars}
    code = (
        kernel.source("cuda", dtype=element, processor=None, **sizes)
        if on_gpu
        else backend.source(stages[-1][1], "llvm", placed=True)
    )
    online = dict(stages).get("online")
    kept = None if online is None else least.work(online, sizes, scalars, arrays)
    page = Page(
        f"{kernel.name}({', '.join(f'{n}={x:g}' for n, x in env.items())})",
        kernel.text,
        stages,
        [
            roofline.stage(name, k, budget(k, sizes, scalars, arrays), roof, kept)
            for name, k in stages
        ],
        "CUDA" if on_gpu else "LLVM IR",
        code,
    )
    try:
        Path(file).write_text(page.text(), encoding="utf-8")
    except OSError as e:
        raise ArgumentError(f"cannot write {file}: {e.strerror or e}") from e
    options.say(f"wrote {file}")


def opt(
    file: Annotated[str, typer.Argument(metavar="FILE.ir", help="IR text; - for standard input.")],
    passes: Annotated[
        str, typer.Option("--passes", metavar="a,b:x=1,…", help="The passes, with options.")
    ] = "",
    size: Annotated[
        options.Strings,
        typer.Option("--size", metavar="D=64,…", help="Sizes that a specialise step fixes."),
    ] = None,
    locations: Annotated[
        bool, typer.Option("--locations", help="Where each op comes from.")
    ] = False,
) -> None:
    """Read IR text, run passes, print IR text."""
    from tilec import pipeline
    from tilec.reader import read as read_ir
    from tilec.source import read
    from tilec.verify import fault

    text = options.standard_input() if file == "-" else read(file)
    name = "<stdin>" if file == "-" else file
    steps = pipeline.parse(passes)
    sizes = options.integers("--size", size, 0)
    try:
        kernels = read_ir(text, name)
    except SourceError as e:
        if not name.endswith(".tile"):
            raise
        say = f"{name} is a program, and opt takes IR text: `tilec ir {name}` takes programs, and --passes as well"
        raise ArgumentError(say) from e
    if not kernels:
        raise ArgumentError(f"{name} holds no kernel; `tilec ir FILE` prints one as IR text")
    for kernel in kernels:
        if wrong := fault(kernel):
            raise ArgumentError(f"{name}: {wrong}")
        print(_text(pipeline.run(kernel, steps, sizes=sizes), locations), end="")
