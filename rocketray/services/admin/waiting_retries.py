"""The failed messages of a group that wait for their redelivery, counted from the files.

A change of the group's filter does not touch them: each was matched before, and its handler still
has to succeed on it. They wait in the schedule until they are due, and then in the group's retry
topic until a member has finished them. The module only reads.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from rocketray.base.delay import DELAY_LEVELS_MS
from rocketray.base.marks import REAL_TOPIC
from rocketray.base.system_topics import LEVELS_A_DISK, SCHEDULE_TOPIC
from rocketray.broker.filtering.block_scan import BlockScan
from rocketray.broker.retries.retry_records import retry_topic
from rocketray.broker.topics.queue_views import QueueView, open_queues
from rocketray.errors import NodeElsewhereError, OffsetOutOfRangeError
from rocketray.filters.message_filter import MessageFilter
from rocketray.filters.subscription import Subscription
from rocketray.messaging.api.node_client import NodeClient
from rocketray.messaging.api.queues_here import queues_of


@dataclass(frozen=True, slots=True)
class WaitingRetries:
    """How many messages of a group wait: exactly, or at least so many."""

    count: int
    is_exact: bool

    def to_json(self) -> dict[str, object]:
        return {"count": self.count, "exact": self.is_exact}


def waiting_retries(node: NodeClient, group: str, *, scan_max: int) -> WaitingRetries:
    """Count what waits now on the disks of this machine; at most *scan_max* messages are read.

    Raises:
        StoreError: files are damaged.
    """
    topic = retry_topic(group)
    offsets = {each.topic: each.offsets for each in node.groups.all() if each.group == group}
    finished = offsets.get(topic, {})
    with _queues(node, topic) as (views, has_all_retries):
        returned = sum(
            view.reader.gaps.count(max(finished.get(view.queue_id, 0), view.minimum), view.maximum)
            for view in views
        )
    scan = BlockScan(MessageFilter(Subscription.sql(f"{REAL_TOPIC} = '{topic}'", "rocketmq")))
    with _queues(node, SCHEDULE_TOPIC) as (views, has_all_levels):
        for view in views:
            _scan_level(scan, view, node.clock_ms(), scan_max)
    is_exact = has_all_retries and has_all_levels and scan.counters.scanned < scan_max
    return WaitingRetries(returned + scan.counters.delivered, is_exact)


@contextmanager
def _queues(node: NodeClient, topic: str) -> Iterator[tuple[list[QueueView], bool]]:
    """Yield the queues of *topic* on this machine, and whether there are no others."""
    config = node.topics.all().get(topic)
    try:
        here = None if config is None else queues_of(node, config)
    except NodeElsewhereError:
        yield [], False
        return
    if here is None:
        yield [], True
        return
    with open_queues(here.directories, topic) as views:
        yield views, not here.elsewhere


def _scan_level(scan: BlockScan, view: QueueView, now_ms: int, scan_max: int) -> None:
    """Scan the messages of a queue of the schedule that are not due yet."""
    # Each disk has a block of these queues, one for each level.
    wait_ms = DELAY_LEVELS_MS[view.queue_id % LEVELS_A_DISK]
    try:
        start = view.first_stored_at(now_ms - wait_ms + 1)
        for first, stop in view.reader.gaps.outside(start, view.maximum):
            for begin in range(first, stop, scan.block_max):
                end = min(begin + scan.block_max, stop, begin + scan_max - scan.counters.scanned)
                if end <= begin:
                    return
                scan.matches(view.reader, begin, end)
    except OffsetOutOfRangeError:
        return  # they were due, and were removed while they were read
