"""`tilec doctor` and `tilec cache`: the machine, and what is kept on it."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from tilec.cli import options
from tilec.errors import ArgumentError
from tilec.wording import count

if TYPE_CHECKING:
    from tilec.tuning.store import Winner

cache = typer.Typer(name="cache", no_args_is_help=True, rich_markup_mode=None)


def doctor(
    measure: Annotated[
        bool,
        typer.Option(
            "--measure",
            help="Measure the ceilings of the processors and of the GPU (some seconds); keep them.",
        ),
    ] = False,
    json: options.Json = False,
) -> None:
    """Say what this machine offers, and what is missing."""
    from tilec import ceilings
    from tilec.doctor import examine

    if measure:
        ceilings.measure()
        if ceilings.gpu("cuda"):
            ceilings.measure("cuda")
    findings = examine()
    if json:
        options.print_json([asdict(f) for f in findings])
    else:
        wide = max(len(f.name) for f in findings)
        for f in findings:
            mark = {True: "ok", False: "MISSING", None: "-"}[f.ok]
            print(f"{f.name:{wide}} {mark:8} {f.found}" + (f"  ({f.remedy})" if f.remedy else ""))
    if any(f.ok is False for f in findings):
        raise typer.Exit(1)


@cache.callback()
def about() -> None:
    """List, verify and clear what is cached."""


@cache.command("list")
def list_(json: options.Json = False) -> None:
    """List compiled objects and tuned schedules."""
    from tilec.backends.cpu.jit import cache_directory
    from tilec.doctor import measure, objects

    path = cache_directory()
    number, size = measure(path)
    winners = _winners()
    if json:
        sizes = {p.stem: p.stat().st_size for p in objects(path)}
        options.print_json(
            {
                "path": str(path),
                "bytes": size,
                "objects": sizes,
                "schedules": [
                    {**asdict(w.key), "tile": w.choice.tile, "schedule": w.choice.schedule}
                    | {"seconds": w.seconds, "speed": w.gain, "id": w.key.digest[:12]}
                    for w in winners
                ],
            }
        )
        return
    for p in objects(path):
        print(f"{p.stem}  {p.stat().st_size:,} bytes")
    print(f"{path}: {count(number, 'object')}, {size:,} bytes")
    for w in winners:
        print(
            f"{w.key.digest[:12]}  {w.key.kernel}({w.key.sizes}; {w.key.types}) on {w.key.target}: {w.choice}, "
            f"{w.gain:.2f}x the default"
        )
    print(count(len(winners), "tuned schedule"))


def _winners() -> list[Winner]:
    from tilec.tuning import store

    if not store.exists():
        return []
    with store.open_store() as s:
        return s.winners()


@cache.command()
def verify() -> None:
    """Check each entry's checksum."""
    from tilec.backends.cpu.jit import Entry, cache_directory
    from tilec.doctor import objects

    bad = [p for p in objects(cache_directory()) if Entry.unpack(p.read_bytes()) is None]
    for p in bad:
        print(f"damaged: {p}")
    print(f"{count(len(objects(cache_directory())) - len(bad), 'object')} read, {len(bad)} damaged")
    print(f"{count(len(_winners()), 'tuned schedule')} read")  # raises where one is damaged
    if bad:
        raise typer.Exit(1)


@cache.command()
def clear(
    tuned: Annotated[
        bool, typer.Option("--tuned", help="Remove the tuned schedules, not the objects.")
    ] = False,
) -> None:
    """Remove every compiled object, or every tuned schedule."""
    from tilec.backends.cpu.jit import cache_directory
    from tilec.doctor import objects
    from tilec.tuning import store

    if tuned:
        there = store.exists()
        store.path().unlink(missing_ok=True)
        print(f"tuned schedules removed: {store.path()}" if there else "there were none")
        return
    found = objects(cache_directory())
    for p in found:
        p.unlink(missing_ok=True)
    print(f"{len(found)} objects removed from {cache_directory()}")


@cache.command()
def remove(
    ids: Annotated[list[str], typer.Argument(metavar="ID…", help="As `tilec cache list` shows.")],
) -> None:
    """Forget some tuned schedules."""
    from tilec.tuning import store

    digests = [w.key.digest for w in _winners()]
    chosen: list[str] = []
    for id_ in ids:
        found = [d for d in digests if d.startswith(id_)]
        if len(found) != 1:
            raise ArgumentError(
                f"{id_!r} is the id of {len(found)} schedules, expected one; see `tilec cache list`"
            )
        chosen += found
    with store.open_store() as s:
        s.remove(chosen)
    print(f"{len(chosen)} schedules removed")
