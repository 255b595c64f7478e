"""The threads of a shard process: three for each disk, and one that opens closed shards.

One thread of a disk waits on the doorbell and drains the rings, another prepares files and
flushes, and the third reads the shards again (shard_scrub.py); it sleeps until the second one sees
that this is due. An error of one shard closes that shard (shard_process.py). Any other error is one
of the process, which ends: Ray starts a new one, which recovers all shards and takes over their
rings.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from functools import partial

from rocketray.errors import StreamError
from rocketray.runtime.ipc.control_page import AdaptiveSpin

from .disk_shards import DiskShards
from .owned_shard import OwnedShard
from .shard_process import ShardProcess
from .shard_scrub import DiskScrub

_LOG = logging.getLogger(__name__)
_SWEEP_INTERVAL_S = 0.5  # a producer that was killed before it rang has its batches stored then
_IDLE_SWEEP_INTERVAL_S = 10.0  # where nothing was stored since the last sweep
_PREPARE_INTERVAL_S = 0.1  # a file of 64 MiB lasts so long at 670 MB/s
_DISK_INTERVAL_S = 10.0  # as often as old files are removed
_OPEN_INTERVAL_S = 1.0  # the least pause of a closed shard
_IDLE_LOOK_S = 0.01
_IDLE_LOOKS = 25  # then the disk is never idle, and is read nevertheless


class ShardThreads:
    """The threads of a process, until :meth:`stop`."""

    def __init__(
        self,
        process: ShardProcess,
        *,
        flush_interval_s: float,
        scrub_rate: int = 0,
        on_failure: Callable[[], None],
        on_stored: Callable[[], None] = lambda: None,
    ) -> None:
        """Start the threads.

        They read *scrub_rate* bytes a second of stored messages again; with 0 none. They call
        *on_stored* after batches came through rings, and *on_failure* when one fails.
        """
        self._process = process
        self._flush_interval_s = flush_interval_s
        self._scrub_rate = scrub_rate
        self._on_failure = on_failure
        self._on_stored = on_stored
        self._stop = threading.Event()
        self._disks: list[DiskShards] = []
        self._scrubs: list[DiskScrub] = []
        self._threads: list[threading.Thread] = []
        process.follow_disks(self._start_disk)
        self._start("opener", self._open_closed)

    def stop(self) -> None:
        """End the threads; return when they have finished their current work."""
        self._stop.set()
        self._process.doorbell.ring()
        self._process.attention.set()
        for disk in self._disks:
            disk.end_wait()
        for scrub in self._scrubs:
            scrub.wake()
        for thread in self._threads:
            thread.join()

    def _start_disk(self, disk: DiskShards) -> None:
        self._disks.append(disk)
        self._start("writer", lambda: self._write(disk))
        scrub = None
        if self._scrub_rate:
            scrub = DiskScrub(lambda: [one.scrub for one in disk.shards()], self._scrub_rate)
            self._scrubs.append(scrub)
            self._start("scrub", partial(self._scrub, disk, scrub))
        self._start("house", lambda: self._keep_house(disk, scrub))

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
        swept, stored, interval_s = time.monotonic(), 0, _SWEEP_INTERVAL_S
        while not self._stop.is_set():
            rung = doorbell.count()
            is_due = time.monotonic() - swept >= interval_s
            count = disk.drain(everything=is_due)
            stored += count
            if count:
                self._on_stored()
                interval_s = _SWEEP_INTERVAL_S
            elif is_due:
                interval_s = _SWEEP_INTERVAL_S if stored else _IDLE_SWEEP_INTERVAL_S
            if is_due:
                swept, stored = time.monotonic(), 0
            doorbell.wait(rung, interval_s, spin)  # not at all, if it was rung meanwhile

    def _scrub(self, disk: DiskShards, scrub: DiskScrub) -> None:
        """Read the shards again as long as that is due; a step waits a little for the others."""
        while not self._stop.is_set():
            looks = 0
            while looks < _IDLE_LOOKS and disk.is_busy():
                self._stop.wait(_IDLE_LOOK_S)
                looks += 1
            pause_s = scrub.step()
            if pause_s is None:
                scrub.wait()
            else:
                self._stop.wait(pause_s)

    def _keep_house(self, disk: DiskShards, scrub: DiskScrub | None) -> None:
        """Prepare files before they are needed, flush when it is due, and watch the disk."""
        flushed = watched = time.monotonic()
        while not self._stop.is_set():
            if disk.let_rest():
                disk.wait_for_work(max(watched + _DISK_INTERVAL_S - time.monotonic(), 0))
                flushed = time.monotonic()  # what woke it waits for a flush as long as ever
            if self._stop.wait(_PREPARE_INTERVAL_S):
                return
            disk.keep_house(OwnedShard.prepare_next, everywhere=False)
            if time.monotonic() - flushed >= self._flush_interval_s:
                disk.keep_house(OwnedShard.flush, everywhere=False)
                flushed = time.monotonic()
            if time.monotonic() - watched >= _DISK_INTERVAL_S:
                disk.keep_house(OwnedShard.tidy)
                if scrub is not None:
                    scrub.notice()
                watched = time.monotonic()

    def _open_closed(self) -> None:
        while True:
            self._process.attention.wait()
            if self._stop.wait(_OPEN_INTERVAL_S):
                return
            try:
                self._process.open_closed()
            except (StreamError, OSError):
                _LOG.exception("the topics are unknown; trying again")
