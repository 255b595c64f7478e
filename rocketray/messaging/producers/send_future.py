"""What an asynchronous send returns: the result of one message, or of several, once it is known.

A future works in three ways, alone or together:

- ``result()`` waits in the calling thread;
- ``await future`` waits in a task of any asyncio loop, without a thread or a task of its own;
- ``add_done_callback`` has a function called, in the producer's thread for outcomes.

An outcome may not be known in time: a shard recovers, its disk is slow, or a call is lost. To send
the batch again would store it twice. So ``result()``, called again, waits on, or asks the shard for
the outcome. Only of a list, ``result()`` also
  - sends what had no room before;
  - repeats a batch that a shard failed to store: with the same unique keys, so the shard stores it
    once. A batch with a unique key that the caller gave is not repeated, because other messages may
    have the same key;
  - sends a batch to another disk that a full disk refused, if nothing chose its queue.
"""

from __future__ import annotations

import asyncio
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Mapping, Sequence
from functools import partial
from typing import Any, Generic, Self, TypeVar

from rocketray.base.ack_mode import Durability

from .batch import Batch, SendResult, SendResults
from .batcher import Batcher
from .outcome_watch import call_logged
from .parts import Part
from .queue_link import QueueLink, unacknowledged

Result_co = TypeVar("Result_co", covariant=True)


class SendFuture(ABC, Generic[Result_co]):
    """A message, or several, being sent."""

    __slots__ = ()

    @abstractmethod
    def result(self, timeout_s: float | None = None) -> Result_co:
        """Wait until all is stored, for the producer's ``timeout_s`` unless another is given.

        Raises:
            ShardUnavailableError: it is not yet known, and may still be stored later; call again.
            StreamError: the shard refused it, and nothing was stored.
        """

    @abstractmethod
    def done(self) -> bool:
        """Return whether :meth:`result` would return at once; makes no call and never waits."""

    @abstractmethod
    def add_done_callback(self, callback: Callable[[Self], object]) -> None:
        """Have *callback* called with this future when it is done; at once if it is.

        If the producer is closed before, it is called then, and the outcome is not known.
        It is called in a thread of the producer and must not block: other callbacks wait for it.
        What it raises is logged.
        """

    @abstractmethod
    def __await__(self) -> Generator[Any, None, Result_co]:
        """Wait in a task; raises as :meth:`result`, after the producer's ``timeout_s``."""


class MessageFuture(SendFuture[SendResult]):
    """One message being sent."""

    __slots__ = ("_batch", "_batcher", "_index", "_link")

    def __init__(self, batcher: Batcher, link: QueueLink, batch: Batch, index: int) -> None:
        self._batcher = batcher
        self._link = link
        self._batch = batch
        self._index = index

    def result(self, timeout_s: float | None = None) -> SendResult:
        """Wait until the message is stored; see :meth:`SendFuture.result`."""
        batch = self._batch
        if batch.ack is None:
            if batch.is_told and batch.unsure is not None:
                self._batcher.ask_again(self._link, batch)
            elif batch.failure is None:
                self._batcher.settle(self._link, batch, timeout_s)
        return batch.result(self._index)

    def done(self) -> bool:
        """Return whether :meth:`result` would return at once; makes no call and never waits."""
        return self._link.look(self._batch)

    def add_done_callback(self, callback: Callable[[Self], object]) -> None:
        self._batcher.outcomes.call_back(self._link, self._batch, partial(callback, self))

    def __await__(self) -> Generator[Any, None, SendResult]:
        """Wait in a task; see :meth:`SendFuture.__await__`."""
        return self.wait().__await__()

    async def wait(self, timeout_s: float | None = None) -> SendResult:
        """Wait in a task, for *timeout_s* at most, by default the producer's.

        What several tasks sent in one turn of their loop is sent together at its end.
        """
        batch, link, batcher = self._batch, self._link, self._batcher
        if batch.is_told and batch.unsure is not None:  # a call has to ask, which may take long
            return await asyncio.to_thread(self.result, timeout_s)
        if not link.look(batch):
            is_next = link.collecting is batch and not link.is_busy
            if is_next and not batcher.outcomes.is_watched(batch):
                asyncio.get_running_loop().call_soon(batcher.try_hand_over, link)
            most_s = batcher.settings.timeout_s if timeout_s is None else timeout_s
            await batcher.outcomes.wait(link, batch, most_s)
        if not batch.settled:
            raise unacknowledged(link)
        return batch.result(self._index)


class ListFuture(SendFuture[SendResults]):
    """Messages being sent in several batches."""

    __slots__ = ("_batcher", "_durability", "_parts", "_placed", "_sending")

    def __init__(self, batcher: Batcher, parts: Sequence[Part], durability: Durability) -> None:
        self._batcher = batcher
        self._parts = [*parts]
        self._durability = durability
        self._placed: dict[int, tuple[QueueLink, Batch]] = {}
        self._sending = threading.Lock()

    def send(self, timeout_s: float | None = None) -> Mapping[int, tuple[QueueLink, Batch]]:
        """Send what was not yet sent; ask again for what an earlier call left unknown.

        Each batch waits for room, for *timeout_s* at most, by default the producer's.
        After a part that is not stored, or not known to be, no later part is sent to its queue.
        Return the batch of each part that was sent, by the part's number.
        """
        held: set[tuple[str, int]] = set()
        before: dict[tuple[str, int], Batch] = {}
        with self._sending:
            for number, part in enumerate(self._parts):
                place = part.topic, part.queue_id
                if place in held:
                    continue
                placed = self._placed.get(number)
                if placed is None or (placed[1].is_unsent and placed[1].is_told):
                    placed = self._batcher.send_part(
                        part, self._durability, timeout_s=timeout_s, after=before.get(place)
                    )
                    self._placed[number] = placed
                elif placed[1].is_told:
                    self._batcher.repeat(*placed, part)
                before[place] = placed[1]
                if placed[1].has_failed:
                    held.add(place)
            return dict(self._placed)

    def result(self, timeout_s: float | None = None) -> SendResults:
        """Wait until all messages are stored, and return their results in the messages' order.

        Each batch waits for *timeout_s* at most, for room if it was not sent yet, and then for the
        acknowledgement.

        Raises:
            ShardUnavailableError: some are not stored yet, or it is not known; call again.
            StreamError: a shard refused a batch, and nothing of that batch was stored.
        """
        placed: Mapping[int, tuple[QueueLink, Batch]] = {}
        is_stored = not self._parts
        while not is_stored:  # more than once if another thread asked meanwhile
            placed = self.send(timeout_s)
            is_stored = len(placed) == len(self._parts)
            for number, (link, batch) in placed.items():
                if not batch.settled:
                    self._batcher.settle(link, batch, timeout_s)
                if batch.met_full_disk and self._goes_elsewhere(number, batch):
                    is_stored = False
                else:
                    batch.check()
        batches = [(batch, self._parts[number].numbers) for number, (_, batch) in placed.items()]
        return SendResults(batches)

    def _goes_elsewhere(self, number: int, refused: Batch) -> bool:
        """Choose another queue for a part that was refused; return False if there is none."""
        with self._sending:
            if self._placed.get(number, (None, None))[1] is not refused:
                return True  # another thread did so
            part = self._parts[number]
            queue_id = self._batcher.elsewhere(part.topic) if part.is_free else None
            if queue_id is None:
                return False
            self._parts[number] = part._replace(queue_id=queue_id)
            del self._placed[number]
            return True

    def done(self) -> bool:
        """Return whether the outcomes of all that was sent are known."""
        return all(link.look(batch) for link, batch in list(self._placed.values()))

    def add_done_callback(self, callback: Callable[[Self], object]) -> None:
        outcomes = self._batcher.outcomes
        for link, batch in list(self._placed.values()):
            if not batch.settled and not outcomes.is_closed:
                outcomes.call_back(link, batch, partial(self.add_done_callback, callback))
                return
        call_logged(partial(callback, self))

    def __await__(self) -> Generator[Any, None, SendResults]:
        """Wait in a task: a thread of the loop's calls :meth:`result`."""
        return asyncio.to_thread(self.result).__await__()
