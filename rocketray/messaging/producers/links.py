"""The topics that a producer sends to, and its link to each of their queues.

A topic is looked up when the first message goes to it, a link is opened when the first message goes
to its queue. :meth:`QueueLinks.refresh` follows topics that get more queues or another ack mode,
are deleted, or are created again, and queues that move to another disk.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection
from functools import cache, lru_cache, partial
from typing import NamedTuple

from rocketray.base.ack_mode import durability_of
from rocketray.base.names import check_topic, disk_words
from rocketray.base.property_text import text_to_give
from rocketray.base.system_topics import WAITING_QUEUES
from rocketray.broker.topics.catalog import TopicConfig
from rocketray.errors import (
    ConfigError,
    InvalidMessageError,
    ShardMovedError,
    ShardUnavailableError,
    StoreError,
    StreamError,
    TopicNotFoundError,
)
from rocketray.hashing import java_hash_code
from rocketray.messaging.api.node_client import NodeClient
from rocketray.runtime.ipc.ring import RING_BYTES, SMALL_RING_BYTES
from rocketray.runtime.one_process import OfOneProcess
from rocketray.runtime.outage_log import OutageLog
from rocketray.store.batches.message_columns import RecordForm

from .queue_link import QueueLink
from .queue_turns import QueueTurns

_LOG = logging.getLogger(__name__)
# Between two refreshes that failures ask for: each asks the coordinator once for each topic.
_LOOK_S = 0.5
# After the first look for a queue that moves, which is closed for 0.1 to 0.5 s. The pause doubles,
# up to the one above: each producer makes some five calls to the coordinator about the topic.
_MOVING_LOOK_S = 0.02
_MOVE_S = 10.0
"""How long the opening of a link waits for a queue that moves: as a send waits by default."""
# Rings of 4 MiB, 256 MiB in all; later links get 128 KiB. A ring is a file in shared memory, so
# large ones for thousands of queues would take the memory of the machine.
_LARGE_RINGS = 64
CLOSED = "the producer is closed; create a new one"


class Nearby(NamedTuple):
    """A queue of a service's topic, and the disk that it is on."""

    queue_id: int
    disk: str


class QueueLinks(OfOneProcess, what="producer"):
    """The links of one producer; for any thread."""

    def __init__(
        self, node: NodeClient, make_form: Callable[[str], RecordForm], *, first_turn: int = 0
    ) -> None:
        """Take *make_form*, which returns the parts that all records for one topic share."""
        self._node = node
        self.on_idle: Callable[[QueueLink], object] = lambda _: None
        """Called with a link whose calls have all ended, for what was collected meanwhile."""
        self._topics: dict[str, TopicConfig] = {}
        self.form = cache(make_form)
        """Returns the parts that all records for one topic share."""
        self._links: dict[str, list[QueueLink | None]] = {}  # of each topic, by queue
        self._lost = 0  # one-way messages of closed links
        self._outages = OutageLog(_LOG)
        self._look_at_s = 0.0
        self.turns = QueueTurns(first=first_turn)
        """The queues of messages that have none."""
        self._moving: set[QueueLink] = set()  # those whose queues are looked for
        self._lock = threading.Lock()  # for the set of links; no link's own lock is taken under it
        self._refreshing = threading.Lock()
        self.is_closed = False
        """Whether no further links are opened: the producer is closed."""

    @property
    def one_way_lost(self) -> int:
        """Number of one-way messages that were not stored, of those with a known outcome."""
        lost = self._lost
        for link in self.opened():
            with link.lock:
                link.harvest()
                lost += link.lost
        return lost

    def topic(self, name: str) -> TopicConfig:
        """Return a topic; the node is asked once for each."""
        config = self._topics.get(name) if isinstance(name, str) else None
        if config is None:
            config = self._topics.setdefault(name, self._node.topics.get(check_topic(name)))
        return config

    def knows(self, name: str) -> bool:
        """Return whether that topic was looked up before."""
        return name in self._topics

    def next_queue(self, topic: str) -> int:
        """Return the next of the topic's queues in turn, on a disk that does not fail."""
        return self.turns.next(self.topic(topic))

    def choose_queue(
        self, topic: str, queue_id: int | None = None, sharding_key: str | None = None
    ) -> int:
        """Return the queue of a message: the given one, the key's, or the one whose turn it is."""
        config = self.topic(topic)
        if sharding_key is not None and not isinstance(sharding_key, str):
            raise ConfigError(
                f"sharding_key is {sharding_key!r:.60} and no string; {text_to_give(sharding_key)}"
            )
        if queue_id is None:
            if sharding_key is None:
                return self.turns.of_message(config)
            return hash_of_key(sharding_key) % config.queues
        if sharding_key is not None:
            hash_of_key(sharding_key)  # raises for an empty key
        config.check_queue(queue_id)
        return queue_id

    def near(self, disk: str, topic: str, number: int = 0) -> Nearby:
        """Return the queue of a service's topic with that number on *disk*.

        If that disk is unavailable it is one on another, whose service does the same.
        """
        if topic in WAITING_QUEUES and topic not in self._topics:
            self._node.topics.ensure(topic, WAITING_QUEUES[topic])
        config = self.topic(topic)
        if not config.disks:
            return Nearby(number, "")
        # That disk's block of queues is the first. A disk may have fewer queues than *number*.
        blocks = sorted(config.by_disk().items(), key=lambda block: block[0] != disk)
        places = [Nearby(queues[number], each) for each, queues in blocks if number < len(queues)]
        for place in places:
            if self._is_there(topic, place):
                return place
        return places[0]

    def _is_there(self, topic: str, place: Nearby) -> bool:
        """Return whether a queue can be used now; a disk that fails may only be slow."""
        try:
            if self.turns.is_avoided(place.disk):
                self._check_answers(self.topic(topic), place.queue_id)
            self.link(topic, place.queue_id, None)
        except ShardUnavailableError as error:
            _LOG.warning("%s/%d is not used: %s", topic, place.queue_id, error)
            self.turns.avoid(place.disk)
            return False
        return True

    def link(
        self,
        topic: str,
        queue_id: int | None,
        sharding_key: str | None,
        now_s: float | None = None,
    ) -> QueueLink:
        """Return the link to the queue of a message; opening it may wait for the shard.

        A message without a queue or a key goes to another disk if that of its queue fails. With the
        monotonic time *now_s*, most messages need no further look.
        """
        has_turn = queue_id is None and sharding_key is None
        if has_turn and now_s is not None:
            try:
                staying = self.turns.staying(topic, now_s)
                if staying is not None and (link := self._links[topic][staying]) is not None:
                    return link
            except (LookupError, TypeError):  # it is not open any more; or the topic is no text
                pass
        queue_id = self.choose_queue(topic, queue_id, sharding_key)
        links = self._links.get(topic, ())
        link = links[queue_id] if queue_id < len(links) else None  # there may be more queues by now
        if link is not None:
            return link
        try:
            return self._open(topic, queue_id)
        except ShardUnavailableError:
            config = self.topic(topic)
            self.turns.avoid(config.disk_of(queue_id))
            other = self.turns.next(config)
            if not has_turn or self.turns.is_avoided(config.disk_of(other)):
                raise
            return self.link(topic, None, None)

    def existing(self, topic: str, queue_id: int) -> QueueLink | None:
        links = self._links.get(topic, ())
        return links[queue_id] if queue_id < len(links) else None

    def opened(self) -> list[QueueLink]:
        """Return the links that are open now; other threads may open more meanwhile."""
        topics = list(self._links.values())
        return [link for links in topics for link in links if link is not None]

    def _note_unavailable(self, link: QueueLink, error: ShardUnavailableError) -> None:
        """Look where the queue is if it moves, else leave out its disk for a while."""
        if isinstance(error, ShardMovedError):
            self.follow_soon(link)
        else:
            self.turns.avoid(link.disk)

    def follow_soon(self, link: QueueLink) -> None:
        """Look where a queue that moves is, beside the caller, until its link leads there."""
        with self._lock:
            if self.is_closed or link in self._moving:
                return
            self._moving.add(link)
        if not _started(partial(self._look_for, link)):
            self._moving.discard(link)

    def _look_for(self, link: QueueLink) -> None:
        """Look for a queue until its link leads elsewhere, or the queue answers where it was."""
        pause_s, end_s = _MOVING_LOOK_S, time.monotonic() + _MOVE_S
        try:
            disk, waiting = link.disk, [*link.in_flight][:1]
            while link is self.existing(link.topic, link.queue_id) and time.monotonic() < end_s:
                self.refresh([link.topic])
                if self.is_closed or link.disk != disk or any(one.settled for one in waiting):
                    return
                time.sleep(pause_s)
                pause_s = min(2 * pause_s, _LOOK_S)
        finally:
            self._moving.discard(link)

    def look_again(self) -> None:
        """Refresh soon, beside the caller: a queue does not answer."""
        now_s = time.monotonic()
        if now_s >= self._look_at_s and not self._refreshing.locked():
            self._look_at_s = now_s + _LOOK_S
            _started(self.refresh)

    def refresh(self, names: Collection[str] | None = None) -> None:
        """Follow the queues and the ack modes of all topics, or some; leave deleted topics."""
        with self._refreshing:
            for name in [*(self._topics if names is None else names)]:
                known = self._topics.get(name)
                if self.is_closed:
                    return
                if known is not None:
                    self._refresh(name, known)

    def _refresh(self, name: str, known: TopicConfig) -> None:
        try:
            config = self._node.topics.get(name)
        except TopicNotFoundError as error:
            self._leave(name, error)
        except Exception as error:  # noqa: BLE001  # the next refresh tries again
            said = "topic %s: its queues could not be looked up again: %s"
            self._outages.failed(name, said, name, error)
        else:
            self._outages.works(name)
            # A store host is given once, so others mean that the topic is another one.
            if config.store_hosts[: known.queues] != known.store_hosts:
                reason = f"topic {name!r} was deleted and recreated meanwhile; send again"
                self._leave(name, StoreError(reason))
            elif config != known:
                with self._lock:
                    links = self._links.get(name, [])
                    links += [None] * (config.queues - known.queues) if links else []
                    self._topics[name] = config
                    for link in links:
                        if link is not None:
                            link.durability = durability_of(config.default_ack)
            self._follow(config)

    def lose(self, error: StreamError) -> None:
        """Fail all unacknowledged and later sends with *error*: their shards are gone."""
        for topic in list(self._links):
            self._leave(topic, error)

    def refuse(self) -> None:
        """Open no further links: the producer is being closed."""
        with self._lock:
            self.is_closed = True

    def close(self) -> None:
        self.refuse()
        for link in self.opened():
            with link.lock:
                link.close(StoreError(CLOSED))

    def _open(self, topic: str, queue_id: int) -> QueueLink:
        """Return an existing link or a new one; other threads are not blocked by its shard."""
        end_s = time.monotonic() + _MOVE_S
        while not self.is_closed:
            config = self.topic(topic)
            config.check_queue(queue_id)
            form = self.form(topic)
            is_large = len(self.opened()) < _LARGE_RINGS
            self._check_answers(config, queue_id)
            try:
                opened = QueueLink(
                    *(self._node, config, queue_id, form),
                    on_idle=self.on_idle,
                    on_unavailable=self._note_unavailable,
                    on_full=lambda link: self.turns.avoid(link.disk),
                    ring_bytes=RING_BYTES if is_large else SMALL_RING_BYTES,
                )
            except ShardMovedError as error:
                if time.monotonic() >= end_s:
                    raise
                time.sleep(error.retry_after_ms / 1000)
                with self._lock:
                    if self._topics.get(topic) is config:
                        del self._topics[topic]  # it is looked up again
                continue
            with self._lock:
                if self._topics.get(topic) is config and not self.is_closed:
                    links = self._links.setdefault(topic, [None] * config.queues)
                    link = links[queue_id]
                    if link is None:
                        links[queue_id] = opened
                        return opened
                else:
                    link = None  # the topic changed meanwhile, or the producer was closed
            opened.close(StoreError(CLOSED))
            if link is not None:
                return link
        raise StoreError(CLOSED)

    def _check_answers(self, topic: TopicConfig, queue_id: int) -> None:
        """Raise :class:`ShardUnavailableError` if a disk on another machine does not answer."""
        disk = topic.disk_of(queue_id)
        if not topic.disks or self._node.at(disk).is_local():
            return
        # The coordinator knows at once; a call to a machine that is down may take CALL_TIMEOUT_S.
        if disk not in self._node.disks.reports():
            raise ShardUnavailableError(disk_words(disk), "its machine does not answer")

    def _follow(self, topic: TopicConfig) -> None:
        """Have links lead to the new places of queues that moved, and to a node's next start."""
        for link in [*self._links.get(topic.name, ())]:
            if link is None or not link.is_left_behind(topic):
                continue
            try:
                link.follow(self._node, topic)
            except (StreamError, OSError) as error:
                said = "%s: its queue is not opened again yet: %s"
                self._outages.failed(link.name, said, link.name, error)
            else:
                self._outages.works(link.name)
                _LOG.info("%s: its queue is opened again, on %s", link.name, link.data)

    def _leave(self, topic: str, error: StreamError) -> None:
        """Close the links to the removed shards of a topic."""
        with self._lock:
            self._topics.pop(topic, None)
            links = self._links.pop(topic, [])
        for link in links:
            if link is not None:
                with link.lock:
                    link.close(error, is_gone=True)
                    self._lost += link.lost


def _started(look: Callable[[], None]) -> bool:
    """Start a thread that looks for queues; False if that is impossible: a later look does it."""
    try:
        threading.Thread(target=look, daemon=True, name="topics").start()
    except RuntimeError as error:  # too many threads
        _LOG.warning("queues that moved are looked for later: %s", error)
        return False
    return True


@lru_cache(maxsize=4096)  # hashing is a Python loop over the key's characters, and keys recur
def hash_of_key(sharding_key: str) -> int:
    if not sharding_key:
        raise InvalidMessageError(
            "sharding_key is empty, and no message can have such a key; give a string, or leave it "
            "out for a message without a key"
        )
    return java_hash_code(sharding_key)
