"""The filter bitmap of one message, as ``ConsumerFilterManager.bitmaps`` makes those of many."""

from __future__ import annotations

from collections.abc import Mapping

from rocketray.errors import FilterEvaluationError
from rocketray.filters.consumer_filter import ConsumerFilterManager
from rocketray.filters.consumer_filter_data import ConsumerFilterData


def bitmap_of(
    manager: ConsumerFilterManager, topic: str, properties: Mapping[str, str] | None
) -> bytes | None:
    """Return the bitmap of a message of *topic*; None if no filter was ever registered for it.

    An expression in RocketMQ's dialect that fails on the message does not match it; one in the
    dialect "rocketray" may. Dead filters keep their bits.
    """
    filters = manager.filters.get(topic)
    if not filters:
        return None
    bits = bytearray(manager.bit_count // 8)
    for data in filters.values():
        if _may_match(data, properties):
            for bit in data.bit_positions:
                bits[bit >> 3] |= 1 << (bit & 7)
    return bytes(bits)


def _may_match(data: ConsumerFilterData, properties: Mapping[str, str] | None) -> bool:
    try:
        return data.bitmap_filter.compiled().matches(properties)
    except FilterEvaluationError:
        return data.subscription.dialect != "rocketmq"
