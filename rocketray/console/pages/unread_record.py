"""How long the unread messages of a group have waited, and still will."""

from __future__ import annotations

from rocketray.broker.filtering.filtered_lag import FilteredLag
from rocketray.services.health.troubles import time_until_read


def unread_record(
    lag: FilteredLag | None, growth_per_s: float | None, now_ms: int
) -> dict[str, float | None]:
    """Return the age of the oldest unread message in ms, and in how many seconds all are read.

    Both are None of a lag that is 0 or not known, and the second of one that does not get smaller.
    """
    if lag is None or not lag.count:
        return {"oldestMs": None, "readInS": None}
    left_s = time_until_read(lag.count, growth_per_s)
    return {"oldestMs": lag.age_ms(now_ms), "readInS": left_s}
