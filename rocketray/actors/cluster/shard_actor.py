"""The shard actor: the Ray shell of one ``OwnedShard`` (shards/owned_shard.py).

It has two threads beside Ray's own: one waits on the doorbell and drains the rings, one prepares
files and flushes. A thread that fails ends the process: Ray starts a new one, which recovers the
store and takes over the rings.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable
from typing import Any

from rocketray.actors.files.home import Home
from rocketray.actors.ipc.control_page import AdaptiveSpin
from rocketray.actors.ipc.ring import Ack
from rocketray.actors.ray_process.ray_runtime import is_started_again, ray
from rocketray.actors.runtime.clock import system_clock_ms
from rocketray.actors.shards.owned_shard import OwnedShard, Question, why_closed
from rocketray.actors.topics.catalog import TopicCatalog
from rocketray.config import StoreConfig
from rocketray.errors import StoreError, StreamError, TopicNotFoundError

__all__ = ["ShardActor", "open_patiently"]

_LOG = logging.getLogger(__name__)
_TRIES_AGAIN = 60
_OPENING_INTERVAL_S = 1.0
_IDLE_WAIT_S = 0.5
_PREPARE_INTERVAL_S = 0.1
_DISK_INTERVAL_S = 10.0


def open_patiently(
    open_shard: Callable[[], OwnedShard],
    *,
    tries: int,
    sleep: Callable[[float], None] = time.sleep,
) -> OwnedShard:
    """Return the result of *open_shard*, called up to *tries* times, once a second.

    Ray restarts an actor that died, but not one that fails while it starts. An older incarnation
    may still have the directory for a moment, and the system may refuse to open
    files now that it lets this one open later.

    Raises:
        TopicNotFoundError: the topic was deleted meanwhile. StreamError, OSError: the last failure.
    """
    for _ in range(tries - 1):
        try:
            return open_shard()
        except TopicNotFoundError:
            raise
        except (StreamError, OSError):
            _LOG.exception("a shard cannot be opened; trying again")
            sleep(_OPENING_INTERVAL_S)
    return open_shard()


def opened_or_closed(open_shard: Callable[[], OwnedShard], name: str) -> OwnedShard | str:
    """Return the result of *open_shard*, or why the shard *name* stays closed, for its callers."""
    try:
        return open_shard()
    except TopicNotFoundError:
        raise  # the topic was deleted, and its actor is about to end
    except Exception as error:  # noqa: BLE001 - whatever it is, it closes this shard alone
        _LOG.exception("shard %s stays closed", name)
        return why_closed(name, error, "repair the cause, then start the node again")


class ShardActor:
    """The owner of one ``(topic, queueId)`` of a node.

    If its store cannot be opened, this shard alone stays closed, and calls raise the reason.
    """

    def __init__(self, home: Home, topic: str, queue_id: int, config: StoreConfig) -> None:
        self._name = f"{topic}/{queue_id}"

        def open_shard() -> OwnedShard:
            data = home.directory()
            known = TopicCatalog.load(data).get(topic)
            return OwnedShard(data, known, queue_id, config, clock_ms=system_clock_ms)

        is_again = is_started_again()
        self._stop = threading.Event()
        self._flush_interval_s = config.flush_interval_ms / 1000
        self._threads: list[threading.Thread] = []
        tries = _TRIES_AGAIN if is_again else 1
        self._opened = opened_or_closed(lambda: open_patiently(open_shard, tries=tries), self._name)
        if isinstance(self._opened, OwnedShard):
            self._threads += [
                self._start("writer", self._write),
                self._start("house", self._keep_house),
            ]

    # Ray may repeat the other calls; repeating this one would store twice.
    @ray.method(max_task_retries=0)  # type: ignore[untyped-decorator]
    def append(self, payload: bytes, durability: int, *, attempt: int, not_after_ms: int) -> Ack:
        """See :meth:`OwnedShard.append`."""
        return self._shard.append(payload, durability, attempt=attempt, not_after_ms=not_after_ms)

    def ask(self, question: Question, *arguments: Any) -> Any:
        """See :meth:`OwnedShard.answer`."""
        return self._shard.answer(question, *arguments)

    @property
    def _shard(self) -> OwnedShard:
        if isinstance(self._opened, OwnedShard):
            return self._opened
        raise StoreError(self._opened)

    def pid(self) -> int:
        """Return the process id, for tests that end it."""
        return os.getpid()

    def stop(self) -> None:
        """Store the content of the rings, flush and release the directory."""
        if not isinstance(self._opened, OwnedShard):
            return
        self._stop.set()
        self._shard.writer.control.doorbell.ring()
        for thread in self._threads:
            thread.join()
        self._shard.close()

    def _start(self, name: str, target: Callable[[], None]) -> threading.Thread:
        thread = threading.Thread(target=self._guard, args=(target,), name=name, daemon=True)
        thread.start()
        return thread

    def _guard(self, target: Callable[[], None]) -> None:
        try:
            target()
        except BaseException:  # noqa: BLE001 - a thread that fails ends the process
            _LOG.exception("shard %s ends; Ray starts a new one", self._name)
            os._exit(1)

    def _write(self) -> None:
        doorbell, spin = self._shard.writer.control.doorbell, AdaptiveSpin()
        while not self._stop.is_set():
            rung = doorbell.load()
            if not self._shard.drain():
                doorbell.wait_above(rung, _IDLE_WAIT_S, spin)

    def _keep_house(self) -> None:
        """Prepare files before they are needed, flush when it is due, and watch the disk."""
        flushed = watched = time.monotonic()
        while not self._stop.wait(_PREPARE_INTERVAL_S):
            self._shard.writer.prepare_next()
            if time.monotonic() - flushed >= self._flush_interval_s:
                self._shard.flush()
                flushed = time.monotonic()
            if time.monotonic() - watched >= _DISK_INTERVAL_S:
                self._shard.watch_disk()
                watched = time.monotonic()
