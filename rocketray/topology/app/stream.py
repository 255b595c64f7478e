"""The stream that an agent iterates over: Faust's, on whole deliveries instead of single events.

Over a topic the stream walks the run of each delivery itself. Per message that is a decode, an
index and a look at the clock: no task, no future, no event object. After ``SLICE_S`` of work it
yields to the loop, so timers, commits and other agents get their turn. Everything that is not a
topic (in-memory channels, lists, test contexts) is processed by Faust's own code, unchanged.

Each slice begins with a look at the lease, after its end was read from the clock. So a process that
was stopped by a signal delivers one message at most before it looks again, wherever it stood.

A message is finished when the handler asks for the next one. ``break`` or ``return`` inside the
loop therefore leaves the message unfinished, and it is redelivered; Faust would have acknowledged
it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import replace
from functools import cached_property, lru_cache
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Generic, NoReturn, TypeVar

import faust
from faust.exceptions import Skip
from faust.streams import _current_event
from mode.utils.futures import maybe_async
from mode.utils.times import want_seconds

from rocketray.errors import ConfigError
from rocketray.topology.delivery.delivery import DeliveredEvent, Delivery, KeyReader
from rocketray.topology.delivery.failure import fail_message, note_failure
from rocketray.topology.delivery.inbox import Hand, Inbox
from rocketray.topology.delivery.taking import SKIPPED, Collector
from rocketray.topology.values.codec import make_decoder, make_key_reader
from rocketray.topology.values.shared_batch import ARROW_COLUMNS, DAMAGE
from rocketray.topology.values.topic import Topic

from .app_spans import HandlerSpans
from .sensing import HandlerSensing

if TYPE_CHECKING:
    import pyarrow as pa

# How long a handler that never waits may hold the loop, and so timers, commits and other agents;
# the message that it has then is added to it.
SLICE_S = 0.003
_T = TypeVar("_T")
_Value_co = TypeVar("_Value_co", covariant=True)


class Stream(faust.Stream[_Value_co], Generic[_Value_co]):  # type: ignore[misc]  # Faust's types are not followed
    """A Faust stream; over a topic, with redelivery, batches and a bounded hold of the loop.

    ``Stream[Order]`` is the stream's type in a handler whose topic has ``value_type=Order``.
    """

    def __init__(self, channel: Any, **options: Any) -> None:
        self.inbox: Inbox | None = None
        """The deliveries of this stream's handler; None when it does not read a topic."""
        self._plain_event: Any = None
        self._sensing = HandlerSensing(self)
        self.spans: HandlerSpans | None = None
        """The spans of the handler, where the app has tracing."""
        self._is_started_by_loop = False
        self._refuse_join(options.get("join_strategy"))
        super().__init__(channel, **options)
        if isinstance(channel, Topic):
            self.inbox = Inbox(channel.queue)

    @property
    def place_in_hand(self) -> tuple[str, int] | None:
        """Topic and queue of the message that the handler has now, as it was sent.

        Cheaper than its event.
        """
        delivery = None if self.inbox is None else self.inbox.current
        if delivery is None or delivery.is_passed:
            return None
        shared = delivery.shared
        return shared.topic_of(delivery.cursor), shared.queue_of(delivery.cursor)

    @property
    def has_processors(self) -> bool:
        return bool(self._processors)

    @property
    def current_event(self) -> Any:
        """The event of the message that the handler has now, or None."""
        if self._plain_event is None and self.inbox is not None:
            delivery = self.inbox.current
            if delivery is not None and not delivery.is_passed:
                return delivery.event(self._make_current_event)
        return self._plain_event

    @current_event.setter
    def current_event(self, event: Any) -> None:
        self._plain_event = event

    def clone(self, **changes: Any) -> Any:
        """Return a copy of this stream; over the same channel it shares the same deliveries."""
        copy = super().clone(**changes)
        if copy.channel is self.channel:
            copy.inbox = self.inbox
        return copy

    def __aiter__(self) -> AsyncIterator[_Value_co]:
        if self.inbox is None:
            iterator: AsyncIterator[_Value_co] = super().__aiter__()
            return iterator
        return self._track(self._iterate(self.inbox))

    async def _iterate(  # noqa: C901  # for speed
        self, inbox: Inbox, form: Callable[[Delivery], Any] | None = None
    ) -> AsyncIterator[Any]:
        """Yield every message's value, or its *form*, in order; see the module's docstring."""
        clock, sleep = time.perf_counter, asyncio.sleep
        decode = make_decoder(self.app, self.channel)
        await self._begin()
        try:
            while not self.should_stop:
                delivery = await inbox.next()
                self.enter(delivery)
                self._sensing.begin([(delivery, delivery.cursor, delivery.stop)])
                delivery.is_active = True
                bodies = delivery.shared.bodies
                # Once for a delivery, which spares each message the look.
                is_plain = not (self._processors or delivery.acks.are_required)
                first, slice_end = delivery.cursor, clock() + SLICE_S
                await inbox.until_leased()  # after the clock: see the module's docstring
                try:
                    for index in range(first, delivery.stop):
                        delivery.cursor = index
                        if delivery.is_withdrawn:
                            break
                        is_decoding = True
                        try:
                            value = bodies[index] if decode is None else decode(bodies[index])
                            delivery.value = value
                            given = None if form is None else form(delivery)
                            is_decoding = False
                            if not is_plain:
                                value = await self.process(delivery, index, value)
                        except Exception as error:  # noqa: BLE001  # of a codec or a filter
                            if await self.fail(delivery, error, is_decoding=is_decoding):
                                # ``fail`` has moved the cursor behind the message, as the next turn
                                # does.
                                continue
                            break
                        if value is not SKIPPED:
                            yield value if form is None else given
                        if clock() >= slice_end:
                            await sleep(0)
                            slice_end = clock() + SLICE_S
                            await inbox.until_leased()
                    else:
                        delivery.cursor = delivery.stop
                finally:
                    self._sensing.end()
                    delivery.is_active = False
                    self.events_total += delivery.cursor - first
                if inbox.is_drained:
                    await sleep(0)
        except StopAsyncIteration:
            await self._end()  # thrown into the channel when the agent stops

    def take(self, max_: int, within: Any) -> AsyncIterator[Sequence[_Value_co]]:
        """Yield lists of up to *max_* values, waiting at most *within* for a full one.

        When the handler raises, the messages of the list are redelivered one by one, unless it says
        with :class:`~rocketray.errors.BatchError` which of them failed.
        """
        return self._lists(max_, within) or super().take(max_, within)

    def events(self) -> AsyncIterator[Any]:
        """Iterate over the events of the messages; the value of each is decoded."""
        if self.inbox is None:
            events: AsyncIterator[Any] = super().events()
            return events
        return self._track(self._iterate(self.inbox, self._event_in_hand))

    def items(self) -> AsyncIterator[tuple[Any, _Value_co]]:
        """Iterate over pairs of key and value."""
        if self.inbox is None:
            items: AsyncIterator[tuple[Any, _Value_co]] = super().items()
            return items
        return self._track(self._iterate(self.inbox, self._item_in_hand))

    def take_events(self, max_: int, within: Any) -> AsyncIterator[Sequence[Any]]:
        """As :meth:`take`, with events instead of values."""
        return self._lists(max_, within, as_events=True) or super().take_events(max_, within)

    def noack_take(self, max_: int, within: Any) -> AsyncIterator[Sequence[Any]]:
        """As :meth:`take_events`; each event is finished by its ``ack()``."""
        if self.inbox is not None:
            self.enable_acks = False
        return self._lists(max_, within, as_events=True) or super().noack_take(max_, within)

    def batches(self, columns: Sequence[str] = ARROW_COLUMNS) -> AsyncIterator[pa.RecordBatch]:
        """Yield whole batches as Arrow columns, one queue each; the fastest way to read.

        When the handler raises, its rows are redelivered one by one, as the messages of
        :meth:`take`.
        """
        if self.inbox is None:
            raise ConfigError("batches() reads stored messages; this stream is not over a topic")
        if self._processors:
            raise ConfigError(
                "batches() returns Arrow columns, which bypass stream.filter() and other "
                "processors; filter the batch itself, or with the agent's tags or sql"
            )
        return self._track(self._arrow(self.inbox, columns))

    def through(self, channel: Any) -> Any:
        """Send every event through *channel* and read it from there.

        A restarted handler resumes where it was: its first call set this up for good.
        """
        return self._reached() or self._alike(super().through(channel))

    def group_by(self, key: Any, *, name: str | None = None, **options: Any) -> Any:
        """Send every event through a topic that is sharded by *key*, a field or a function.

        The topic is named after the field alone, because a topic's name has no dot. It has as many
        queues as this stream's, unless *options* give another topic or number. A message whose key
        cannot be computed counts as failed.
        """
        grouped = self._reached()
        if grouped is None:
            grouped = super().group_by(key, name=name or getattr(key, "field", None), **options)
            if isinstance(self.channel, Topic) and not options.keys() & {"topic", "partitions"}:
                self.app.declarations.have_as_many_queues(grouped.channel, self.channel)
        return self._alike(grouped)

    async def _passive_drainer(self, channel: Any, declare: bool = False) -> None:  # noqa: FBT001, FBT002  # Faust's interface
        """Read on where a processor raised, at which Faust's own ends for ever."""
        if self.inbox is None:
            await super()._passive_drainer(channel, declare)
            return
        self._passive_started.set()
        while not self.should_stop:
            try:
                async for _ in self:
                    pass
                break
            except Exception as error:  # noqa: BLE001  # whatever a filter or a key function raises
                await asyncio.sleep(note_failure(f"the way to {channel}", error, self.inbox))
        self._passive = False

    async def _format_key(self, key: Any, value: Any) -> Any:
        """Return the key to group by; where that fails, Faust skips the message, and it is lost."""
        if hasattr(key, "getattr"):  # a field of a Record
            return _reader_of(key)(value)
        return await maybe_async(key(value))

    async def ack(self, event: Any) -> bool:
        """Finish the message of *event*; return True the first time."""
        return bool(event.ack())

    def join(self, *_fields: Any) -> NoReturn:
        """Refuse: Faust declares joins and does not implement them."""
        self._refuse_join(_fields or True)
        raise AssertionError

    left_join = right_join = inner_join = outer_join = join

    async def _take(self, inbox: Inbox, collector: Collector) -> AsyncIterator[list[Any]]:
        await self._begin()
        try:
            while not self.should_stop:
                taken = await collector.collect()
                await inbox.until_leased()
                if taken.begin():
                    hand = taken.hand()
                    inbox.give_list(hand)
                    self._sensing.begin(hand.runs)
                    yield taken.values
                    inbox.deactivate()
                    self._sensing.end()
                self.events_total += len(taken.values)
                taken.finish()
                await asyncio.sleep(0)
        except StopAsyncIteration:
            await self._end()
        finally:
            self._sensing.end()
            inbox.deactivate()  # unfinished deliveries stay buffered

    async def _arrow(self, inbox: Inbox, columns: Sequence[str]) -> AsyncIterator[pa.RecordBatch]:
        await self._begin()
        try:
            while not self.should_stop:
                delivery = await inbox.next()
                self.enter(delivery)
                delivery.is_active = True
                try:
                    rows = delivery.to_arrow(columns)
                except DAMAGE as error:
                    inbox.deactivate()
                    await self.fail(delivery, error)
                    continue
                end = delivery.cursor + rows.num_rows
                hand = Hand([(delivery, delivery.cursor, end)], is_list=True)
                inbox.give_list(hand)
                self._sensing.begin(hand.runs)
                yield rows
                inbox.deactivate()
                self._sensing.end()
                self.events_total += end - delivery.cursor
                delivery.cursor = end
                await asyncio.sleep(0)
        except StopAsyncIteration:
            await self._end()
        finally:
            self._sensing.end()
            inbox.deactivate()

    def _alike(self, behind: Any) -> Any:
        """Give the stream *behind* another topic the failure rules of this one; return it."""
        membership, channel = getattr(self.channel, "membership", None), behind.channel
        if membership is not None and isinstance(channel, Topic) and channel.membership is None:
            of_topic = self.app.membership_without_agent(channel.get_topic_name())
            channel.membership = replace(of_topic, failures=membership.failures)
        return behind

    def _reached(self) -> Any:
        """Return the stream that this one was sent through before its handler was restarted."""
        return self._next if self._finalized else None

    def _lists(
        self, max_: int, within: Any, *, as_events: bool = False
    ) -> AsyncIterator[list[Any]] | None:
        """Return the lists of a stream over a topic; None for Faust's own, over anything else."""
        if self.inbox is None:
            return None
        collector = Collector(
            self,
            self.inbox,
            decode=make_decoder(self.app, self.channel) or bytes,
            max_count=max_,
            within_s=want_seconds(within) if within else None,
            as_events=as_events,
            of_one_queue=bool(self.app.tables),
        )
        return self._track(self._take(self.inbox, collector))

    async def _begin(self) -> None:
        """Start the stream's service, unless it still runs from before the handler raised."""
        self._finalized = True
        if await self.maybe_start():
            self._is_started_by_loop = True

    async def _end(self) -> None:
        """Stop this and the streams that feed it; not when the handler raises or breaks off."""
        if self._is_started_by_loop:
            self._is_started_by_loop = False
            await self.stop()
            self.service_reset()

    def enter(self, delivery: Delivery) -> None:
        if not self.enable_acks:
            delivery.acks.require(delivery.cursor)
        self._plain_event = None
        _current_event.set(self._event_now)

    def _event_now(self) -> Any:
        """Return the event, for ``faust.current_event()``: Faust keeps a weakref there."""
        return self.current_event

    async def process(self, delivery: Delivery, index: int, value: Any) -> Any:
        if delivery.acks.has(index):
            return SKIPPED  # before its handler raised
        try:
            for processor in self._processors:
                value = await maybe_async(processor(value))
        except Skip:
            # In manual mode it would otherwise wait for an acknowledgement of a handler that never
            # had it.
            delivery.acks.acknowledge(index)
            return SKIPPED
        return value

    async def fail(
        self, delivery: Delivery, error: Exception, *, is_decoding: bool = False
    ) -> bool:
        assert self.inbox is not None
        return await fail_message(
            self.inbox,
            delivery,
            error,
            f"reading {self.channel}",
            in_handler=False,
            is_decoding=is_decoding,
        )

    def make_event(self, delivery: Delivery, index: int, value: Any) -> DeliveredEvent:
        """Return the event of the message at *index*, whose key is read as the topic says."""
        return DeliveredEvent(self.app, delivery, index, value, self._read_key)

    def _make_current_event(self, delivery: Delivery, index: int, value: Any) -> DeliveredEvent:
        """Return an event of which few want the key, for which the keys of a batch are read."""
        read_key = self._read_key or DeliveredEvent.read_key_bytes
        return DeliveredEvent(self.app, delivery, index, value, read_key)

    def _event_in_hand(self, delivery: Delivery) -> DeliveredEvent:
        return delivery.event(self.make_event)

    def _item_in_hand(self, delivery: Delivery) -> tuple[Any, Any]:
        if self._read_key is None:  # without an event
            return delivery.shared.keys[delivery.cursor], delivery.value
        event = self._event_in_hand(delivery)
        return event.key, event.value

    @cached_property
    def _read_key(self) -> KeyReader | None:
        return make_key_reader(self.app, self.channel)

    def _track(self, iterator: AsyncIterator[_T]) -> AsyncIterator[_T]:
        """Have *iterator* closed with the stream, and before a failed handler is restarted."""
        self._active_agens.add(iterator)
        if self.app.tracing is not None and self.inbox is not None:
            self.spans = HandlerSpans(self.app.tracing, self)
            iterator = self.spans.around(iterator)
            self._active_agens.add(iterator)
        return iterator

    @staticmethod
    def _refuse_join(strategy: Any) -> None:
        if strategy:
            raise ConfigError(
                "Faust declares joins, but does not implement them; keep the last value of one "
                "side in a dict and look it up, or join on Spark with @app.sink"
            )


@lru_cache(maxsize=64)  # as the field's ``getattr`` does, which finds the path for each value
def _reader_of(field: Any) -> Callable[[Any], Any]:
    """Return what reads a field of a Record, or one of a Record in it."""
    path = [*field._parents_path()]  # noqa: SLF001  # contract-tested
    return attrgetter(".".join(reversed(path)))
