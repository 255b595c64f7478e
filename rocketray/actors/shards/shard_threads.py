"""The threads of a shard process: two for each disk, and one that opens closed shards.

One thread of a disk waits on the doorbell and drains the rings, the other prepares files and
flushes. An error of one shard closes that shard (shard_process.py). Any other error is one of the
process, which ends: Ray starts a new one, which recovers all shards and takes over their rings.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

from rocketray.actors.ipc.control_page import AdaptiveSpin
from rocketray.errors import StreamError

from .disk_shards import DiskShards
from .owned_shard import OwnedShard
from .shard_process import ShardProcess

__all__ = ["ShardThreads"]

_LOG = logging.getLogger(__name__)
_SWEEP_INTERVAL_S = 0.5  # a producer that was killed before it rang has its batches stored then
_PREPARE_INTERVAL_S = 0.1
_DISK_INTERVAL_S = 10.0
_OPEN_INTERVAL_S = 1.0


class ShardThreads:
    """The threads of a process, until :meth:`stop`."""

    def __init__(
        self,
        process: ShardProcess,
        *,
        flush_interval_s: float,
        on_failure: Callable[[], None],
        on_stored: Callable[[], None] = lambda: None,
    ) -> None:
        """Start the threads.

        They call *on_stored* after batches came through rings, and *on_failure* when one fails.
        """
        self._process = process
        self._flush_interval_s = flush_interval_s
        self._on_failure = on_failure
        self._on_stored = on_stored
        self._stop = threading.Event()
        self._threads: list[threading.Thread] = []
        process.follow_disks(self._start_disk)
        self._start("opener", self._open_closed)

    def stop(self) -> None:
        """End the threads; return when they have finished their current work."""
        self._stop.set()
        self._process.doorbell.ring()
        for thread in self._threads:
            thread.join()

    def _start_disk(self, disk: DiskShards) -> None:
        self._start("writer", lambda: self._write(disk))
        self._start("house", lambda: self._keep_house(disk))

    def _start(self, name: str, run: Callable[[], None]) -> None:
        thread = threading.Thread(target=self._guard, args=(run,), name=name, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _guard(self, run: Callable[[], None]) -> None:
        try:
            run()
        except BaseException:  # noqa: BLE001 - a thread that fails ends the process
            _LOG.exception("shard process %s ends", self._process.name)
            self._on_failure()

    def _write(self, disk: DiskShards) -> None:
        doorbell, spin = self._process.doorbell, AdaptiveSpin()
        swept = time.monotonic()
        while not self._stop.is_set():
            rung = doorbell.count()
            is_due = time.monotonic() - swept >= _SWEEP_INTERVAL_S
            if is_due:
                swept = time.monotonic()
            if disk.drain(everything=is_due):
                self._on_stored()
            doorbell.wait(rung, _SWEEP_INTERVAL_S, spin)  # not at all, if it was rung meanwhile

    def _keep_house(self, disk: DiskShards) -> None:
        """Prepare files before they are needed, flush when it is due, and watch the disk."""
        flushed = watched = time.monotonic()
        while not self._stop.wait(_PREPARE_INTERVAL_S):
            disk.keep_house(OwnedShard.prepare_next)
            if time.monotonic() - flushed >= self._flush_interval_s:
                disk.keep_house(OwnedShard.flush)
                flushed = time.monotonic()
            if time.monotonic() - watched >= _DISK_INTERVAL_S:
                disk.keep_house(OwnedShard.watch_disk)
                watched = time.monotonic()

    def _open_closed(self) -> None:
        while not self._stop.wait(_OPEN_INTERVAL_S):
            try:
                self._process.open_closed()
            except (StreamError, OSError):
                _LOG.exception("the topics are unknown; trying again")
