"""Sends with a span each: what a producer does where ``tracing=`` is given.

Without it none of this runs, and OpenTelemetry is not imported.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa

from rocketray.base.ack_mode import AckMode
from rocketray.message import Message

from .batcher import MessageFields
from .given_lists import Texts
from .many import Table
from .message_sends import MessageSends
from .producer_options import ManyOptions, OtherOptions
from .send_future import MessageFuture, SendFuture

if TYPE_CHECKING:
    from rocketray.tracing import Sending, Tracing


class TracedSends:
    """:class:`MessageSends` with spans."""

    def __init__(self, sends: MessageSends, tracing: Tracing) -> None:
        self._sends = sends
        self._tracing = tracing
        self.elsewhere = sends.elsewhere
        self.choose_queue = sends.choose_queue

    def begin(
        self,
        function: str,
        topic: str,
        fields: MessageFields,
        ack: AckMode | None,
        options: OtherOptions,
        *,
        at_once: bool = False,
        one_way: bool = False,
    ) -> MessageFuture:
        sending, carried = self._begin(topic, fields)
        try:
            future = self._sends.begin(
                function, topic, carried, ack, options, at_once=at_once, one_way=one_way
            )
        except BaseException as error:
            sending.failed(error)
            raise
        if one_way:
            sending.stored()  # as far as it will be known
        else:
            end_with(future, sending)
        return future

    def try_begin(
        self,
        topic: str,
        fields: MessageFields,
        ack: AckMode | None,
        options: OtherOptions,
        *,
        one_way: bool = False,
    ) -> MessageFuture | None:
        """See :meth:`MessageSends.try_begin`; without a future there is no span."""
        sending, carried = self._begin(topic, fields)
        future = self._sends.try_begin(topic, carried, ack, options, one_way=one_way)
        if future is not None:
            end_with(future, sending)
        return future

    def _begin(self, topic: str, fields: MessageFields) -> tuple[Sending, MessageFields]:
        """Begin the span of a message; return it, and the message with its context."""
        body, tags, keys, properties = fields
        sending = self._tracing.send(
            topic, properties or {}, tag=tags, keys=keys, body_bytes=len(body)
        )
        return sending, (body, tags, keys, sending.carried(properties or {}))


def end_with(future: SendFuture[object], sending: Sending) -> None:
    """End a span with the outcome of a send."""

    def end(done: SendFuture[object]) -> None:
        try:
            result = done.result()
        except Exception as error:  # noqa: BLE001 - the sender has it, too
            sending.failed(error)
        else:
            sending.stored(getattr(result, "queue_id", None), getattr(result, "message_id", None))

    future.add_done_callback(end)


def traced_many(
    tracing: Tracing,
    topic: str,
    messages: Sequence[Message] | Table | None,
    options: ManyOptions,
) -> tuple[Sending, Sequence[Message] | Table | None]:
    """Begin the span of a batch; return it, and the messages with its context.

    A table with a column of maps named ``properties`` stays as it is: they may have contexts.
    """
    bodies = options.get("bodies")
    content = messages if bodies is None else bodies
    sending = tracing.send(topic, {}, count=len(content) if content is not None else 0)
    if bodies is not None:
        properties = options.get("properties") or {}
        if all(isinstance(name, str) for name in properties):
            options["properties"] = _carried_by_all(sending, properties)
    elif isinstance(messages, Table):
        if "properties" not in messages.schema.names:
            return sending, _with_columns(messages, options, sending)
    elif isinstance(messages, Sequence):  # what is forwarded has the context of its first send
        return sending, [
            replace(message, properties=sending.carried(message.properties))
            if type(message) is Message
            else message
            for message in messages
        ]
    return sending, messages


def _carried_by_all(sending: Sending, properties: Mapping[str, Texts]) -> dict[str, Texts]:
    carried = sending.carried(dict.fromkeys(properties, ""))  # what was given is "" in it
    return {name: value or properties[name] for name, value in carried.items()}


def _with_columns(table: Table, options: ManyOptions, sending: Sending) -> Table:
    given = options.get("property_columns", ())
    carried = sending.carried(dict.fromkeys(given, ""))
    columns = [name for name in given if carried.get(name) == ""]
    dropped = {*given}.difference(columns)
    table = table.select([name for name in table.schema.names if name not in dropped])
    for name, value in carried.items():
        if value and name not in table.schema.names:
            table = table.append_column(name, pa.repeat(value, table.num_rows))
            columns.append(name)
    options["property_columns"] = columns
    return table
