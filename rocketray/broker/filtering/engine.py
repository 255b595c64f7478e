"""The filter engine: one per disk, it runs all filter streams of the groups on the disk's queues.

Its state is in the members' rings, so a restarted one finds them in their directory and resumes.
One thread serves all streams; predicates, which are users' code, run in threads of their own.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from pathlib import Path

from rocketray.errors import ShardUnavailableError, StreamError
from rocketray.filters.subscription import Subscription
from rocketray.runtime.files.paths import consumer_directory, filter_doorbell_path
from rocketray.runtime.files.runtime_lock import RuntimeLock
from rocketray.runtime.ipc.control_page import Doorbell
from rocketray.runtime.ipc.match_ring import MatchRing
from rocketray.runtime.processes import is_alive, owner_pid

from .filter_api import FilterStatistics
from .filter_rules import FilterRules
from .filter_stream import FilterStream
from .lag import LagCounter
from .predicate_stream import PredicateStream, ask_once

_LOG = logging.getLogger(__name__)
_IDLE_WAIT_S = 0.5  # a predicate that exceeds its time rings no bell: it is noticed then
_SWEEP_INTERVAL_S = 10.0  # so long the rings of dead members stay, 1.5 MiB a queue
MATCH_RING_SUFFIX = ".match"


class FilterEngine:
    """All streams of a disk, served in turn by one thread: the object behind ``FilterApi``."""

    def __init__(self, data: Path, rules: FilterRules) -> None:
        self._data = data
        self._rules = rules
        self._runtime = RuntimeLock(data)
        self._doorbell = Doorbell(filter_doorbell_path(data))
        self._streams: dict[Path, FilterStream] = {}
        self.lags = LagCounter(data).of_each
        """Return the lag of each group in each queue of its topic, or why it is unknown."""
        self._lock = threading.Lock()  # over the table: no stream is opened or pumped under it

    def attach_all(self) -> None:
        """Take over the streams of an earlier incarnation."""
        for path in consumer_directory(self._data).glob(f"*{MATCH_RING_SUFFIX}"):
            try:
                self.attach_ring(str(path))
            except StreamError as error:
                _LOG.warning("a stream of the previous filter actor is not resumed: %s", error)

    def attach_ring(self, path: str) -> None:
        """Begin to serve the ring that a member created; idempotent.

        Raises:
            StreamError: the subscription does not compile. The ring has the error as well.
            ShardUnavailableError: there is no such shard.
        """
        ring = Path(path)
        with self._lock:
            if ring in self._streams:
                return
        try:
            stream = self._open(ring)  # may import a module: other streams do not wait for it
        except ShardUnavailableError:
            raise
        except StreamError as error:
            MatchRing(ring).fail(str(error))
            raise
        with self._lock:  # another call may have been quicker
            served = self._streams.setdefault(ring, stream)
        if served is not stream:
            stream.close()
        self.wake()

    def wake(self) -> None:
        """Wake the thread: there is a new stream, or it has to stop."""
        self._doorbell.mute(muted=False)
        self._doorbell.ring()

    def step(self) -> bool:
        """Give each stream one turn; False if none had anything to do."""
        with self._lock:
            streams = list(self._streams.items())
        worked = False
        for path, stream in streams:
            if stream.closed:
                with self._lock:
                    del self._streams[path]
                stream.close()
            else:
                worked |= stream.pump()
        return worked

    def step_to_the_end(self) -> None:
        """Give turns until there is nothing more to do, and wait for running predicates."""
        while True:
            rung = self._doorbell.count()
            if self.step():
                continue
            with self._lock:
                if not any(stream.is_waiting for stream in self._streams.values()):
                    return
            self._doorbell.wait(rung, _IDLE_WAIT_S)

    def run(self, stop: threading.Event) -> None:
        swept = time.monotonic()
        while not stop.is_set():
            rung = self._doorbell.count()  # first: a ring during the step ends the sleep
            if not self.step():
                self._doorbell.sleep(rung, _IDLE_WAIT_S if self._streams else _SWEEP_INTERVAL_S)
            # With the lock: attach() adds a stream and then unmutes, so a new one is never muted.
            with self._lock:
                self._doorbell.mute(muted=not self._streams)
            if time.monotonic() - swept >= _SWEEP_INTERVAL_S:
                self.sweep()
                swept = time.monotonic()

    def sweep(self) -> None:
        """Remove the rings and doorbells of members whose process died."""
        for path in consumer_directory(self._data).glob("*"):
            if not is_alive(owner_pid(path)):
                path.unlink(missing_ok=True)
        with self._lock:
            dead = [path for path in self._streams if not path.exists()]
            for path in dead:
                self._streams.pop(path).close()

    def close(self) -> None:
        """Release all streams; their rings stay, for an engine that takes them over."""
        with self._lock:
            while self._streams:
                self._streams.popitem()[1].close()
        self._runtime.close()

    def ask_predicate(self, subscription: Subscription, place: tuple[str, int, int]) -> bool:
        return ask_once(self._data, self._rules, subscription, place)

    def statistics(self) -> FilterStatistics:
        with self._lock:
            streams = list(self._streams.values())
        return FilterStatistics(
            os.getpid(), len(streams), sum(stream.stuck_calls for stream in streams)
        )

    def _open(self, path: Path) -> FilterStream:
        kind = MatchRing(path).description().subscription.expression_type
        if kind == "CLASS":
            return PredicateStream(path, self._data, self._rules, self._doorbell.ring)
        return FilterStream(path, self._data, self._rules)
