"""Positions in the queues of several topics: in Spark's checkpoint, in options, and as limits.

An offset is the next queue offset to read. Spark's checkpoint holds ``{"topic": {"0": 123}}``, and
old checkpoints must stay readable, so this form only ever gains keys: under ``@``, which is not a
topic name, positions.py stores topic ids and the filter. Users write the same form, with -2 for
earliest and -1 for latest; a copy from a checkpoint may include its ``@``.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from rocketray.broker.fetching.read_plan import Bounds, QueueKey
from rocketray.errors import ConfigError, OffsetOutOfRangeError

from .topic_choice import TopicChoice

EARLIEST = -2  # these two numbers are those of Spark's Kafka source
LATEST = -1
ORIGIN = "@"
_JSON_MAX_CHARS = 1 << 20  # some 50,000 queues
_OFFSET_MAX = (1 << 63) - 1  # the store's offsets have 64 bits, with a sign

QueueOffsets = dict[QueueKey, int]


@dataclass(frozen=True, slots=True)
class OffsetRule:
    """A start or end: a rule for all queues, and the offsets of named ones."""

    default: int
    named: Mapping[QueueKey, int]


def offsets_to_json(offsets: Mapping[QueueKey, int]) -> dict[str, dict[str, int]]:
    """Return the form that Spark stores, in the order of the keys."""
    result: dict[str, dict[str, int]] = {}
    for (topic, queue_id), offset in sorted(offsets.items()):
        result.setdefault(topic, {})[str(queue_id)] = offset
    return result


def offsets_from_json(value: object, choice: TopicChoice) -> QueueOffsets:
    """Return the offsets in a checkpoint of a query on the topics of *choice*.

    Raises:
        ConfigError: it is not such an object, or it is of a query on other topics.
    """
    try:
        offsets = _parse(value, "the checkpoint's offset", least=0)
    except ConfigError as error:
        raise ConfigError(
            f"{error}; restore the checkpoint from a copy, or begin a new one"
        ) from None
    strangers = choice.strangers(offsets)
    if strangers:
        raise ConfigError(
            f"the checkpoint belongs to a query that also reads {', '.join(strangers)}, and this "
            f"one does not ({choice.text:.200}); use the old topics or a new checkpoint"
        )
    return offsets


def parse_rule(text: str, option: str, *, others: int) -> OffsetRule:
    """Return the rule of an option: ``earliest``, ``latest`` or JSON, with *others* for the rest.

    Raises:
        ConfigError: it is none of these.
    """
    words = {"earliest": EARLIEST, "latest": LATEST}
    word = words.get(text.strip().lower())
    if word is not None:
        return OffsetRule(word, {})
    form = 'earliest, latest or JSON like {"Trade":{"0":123}}'
    return OffsetRule(others, parse_named(text, option, form, least=EARLIEST))


def parse_named(text: str, option: str, form: str, *, least: int) -> QueueOffsets:
    """Return the numbers, from *least* on, that JSON gives to queues.

    Raises:
        ConfigError: it is none; the error says that *form* is right.
    """
    if len(text) > _JSON_MAX_CHARS:
        raise ConfigError(f"{option} has {len(text)} characters; at most {_JSON_MAX_CHARS}")
    try:
        value = json.loads(text)
    except ValueError:
        raise ConfigError(f"{option}={text[:80]!r}: write {form}") from None
    return _parse(value, option, least=least)


def resolve_rule(rule: OffsetRule, bounds: Mapping[QueueKey, Bounds], option: str) -> QueueOffsets:
    """Return the offset that the rule gives for each queue of *bounds*.

    Raises:
        ConfigError: the rule names a queue that does not exist.
        OffsetOutOfRangeError: the rule names an offset that the queue does not hold.
    """
    check_known(rule.named, bounds, option)
    return {
        key: _resolve(rule.named.get(key, rule.default), key, held, option)
        for key, held in bounds.items()
    }


def check_known(named: Iterable[QueueKey], bounds: Mapping[QueueKey, Bounds], option: str) -> None:
    """Raise :class:`ConfigError` if *named* has a queue that is not in *bounds*."""
    unknown = sorted(set(named) - set(bounds))
    if unknown:
        topic, queue_id = unknown[0]
        raise ConfigError(
            f"{option} names queue {queue_id} of topic {topic!r}, which this query does not read"
        )


def _resolve(offset: int, key: QueueKey, held: Bounds, option: str) -> int:
    if offset == EARLIEST:
        return held.minimum
    if offset == LATEST:
        return held.visible
    # The end itself is allowed: the next message will have it.
    if not held.minimum <= offset <= held.visible:
        where = f"{option}: topic {key[0]!r} queue {key[1]}"
        raise OffsetOutOfRangeError(where, offset, held.minimum, held.visible + 1)
    return offset


def _parse(value: object, what: str, *, least: int) -> QueueOffsets:
    if not isinstance(value, dict):
        raise ConfigError(f'{what} is not an object like {{"Trade":{{"0":123}}}}')
    offsets: QueueOffsets = {}
    for topic, queues in value.items():
        if topic == ORIGIN:
            continue
        if not isinstance(queues, dict):
            raise ConfigError(f'{what}: topic {topic!r} needs an object like {{"0":123}}')
        for queue_id, offset in queues.items():
            is_id = queue_id.isascii() and queue_id.isdigit()
            if not is_id or type(offset) is not int or not least <= offset <= _OFFSET_MAX:
                raise ConfigError(
                    f"{what}: topic {topic!r} has {queue_id!r}: {offset!r}; a queue id is a number "
                    f"in quotes, and its value a whole number from {least}"
                )
            offsets[topic, int(queue_id)] = offset
    return offsets
