"""The filter actor: one a node, it runs all filter streams of the node's groups.

Its state stands in the members' rings, so a restarted actor finds them in their directory and
goes on.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from dataclasses import dataclass
from pathlib import Path

from rocketray.errors import StreamError

from .filter_stream import FilterStream
from .layout import consumer_directory, filter_doorbell_path
from .match_ring import MatchRing
from .processes import is_alive, owner_pid
from .watermark import Doorbell

__all__ = ["MATCH_RING_SUFFIX", "FilterActor", "FilterEngine"]

_LOG = logging.getLogger(__name__)
_IDLE_WAIT_S = 0.5
_SWEEP_INTERVAL_S = 10.0
MATCH_RING_SUFFIX = ".match"


class FilterEngine:
    """All streams of a node, served in turn by one thread."""

    def __init__(self, data: Path) -> None:
        self._data = data
        self._doorbell = Doorbell(filter_doorbell_path(data))
        self._streams: dict[Path, FilterStream] = {}
        self._lock = threading.Lock()

    def attach_all(self) -> None:
        """Take over the streams that an earlier incarnation served."""
        for path in consumer_directory(self._data).glob(f"*{MATCH_RING_SUFFIX}"):
            try:
                self.attach(path)
            except StreamError as error:
                _LOG.warning("a stream is not taken over: %s", error)

    def attach(self, path: Path) -> None:
        """Begin to serve the ring that a member made; once is as good as twice.

        Raises:
            StreamError: the subscription does not compile, or there is no such shard. The ring
                says so as well.
        """
        with self._lock:
            if path in self._streams:
                return
            try:
                self._streams[path] = FilterStream(path, self._data)
            except StreamError as error:
                MatchRing(path).fail(str(error))
                raise
        self.wake()

    def wake(self) -> None:
        """End the thread's sleep: there is a new stream, or it has to stop."""
        self._doorbell.mute(muted=False)
        self._doorbell.ring()

    def step(self) -> bool:
        """Give each stream one turn; False when none had anything to do."""
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

    def run(self, stop: threading.Event) -> None:
        """Serve until *stop* is set."""
        swept = time.monotonic()
        while not stop.is_set():
            rung = self._doorbell.count()
            if not self.step():
                self._doorbell.wait(rung, _IDLE_WAIT_S)
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

    @property
    def stream_count(self) -> int:
        """How many streams are served."""
        return len(self._streams)


@dataclass(frozen=True, slots=True)
class FilterStatistics:
    """What a filter actor tells about itself."""

    pid: int
    streams: int


class FilterActor:
    """The Ray shell of :class:`FilterEngine`; a thread that fails ends the process."""

    def __init__(self, data: str) -> None:
        self._engine = FilterEngine(Path(data))
        self._engine.attach_all()
        self._stop = threading.Event()
        threading.Thread(target=self._run, name="filter", daemon=True).start()

    def attach(self, path: str) -> None:
        """See :meth:`FilterEngine.attach`."""
        self._engine.attach(Path(path))

    def statistics(self) -> FilterStatistics:
        """Process id and number of streams."""
        return FilterStatistics(os.getpid(), self._engine.stream_count)

    def stop(self) -> None:
        """End the thread."""
        self._stop.set()
        self._engine.wake()

    def _run(self) -> None:
        try:
            self._engine.run(self._stop)
        except BaseException:  # noqa: BLE001 - a thread that fails ends the process
            _LOG.exception("the filter actor ends; Ray starts a new one")
            os._exit(1)
