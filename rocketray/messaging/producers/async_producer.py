"""A producer for asyncio: its sends are awaited, and none of them blocks the loop.

A send that waits for nothing is made on the loop itself: its message is collected, or its batch is
sent if there is room. Any other send runs in a thread: the first one to a queue, one that has to
wait for room, a delayed or a transactional one. At most one of these runs for a
queue, and later sends to that queue wait in order after it, in their tasks. A cancelled task sends
nothing if its send still waited for its turn; a send in a thread continues, and keeps its turn.
"""

from __future__ import annotations

import asyncio
import threading
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import ParamSpec, Self, TypeVar, Unpack

from rocketray.base.ack_mode import AckMode
from rocketray.errors import ConfigError, StoreError, StoreFullError
from rocketray.message import Message
from rocketray.runtime.one_process import OfOneProcess

from .batch import SendResult, SendResults
from .batcher import MessageFields
from .links import CLOSED
from .many import Table
from .producer import NodeProducer
from .producer_options import ManyOptions, OtherOptions
from .send_future import MessageFuture, SendFuture
from .transactional_sends import Transaction

# A send to a queue whose shard takes nothing holds a thread, for ``timeout_s``, and one queue holds
# one: sends to other queues wait once 64 queues are in that state.
_THREADS_MAX = 64
P = ParamSpec("P")
R = TypeVar("R")


@dataclass(slots=True)
class _Turn:
    """The sends to one queue that wait, in order."""

    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    count: int = 0

    async def begin(self) -> None:
        """Wait until the sends before have ended."""
        self.count += 1
        try:
            await self.lock.acquire()
        except BaseException:
            self.count -= 1
            raise

    def end(self, _: object) -> None:
        """Let the next send begin."""
        self.count -= 1
        self.lock.release()


class NodeAsyncProducer(OfOneProcess, what="producer"):
    """A producer for the tasks of one loop: ``async with AsyncProducer() as producer``."""

    def __new__(cls, *_: object, **__: object) -> Self:
        """Make one of no process, until it is opened: a server may make it before it forks."""
        return object.__new__(cls)

    def __init__(self, make: Callable[[], NodeProducer]) -> None:
        """Take *make*, which makes the producer; it is called in a thread, by :meth:`open`."""
        self._make = make
        self._opened: NodeProducer | None = None
        self._is_closed = False
        self._changing = threading.Lock()
        """Held by the thread that makes or closes the producer, also after its task ended."""
        self._threads = ThreadPoolExecutor(_THREADS_MAX, thread_name_prefix="send")
        self._turns: defaultdict[tuple[str, int | None], _Turn] = defaultdict(_Turn)
        """The sends that wait, by their queue; or by their topic, which is not known yet."""

    async def open(self) -> None:
        """Connect to the node; ``async with`` does it. Raises :class:`StoreError` if closed."""
        self._bind()
        await self._in_thread(self._open)

    async def send(
        self,
        topic: str,
        body: bytes,
        *,
        ack: AckMode | None = None,
        tags: str | None = None,
        keys: Sequence[str] = (),
        properties: Mapping[str, str] | None = None,
        **options: Unpack[OtherOptions],
    ) -> SendResult:
        """Store one message and return where; see :meth:`Producer.send`."""
        timeout_s = options.get("timeout_s")
        given = options.copy()  # the call takes them out
        while True:
            future = await self._begin(topic, (body, tags, keys, properties), ack, options)
            try:
                return await future.wait(timeout_s)
            except StoreFullError:
                queue_id = self._producer.singles.elsewhere(topic, properties, given)
                if queue_id is None:
                    raise
                options = {**given, "queue_id": queue_id}

    async def send_async(
        self,
        topic: str,
        body: bytes,
        *,
        ack: AckMode | None = None,
        tags: str | None = None,
        keys: Sequence[str] = (),
        properties: Mapping[str, str] | None = None,
        **options: Unpack[OtherOptions],
    ) -> SendFuture[SendResult]:
        """Send one message, and return its future as soon as there is room for it."""
        return await self._begin(topic, (body, tags, keys, properties), ack, options)

    async def send_oneway(
        self,
        topic: str,
        body: bytes,
        *,
        tags: str | None = None,
        keys: Sequence[str] = (),
        properties: Mapping[str, str] | None = None,
        **options: Unpack[OtherOptions],
    ) -> None:
        """Send one message without a result, as soon as there is room for it."""
        fields = body, tags, keys, properties
        await self._begin(topic, fields, None, options, one_way=True)

    async def send_many(
        self,
        topic: str,
        messages: Sequence[Message] | Table | None = None,
        *,
        ack: AckMode | None = None,
        **options: Unpack[ManyOptions],
    ) -> SendResults:
        """Store messages of one topic in batches, in a thread; see :meth:`Producer.send_many`."""
        return await self._in_thread(
            partial(self._producer.send_many, topic, messages, ack=ack, **options)
        )

    async def send_many_oneway(
        self,
        topic: str,
        messages: Sequence[Message] | Table | None = None,
        **options: Unpack[ManyOptions],
    ) -> None:
        """Send messages without results, in a thread; see :meth:`Producer.send_many_oneway`."""
        await self._in_thread(partial(self._producer.send_many_oneway, topic, messages, **options))

    def begin(self) -> Transaction:
        """Return a new transaction: use it as ``async with``; see :meth:`Producer.begin`."""
        return self._producer.begin()

    async def recall(self, handle: str) -> bool:
        """Recall a delayed message; see :meth:`Producer.recall`."""
        return await self._in_thread(self._producer.recall, handle)

    @property
    def one_way_lost(self) -> int:
        """Number of messages sent one-way that are known not to be stored."""
        return 0 if self._opened is None else self._opened.one_way_lost

    async def flush(self) -> None:
        """Send everything collected and wait for the acknowledgements; results have the errors."""
        await self._in_thread(self._producer.flush)

    async def close(self) -> None:
        """Flush, and release the rings; raises as :meth:`flush`, and is closed nevertheless."""
        if self._is_closed:
            return
        self._is_closed = True
        try:
            closing = asyncio.get_running_loop().run_in_executor(self._threads, self._close)
            await asyncio.shield(closing)  # continues if this task is cancelled
        finally:
            self._threads.shutdown(wait=False)

    async def __aenter__(self) -> Self:
        """Connect, and return the producer itself; it is closed at the end of the block."""
        await self.open()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    @property
    def _producer(self) -> NodeProducer:
        self._check_not_closed()
        if self._opened is None:
            raise ConfigError(
                "this producer is not open; use it as: async with rr.AsyncProducer() as producer"
            )
        return self._opened

    async def _begin(
        self,
        topic: str,
        fields: MessageFields,
        ack: AckMode | None,
        options: OtherOptions,
        *,
        one_way: bool = False,
    ) -> MessageFuture:
        """Send one message once there is room for it."""
        singles = self._producer.singles
        # While sends wait for the topic to be looked up, later ones queue behind them: by then they
        # may be for the same queue, whose order is theirs.
        turn = self._turns[topic, None]
        if not turn.count:
            queue_id = singles.choose_queue(topic, fields, options)
            if queue_id is not None:
                turn = self._turns[topic, queue_id]
                if not turn.count:
                    future = singles.try_begin(topic, fields, ack, options, one_way=one_way)
                    if future is not None:
                        return future
        await turn.begin()
        begin = partial(singles.begin, "send", topic, fields, ack, options, one_way=one_way)
        sending = asyncio.create_task(self._in_thread(begin))
        sending.add_done_callback(turn.end)
        return await asyncio.shield(sending)  # its thread continues, also if this task is cancelled

    def _check_not_closed(self) -> None:
        if self._is_closed:
            raise StoreError(CLOSED)

    def _open(self) -> None:
        with self._changing:
            if self._opened is None and not self._is_closed:
                self._opened = self._make()

    def _close(self) -> None:
        with self._changing:
            if self._opened is not None:
                self._opened.close()

    async def _in_thread(self, call: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        self._check_not_closed()
        run = partial(call, *args, **kwargs)
        return await asyncio.get_running_loop().run_in_executor(self._threads, run)
