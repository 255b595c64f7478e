"""The spans of an app, where ``App(tracing=…)`` is given: of what it sends, and of its handlers.

Without it none of this runs, and OpenTelemetry is not imported.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from rocketray.message import Message
from rocketray.topology.delivery.feed_spans import messages_of, place_of
from rocketray.topology.delivery.inbox import Hand, Run
from rocketray.topology.values.shared_batch import SharedBatch
from rocketray.topology.values.topic import StoredMetadata

if TYPE_CHECKING:
    from rocketray.tracing import Processing, TracedMessage, Tracing

_Send = Callable[[Message], Coroutine[Any, Any, asyncio.Future[StoredMetadata]]]


async def send_traced(
    tracing: Tracing, message: Message, send: _Send
) -> asyncio.Future[StoredMetadata]:
    """Queue a message by *send*, in a span that ends when it is stored."""
    sending = tracing.send(
        message.topic,
        message.properties,
        tag=message.tags,
        keys=message.keys,
        body_bytes=len(message.body),
    )
    try:
        future = await send(replace(message, properties=sending.carried(message.properties)))
    except BaseException as error:
        sending.failed(error)
        raise

    def end(done: asyncio.Future[StoredMetadata]) -> None:
        if done.cancelled():
            sending.failed(asyncio.CancelledError("the outcome is not awaited"))
        elif (error := done.exception()) is not None:
            sending.failed(error)
        else:
            sending.stored(done.result().partition)

    future.add_done_callback(end)
    return future


class HandlerSpans:
    """The spans of the handler of one stream."""

    def __init__(self, tracing: Tracing, stream: Any) -> None:
        self._tracing = tracing
        self._stream = stream
        self._last: tuple[SharedBatch, list[TracedMessage]] | None = None
        self._open: Processing | None = None

    async def around(self, values: AsyncIterator[Any]) -> AsyncIterator[Any]:
        """Yield *values*; while the handler has one, its span is current."""
        try:
            async for value in values:
                with self._begin(self._stream.inbox.hand()) as self._open:
                    yield value
        finally:
            self._open = None
            await values.aclose()  # type: ignore[attr-defined]  # they are a generator's

    def failed(self, error: BaseException) -> None:
        """End the span of a handler that raised; its stream is closed later."""
        if self._open is not None:
            self._open.end(error)

    def _begin(self, hand: Hand) -> Processing:
        delivery, begin, _ = hand.runs[0]
        place = place_of(
            self._stream.channel.membership,
            delivery.shared.topic_of(begin),
            delivery.shared.queue_of(begin),
        )
        if hand.is_list:
            count = sum(end - begin for _, begin, end in hand.runs)
            return self._tracing.process_list(place, count, partial(self._of_all, hand.runs))
        return self._tracing.process(place, self._of(delivery.shared)[begin])

    def _of_all(self, runs: Sequence[Run]) -> list[TracedMessage]:
        return [
            one for delivery, begin, end in runs for one in self._of(delivery.shared)[begin:end]
        ]

    def _of(self, shared: SharedBatch) -> list[TracedMessage]:
        if self._last is None or self._last[0] is not shared:
            self._last = shared, messages_of(shared.batch)
        return self._last[1]
