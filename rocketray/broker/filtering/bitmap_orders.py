"""Orders for filter bitmaps: the coordinator tells shards for which topics and groups to keep them.

Plain values and a plain object. A shard may process an order late or twice: whatever its order, its
streams skip no matching message (shard_bitmaps.py). This module decides when bitmaps pay off, and
the time since which the node's own filter file may say that a group's bits are in them: since all
shards of the topic have confirmed it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from rocketray.broker.topics.catalog import TopicConfig
from rocketray.filters.consumer_filter_data import ConsumerFilterData
from rocketray.filters.counters import FilterCounters
from rocketray.filters.subscription import Subscription
from rocketray.groups.group_descriptions import LiveSubscription

from .sql_filters import is_registered

# From this number of groups on, each with at most this share of the messages, bitmaps save more
# than they cost: make bench BENCH_ARGS=bitmaps, and docs/explanation/decisions/filter-bitmaps.md.
AUTO_GROUPS = 8
_SHARE_MAX = 0.1
_SCANNED_MIN = 10_000  # messages after which a group's share counts

Counters = Callable[[str, str], FilterCounters]
Answer = Mapping[str, ConsumerFilterData]


@dataclass(frozen=True, slots=True)
class BitmapOrder:
    """An order to all shards of a topic: the subscriptions to make bitmaps of; None for none."""

    topic: TopicConfig
    living: tuple[LiveSubscription, ...] | None


@dataclass(slots=True)
class _Ordered:
    """A topic whose shards may keep bitmaps; *births* of the filters that all of them know."""

    is_on: bool
    births: dict[str, tuple[Subscription, int]] = field(default_factory=dict)  # by group


class BitmapBoard:
    """The orders, and the answers of the shards. The owner holds a lock."""

    def __init__(self, topics: Iterable[TopicConfig]) -> None:
        """Take the *topics* for which an earlier coordinator may have ordered bitmaps."""
        self._ordered = {
            topic.name: _Ordered(is_on=False) for topic in topics if topic.bitmaps != "off"
        }

    def orders(
        self,
        topics: Mapping[str, TopicConfig],
        living: Sequence[LiveSubscription],
        counters: Counters,
    ) -> list[BitmapOrder]:
        """Return the orders for topics that are to keep bitmaps, or may still keep them."""
        self._ordered = {name: ordered for name, ordered in self._ordered.items() if name in topics}
        orders = []
        for name, topic in topics.items():
            before = self._ordered.get(name)
            groups = tuple(
                reader
                for reader in living
                if reader.topic == name and is_registered(reader.subscription)
            )
            is_on = _pays(topic, groups, counters, was_on=before is not None and before.is_on)
            if is_on and before is None:
                before = self._ordered[name] = _Ordered(is_on=True)
            if before is not None:
                before.is_on = is_on
                orders.append(BitmapOrder(topic, groups if is_on else None))
        return orders

    def take_answers(self, order: BitmapOrder, answers: Sequence[Answer] | None) -> None:
        """Record the answers of the shards to *order*; None if a shard did not answer."""
        ordered = self._ordered.get(order.topic.name)
        if ordered is None or answers is None or ordered.is_on != (order.living is not None):
            return
        if order.living is None:
            del self._ordered[order.topic.name]
            return
        ordered.births = {}
        for one in order.living:
            known = [answer.get(one.group) for answer in answers]
            wanted = one.subscription
            times = [data.born_time_ms for data in known if data and data.subscription == wanted]
            if len(times) == len(answers):
                ordered.births[one.group] = wanted, max(times)

    def known(
        self, living: Iterable[LiveSubscription]
    ) -> tuple[list[LiveSubscription], dict[tuple[str, str], int]]:
        """Return those of *living* that may be registered now, and their earliest birth times."""
        found, born_after_ms = [], {}
        for one in living:
            ordered = self._ordered.get(one.topic)
            if ordered is not None and is_registered(one.subscription):
                subscription, time_ms = ordered.births.get(one.group, (None, 0))
                if subscription != one.subscription:
                    continue
                born_after_ms[one.topic, one.group] = time_ms
            found.append(one)
        return found, born_after_ms


def _pays(
    topic: TopicConfig,
    groups: Sequence[LiveSubscription],
    counters: Counters,
    *,
    was_on: bool,
) -> bool:
    """Return whether *topic* is to keep bitmaps; to keep them on, half of the groups suffice."""
    if topic.bitmaps != "auto" or topic.internal:
        return topic.bitmaps == "on"
    # Half to keep them: a group near the limit must not turn them on and off all the time.
    wanted = sum(_is_selective(counters(one.group, one.topic)) for one in groups)
    return wanted >= (AUTO_GROUPS // 2 if was_on else AUTO_GROUPS)


def _is_selective(counters: FilterCounters) -> bool:
    matched = counters.scanned - counters.rejected - counters.errors
    return counters.scanned >= _SCANNED_MIN and matched <= _SHARE_MAX * counters.scanned
