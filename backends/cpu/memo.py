"""What was evaluated, scope by scope."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from contextlib import contextmanager
from typing import Any


class Memo:
    """Values by key. What is kept in a scope is forgotten at its end."""

    def __init__(self) -> None:
        self._scopes: list[dict[object, Any]] = [{}]

    @contextmanager
    def scope(self) -> Generator[None]:
        """What is evaluated in here is not seen by the code after it."""
        self._scopes.append({})
        yield
        self._scopes.pop()

    def find(self, key: object) -> Any | None:
        """What was kept, innermost scope first; None where nothing was."""
        for table in reversed(self._scopes):
            if key in table:
                return table[key]
        return None

    def keep(self, key: object, value: Any, alive: object = None) -> Any:
        """Keeps a value, and with it an object whose identity is a part of the key."""
        self._scopes[-1][key] = value
        self._scopes[-1]["alive", key] = alive
        return value

    def values(self) -> Iterator[Any]:
        """All that is kept, outermost scope first."""
        for table in self._scopes:
            yield from table.values()
