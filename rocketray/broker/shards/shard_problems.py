"""What is wrong with a shard that is open and works, as lines for ``rocketray status``.

Pure. Each line says what is wrong, where, and what to do; there are three subjects of a shard:

- *flush*: its oldest message that is not on disk is :data:`UNFLUSHED_MAX_MS` old or older;
- *clock*: its store times are ahead of the clock by :data:`AHEAD_MAX_MS` or more;
- *damage*: reading the store again found some (shard_scrub.py), and it is not repaired.
"""

from __future__ import annotations

from .shard_api import ScrubState

UNFLUSHED_MAX_MS = 10_000  # twenty flushes are missing
AHEAD_MAX_MS = 60_000  # more than time services leave uncorrected
_SUBJECTS = ("flush", "clock", "damage")
_PLACES_SHOWN = 3  # in one line of rocketray status

ShardProblems = dict[str, str]


def subjects_of(place: str) -> list[str]:
    """Return all subjects of the shard at *place*; the first is that it is closed."""
    return [place, *(f"{place} {subject}" for subject in _SUBJECTS)]


def problems_of(
    place: tuple[str, int], unflushed_ms: int, ahead_ms: int, scrub: ScrubState
) -> ShardProblems:
    """Return the lines of the shard at *place* by subject; none if nothing is wrong."""
    name = f"{place[0]}/{place[1]}"
    lines = (
        _unflushed(unflushed_ms) if unflushed_ms >= UNFLUSHED_MAX_MS else None,
        _ahead(ahead_ms) if ahead_ms >= AHEAD_MAX_MS else None,
        _damaged(scrub) if scrub.damage else None,
    )
    return {
        subject: f"queue {name}: {line}"
        for subject, line in zip(subjects_of(name)[1:], lines, strict=True)
        if line is not None
    }


def _unflushed(age_ms: int) -> str:
    return (
        f"its oldest message that is not on disk was stored {age_ms // 1000} s ago, and a flush is "
        "due every 0.5 s: the disk is slow, or a flush hangs, and a power failure would lose what "
        "was acknowledged since; see what the disk does (dmesg, iostat -x), and move queues to "
        "another disk if it stays so"
    )


def _ahead(ahead_ms: int) -> str:
    return (
        f"its newest store time is {_duration(ahead_ms)} ahead of this machine's clock, which was "
        "ahead when a message was stored, or is behind now; until the clock has passed it, new "
        "messages get that time too, look-ups and offsets by time find too many messages, and "
        "retention removes them later; set the clock if it is wrong, otherwise wait"
    )


def _damaged(scrub: ScrubState) -> str:
    places = [
        f"{scrub.directory}/{one.file} at {one.offset}: {one.what}"
        for one in scrub.damage[:_PLACES_SHOWN]
    ]
    if more := len(scrub.damage) - _PLACES_SHOWN:
        places += [f"and {more} more, shown by rocketray status --json"] if more > 0 else []
    return (
        f"stored messages are damaged: {'; '.join(places)}; check the disk (dmesg), back up what "
        "can be read, then stop the node and repair the store with: rocketray store recover "
        f"{scrub.directory}"
    )


def _duration(milliseconds: int) -> str:
    minutes = milliseconds // 60_000
    if minutes < 120:
        return f"{minutes} min"
    return f"{minutes // 60} h" if minutes < 48 * 60 else f"{minutes // 1440} days"
