"""The SQL92 expression that each consumer group registered for each topic; it survives restarts.

A message's bitmap in ConsumeQueueExt has the Bloom positions of every group whose expression it
matches, so that stage one can decide for SQL92, too. Source: RocketMQ 5.3.3,
``ConsumerFilterManager``, ``ConsumerFilterData``, ``CommitLogDispatcherCalcBitMap``.

Rules
  1. A bitmap says nothing about a filter that was born when its message was stored, or later.
  2. A filter without consumers is dead. It keeps its bits for a day, then it is removed.
  3. A filter that changes is born again; a filter that only returns unchanged is not.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from rocketray.base.whole_file import replace_file
from rocketray.errors import FilterSyntaxError
from rocketray.kernels.condition_codes import State
from rocketray.kernels.properties import find_properties, join_names

from .bloom import RocketBloomFilter
from .consumer_filter_data import SQL92, ConsumerFilterData, encode_filters, read_filters
from .sql92.vectorized import VectorizedExpression
from .subscription import Subscription

_LOG = logging.getLogger(__name__)
_BLOOM = RocketBloomFilter(f=20, n=32)  # maxErrorRateOfBloomFilter, expectConsumerNumUseFilter
_KEPT_DEAD_MS = 24 * 60 * 60 * 1000  # filterDataCleanTimeSpan
_DEAD_SINCE_MS = 30_000  # RocketMQ's guess of how long before a restart its consumers left
_Int64s = npt.NDArray[np.int64]
_Bytes = npt.NDArray[np.uint8]
_BLOCK = 1024  # messages whose spans fit into the cache while every expression reads them


class ConsumerSubscription(NamedTuple):
    """A group's subscription to one topic; a later *client_version* wins."""

    topic: str
    subscription: Subscription
    client_version: int


class ConsumerFilterManager:
    """The registered filters of one store. Used by one thread."""

    def __init__(self, *, clock_ms: Callable[[], int]) -> None:
        self._clock_ms = clock_ms
        self._filters: dict[str, dict[str, ConsumerFilterData]] = {}
        self._compiled: dict[str, _TopicBitmaps] = {}  # of the current filters

    @property
    def bit_count(self) -> int:
        """The number of bits in every bitmap."""
        return _BLOOM.parameters.m

    @property
    def filters(self) -> Mapping[str, Mapping[str, ConsumerFilterData]]:
        """All filters, by topic and group."""
        return self._filters

    def find(self, topic: str, consumer_group: str) -> ConsumerFilterData | None:
        """Return the filter of a group for a topic, dead or living; None without one."""
        return self._filters.get(topic, {}).get(consumer_group)

    def register(self, consumer_group: str, subscriptions: Iterable[ConsumerSubscription]) -> None:
        """Replace a group's subscriptions; its filters for other topics die.

        Without *subscriptions* the group's last consumer has left.
        """
        topics = set()
        for subscription in subscriptions:
            self._register(consumer_group, subscription)
            topics.add(subscription.topic)
        now_ms = self._clock_ms()
        for topic, filters in self._filters.items():
            data = filters.get(consumer_group)
            if data is not None and topic not in topics and not data.is_dead:
                filters[consumer_group] = replace(data, dead_time_ms=now_ms)

    def delay_birth(self, topic: str, consumer_group: str, time_ms: int) -> None:
        """Delay the birth of a living filter to *time_ms*: earlier bitmaps may lack its bits."""
        data = self.find(topic, consumer_group)
        if data is not None and not data.is_dead and data.born_time_ms < time_ms:
            self._filters[topic][consumer_group] = replace(data, born_time_ms=time_ms)

    def bitmaps(
        self,
        topic: str,
        data: npt.NDArray[np.uint8],
        starts: npt.NDArray[np.int64],
        sizes: npt.NDArray[np.int64],
    ) -> npt.NDArray[np.uint8] | None:
        """Return the bitmaps of messages of *topic*, uint8[n, bytes].

        Their property strings lie in *data* uint8, at *starts* int64[n] with *sizes* int64[n]. None
        if no filter was ever registered for *topic*. Dead filters keep their bits.
        """
        filters = self._filters.get(topic)
        if not filters:
            return None
        compiled = self._compiled.get(topic)
        if compiled is None:
            compiled = self._compiled[topic] = _TopicBitmaps(filters.values(), self.bit_count)
        return compiled.of(data, starts, sizes)

    def save(self, path: Path) -> None:
        """Write the file, without filters dead for over a day; keep the previous one as ``.bak``.

        Durable on return.
        """
        oldest_ms = self._clock_ms() - _KEPT_DEAD_MS
        kept = {
            topic: {
                group: data
                for group, data in filters.items()
                if not (data.is_dead and data.dead_time_ms <= oldest_ms)
            }
            for topic, filters in self._filters.items()
        }
        self._filters = {topic: filters for topic, filters in kept.items() if filters}
        self._compiled.clear()
        if path.exists():  # at each moment, also if this process is killed
            replace_file(path.with_name(path.name + ".bak"), path.read_bytes(), sync=False)
        replace_file(path, encode_filters(self._filters))

    def load(self, path: Path) -> None:
        """Load the filters of a file; their consumers count as gone until they return.

        As in RocketMQ, all filters are skipped if one was made for bitmaps of another size.
        Raises :class:`ConfigError` if the file holds no filters.
        """
        loaded = read_filters(path)
        parameters = _BLOOM.parameters
        for data in (one for filters in loaded.values() for one in filters.values()):
            if data.bit_count != parameters.m or len(data.bit_positions) != parameters.k:
                _LOG.warning(
                    "%s: not used, because it is for bitmaps of %d bits", path, data.bit_count
                )
                return
        left_ms = self._clock_ms() - _DEAD_SINCE_MS
        self._compiled.clear()
        self._filters = {
            topic: {
                group: data
                if data.is_dead
                # At least the birth: a filter that died before it would be a living one (is_dead).
                else replace(data, dead_time_ms=max(data.born_time_ms, left_ms))
                for group, data in filters.items()
            }
            for topic, filters in loaded.items()
        }

    def _register(self, group: str, registered: ConsumerSubscription) -> None:
        topic, subscription, version = registered
        if subscription.expression_type != SQL92 or not subscription.expression:
            return
        old = self.find(topic, group)
        if old is None:
            new = self._born(group, registered)
        # RocketMQ's rules: an older subscription is ignored; the same one revives a dead filter and
        # does not give it a new birth.
        elif version < old.client_version or (version == old.client_version and not old.is_dead):
            return
        elif version > old.client_version and subscription != old.subscription:
            new = self._born(group, registered)
        else:
            new = replace(
                old, client_version=version, dead_time_ms=0 if old.is_dead else old.dead_time_ms
            )
        self._compiled.pop(topic, None)
        if new is not None:
            self._filters.setdefault(topic, {})[group] = new
        elif old is not None:
            del self._filters[topic][group]

    def _born(self, group: str, registered: ConsumerSubscription) -> ConsumerFilterData | None:
        """Return a new filter; log and return None for an expression that does not parse."""
        topic, subscription, version = registered
        try:
            subscription.compiled()
        except FilterSyntaxError as error:
            _LOG.warning("group %s, topic %s: %s", group, topic, error)
            return None
        return ConsumerFilterData(
            group,
            topic,
            subscription,
            tuple(_BLOOM.make_hashes(f"{group}#{topic}")),
            self.bit_count,
            self._clock_ms(),
            client_version=version,
        )


class _Bits(NamedTuple):
    """An expression, the rows of property values that it reads, and the bits that it sets."""

    expression: VectorizedExpression
    rows: npt.NDArray[np.intp]
    masks: list[tuple[int, np.uint8]]
    looks_at_failures: bool


class _TopicBitmaps:
    """The filters of one topic, compiled for the bitmaps of many messages at once.

    The properties that the filters name are found in one pass over the messages, an expression
    shared by several groups is evaluated once, and the bits are ORed column by column. The oracle
    is ``tests/oracles/bitmaps.py``, which takes one message.

    Bits follow RocketMQ's rules, in either dialect. Where these fail, there is no match in
    RocketMQ's dialect, as in a broker, and a possible match in the dialect "rocketray": its later
    rules give a verdict there, and no different verdict elsewhere. So its bits never exclude a
    message that it matches, whatever the version of the rules. Immutable; thread-safe.
    """

    __slots__ = ("_bitmap_bytes", "_bounds", "_expressions", "_names")

    def __init__(self, filters: Iterable[ConsumerFilterData], bit_count: int) -> None:
        """Compile *filters*, whose bits are positions in bitmaps of *bit_count*."""
        bits: dict[Subscription, set[int]] = {}
        for data in filters:
            bits.setdefault(data.bitmap_filter, set()).update(data.bit_positions)
        compiled = {each: VectorizedExpression(each.compiled()) for each in bits}
        names = list(dict.fromkeys(name for one in compiled.values() for name in one.names))
        rows = {name: row for row, name in enumerate(names)}
        self._names, self._bounds = join_names(tuple(names))
        self._bitmap_bytes = bit_count // 8
        self._expressions = [
            _Bits(
                one,
                np.array([rows[name] for name in one.names], np.intp),
                _masks(bits[each]),
                each.dialect != "rocketmq",
            )
            for each, one in compiled.items()
        ]

    def of(self, data: _Bytes, starts: _Int64s, sizes: _Int64s) -> _Bytes:
        """Return the bitmaps of *n* messages, uint8[n, bytes].

        Their property strings lie in *data* uint8, at *starts* int64[n] with *sizes* int64[n].
        """
        found = np.zeros((len(starts), self._bitmap_bytes), np.uint8)
        for first in range(0, len(starts), _BLOCK):
            part = slice(first, first + _BLOCK)
            self._set_bits(data, starts[part], sizes[part], found[part])
        return found

    def _set_bits(self, data: _Bytes, starts: _Int64s, sizes: _Int64s, found: _Bytes) -> None:
        value_starts = np.empty((len(self._bounds) - 1, len(starts)), np.int64)
        value_sizes = np.empty_like(value_starts)
        find_properties(data, starts, sizes, self._names, self._bounds, value_starts, value_sizes)
        for expression, rows, masks, looks_at_failures in self._expressions:
            states = expression.evaluate(data, value_starts[rows], value_sizes[rows])
            may_match = states == State.TRUE
            if looks_at_failures:
                may_match |= states > State.NULL
            for place, mask in masks:
                found[:, place] |= may_match.view(np.uint8) * mask


def _masks(positions: Iterable[int]) -> list[tuple[int, np.uint8]]:
    """Return the bytes of a bitmap that *positions* touch, with the bits of each."""
    masks: dict[int, int] = {}
    for bit in positions:
        masks[bit >> 3] = masks.get(bit >> 3, 0) | 1 << (bit & 7)
    return [(place, np.uint8(mask)) for place, mask in sorted(masks.items())]
