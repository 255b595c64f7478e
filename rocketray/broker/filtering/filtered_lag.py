"""The lag of a group in a queue: a number, and how exact it is."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Exactness(Enum):
    """The meaning of a lag's number."""

    EXACT = "exact"
    AT_LEAST = "at_least"  # the limit of blocks was reached
    UNFILTERED = "unfiltered"  # a predicate is not run: all messages that are left


@dataclass(frozen=True, slots=True)
class FilteredLag:
    """The lag: ``count`` unfinished messages match, of ``diff`` unfinished ones in all.

    ``oldest_ms`` is the store time of the first unfinished message, also if it does not match; None
    if there is none, or it was removed meanwhile.
    """

    count: int
    diff: int
    exactness: Exactness
    oldest_ms: int | None = None
