"""Long tables by pages, and what of them was looked for."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from rocketray.errors import ConfigError

from .page_context import Query

ROWS_MAX = 100
"""Of a page: each row of a topic or a group is a question to the node, every two seconds."""
_PAGE_CHARS = 9
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Paged(Generic[_T]):
    """The rows of one page; ``first`` is the number of the first one, from 0, of ``count``."""

    rows: Sequence[_T]
    find: str
    page: int
    first: int
    count: int

    def record(self) -> dict[str, Any]:
        """Return what the page says of it; the numbers of the pages before and after, or None."""
        end = self.first + len(self.rows)
        return {
            "find": self.find,
            "first": self.first,
            "end": end,
            "count": self.count,
            "before": self.page - 1 if self.page > 1 else None,
            "after": self.page + 1 if end < self.count else None,
        }


def paged(query: Query, rows: Iterable[_T], texts: Callable[[_T], Iterable[str]]) -> Paged[_T]:
    """Return the page of *query* of those rows of which one of the *texts* has what it looks for.

    A page behind the last one is that one.

    Raises:
        ConfigError: the page is no number.
    """
    find, number = query.get("find", ""), query.get("page", "") or "1"
    if not (number.isascii() and number.isdecimal() and len(number) <= _PAGE_CHARS):
        raise ConfigError(f"page {number[:40]!r} is no number from 1 on")
    wanted = find.casefold()
    found = [row for row in rows if any(wanted in text.casefold() for text in texts(row))]
    last = max(1, -(-len(found) // ROWS_MAX))
    page = min(max(int(number), 1), last)
    first = (page - 1) * ROWS_MAX
    return Paged(found[first : first + ROWS_MAX], find, page, first, len(found))
