"""What is wrong with a node and its groups, the worst first, each with the next step.

It is decided from readings alone, so the console, ``rocketray status`` and metrics say the same. A
part that did not answer is a trouble of its own: nothing is well because it is not known.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum

from rocketray.base.names import RETRY_PREFIX
from rocketray.base.quantity import agreed, counted
from rocketray.broker.retries.dead_letter_api import LetterBox
from rocketray.groups.group_descriptions import GroupDescription

from .node_readings import NodeReadings

UNREAD_MS = 60_000
"""How long messages wait for a group without members: its program may just start again."""
BEHIND_MS = 10 * 60_000
"""A group whose oldest unread message is older is behind, though its lag may not grow."""
GROWING_MS = 15_000
"""A group that keeps up has unread messages, too, which are on their way and seconds old."""
GROWING_PER_S = 1.0
"""A lag that grows by less, in messages a second, comes and goes with the batches of producers."""
_SECOND_MS, _MINUTE_S, _HOUR_S, _DAY_S = 1000, 60, 3600, 86_400
_REASON_CHARS = 200  # of an error, which may have 500 (failing.py)


class TroubleKind(Enum):
    """The kinds of trouble, the worst first; the value is the name for programs."""

    UNKNOWN = "unknown"
    """Part of the node does not answer."""
    NODE = "node"
    """The node says that something is wrong: a disk, a clock, a closed queue, damage."""
    APP = "app"
    """A host or a sink of an app fails."""
    HELD = "held"
    """A group repeats a message, and no later one of its queue is delivered."""
    GROWING = "growing"
    """A group's lag grows."""
    UNREAD = "unread"
    """Messages wait for a group that has no members."""
    BEHIND = "behind"
    """A group has members, and its oldest unread message is old."""
    LETTERS = "letters"
    """Dead letters wait for a decision."""
    FILTER = "filter"
    """A group's filter fails on messages."""

    @property
    def is_error(self) -> bool:
        """Whether something stands still or is not served; the others are warnings."""
        return self in _ERRORS


_ERRORS = (TroubleKind.UNKNOWN, TroubleKind.NODE, TroubleKind.APP, TroubleKind.HELD)
_RANK = {kind: number for number, kind in enumerate(TroubleKind)}


@dataclass(frozen=True, slots=True)
class Trouble:
    """One thing that is wrong: what, and what to do next; "" if the text says that, too.

    ``weight`` orders those of a kind: messages that wait, or queues that are held.
    """

    kind: TroubleKind
    text: str
    advice: str = ""
    group: str | None = None
    topic: str | None = None
    weight: int = 0


@dataclass(frozen=True, slots=True)
class HealthReadings:
    """What troubles are decided from.

    ``problems`` are the lines of the node, and ``letters`` the dead letters of its groups; None if
    they are not known, which ``unknown`` then explains by part. ``growth`` has by how many messages
    a second the lag of a group on a topic grows, where that was measured.
    """

    node: NodeReadings
    problems: Sequence[str] | None = ()
    letters: Sequence[LetterBox] | None = ()
    unknown: Mapping[str, str] = field(default_factory=dict)
    growth: Mapping[tuple[str, str], float] = field(default_factory=dict)


def troubles_of(readings: HealthReadings, others: Iterable[Trouble] = ()) -> list[Trouble]:
    """Return what is wrong, the worst first; *others* were found elsewhere, such as in apps."""
    found = [
        *others,
        *(
            Trouble(TroubleKind.UNKNOWN, f"{part}: {why}")
            for part, why in sorted({**readings.node.unknown, **readings.unknown}.items())
            if why not in (readings.problems or ())  # which the node says itself
        ),
        *(Trouble(TroubleKind.NODE, line) for line in readings.problems or ()),
        *_of_letters(readings.letters or ()),
    ]
    for group in readings.node.groups or ():
        found += _of_group(readings, group)
    return sorted(found, key=lambda one: (_RANK[one.kind], -one.weight, one.text))


def growth_of(lags: Sequence[tuple[int, int | None]]) -> float | None:
    """Return by how many messages a second a lag has grown, from its samples, oldest first.

    They are times in ms and lags. It is negative if the lag gets smaller. None without two known
    samples, or if the newest is unknown.
    """
    known = [(time_ms, lag) for time_ms, lag in lags if lag is not None]
    if len(known) < 2 or lags[-1][1] is None:
        return None
    (first_ms, first), (last_ms, last) = known[0], known[-1]
    if last_ms <= first_ms:
        return None
    return (last - first) * _SECOND_MS / (last_ms - first_ms)


def time_until_read(lag: int, growth_per_s: float | None) -> float | None:
    """Return in how many seconds a lag is gone at this rate; None if it does not get smaller."""
    if growth_per_s is None or growth_per_s >= 0:
        return None
    return lag / -growth_per_s


def duration(seconds: float) -> str:
    """Return a duration in its two greatest units: ``2 d 3 h``, ``5 min``, ``12 s``."""
    whole = int(seconds)
    for unit_s, unit, part_s, part in (
        (_DAY_S, "d", _HOUR_S, "h"),
        (_HOUR_S, "h", _MINUTE_S, "min"),
    ):
        if whole >= unit_s:
            count, rest = divmod(whole, unit_s)
            return (
                f"{count} {unit} {rest // part_s} {part}" if rest >= part_s else f"{count} {unit}"
            )
    return f"{whole // _MINUTE_S} min" if whole >= _MINUTE_S else f"{whole} s"


def _of_letters(boxes: Iterable[LetterBox]) -> Iterator[Trouble]:
    for box in boxes:
        waiting = box.letters - box.redriven
        if waiting > 0:
            because = f"; the newest failed with {_short(box.newest_reason)}"
            yield Trouble(
                TroubleKind.LETTERS,
                f"{counted(waiting, 'dead letter')} of group {box.group} "
                f"{agreed(waiting, 'wait')} for a decision"
                f"{because if box.newest_reason else ''}",
                f"see them with: rocketray dlq show {box.group}; deliver them again with: "
                f"rocketray dlq redrive {box.group}",
                box.group,
                box.topic,
                waiting,
            )


def _of_group(readings: HealthReadings, group: GroupDescription) -> Iterator[Trouble]:
    place = group.group, group.topic
    if group.failing:
        yield _held(group)
    if errors := group.counters.errors:
        yield Trouble(
            TroubleKind.FILTER,
            f"the filter of group {group.group} failed on {counted(errors, 'message')} of topic "
            f"{group.topic} since the node started",
            f"see which errors with: rocketray filter stats {group.group}",
            *place,
            errors,
        )
    # A retry topic waits by design, and its group is behind on the topic itself if it is slow.
    if group.is_broadcast or group.topic.startswith(RETRY_PREFIX):
        return
    lag = readings.node.lag_of(*place)
    if isinstance(lag, str) or not lag.count:
        return
    count, oldest_ms = lag.count, lag.age_ms(readings.node.time_ms) or 0
    waits = f"{counted(count, 'message')} of topic {group.topic} {agreed(count, 'wait')}"
    if oldest_ms:  # of all unread messages, whether they match the filter or not
        waits += f", and the oldest unread message is {duration(oldest_ms / 1000)} old"
    growth = readings.growth.get(place)
    if not group.heard:
        if oldest_ms > UNREAD_MS:
            yield Trouble(
                TroubleKind.UNREAD,
                f"group {group.group} has no members: {waits}",
                "start its program; if the group is not needed: rocketray groups delete "
                f"{group.group}",
                *place,
                count,
            )
    elif growth is not None and growth >= GROWING_PER_S and oldest_ms > GROWING_MS:
        yield Trouble(
            TroubleKind.GROWING,
            f"group {group.group} falls behind: {waits}; {growth:,.0f} more come each second than it reads",
            "see what its members do with: rocketray status --over 10; more instances help while "
            "there are queues for them: rocketray scale APP N",
            *place,
            count,
        )
    elif oldest_ms > BEHIND_MS:
        left_s = time_until_read(count, growth)
        at_this_rate = "" if left_s is None else f"; at this rate it is read in {duration(left_s)}"
        yield Trouble(
            TroubleKind.BEHIND,
            f"group {group.group} is behind: {waits}{at_this_rate}",
            f"see its queues with: rocketray groups progress {group.group}",
            *place,
            count,
        )


def _held(group: GroupDescription) -> Trouble:
    """Return the trouble of a group that holds queues: the one with most attempts is named."""
    queue, worst = max(group.failing.items(), key=lambda item: (item[1].attempt, -item[0]))
    held, count = len(group.failing), len(group.offsets)
    which = f"queue {queue} of topic {group.topic}"
    if held > 1:
        which = f"{held} of {count} queues of topic {group.topic}, such as queue {queue}"
    return Trouble(
        TroubleKind.HELD,
        f"group {group.group} is held in {which}, at offset {worst.queue_offset}: attempt "
        f"{worst.attempt}, {_short(worst.reason)}",
        "it continues when its handler takes the message; to skip it: rocketray groups seek "
        f"{group.group} {group.topic} --queue {queue} --offset {worst.queue_offset + 1}",
        group.group,
        group.topic,
        held,
    )


def _short(reason: str | None) -> str:
    text = reason or "no reason"
    return text if len(text) <= _REASON_CHARS else f"{text[: _REASON_CHARS - 1]}…"
