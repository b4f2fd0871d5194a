"""`tilec doctor` and `tilec cache`: the machine, and what is kept on it."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tilec.cli import options
from tilec.errors import ArgumentError
from tilec.wording import count

if TYPE_CHECKING:
    from pathlib import Path

    from tilec.tuning.store import Winner

cache = typer.Typer(name="cache", rich_markup_mode=None)


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


@cache.callback(invoke_without_command=True)
def about(context: typer.Context, json: options.Json = False) -> None:
    """List, verify and clear what is cached. Without a command: list."""
    if context.invoked_subcommand is None:
        list_(json=json)
    elif json:
        raise typer.BadParameter("put it behind the command", param_hint="--json")


@cache.command("list")
def list_(json: options.Json = False) -> None:
    """List compiled objects, what is known of programs, tuned schedules and measured ceilings."""
    facts = _facts()
    if json:
        options.print_json(facts)
        return
    for name, size in facts["objects"].items():
        print(f"{name}  {size:,} bytes")
    print(f"{facts['path']}: {count(len(facts['objects']), 'object')}, {facts['bytes']:,} bytes")
    rows = facts["rows"]
    print(f"{count(rows['count'], 'row')} of what is known of programs, {rows['bytes']:,} bytes")
    winners, damaged = _stored()
    for w in winners:
        print(
            f"{w.key.digest[:12]}  {w.key.kernel}({w.key.sizes}; {w.key.types}) on {w.key.target}: {w.choice}, "
            f"{w.gain:.2f}x the default"
        )
    for d in damaged:
        print(f"{d[:12]}  damaged, and not used; `tilec cache remove {d[:12]}` removes it")
    print(count(len(winners), "tuned schedule"))
    for machine in facts["ceilings"]:
        print(f"ceilings of {machine}")


def _facts() -> dict[str, Any]:
    """All that is kept, with its size in bytes."""
    from tilec import cache, ceilings

    rows = [p.stat().st_size for p in cache.rows()]
    sizes = {str(p.relative_to(cache.root())): p.stat().st_size for p in cache.objects()}
    winners, damaged = _stored()
    return {
        "path": str(cache.root()),
        "bytes": sum(sizes.values()),
        "objects": sizes,
        "rows": {"count": len(rows), "bytes": sum(rows)},
        "schedules": [
            {**asdict(w.key), "tile": w.choice.tile, "schedule": w.choice.schedule}
            | {"seconds": w.seconds, "speed": w.gain, "id": w.key.digest[:12]}
            for w in winners
        ],
        "damaged_schedules": [d[:12] for d in damaged],
        "ceilings": [c.machine for c in ceilings.kept().values() if c is not None],
    }


def _stored() -> tuple[list[Winner], list[str]]:
    """The schedules that are stored, and the digests of those that are damaged."""
    from tilec.tuning import store

    if not store.exists():
        return [], []
    with store.open_store() as s:
        return s.winners(), s.damaged()


@cache.command()
def verify(json: options.Json = False) -> None:
    """Check each entry: whether it is what was written, and only you can have written it."""
    from tilec import cache, ceilings

    objects, rows, roofs = cache.objects(), cache.rows(), ceilings.kept()
    winners, damaged = _stored()
    bad = [p for p in (*objects, *rows) if cache.read(p) is None]
    bad += [p for p, c in roofs.items() if c is None]
    if json:
        counts = {"objects": len(objects), "rows": len(rows), "ceilings": len(roofs)}
        facts = {**counts, "schedules": len(winners) + len(damaged)}
        wrong = {"damaged": [str(p) for p in bad], "damaged_schedules": [d[:12] for d in damaged]}
        options.print_json({**facts, **wrong})
        raise typer.Exit(1 if bad or damaged else 0)
    for p in bad:
        print(f"not used, for it is damaged or others can have written it: {p}")
    print(
        f"{count(len(objects), 'object')}, {count(len(rows), 'row')} and {count(len(roofs), 'file')} of ceilings read, ",
        end="",
    )
    print(f"{len(bad)} damaged")
    print(f"{count(len(winners) + len(damaged), 'tuned schedule')} read, {len(damaged)} damaged")
    if bad or damaged:
        raise typer.Exit(1)


@cache.command()
def clear(
    tuned: Annotated[
        bool, typer.Option("--tuned", help="Remove the tuned schedules, not the objects.")
    ] = False,
    measured: Annotated[
        bool, typer.Option("--ceilings", help="Remove the measured ceilings, not the objects.")
    ] = False,
) -> None:
    """Remove every compiled object and all rows, or every tuned schedule, or the measured ceilings."""
    from tilec import cache, ceilings
    from tilec.tuning import store

    if tuned:
        there = store.remove()
        print(f"tuned schedules removed: {store.path()}" if there else "there were none")
    if measured:
        print(f"ceilings of {_removed(list(ceilings.kept()))} machines removed")
    if not tuned and not measured:
        objects, rows = _removed(cache.objects()), _removed(cache.rows())
        print(f"{objects} objects removed from {cache.root()}, and {rows} rows")


def _removed(files: list[Path]) -> int:
    for p in files:
        p.unlink(missing_ok=True)
    return len(files)


@cache.command()
def remove(
    ids: Annotated[list[str], typer.Argument(metavar="ID…", help="As `tilec cache list` shows.")],
) -> None:
    """Forget some tuned schedules."""
    from tilec.tuning import store

    winners, damaged = _stored()
    digests = [*(w.key.digest for w in winners), *damaged]
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
    print(f"{count(len(chosen), 'schedule')} removed")
