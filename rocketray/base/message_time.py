"""The times of messages: milliseconds since 1970, in the years 1 to 9999.

RocketMQ stores any 64 bits. A time in another unit would be stored as a year of which no calendar,
Arrow or Spark knows, and move every watermark past all other messages, so a send refuses it.

A born time may be of any year, also of 1970. The time of a delivery, a start or a search may not:
seconds, read as milliseconds, would mean "at once", or "everything", so they are refused there.
"""

from __future__ import annotations

from typing import Literal

from rocketray.errors import InvalidMessageError

TIME_MIN_MS, TIME_MAX_MS = -62_135_596_800_000, 253_402_300_799_999
"""The first millisecond of the year 1, and the last one of the year 9999."""
LOOK_LIKE_SECONDS = range(10**8, 10**11)
"""As seconds 1973 to 5138; as milliseconds 2 January 1970 to March 1973, before any node."""
_UNITS = ("seconds", "milliseconds", "microseconds", "nanoseconds")  # in thousandths


def checked_ms(what: str, given: float, unit: Literal["seconds", "milliseconds"]) -> int:
    """Return the time *given* in that unit in milliseconds; *what* names it in errors.

    Raises:
        InvalidMessageError: no calendar has it, most often because it is in another unit.
    """
    try:
        time_ms = int(given * 1000 if unit == "seconds" else given)
    except (TypeError, ValueError, OverflowError):  # such as a datetime, NaN or infinity
        raise InvalidMessageError(f"{what} is {given!r:.60}; give {unit} since 1970") from None
    if TIME_MIN_MS <= time_ms <= TIME_MAX_MS:
        return time_ms
    smaller = _UNITS[_UNITS.index(unit) + 1 :]
    meant = [
        name
        for power, name in enumerate(smaller, 1)
        # Each smaller unit is a thousandth: the first that leads into a calendar's years is the
        # likely one.
        if TIME_MIN_MS <= time_ms // 1000**power <= TIME_MAX_MS
    ]
    looks = f" and looks like {meant[0]}" if meant else ""
    raise InvalidMessageError(
        f"{what} is {given!r:.60}, which is outside the years 1 to 9999{looks}; give {unit} since "
        "1970"
    )


def checked_node_ms(what: str, given: float) -> int:
    """Return the time *given*, in milliseconds, at which a node stores or delivers messages.

    Small numbers are taken: 0 for the begin, or a moment of a test's clock.

    Raises:
        InvalidMessageError: as :func:`checked_ms`, or it looks like seconds.
    """
    time_ms = checked_ms(what, given, "milliseconds")
    if time_ms in LOOK_LIKE_SECONDS:
        raise InvalidMessageError(
            f"{what} is {given!r:.60}, which is in the years 1970 to 1973 and looks like seconds; "
            "give milliseconds since 1970"
        )
    return time_ms
