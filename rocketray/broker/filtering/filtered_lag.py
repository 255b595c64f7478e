"""The lag of a group in a queue, or in all of a topic: a number, and how exact it is."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum


class Exactness(Enum):
    """The meaning of a lag's number, the most exact first."""

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

    def age_ms(self, now_ms: int) -> int | None:
        """Return the age of the oldest unfinished message; 0 if there is none, None if unknown.

        A message that was removed before it was read has no age: its group will never get it.
        """
        if self.oldest_ms is None:
            return None if self.diff else 0
        return max(now_ms - self.oldest_ms, 0)


def total_lag(queues: Iterable[FilteredLag]) -> FilteredLag:
    """Return the lag in all of these queues, as exact as the least exact of them."""
    lags = [*queues]
    return FilteredLag(
        sum(lag.count for lag in lags),
        sum(lag.diff for lag in lags),
        max((lag.exactness for lag in lags), key=[*Exactness].index, default=Exactness.EXACT),
        min((lag.oldest_ms for lag in lags if lag.oldest_ms is not None), default=None),
    )
