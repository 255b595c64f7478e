"""Bounds that users write: a queue offset, or a time."""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple

from rocketray.errors import ConfigError

TIME_MAX_MS = 2**63 - 1  # a record has 64 bits for its times, with a sign
_OFFSET_DIGITS_MAX = 11  # as a time, a number of 12 digits is in 1973


class Bound(NamedTuple):
    """A queue offset, or a time in milliseconds since 1970."""

    is_time: bool
    number: int


def time_ms_of(text: str, wanted: str = "a time") -> int:
    """Return milliseconds since 1970 of a number or of ISO 8601, in local time without a zone.

    Raises:
        ConfigError: *text* is neither, so not what was *wanted*.
    """
    try:
        if text.isascii() and text.isdecimal():
            return min(int(text), TIME_MAX_MS)
        return int(datetime.fromisoformat(text).astimezone().timestamp() * 1000)
    except (ValueError, OverflowError):
        raise ConfigError(
            f"{text[:80]!r} is not {wanted}; write a time as milliseconds since 1970, or in ISO "
            "8601: 2026-11-21T08:30:00Z"
        ) from None


def bound_of(text: str, wanted: str = "an offset or a time") -> Bound:
    """Return a bound of a range: up to 11 digits are an offset, all else is a time.

    Raises:
        ConfigError: *text* is neither, so not what was *wanted*.
    """
    if text.isascii() and text.isdecimal() and len(text) <= _OFFSET_DIGITS_MAX:
        return Bound(is_time=False, number=int(text))
    return Bound(is_time=True, number=time_ms_of(text, wanted))
