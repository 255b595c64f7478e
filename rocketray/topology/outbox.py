"""Messages on their way out of an app: sends that wait together become one batch.

``put`` queues a message and returns at once; a single thread hands the producer what has gathered
since the last batch, so the busier the app, the larger its batches. Messages of one topic and
queue leave in the order of their sends. When too many wait, ``put`` does.

A shard that is away for a moment is asked again. A batch that cannot be stored fails its futures,
is logged, and is remembered: ``flush`` raises it, so that an app never commits input whose output
was lost.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from faust.types.tuples import TP, RecordMetadata

from rocketray.errors import ShardUnavailableError
from rocketray.message import Message

from .connection import Producer, SendResult

__all__ = ["BATCH_MAX_MESSAGES", "WAITING_MAX_MESSAGES", "Outbox"]

logger = logging.getLogger(__name__)

BATCH_MAX_MESSAGES = 1024
WAITING_MAX_MESSAGES = 8 * BATCH_MAX_MESSAGES
_RETRY_FOR_S = 30.0


@dataclass(frozen=True, slots=True)
class _Pending:
    message: Message
    queue_id: int | None
    future: asyncio.Future[RecordMetadata]


class Outbox:
    """The sends of one app; made and used on its loop."""

    def __init__(self, producer: Producer) -> None:
        self._producer = producer
        self._loop = asyncio.get_running_loop()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="outbox")
        self._waiting: deque[_Pending] = deque()
        self._changed = asyncio.Condition()
        self._drainer: asyncio.Task[None] | None = None
        self._failure: Exception | None = None
        self._put_count = self._settled_count = 0

    async def put(self, message: Message, queue_id: int | None) -> asyncio.Future[RecordMetadata]:
        """Queue *message*, for *queue_id* if it names one; the future is done once it is stored."""
        if len(self._waiting) >= WAITING_MAX_MESSAGES:
            async with self._changed:
                await self._changed.wait_for(lambda: len(self._waiting) < WAITING_MAX_MESSAGES)
        future: asyncio.Future[RecordMetadata] = self._loop.create_future()
        self._waiting.append(_Pending(message, queue_id, future))
        self._put_count += 1
        if self._drainer is None:
            self._drainer = self._loop.create_task(self._drain())
        return future

    async def flush(self) -> None:
        """Wait until what was put so far is stored; raises the first failure since the last flush.

        What is put meanwhile is not waited for, so a busy app cannot hold a flush up.
        """
        count = self._put_count
        if self._settled_count < count:
            async with self._changed:
                await self._changed.wait_for(lambda: self._settled_count >= count)
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure

    async def close(self) -> None:
        """Send what waits, then close the producer and end the thread."""
        try:
            await self.flush()
        finally:
            await self._loop.run_in_executor(self._thread, self._producer.close)
            self._thread.shutdown(wait=False)

    async def _drain(self) -> None:
        """Send batch after batch until none waits."""
        try:
            while self._waiting:
                count = min(len(self._waiting), BATCH_MAX_MESSAGES)
                taken = [self._waiting.popleft() for _ in range(count)]
                await self._tell()  # there is room
                await self._send(taken)
                self._settled_count += count
                await self._tell()  # a flush may be over
        finally:
            self._drainer = None

    async def _tell(self) -> None:
        async with self._changed:
            self._changed.notify_all()

    async def _send(self, taken: Sequence[_Pending]) -> None:
        for topic, queue_id, group in _by_destination(taken):
            try:
                results = await self._store(topic, queue_id, [one.message for one in group])
            except Exception as error:  # noqa: BLE001  # told to every sender
                self._failed(topic, group, error)
            else:
                for pending, result in zip(group, results, strict=True):
                    _succeed(pending, result)

    async def _store(
        self, topic: str, queue_id: int | None, messages: Sequence[Message]
    ) -> Sequence[SendResult]:
        """Send in the thread; again while the shard is away, for at most 30 s."""
        end = self._loop.time() + _RETRY_FOR_S
        while True:
            try:
                return await self._loop.run_in_executor(
                    self._thread, self._call, topic, queue_id, messages
                )
            except ShardUnavailableError as error:
                delay = error.retry_after_ms / 1000
                if self._loop.time() + delay > end:
                    raise
                await asyncio.sleep(delay)

    def _call(
        self, topic: str, queue_id: int | None, messages: Sequence[Message]
    ) -> Sequence[SendResult]:
        if queue_id is None:
            return self._producer.send_messages(topic, messages)
        return self._producer.send_messages(topic, messages, queue_id=queue_id)

    def _failed(self, topic: str, group: Sequence[_Pending], error: Exception) -> None:
        logger.error("topic %s: %d messages were not stored: %s", topic, len(group), error)
        self._failure = self._failure or error
        for pending in group:
            if not pending.future.done():
                pending.future.set_exception(error)
                pending.future.exception()  # said above, so asyncio need not say it again


def _by_destination(taken: Sequence[_Pending]) -> Iterator[tuple[str, int | None, list[_Pending]]]:
    """Groups of one topic and queue, in the order of their first messages."""
    groups: dict[tuple[str, int | None], list[_Pending]] = {}
    for pending in taken:
        groups.setdefault((pending.message.topic, pending.queue_id), []).append(pending)
    for (topic, queue_id), group in groups.items():
        yield topic, queue_id, group


def _succeed(pending: _Pending, result: SendResult) -> None:
    if not pending.future.done():
        tp = TP(pending.message.topic, result.queue_id)
        pending.future.set_result(
            RecordMetadata(tp.topic, tp.partition, tp, result.queue_offset, None, None)
        )
