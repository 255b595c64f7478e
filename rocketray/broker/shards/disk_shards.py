"""The shards of a process that are on one disk.

A disk that is slow to sync holds up the thread that waits for it. So each disk has threads of its
own (shard_threads.py), and a process has as many of these objects as its shards are on disks.

Invariants
  1. A ring of the doorbell leads to a look at the rings of its queue's shard; the other shards are
     left alone.
  2. A shard is *awake* from an append until everything is on disk. Only shards that are awake get
     the work of the timers; no append comes between the last look and the rest.
  3. Work that fails on one shard is done on the others. The failed shard is handed to
     ``on_failure`` after that, with no lock held.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from functools import partial
from typing import TypeVar

from rocketray.runtime.ipc.process_doorbell import ProcessDoorbell, RungSlots

from .owned_shard import OwnedShard

_Result = TypeVar("_Result")


class DiskShards:
    """Some open shards, drained by one thread and flushed by another."""

    def __init__(
        self, doorbell: ProcessDoorbell, on_failure: Callable[[OwnedShard, Exception], None]
    ) -> None:
        self._doorbell = doorbell
        self._on_failure = on_failure
        # Taken in this order. A writer takes the last one, in on_wake, while it holds its own lock;
        # so no call into a writer is made under it.
        self._keeping_house = threading.Lock()
        self._draining = threading.Lock()
        self._waking = threading.Lock()
        self._awake: dict[OwnedShard, None] = {}
        self._has_awake = threading.Event()
        self._shards: tuple[OwnedShard, ...] = ()
        self._of_slot: dict[int, tuple[OwnedShard, ...]] = {}
        self._rung = RungSlots(doorbell)

    def add(self, shard: OwnedShard) -> None:
        """Begin to drain and flush *shard*."""
        slot = self._doorbell.slot(*shard.place)
        shard.writer.store.on_wake = partial(self._wake, shard)
        if not shard.writer.rest():  # the rings of its producers had batches
            self._wake(shard)
        with self._draining:
            self._shards = (*self._shards, shard)
            self._of_slot[slot] = (*self._of_slot.get(slot, ()), shard)
            self._rung.watch(self._of_slot)
        self._doorbell.bell(*shard.place).ring()  # its producers may have rung before

    def shards(self) -> tuple[OwnedShard, ...]:
        return self._shards

    def is_busy(self) -> bool:
        """Return whether a thread stores or flushes at this moment."""
        return self._draining.locked() or self._keeping_house.locked()

    def discard(self, shard: OwnedShard) -> bool:
        """Leave *shard* alone from now on; return whether it was here, and so is the caller's.

        No thread works on it after that, so it can be closed.
        """
        slot = self._doorbell.slot(*shard.place)
        with self._keeping_house, self._draining:
            was_here = shard in self._shards
            with self._waking:
                self._awake.pop(shard, None)
            self._shards = tuple(each for each in self._shards if each is not shard)
            self._of_slot[slot] = tuple(
                each for each in self._of_slot.get(slot, ()) if each is not shard
            )
        return was_here

    def drain(self, *, everything: bool = False) -> int:
        """Store the batches in the rings, of queues that rang or of all; return their number."""
        with self._draining:
            rung = self._rung.take()  # before the look at the rings: a later one counts next time
            shards: Iterable[OwnedShard] = self._shards
            if not everything:
                shards = [shard for slot in rung for shard in self._of_slot.get(slot, ())]
            stored, failed = _each(shards, OwnedShard.drain)
        if failed:
            self._report(failed)
        return sum(stored)

    def keep_house(self, work: Callable[[OwnedShard], None], *, everywhere: bool = True) -> None:
        """Do some periodic *work* on each shard, or on those that are awake."""
        with self._keeping_house:
            with self._waking:
                shards = self._shards if everywhere else (*self._awake,)
            _, failed = _each(shards, work)
        self._report(failed)

    def let_rest(self) -> bool:
        """Leave those shards alone that have everything on disk; return whether all have."""
        with self._waking:
            awake = (*self._awake,)
        resting = [shard for shard in awake if shard.rest()]  # not under _waking: see there
        with self._waking:
            for shard in resting:
                if shard.writer.store.is_at_rest:  # else it was woken just now
                    self._awake.pop(shard, None)
            if not self._awake:
                self._has_awake.clear()
            return not self._awake

    def wait_for_work(self, timeout_s: float) -> None:
        """Sleep until a shard is awake, or :meth:`end_wait` is called, or the time is over."""
        self._has_awake.wait(timeout_s)

    def end_wait(self) -> None:
        """End the sleep of another thread."""
        self._has_awake.set()

    def _wake(self, shard: OwnedShard) -> None:
        with self._waking:
            self._awake[shard] = None
            self._has_awake.set()

    def _report(self, failed: Iterable[tuple[OwnedShard, Exception]]) -> None:
        for shard, error in failed:
            self._on_failure(shard, error)


def _each(
    shards: Iterable[OwnedShard], work: Callable[[OwnedShard], _Result]
) -> tuple[list[_Result], list[tuple[OwnedShard, Exception]]]:
    """Return the results of *work*, and the shards that it failed on, with the errors."""
    done, failed = [], []
    for shard in shards:
        try:
            done.append(work(shard))
        except Exception as error:  # noqa: BLE001 - whatever it is, it closes this shard alone
            failed.append((shard, error))
    return done, failed
