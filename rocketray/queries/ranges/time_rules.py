"""Starts and ends by time: the first message of a queue that was stored then or later.

Times are Kafka's: milliseconds since 1970, for all queues or for named ones. A message's time is
its store time, which grows within a queue.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from rocketray.base.message_time import checked_node_ms
from rocketray.broker.fetching.read_plan import Bounds, QueueKey
from rocketray.errors import ConfigError

from .offset_rules import LATEST, OffsetRule, check_known, parse_named

_TIME_MAX_MS = 1 << 53  # every whole number up to it is exact in JSON, too
FindTime = Callable[[QueueKey, Bounds, int], int | None]
"""Returns the queue offset of the first message at a time or later, or None."""


@dataclass(frozen=True, slots=True)
class TimeRule:
    """The time of all queues, or of named ones; *others* is the rule for queues without a time.

    A queue without a message of its time or later is an error if the rule *is_strict*; else it
    starts, or ends, at its latest.
    """

    option: str
    default_ms: int | None
    named_ms: Mapping[QueueKey, int]
    others: int
    is_strict: bool = False


def parse_time(text: str, option: str) -> int:
    """Return the time of all queues; raise :class:`ConfigError` if it is none."""
    time_ms = int(text) if text.isascii() and text.isdigit() else -1
    if not 0 <= time_ms <= _TIME_MAX_MS:
        raise ConfigError(
            f"{option}={text[:80]!r}: write milliseconds since 1970, such as 1767225600000"
        )
    return checked_node_ms(option, time_ms)


def parse_times(text: str, option: str) -> Mapping[QueueKey, int]:
    """Return the times of named queues; raise :class:`ConfigError` if they are none."""
    named = parse_named(text, option, 'JSON like {"Trade":{"0":1767225600000}}', least=0)
    return {
        (topic, queue): checked_node_ms(f"{option} of {topic}/{queue}", time_ms)
        for (topic, queue), time_ms in named.items()
    }


def offsets_at(rule: TimeRule, bounds: Mapping[QueueKey, Bounds], find: FindTime) -> OffsetRule:
    """Return the rule by offsets that is the same now.

    Raises:
        ConfigError: the rule names a queue that the query does not read, or is strict, and a queue
            has no message of that time or later.
    """
    check_known(rule.named_ms, bounds, rule.option)
    named = {}
    for key, held in bounds.items():
        time_ms = rule.named_ms.get(key, rule.default_ms)
        if time_ms is None:
            continue
        found = find(key, held, time_ms)
        if found is None and rule.is_strict:
            raise ConfigError(
                f"{rule.option}: topic {key[0]!r} queue {key[1]} has no message that was stored at "
                f"{time_ms} or later; give an earlier time, or "
                "startingOffsetsByTimestampStrategy=latest to start such queues at their end"
            )
        named[key] = LATEST if found is None else min(max(found, held.minimum), held.visible)
    return OffsetRule(rule.others, named)
