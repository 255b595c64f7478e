"""What the sensors of an app are told: of the messages that handlers get, and of those it sends.

A call for each message would cost more than the message. So Faust's own monitor, of which each
counter is one addition, counts every message; any other sensor is called once for each batch, with
the last of its messages. A monitor that is derived from Faust's counts every message, too, and is
called once for a batch. A batch that is redelivered counts again.

Times are those of batches: Faust's own monitor gets the mean time of a message, other sensors see
the batch begin and end.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from faust.sensors import Monitor
from faust.types.tuples import PendingMessage

from rocketray.message import SHARDING_KEY, Message
from rocketray.topology.delivery.inbox import Run
from rocketray.topology.values.shared_batch import DAMAGE

_LOG = logging.getLogger(__name__)


class HandlerSensing:
    """Tells the sensors of an app what the handler of one stream is given, and when it is done."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream
        self._open: list[Callable[[], None]] = []

    def begin(self, runs: Sequence[Run]) -> None:
        """Tell that the handler gets these messages."""
        self.end()
        for run in runs:
            for sensor in self._stream.app.sensors:
                if type(sensor) is Monitor:
                    self._open.append(self._counted(sensor, run))
                else:
                    self._open += self._called(sensor, run)

    def end(self) -> None:
        """Tell that the handler is done with them, or failed; without effect if there are none."""
        done, self._open = self._open, []
        for tell in done:
            tell()

    def _counted(self, monitor: Monitor, run: Run) -> Callable[[], None]:
        count, begun = self._count(monitor, run, run[2] - run[1]), monitor.time()
        monitor.messages_active += count
        monitor.events_active += count

        def end() -> None:
            monitor.messages_active -= count
            monitor.events_active -= count
            monitor.events_runtime.append((monitor.time() - begun) / count)

        return end

    def _called(self, sensor: Any, run: Run) -> list[Callable[[], None]]:
        delivery, first, stop = run
        event = self._last_event(run)
        if event is None:  # all are damaged
            return []
        if isinstance(sensor, Monitor):
            self._count(sensor, run, stop - first - 1)
        tp, last = delivery.shared.tp, delivery.shared.next_queue_offset(stop) - 1
        sensor.on_message_in(tp, last, event.message)
        state = sensor.on_stream_event_in(tp, last, self._stream, event)

        def end() -> None:
            sensor.on_stream_event_out(tp, last, self._stream, event, state)
            sensor.on_message_out(tp, last, event.message)

        return [end]

    def _count(self, monitor: Monitor, run: Run, count: int) -> int:
        """Add to the counters of a monitor; return the count."""
        stream, tp = self._stream, run[0].shared.tp
        monitor.messages_received_total += count
        monitor.messages_received_by_topic[tp.topic] += count
        monitor.events_total += count
        monitor.events_by_stream[_name_of(monitor.stream_lookup, stream)] += count
        if stream.task_owner is not None:
            monitor.events_by_task[_name_of(monitor.task_lookup, stream.task_owner)] += count
        monitor.tp_read_offsets[tp] = run[0].shared.next_queue_offset(run[2]) - 1
        return count

    def _last_event(self, run: Run) -> Any:
        delivery, first, stop = run
        for index in reversed(range(first, stop)):
            try:
                return self._stream.make_event(delivery, index, None)
            except DAMAGE:
                # A damaged message has no event: the one before it stands for the batch.
                continue
        return None


def _name_of(known: Any, each: Any) -> str:
    """Return the name of a stream or task, cached as Faust does: building it is slow."""
    if each not in known:
        known[each] = str(each)
    name: str = known[each]
    return name


@dataclass(slots=True)
class _Sends:
    """Messages of one topic that leave together."""

    app: Any
    messages: Sequence[Message]
    states: list[tuple[Any, Any]] = field(default_factory=list)

    def begin(self) -> None:
        last, count = self.messages[-1], len(self.messages)
        for sensor in self.app.sensors:
            if isinstance(sensor, Monitor):
                sensor.messages_sent += count - 1
                sensor.messages_sent_by_topic[last.topic] += count - 1
            key = last.properties.get(SHARDING_KEY)
            state = sensor.on_send_initiated(
                self.app.producer, last.topic, _pending(last), len(key or ""), len(last.body)
            )
            self.states.append((sensor, state))

    def end(self, outcome: Any) -> None:
        for sensor, state in self.states:
            if isinstance(outcome, BaseException):
                sensor.on_send_error(self.app.producer, outcome, state)
                if isinstance(sensor, Monitor):
                    sensor.send_errors += len(self.messages) - 1
            else:
                sensor.on_send_completed(self.app.producer, state, outcome)


def sense_sends(app: Any, messages: Sequence[Message]) -> Callable[[Any], None]:
    """Tell the sensors of *app* that messages of one topic are sent; return what tells the end.

    It takes the metadata of the last message, or the error.
    """
    sends = _Sends(app, messages)
    _unharmed(sends.begin)
    return lambda outcome: _unharmed(partial(sends.end, outcome))


def _unharmed(tell: Callable[[], None]) -> None:
    """Tell the sensors; one that raises must not stop the sends of the app."""
    try:
        tell()
    except Exception:  # noqa: BLE001 - whatever a sensor raises
        _LOG.exception("a sensor of the app failed; the messages are sent nevertheless")


def _pending(message: Message) -> PendingMessage:
    return PendingMessage(
        channel=None,
        key=message.properties.get(SHARDING_KEY),
        value=message.body,
        partition=None,
        timestamp=None,
        headers=None,
        key_serializer=None,
        value_serializer=None,
        callback=None,
        topic=message.topic,
    )
