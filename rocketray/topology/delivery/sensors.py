"""Faust's sensors, called for batches: a call for each message would cost more than the message.

Faust's own monitor counts every message. Any other sensor is called once for each batch that a
handler starts, with the event of its last message, and a redelivered batch counts again.
"""

from __future__ import annotations

from typing import Any

from faust.sensors import Monitor

from rocketray.topology.values.shared_batch import DAMAGE

from .delivery import Delivery

__all__ = ["sense_batch"]


def sense_batch(stream: Any, delivery: Delivery) -> None:
    """Tell the sensors of the app that a handler of *stream* starts *delivery*."""
    tp, count = delivery.shared.tp, len(delivery)
    last = delivery.shared.next_queue_offset(delivery.stop) - 1
    for sensor in stream.app.sensors:
        if type(sensor) is not Monitor and (event := _last_event(stream, delivery)) is not None:
            sensor.on_message_in(tp, last, event.message)
            state = sensor.on_stream_event_in(tp, last, stream, event)
            sensor.on_stream_event_out(tp, last, stream, event, state)
            sensor.on_message_out(tp, last, event.message)
        if isinstance(sensor, Monitor):
            counted = count if type(sensor) is Monitor else count - 1
            sensor.messages_received_total += counted
            sensor.messages_received_by_topic[tp.topic] += counted
            sensor.events_total += counted
            sensor.events_by_stream[_name_of(sensor, stream)] += counted
            sensor.tp_read_offsets[tp] = last


def _last_event(stream: Any, delivery: Delivery) -> Any:
    """Return the event of the last message that is not damaged, or None."""
    for index in reversed(range(delivery.cursor, delivery.stop)):
        try:
            return stream.make_event(delivery, index, None)
        except DAMAGE:
            continue
    return None


def _name_of(sensor: Monitor, stream: Any) -> str:
    """Return the name of *stream* in *sensor*, cached as Faust does: building it is slow."""
    if stream not in sensor.stream_lookup:
        sensor.stream_lookup[stream] = str(stream)
    name: str = sensor.stream_lookup[stream]
    return name
