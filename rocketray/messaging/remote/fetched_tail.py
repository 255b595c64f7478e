"""The tail of the queues on another machine's disk: its steps are fetched from there, filtered.

A thread fetches a step ahead, while the reader shows the last one. A disk that does not answer, or
fails, is asked again each ``_RETRY_S``, from the same positions: nothing is lost or comes twice.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from rocketray.broker.filtering.seen_messages import SeenEntries, SeenMessage, Verdicts
from rocketray.broker.filtering.tail import NO_COUNTS, TailCounts
from rocketray.errors import OffsetOutOfRangeError, ShardUnavailableError, StreamError
from rocketray.filters.message_filter import MessageFilter

from .tail_api import TailApi, TailQuery, TailStep

_RETRY_S = 1.0
# After a step without messages; doubled, up to 0.25 s. Steps do not wait at the service, which
# keeps nothing between them: an idle tail makes four calls a second at most.
_PAUSE_S, _PAUSE_MAX_S = 0.05, 0.25
# A call under way may take as long as any call: its answer is not needed, and its thread a daemon.
_JOIN_S = 1.0


class FetchedTail:
    """Reads what is new in queues of a topic on one disk; see ``TopicTail``."""

    def __init__(self, service: TailApi, query: TailQuery, queues: Sequence[int]) -> None:
        """Fetch *queues* from the *service* of their disk; *query* says where they begin.

        Raises:
            FilterError: the filter cannot be used.
        """
        self._service = service
        self._queues = queues
        self._verdicts = Verdicts(MessageFilter(query.subscription))
        self._lock = threading.Condition()
        self._next = query  # with the lock, as all below
        self._room: int | None = None
        self._step: tuple[TailStep, list[SeenEntries]] | None = None
        self._is_wanted = self._is_closed = False
        self.queue_ids: list[int] = []
        """The queues that are open on the disk, as of the last step."""
        self.counts: TailCounts = NO_COUNTS
        self.unavailable = ""
        """Why nothing comes from the disk: it does not answer, or fails; "" if all is well."""
        self.has_more = True
        """Whether the disk has not said yet that there is nothing new."""
        self.has_answered = False
        """Whether the disk has answered a step."""
        self._thread = threading.Thread(target=self._fetch_all, daemon=True, name="tail")
        self._thread.start()

    @property
    def positions(self) -> dict[int, int]:
        """The next offset of each queue that has begun."""
        with self._lock:
            return dict(self._next.start.positions)

    @property
    def stored(self) -> dict[int, int]:
        """Up to where each queue is read without leaving out a message."""
        with self._lock:
            return dict(self._next.start.stored)

    def read(self, room: int | None = None) -> Iterator[SeenMessage]:
        """Yield the messages of a step that has arrived, if any, by queue; do not wait.

        *room* is for the step that is fetched next.

        Raises:
            StreamError: a message that was fetched is damaged.
        """
        blocks: list[SeenEntries] = []
        with self._lock:
            if self._step is not None:
                (step, blocks), self._step = self._step, None
                start = self._next.start
                positions = _merged(start.positions, step.positions)
                start = replace(
                    start, positions=positions, stored=_merged(start.stored, step.stored)
                )
                self.queue_ids = sorted(step.positions)
                self._next = replace(self._next, start=start)
                self.counts += step.counts
                self.has_more = step.counts != NO_COUNTS
                self.has_answered = True
            self._room = room
            self._is_wanted = True
            self._lock.notify_all()
        for block in blocks:
            for part in block.chunks():
                yield from self._verdicts.messages(part)

    def close(self) -> None:
        """Fetch no more; a call that is under way ends by itself."""
        with self._lock:
            self._is_closed = True
            self._lock.notify_all()
        self._thread.join(_JOIN_S)

    def _fetch_all(self) -> None:
        pause_s = _PAUSE_S
        while True:
            with self._lock:
                while not (self._is_wanted and self._step is None) and not self._is_closed:
                    self._lock.wait()
                if self._is_closed:
                    return
                query, room = self._next, self._room
            is_new = self._fetch(query, room)
            pause_s = _PAUSE_S if is_new else min(2 * pause_s, _PAUSE_MAX_S)
            with self._lock:
                if not is_new and not self._is_closed:
                    self._lock.wait_for(
                        lambda: self._is_closed, _RETRY_S if self.unavailable else pause_s
                    )

    def _fetch(self, query: TailQuery, room: int | None) -> bool:
        """Fetch a step; return whether it has read messages."""
        found: tuple[TailStep, list[SeenEntries]] | None = None
        unavailable = ""
        try:
            step = self._service.step(query, self._queues, room)
            found = step, [frame.entries() for frame in step.frames]
        except ShardUnavailableError as error:
            unavailable = error.reason
        except OffsetOutOfRangeError:  # deleted while it was packed: the next step counts them
            return False
        except (StreamError, OSError) as error:  # as a damaged file: the others are read on
            unavailable = str(error)
        except Exception as error:  # noqa: BLE001  # else the thread ends without a trace
            unavailable = f"a step of the tail failed: {error!r:.200}"
        with self._lock:
            self._step, self.unavailable = found, unavailable
            self.has_more = self.has_more and not unavailable
        return found is not None and found[0].counts != NO_COUNTS


def _merged(before: Mapping[int, int], after: Mapping[int, int]) -> dict[int, int]:
    """Return the positions after a step; a queue that is not open now stays where it was."""
    return {**before, **after}
