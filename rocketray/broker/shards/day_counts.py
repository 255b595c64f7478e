"""How many messages a queue stored today and yesterday: RocketMQ's ``statsAll`` has these totals.

Nothing is counted as messages come: a search by store time in the consume queue finds the first
message of a day. So the totals are exact for what is stored, also after a restart. They are least
numbers where retention may have removed messages of that day.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # NumPy: commands load this file, too, to read what a node answers
    from rocketray.store.store_reads import StoreReads


@dataclass(frozen=True, slots=True)
class DayCounts:
    """The messages that one queue stored on two days.

    ``today_is_least`` and ``yesterday_is_least`` say that more may have been stored, and removed.
    """

    topic: str
    queue_id: int
    today: int
    yesterday: int
    today_is_least: bool = False
    yesterday_is_least: bool = False


def midnights(now_ms: int) -> tuple[int, int]:
    """Return when yesterday and today began in the zone of this machine, in ms since 1970."""
    today = datetime.fromtimestamp(now_ms / 1000, UTC).astimezone().date()
    return _begin_ms(today - timedelta(days=1)), _begin_ms(today)


def count_days(
    reads: StoreReads, topic: str, queue_id: int, yesterday_ms: int, today_ms: int
) -> DayCounts:
    """Return the messages of a queue that were stored from each of these times on.

    Two binary searches. A clock that was set back makes them inexact, as all searches by time.
    """
    place = topic, queue_id
    first, end = reads.min_queue_offset(*place), reads.max_queue_offset(*place)
    gaps = reads.gaps(*place)
    yesterday, today = (
        max(first, reads.queue_offset_by_time(*place, begin)) for begin in (yesterday_ms, today_ms)
    )

    def is_cut(begin: int) -> bool:
        """Return whether messages were removed, and none is left of before *begin*."""
        return first > 0 and gaps.count(first, begin) == 0

    return DayCounts(
        *place,
        gaps.count(today, end),
        gaps.count(yesterday, today),
        today_is_least=is_cut(today),
        yesterday_is_least=is_cut(yesterday),
    )


def _begin_ms(day: date) -> int:
    # Without a zone it is a local time: a day may have 23 or 25 hours.
    return int(datetime.combine(day, time.min).astimezone().timestamp()) * 1000
