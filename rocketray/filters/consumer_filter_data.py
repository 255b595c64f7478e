"""A registered SQL92 filter, and the file that keeps all of them.

The file is RocketMQ's ``config/consumerFilter.json``, byte for byte; its ``dead`` is derived. A
filter in the dialect "rocketray" has two more keys, ``dialect`` and ``dialectRules``, which a
broker ignores; a filter without them is RocketMQ's. The file has no version, so it is of version 1
(file_form.py). Source: RocketMQ 5.3.3, ``ConsumerFilterData``,
``ConsumerFilterManager.encode``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rocketray.base.file_form import FileForm, UnknownVersionError
from rocketray.errors import ConfigError, FilterSyntaxError

from .subscription import Subscription

SQL92 = "SQL92"
_FORM = FileForm("config/consumerFilter.json")
_FILE_MAX_BYTES = 64 * 1024 * 1024  # at 400 bytes a filter more than any node has
_BITS_MAX = 8 * 32_747  # fits into a ConsumeQueueExt unit of 32767 bytes


@dataclass(frozen=True, slots=True)
class ConsumerFilterData:
    """The filter of one group for one topic. Times are milliseconds since 1970.

    A bitmap for any filter but ``subscription`` says nothing about this one.
    """

    consumer_group: str
    topic: str
    subscription: Subscription
    bit_positions: tuple[int, ...]
    bit_count: int
    born_time_ms: int
    dead_time_ms: int = 0
    client_version: int = 0

    @property
    def bitmap_filter(self) -> Subscription:
        """The filter by RocketMQ's rules, which bitmaps follow in either dialect."""
        return replace(self.subscription, rules=1)

    @property
    def is_dead(self) -> bool:
        """Whether its last consumer left after the filter was born."""
        return self.dead_time_ms >= self.born_time_ms

    def is_message_in_live(self, store_timestamp_ms: int) -> bool:
        """Return whether a bitmap of that time covers this filter."""
        return store_timestamp_ms > self.born_time_ms

    def may_match(self, bitmap: bytes) -> bool:
        """Return whether all of the filter's bits are set; True for a bitmap of another size."""
        if 8 * len(bitmap) != self.bit_count:
            return True
        return all(bitmap[bit >> 3] >> (bit & 7) & 1 for bit in self.bit_positions)


def read_filters(path: Path) -> dict[str, dict[str, ConsumerFilterData]]:
    """Return the filters of a file, by topic and group; raise :class:`ConfigError`, OSError."""
    with path.open("rb") as file:
        raw = file.read(_FILE_MAX_BYTES + 1)
    try:
        return decode_filters(raw)
    except (UnknownVersionError, ValueError) as error:
        raise ConfigError(f"{path} has no valid consumer filters: {error}") from None


def decode_filters(raw: bytes) -> dict[str, dict[str, ConsumerFilterData]]:
    """Return the filters in a ``consumerFilter.json``, by topic and group.

    Filters are left out if their expression does not parse, as at registration, or if their rules
    are unknown here.

    Raises:
        ValueError: *raw* is not such a file, or exceeds the size limit.
        UnknownVersionError: it is of a later version.
    """
    if len(raw) > _FILE_MAX_BYTES:
        raise ValueError(f"it has more than {_FILE_MAX_BYTES} bytes")
    try:
        by_topic = _FORM.content(json.loads(raw))["filterDataByTopic"]
        return {
            topic: {
                group: data
                for group, value in groups["groupFilterData"].items()
                if (data := _decode(topic, group, value)) is not None
            }
            for topic, groups in by_topic.items()
        }
    except (KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError(f"{type(error).__name__}: {error}") from None


def encode_filters(filters: Mapping[str, Mapping[str, ConsumerFilterData]]) -> bytes:
    """Return the file content that RocketMQ writes for *filters*."""
    by_topic = {
        topic: {
            "groupFilterData": {group: _encode(data) for group, data in groups.items()},
            "topic": topic,
        }
        for topic, groups in filters.items()
    }
    return _pretty({"filterDataByTopic": by_topic}, "\n").encode("utf-8", "surrogatepass")


def _decode(topic: str, group: str, value: Mapping[str, Any]) -> ConsumerFilterData | None:
    bloom = value["bloomFilterData"]
    bit_count, positions = bloom["bitNum"], bloom["bitPos"]
    numbers = (
        bit_count,
        *positions,
        *(value[n] for n in ("bornTime", "deadTime", "clientVersion")),
    )
    is_text = isinstance(value["expression"], str)
    if not all(type(number) is int for number in numbers) or not is_text:
        raise TypeError(f"a field of group {group!r} of topic {topic!r} is of the wrong kind")
    if not 0 < bit_count <= _BITS_MAX or not all(0 <= bit < bit_count for bit in positions):
        raise ValueError(f"group {group!r} of topic {topic!r} has bits outside its bitmap")
    try:
        subscription = Subscription.from_json({**value, "expressionType": SQL92})
        subscription.compiled()
    except (FilterSyntaxError, ConfigError):
        return None
    return ConsumerFilterData(
        group,
        topic,
        subscription,
        tuple(positions),
        bit_count,
        value["bornTime"],
        value["deadTime"],
        value["clientVersion"],
    )


def _encode(data: ConsumerFilterData) -> dict[str, Any]:
    subscription = data.subscription
    dialect = {"dialect": subscription.dialect, "dialectRules": subscription.rules}
    return {
        "bloomFilterData": {"bitNum": data.bit_count, "bitPos": list(data.bit_positions)},
        "bornTime": data.born_time_ms,
        "clientVersion": data.client_version,
        "consumerGroup": data.consumer_group,
        "dead": data.is_dead,
        "deadTime": data.dead_time_ms,
        "expression": subscription.expression,
        "expressionType": SQL92,
        "topic": data.topic,
        **({} if subscription.dialect == "rocketmq" else dialect),
    }


def _pretty(value: object, line: str) -> str:
    """Return JSON with one tab per level and lists on one line."""
    if not isinstance(value, dict):
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    if not value:
        return "{}"
    inner = line + "\t"
    parts = (
        f"{inner}{json.dumps(k, ensure_ascii=False)}:{_pretty(v, inner)}" for k, v in value.items()
    )
    return "{" + ",".join(parts) + line + "}"
