"""Copies of many messages at once: those that a group returned, and those not in their topic yet.

The topics of the copies are scanned on columns (block_scan.py): those of the group, and of all
others the dead letters that name it; or the node's own topics. Only copies become objects, up to a
limit.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from rocketray.base.marks import GIVEN_UP_BY, REAL_TOPIC
from rocketray.base.system_topics import SCHEDULE_TOPIC
from rocketray.broker.filtering.block_scan import BlockScan
from rocketray.broker.filtering.preview import PreviewRange, spans_within
from rocketray.broker.retries.retry_records import dead_letter_topic, origin_of, retry_topic
from rocketray.broker.topics.catalog import TopicConfig, shard_of_host
from rocketray.broker.topics.queue_views import open_queues
from rocketray.errors import ConfigError, OffsetOutOfRangeError, StoreError
from rocketray.filters.message_filter import MessageFilter
from rocketray.filters.subscription import EVERYTHING, Subscription
from rocketray.message import StoredMessage
from rocketray.store.formats.message_id import decode_offset_id

from .arrival import OWN_TOPICS
from .retry_trace import is_given_back, may_hold_copies


@dataclass(frozen=True, slots=True)
class Returned:
    """The copies of messages of one topic: by queue, and by the original's physical offset there.

    ``notes`` says what was not read.
    """

    by_queue: Mapping[int, Mapping[int, list[StoredMessage]]]
    notes: tuple[str, ...] = ()


def find_returned(
    data: Path,
    topics: Mapping[str, TopicConfig],
    group: str,
    topic: str,
    *,
    since_ms: int,
    scan_max: int,
    copies_max: int,
) -> Returned:
    """Return the copies that *group* made of messages of *topic*, stored at *since_ms* or later.

    Reads the files in *data*, at most *scan_max* messages and *copies_max* copies.
    """
    found: dict[int, dict[int, list[StoredMessage]]] = {}
    notes: list[str] = []
    count, left = 0, scan_max + 1  # one more shows that there are more
    for name in [name for name in topics if may_hold_copies(name, group)]:
        if len(topics[name].by_disk()) > 1:
            notes.append(f"{name} has queues on several disks: only copies on this one are known")
        within = PreviewRange(begin_ms=since_ms, limit=left)
        scan = BlockScan(MessageFilter(_copies_in(name, group)))
        for copy in _scan(data, name, scan, within):
            if count == copies_max:
                notes.append(f"only the first {copies_max:,} copies of failed messages were read")
                return Returned(found, tuple(notes))
            place = _origin(topics, copy) if is_given_back(copy, group) else None
            if place is not None and place[0] == topic:
                count += 1
                found.setdefault(place[1], {}).setdefault(place[2], []).append(copy)
        left -= scan.counters.scanned
        if left <= 0:
            notes.append(f"only {scan_max:,} messages were searched for copies of failed messages")
            break
    return Returned(found, tuple(notes))


def find_absent(
    data: Path,
    topics: Mapping[str, TopicConfig],
    topic: str,
    span_ms: tuple[int, int | None],
    *,
    scan_max: int,
    copies_max: int,
) -> list[StoredMessage]:
    """Return a copy of each message for *topic* that is not in it, of those stored in a time span.

    They are delayed, recalled, half of a transaction, or expired since. Reads at most *scan_max*
    messages of each topic, and *copies_max* copies.
    """
    waiting = PreviewRange(begin_ms=span_ms[0], end_ms=span_ms[1], limit=scan_max)
    matcher = MessageFilter(Subscription.sql(f"{REAL_TOPIC} = '{topic}'", "rocketmq"))
    found: dict[str, StoredMessage] = {}
    for name in OWN_TOPICS:
        if name in topics:
            copies = _scan(data, name, BlockScan(matcher), waiting)
            found |= {
                one.unique_key or one.offset_message_id: one for one in islice(copies, copies_max)
            }
    if found:
        # Without an end: it may have arrived at any time since it was stored.
        arrived = PreviewRange(begin_ms=span_ms[0], limit=scan_max)
        for one in _scan(data, topic, BlockScan(matcher), arrived):
            found.pop(one.unique_key or "", None)
    return list(found.values())


def _copies_in(name: str, group: str) -> Subscription:
    """Return a filter that all copies in a topic match."""
    if name == SCHEDULE_TOPIC:
        return Subscription.sql(f"{REAL_TOPIC} = '{retry_topic(group)}'", "rocketmq")
    if name in (retry_topic(group), dead_letter_topic(group)):
        return EVERYTHING
    return Subscription.sql(f"{GIVEN_UP_BY} = '{group}'", "rocketmq")


def _scan(data: Path, topic: str, scan: BlockScan, within: PreviewRange) -> Iterator[StoredMessage]:
    """Yield the matching messages of a topic, up to the limit of *within*."""
    assert within.limit is not None
    try:
        with open_queues(data, topic) as views:
            left = within.limit
            for view, start, stop in spans_within(views, within):
                end = min(stop, start + left)
                for first in range(start, end, scan.block_max):
                    matches = scan.matches(view.reader, first, min(first + scan.block_max, end))
                    yield from view.reader.messages(matches)
                left -= end - start
    except OffsetOutOfRangeError:
        return  # the copies expired while they were read
    except StoreError:
        if (data / "shards" / topic).exists():
            raise
        # no queue of it is on this disk


def _origin(topics: Mapping[str, TopicConfig], copy: StoredMessage) -> tuple[str, int, int] | None:
    """Return the topic, queue and physical offset of the original; None if it is unknown."""
    try:
        place = decode_offset_id(origin_of(copy))
    except ConfigError:
        return None
    shard = shard_of_host(topics, place.store_host)
    return None if shard is None else (*shard, place.physical_offset)
