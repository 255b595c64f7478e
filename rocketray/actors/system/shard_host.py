"""The host of system shards: retries, dead letters, schedules, changelogs, in one process.

An actor costs 170 MB, and a node may have two such topics for each of its groups. So their shards
share one: one thread drains the rings of all of them, woken by one doorbell, and one thread creates
files ahead and flushes. Files are smaller than those of other topics; an empty shard has none.

:class:`ShardHost` is plain Python; system_actor.py gives it threads and an address.

Invariants
  1. All hosted shards of the catalog are open before the first call is answered: readers map the
     files of a shard without a call, and may see only recovered messages.
  2. A shard that cannot be opened stays closed, alone. Calls to it raise the reason, and it is
     tried again periodically, for producers that wait at their rings.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from rocketray.actors.files.paths import filter_doorbell_path, host_doorbell_path
from rocketray.actors.ipc.control_page import Doorbell
from rocketray.actors.ipc.ring import Ack
from rocketray.actors.shards.owned_shard import OwnedShard, why_closed
from rocketray.actors.topics.catalog import TopicCatalog, TopicConfig
from rocketray.config import StoreConfig
from rocketray.errors import StoreError, StreamError

__all__ = ["ShardHost"]

_LOG = logging.getLogger(__name__)
_FILE_SIZES = {
    "commit_log_segment_bytes": 16 * 1024 * 1024,
    "consume_queue_segment_entries": 50_000,
    "index_hash_slots": 20_000,
    "index_entries": 100_000,
}


class ShardHost:
    """All hosted shards of a node."""

    def __init__(
        self, data: Path, sizes: Mapping[str, int], *, clock_ms: Callable[[], int]
    ) -> None:
        """Open the shards of the catalog; *sizes* are those of the node's other shards."""
        self.data = data
        self._sizes = {**sizes, **_smaller(sizes)}
        self._clock_ms = clock_ms
        # Taken in this order; closing a shard takes all three.
        self._opening = threading.Lock()
        self._keeping_house = threading.Lock()
        self._draining = threading.Lock()
        self._shards: dict[tuple[str, int], OwnedShard] = {}
        self._filter_doorbell = Doorbell(filter_doorbell_path(data))
        self.doorbell = Doorbell(host_doorbell_path(data))
        """Rung by producers, and by other threads to make the draining thread check."""
        self.open_all()

    def open_all(self) -> None:
        """Open the shards of the catalog that are not open yet; a shard that fails stays closed.

        Called again periodically: the reason for a closed shard may be gone.
        """
        with self._opening:
            for topic in TopicCatalog.load(self.data).topics.values():
                if topic.hosted:
                    try:
                        self._open(topic)
                    except StreamError:
                        _LOG.exception("topic %s stays closed", topic.name)

    def open(self, topic: TopicConfig) -> None:
        """Open the shards of a topic that are not open yet.

        Raises:
            StreamError: one of them cannot be opened.
        """
        with self._opening:
            self._open(topic)

    def shard(self, topic: str, queue_id: int) -> OwnedShard:
        """Return a hosted shard; one that is not open is opened.

        Raises:
            StreamError: there is no such topic, or its shard cannot be opened.
        """
        shard = self._shards.get((topic, queue_id))
        if shard is None:
            with self._opening:  # so the topic is not removed meanwhile
                self._open(TopicCatalog.load(self.data).get(topic))
            shard = self._shards[topic, queue_id]
        return shard

    def find(self, topic: str, queue_id: int) -> OwnedShard | None:
        """Return a hosted shard that is open, or None."""
        return self._shards.get((topic, queue_id))

    def append(
        self,
        topic: str,
        queue_id: int,
        payload: bytes,
        durability: int,
        *,
        attempt: int = 0,
        not_after_ms: int | None = None,
    ) -> Ack:
        """Store a packed batch; see :meth:`OwnedShard.append`."""
        shard = self.shard(topic, queue_id)
        return shard.append(payload, durability, attempt=attempt, not_after_ms=not_after_ms)

    def remove(self, topic: str) -> None:
        """Close the shards of a deleted topic."""
        with self._opening, self._keeping_house, self._draining:
            shards = self._shards
            self._shards = {key: shard for key, shard in shards.items() if key[0] != topic}
            _close_all(shards[key] for key in shards.keys() - self._shards.keys())

    def drain(self) -> int:
        """Store the batches in the rings, and wake the filters; return the number of batches."""
        with self._draining:
            return sum(shard.drain() for shard in self._shards.values())

    def prepare_next(self) -> None:
        """Create the next files ahead of use."""
        with self._keeping_house:
            for shard in self._shards.values():
                shard.writer.prepare_next()

    def flush(self) -> None:
        """Bring everything to disk, and drop producers that are gone."""
        with self._keeping_house:
            for shard in self._shards.values():
                shard.flush()

    def watch_disk(self) -> None:
        """Refuse messages from now on if the disk is too full, or accept them again."""
        with self._keeping_house:
            for shard in self._shards.values():
                shard.watch_disk()

    def close(self) -> None:
        """Store the batches in the rings, flush and release all shards."""
        with self._opening, self._keeping_house, self._draining:
            shards, self._shards = self._shards, {}
            _close_all(shards.values())

    def _open(self, topic: TopicConfig) -> None:
        for queue_id in range(topic.queues):
            key = topic.name, queue_id
            if key not in self._shards:  # other threads iterate over the table meanwhile
                self._shards = {**self._shards, key: self._opened(topic, queue_id)}

    def _opened(self, topic: TopicConfig, queue_id: int) -> OwnedShard:
        sizes: dict[str, Any] = self._sizes
        config = StoreConfig(store_host=topic.store_hosts[queue_id], **sizes)
        try:
            return OwnedShard(
                self.data,
                topic,
                queue_id,
                config,
                clock_ms=self._clock_ms,
                doorbell=self.doorbell,
                filter_doorbell=self._filter_doorbell,
            )
        except StreamError:
            raise
        except Exception as error:  # any error closes this shard alone
            advice = "repair it: opening is tried again at each call, and now and then"
            raise StoreError(why_closed(f"{topic.name}/{queue_id}", error, advice)) from error


def _close_all(shards: Iterable[OwnedShard]) -> None:
    """Close each of them; raise the error of the last one that cannot be closed cleanly."""
    with ExitStack() as closing:
        for shard in shards:
            closing.callback(shard.close)


def _smaller(sizes: Mapping[str, int]) -> dict[str, int]:
    return {name: min(size, sizes.get(name, size)) for name, size in _FILE_SIZES.items()}
