"""The schedules that were found: an SQLite file in the user's cache folder, which any number of processes share.

Each row carries a checksum, and each value is checked when it is read. A file that is not ours, that others may have
written or that is damaged is reported and never used. Every measured candidate is written at once, so that a search that
is killed loses no more than the candidate in flight.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import sqlite3
import stat
import time
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass, field
from pathlib import Path
from typing import Any, Literal, cast

from tilec import cache
from tilec.errors import TilecError
from tilec.tuning.key import Key

APPLICATION = 0x74696C65  # "tile"
VERSION = 1
PATIENCE = 30.0
"""Seconds that a process waits for another one's write."""
SCHEMA = """
create table winners(
  digest text primary key, program text, kernel text, types text, sizes text, target text, compiler text,
  tile text, schedule text, seconds real, gain real, at real, checksum text) without rowid;
create table trials(
  digest text, candidate text, state text, relative real, seconds real, note text, at real, checksum text,
  primary key (digest, candidate)) without rowid;
"""

State = Literal["running", "measured", "failed", "does not fit"]
UNFIT: Literal["does not fit"] = "does not fit"


class StoreError(TilecError):
    """The file of tuned schedules cannot be trusted or used: it names the file and what to do."""


@dataclass(frozen=True)
class Choice:
    """Tile extents by axis and schedule fields by name."""

    tile: Mapping[str, int] = field(default_factory=dict[str, int])
    schedule: Mapping[str, object] = field(default_factory=dict[str, object])

    def __str__(self) -> str:
        parts = {**self.tile, **self.schedule}
        return " ".join(f"{n}={x}" for n, x in parts.items()) or "default"

    @property
    def text(self) -> str:
        """As JSON, the same for equal choices."""
        return json.dumps([dict(self.tile), dict(self.schedule)], sort_keys=True)


@dataclass(frozen=True)
class Winner:
    """The best schedule found for a key: its time on the user's sizes, and how many times faster it was than the default.
    `shipped`: it came with the package."""

    key: Key
    choice: Choice
    seconds: float
    gain: float
    at: float
    shipped: bool = False


@dataclass(frozen=True)
class Trial:
    """A candidate that was tried. `relative`: its time over the default's."""

    choice: Choice
    state: State
    relative: float = 0.0
    seconds: float = 0.0
    note: str = ""


def path() -> Path:
    """The file of tuned schedules."""
    return cache.schedules()


class Store:
    """An open file of tuned schedules. Use it in a `with`."""

    def __init__(self, file: Path, connection: sqlite3.Connection) -> None:
        self.file, self._connection = file, connection

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()

    # ---- winners

    def winner(self, key: Key) -> Winner | None:
        """The schedule stored for a key. Raises StoreError where the row is damaged."""
        rows = self._rows("select * from winners where digest = ?", key.digest)
        return _winner(rows[0], self.file) if rows else None

    def winners(self) -> list[Winner]:
        """All that are sound."""
        return [w for w in self._all() if isinstance(w, Winner)]

    def damaged(self) -> list[str]:
        """The digests under which damaged rows are stored."""
        return [w for w in self._all() if isinstance(w, str)]

    def _all(self) -> Iterator[Winner | str]:
        for row in self._rows("select * from winners order by kernel, sizes, target"):
            try:
                yield _winner(row, self.file)
            except StoreError:
                yield str(row[0])

    def keep(self, w: Winner) -> None:
        """Stores a schedule in place of an older one for the same key."""
        key = w.key
        row = (
            *(
                key.digest,
                *astuple(key),
                json.dumps(dict(w.choice.tile)),
                json.dumps(dict(w.choice.schedule)),
            ),
            *(w.seconds, w.gain, w.at),
        )
        self._write("winners", row)

    def remove(self, digests: Sequence[str]) -> None:
        """Forgets what is stored under some keys, candidates included."""
        with self._changes() as c:
            for d in digests:
                c.execute("delete from winners where digest = ?", (d,))
                c.execute("delete from trials where digest = ?", (d,))

    # ---- trials

    def note(self, key: Key, t: Trial) -> None:
        """Writes down how far a candidate has come."""
        row = (key.digest, t.choice.text, t.state, t.relative, t.seconds, t.note, time.time())
        self._write("trials", row)

    def trials(self, key: Key) -> list[Trial]:
        """The candidates tried for a key so far; without those whose rows are damaged: they can be tried again."""
        out: list[Trial] = []
        for row in self._rows("select * from trials where digest = ?", key.digest):
            with contextlib.suppress(StoreError):
                out.append(_trial(row, self.file))
        return out

    def forget(self, key: Key) -> None:
        """Forgets the candidates of a key, not the winner."""
        with self._changes() as c:
            c.execute("delete from trials where digest = ?", (key.digest,))

    # ---- the connection

    def _rows(self, query: str, *values: object) -> list[tuple[Any, ...]]:
        with _reported(self.file):
            return self._connection.execute(query, values).fetchall()

    def _write(self, table: str, row: tuple[object, ...]) -> None:
        marks = ", ".join("?" * (len(row) + 1))
        with self._changes() as c:
            c.execute(f"insert or replace into {table} values ({marks})", (*row, _checksum(row)))

    @contextlib.contextmanager
    def _changes(self) -> Generator[sqlite3.Connection]:
        with _reported(self.file), self._connection:
            self._connection.execute("begin immediate")
            yield self._connection


def exists() -> bool:
    """Whether anything was ever stored: a full disk leaves a file without a byte."""
    try:
        return os.stat(_text(cache.root())).st_size > 0
    except OSError:
        return False


@functools.lru_cache(1)
def _text(root: Path) -> str:
    """The same as `path`, for each new call to ask for."""
    return os.fspath(path())


def remove() -> bool:
    """Forgets everything; whether there was anything."""
    there = exists()
    _check_file(path())
    for file in (path(), path().with_name(path().name + "-journal")):
        with _reported(file):
            file.unlink(missing_ok=True)
    return there


def open_store(file: Path | None = None) -> Store:
    """The file of tuned schedules, made where there is none.

    Raises StoreError for a file that is damaged, that is no file of tuned schedules, or that others may have written.
    """
    file = file or path()
    with _reported(file):
        file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        _check_owner(file)
        connection = sqlite3.connect(file, timeout=PATIENCE, isolation_level=None)
        connection.text_factory = functools.partial(str, encoding="utf-8", errors="replace")
        try:
            _prepare(connection, file)
        except BaseException:
            connection.close()
            raise
    os.chmod(file, 0o600)
    return Store(file, connection)


def _check_file(file: Path) -> None:
    if file.exists() and not file.is_file():
        raise StoreError(f"{file} is no file, where tuned schedules should be; remove it")


def _check_owner(file: Path) -> None:
    _check_file(file)
    if not file.exists() or not hasattr(os, "geteuid"):
        return
    status = file.stat()
    shared = status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    if status.st_uid not in (0, os.geteuid()) or shared:
        raise StoreError(
            f"{file} could have been written by others, and is not used; remove it, or chmod 600 it"
        )


def _prepare(c: sqlite3.Connection, file: Path) -> None:
    c.execute("begin immediate")
    (application,) = c.execute("pragma application_id").fetchone()
    (version,) = c.execute("pragma user_version").fetchone()
    tables = c.execute("select count(*) from sqlite_master").fetchone()[0]
    if not tables and not application:
        c.execute(f"pragma application_id = {APPLICATION}")
        c.execute(f"pragma user_version = {VERSION}")
        for statement in SCHEMA.strip().split(";")[:-1]:
            c.execute(statement)
    elif application != APPLICATION:
        raise StoreError(f"{file} is no file of tuned schedules, and is not used; remove it")
    elif version != VERSION:
        raise StoreError(
            f"{file} was written by another version of tilec, and is not used; remove it"
        )
    c.execute("commit")


@contextlib.contextmanager
def _reported(file: Path) -> Generator[None]:
    try:
        yield
    except sqlite3.OperationalError as e:
        raise StoreError(
            f"cannot use {file}: {e}; set TILEC_CACHE_DIR to a folder that can be written"
        ) from e
    except sqlite3.DatabaseError as e:
        raise StoreError(
            f"{file} is damaged, and is not used ({e}); `tilec cache clear --tuned` removes it"
        ) from e
    except OSError as e:
        raise StoreError(
            f"cannot use {file}: {e.strerror or e}; set TILEC_CACHE_DIR to another folder"
        ) from e


# ---- rows


def _checksum(row: Sequence[object]) -> str:
    return cache.key(*row)


def _sound(row: tuple[Any, ...], file: Path) -> tuple[Any, ...]:
    *values, checksum = row
    try:
        sound = checksum == _checksum(values)
    except TypeError:  # bytes, where a text was written
        sound = False
    if not sound:
        raise StoreError(
            f"a schedule in {file} is damaged, and is not used; `tilec cache remove {str(row[0])[:12]}` removes it"
        )
    return tuple(values)


def _winner(row: tuple[Any, ...], file: Path) -> Winner:
    _, *fields = _sound(row, file)
    key, (tile, schedule, seconds, gain, at) = Key(*fields[:6]), fields[6:]
    return Winner(key, choice(json.loads(tile), json.loads(schedule)), seconds, gain, at)


def _trial(row: tuple[Any, ...], file: Path) -> Trial:
    _, candidate, state, relative, seconds, note, _ = _sound(row, file)
    return Trial(choice(*json.loads(candidate)), state, relative, seconds, note)


def choice(tile: object, schedule: object) -> Choice:
    """A choice from data. Raises StoreError for what is none."""
    if not isinstance(tile, dict) or not isinstance(schedule, dict):
        raise StoreError(f"{tile!r}, {schedule!r} is no choice of tiles and schedule")
    extents, fields = cast("dict[object, object]", tile), cast("dict[object, object]", schedule)
    for n, x in extents.items():
        if not isinstance(n, str) or not isinstance(x, int) or isinstance(x, bool) or x < 1:
            raise StoreError(f"{n!r}: {x!r} is no tile extent")
    for n, x in fields.items():
        if not isinstance(n, str) or not isinstance(x, (int, float, str, bool)):
            raise StoreError(f"{n!r}: {x!r} is no schedule field")
    return Choice(cast("dict[str, int]", extents), cast("dict[str, object]", fields))


# ---- files for others


FORMAT = "tilec schedules 1"


def exported(winners: Sequence[Winner]) -> str:
    """Winners as JSON."""
    entries = [
        {
            "key": dict(zip(Key.__slots__, astuple(w.key), strict=True)),
            "tile": dict(w.choice.tile),
            "schedule": dict(w.choice.schedule),
            "seconds": w.seconds,
            "gain": w.gain,
            "at": w.at,
        }
        for w in winners
    ]
    return json.dumps({"format": FORMAT, "winners": entries}, indent=1) + "\n"


def imported(text: str, file: str) -> list[Winner]:
    """The winners of such a text. Raises StoreError for anything else: nothing of it is used then."""
    try:
        found = json.loads(text)
        if found["format"] != FORMAT:
            raise StoreError(f"{file}: the format is {found['format']!r}, expected {FORMAT!r}")
        return [_entry(e) for e in found["winners"]]
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as e:
        raise StoreError(f"{file} is no export of tuned schedules: {type(e).__name__}: {e}") from e
    except StoreError as e:
        raise StoreError(f"{file} is not used: {e}") from e


def _entry(e: Any) -> Winner:
    key = Key(**e["key"])
    numbers = [e["seconds"], e["gain"], e["at"]]
    if not all(isinstance(x, str) for x in astuple(key)):
        raise TypeError("a key holds something else than texts")
    "".join(astuple(key)).encode()  # half a surrogate pair can be written in JSON, and nowhere else
    if not all(isinstance(x, (int, float)) and 0 <= x < 1e18 for x in numbers):
        raise TypeError("a figure is no number")
    seconds, gain, at = map(float, numbers)
    return Winner(key, choice(e["tile"], e["schedule"]), seconds, gain, at)
