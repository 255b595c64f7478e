"""Reading the shards of a disk again in the background; see rocketray/store/recovery/scrub.py.

One shard after the other, a few hundred KiB at a time, at most so many bytes a second on average.
A pass over a shard begins a day after its last one ended, and nothing is looked at before.

Its thread has no lower priority than others: it would be stopped while it holds the GIL, for which
the writer then waits. Instead its owner begins a step when the disk's other threads are idle.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable

from rocketray.store.message_store import MessageStore
from rocketray.store.recovery.scrub import Scrubber

from .shard_api import ScrubState

_LOG = logging.getLogger(__name__)


class ShardScrub:
    """Passes through one shard; :meth:`state` is for any thread."""

    def __init__(self, store: MessageStore, clock_ms: Callable[[], int]) -> None:
        self._store = store
        self._scrubber = Scrubber(store.directory, store.config, clock_ms=clock_ms)
        self._is_closed = False
        self._stepping = threading.Lock()  # close() waits for a step, and the store is closed next

    def is_due(self) -> bool:
        """Return whether there is something to read now; looks at no file."""
        reads = self._store.reads
        return not self._is_closed and self._scrubber.is_due(
            int(reads.min_physical_offset), int(reads.flushed_offset)
        )

    def step(self) -> int:
        """Check the next part; return how many bytes were read."""
        with self._stepping:
            if self._is_closed:
                return 0
            try:
                return self._scrubber.step(int(self._store.reads.flushed_offset)) or 0
            except Exception:  # noqa: BLE001 - whatever it is, the shard continues
                self._is_closed = True
                _LOG.exception("%s is not verified any more", self._store.directory)
                return 0

    @property
    def has_damage(self) -> bool:
        """Whether damage was found that is not repaired."""
        return bool(self._scrubber.progress.damage)

    def state(self) -> ScrubState:
        scrubber = self._scrubber
        progress = scrubber.progress
        return ScrubState(
            str(self._store.directory),
            progress.verified_ms,
            progress.begun_ms,
            scrubber.done_bytes,
            scrubber.all_bytes,
            progress.damage,
        )

    def close(self) -> None:
        """End: nothing is read or written after that."""
        with self._stepping:
            self._is_closed = True


class DiskScrub:
    """Passes through the shards of one disk, at a rate: for a thread that steps, and others.

    At 1 MiB a second it reads 84 GiB a day, so a pass over a disk with more takes several days.
    """

    def __init__(
        self,
        shards: Callable[[], Iterable[ShardScrub]],
        bytes_a_second: int,
        *,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._shards = shards
        self._bytes_a_second = bytes_a_second
        self._now_s = now_s
        self._next_s = now_s()
        self._wakes = threading.Event()

    def step(self) -> float | None:
        """Check the next part; return the seconds until the next step, None if nothing is due."""
        shard = next((shard for shard in self._shards() if shard.is_due()), None)
        if shard is None:
            return None
        # Never from a time in the past: a rate that was not used is not made up for in a burst.
        begun_s = max(self._next_s, self._now_s())
        self._next_s = begun_s + shard.step() / self._bytes_a_second
        return max(0.0, self._next_s - self._now_s())

    def wait(self) -> None:
        """Sleep until another thread notices that something is due, or ends the wait."""
        self._wakes.wait()
        self._wakes.clear()

    def notice(self) -> None:
        """End the wait if something is due; called from time to time by a thread that is awake."""
        if any(shard.is_due() for shard in self._shards()):
            self.wake()

    def wake(self) -> None:
        self._wakes.set()
