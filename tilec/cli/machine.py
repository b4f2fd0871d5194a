"""`tilec doctor` and `tilec cache`: the machine, and what is kept on it."""

from __future__ import annotations

import typer

from tilec.cli import options

cache = typer.Typer(name="cache", no_args_is_help=True, rich_markup_mode=None)


def doctor(json: options.Json = False) -> None:
    """Say what this machine offers, and what is missing."""
    from dataclasses import asdict

    from tilec.doctor import examine

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
    """List the compiled objects and their sizes."""
    from tilec.backends.cpu.jit import cache_directory
    from tilec.doctor import measure, objects

    path = cache_directory()
    count, size = measure(path)
    if json:
        sizes = {p.stem: p.stat().st_size for p in objects(path)}
        options.print_json({"path": str(path), "bytes": size, "objects": sizes})
        return
    for p in objects(path):
        print(f"{p.stem}  {p.stat().st_size:,} bytes")
    print(f"{path}: {count} objects, {size:,} bytes")


@cache.command()
def verify() -> None:
    """Check each entry's checksum."""
    from tilec.backends.cpu.jit import Entry, cache_directory
    from tilec.doctor import objects

    bad = [p for p in objects(cache_directory()) if Entry.unpack(p.read_bytes()) is None]
    for p in bad:
        print(f"damaged: {p}")
    print(f"{len(objects(cache_directory())) - len(bad)} entries are whole, {len(bad)} damaged")
    if bad:
        raise typer.Exit(1)


@cache.command()
def clear() -> None:
    """Remove every compiled object."""
    from tilec.backends.cpu.jit import cache_directory
    from tilec.doctor import objects

    found = objects(cache_directory())
    for p in found:
        p.unlink(missing_ok=True)
    print(f"{len(found)} objects removed from {cache_directory()}")
