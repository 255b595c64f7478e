"""Changelogs: conversion between a table's changes and messages.

A change is a message of the changelog topic, in the queue whose message the handler processes. Its
sharding key is the table's key, its body the value; an empty body deletes the key. Only the last
change of a key counts, so changes wait in a buffer, where a later one replaces an earlier one, and
are sent before offsets are committed.

Each change has the ownership epoch of the part when the change was made. The changelog refuses it
once the queue has a newer owner (broker/shards/ownership_fence.py).

Invariant: a change that a flush had to send is sent, or still in the buffer, however it ends;
unless it was forgotten, because its queue may have another owner.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Container
from typing import Any

from faust.events import Event
from faust.exceptions import DecodeError
from faust.types.tuples import TP
from faust.types.tuples import Message as FaustMessage

from rocketray.errors import InvalidMessageError, MessageTooLargeError
from rocketray.message import BODY_MAX_BYTES, Message, StoredMessage

from .key_form import changed_key, key_form

# A key is stored twice, as sharding key and as business key, in a property string of 32,767 bytes.
# At worst it takes 8,192 + 16,384 of them, where each blank of the second is a no-break space of
# two bytes; base64, which has no blanks, takes 2 * 10,924.
KEY_MAX_BYTES = 8192


class ChangelogBuffer:
    """Changes that are not yet in their changelogs, the last one of each key."""

    def __init__(self) -> None:
        self._changes: dict[tuple[str, int, bytes], tuple[Any, bytes | None, int]] = {}
        """Topic, value and epoch by the topic's name, queue and key."""

    def __len__(self) -> int:
        return len(self._changes)

    def put(
        self, topic: Any, queue_id: int, key: bytes, value: bytes | None, *, epoch: int = 0
    ) -> None:
        """Record that *key* is *value* in *queue_id* of the changelog *topic*; None deletes it.

        *epoch* is the ownership epoch of the queue; 0 if it has no owner, and takes all changes.

        Raises:
            InvalidMessageError: the value is empty. MessageTooLargeError: it, or the key, is too
                long.
        """
        name = topic.get_topic_name()
        if value is not None:
            if not value:
                raise InvalidMessageError(
                    f"changelog {name}: an empty value cannot be stored, because an empty body "
                    "deletes its key; delete the key, or store a value that stands for nothing"
                )
            if len(value) > BODY_MAX_BYTES:
                raise MessageTooLargeError(f"changelog {name}: a value", len(value), BODY_MAX_BYTES)
        if len(key) > KEY_MAX_BYTES:
            raise MessageTooLargeError(f"changelog {name}: a key", len(key), KEY_MAX_BYTES)
        self._changes[name, queue_id, key] = topic, value, epoch

    async def flush(self, send: Callable[[Message, int, int], Awaitable[Any]]) -> None:
        """Give *send* every change that waits now, with its queue and its epoch."""
        # The changes of now: those that handlers make during the sends are for a later flush.
        for place in list(self._changes):
            (_, queue_id, key), change = place, self._changes.get(place)
            if change is None:
                continue  # it was forgotten meanwhile
            topic, value, epoch = change
            await send(change_message(topic, key, value), queue_id, epoch)
            if (
                self._changes.get(place) is change
            ):  # else a newer one, or it was forgotten meanwhile
                del self._changes[place]

    def forget_queues(self, queue_ids: Container[int]) -> None:
        """Drop the changes of queues, whose messages another instance processes again."""
        for place in [place for place in self._changes if place[1] in queue_ids]:
            del self._changes[place]


def change_message(topic: Any, key: bytes, value: bytes | None) -> Message:
    """Return the message that sets *key* to *value*, or deletes it where that is None."""
    text, properties = key_form(key)
    message: Message = topic.message(value or b"", None, key=text, properties=properties)
    return message


def changelog_event(
    app: Any, stored: StoredMessage, decode: Callable[[FaustMessage], tuple[Any, Any]]
) -> Event:
    """Return a change as the event that a table's store takes; value None deletes the key.

    *decode* returns key and value of the message.

    Raises:
        InvalidMessageError: it cannot be decoded, or is no change.
    """
    tp = TP(stored.topic, stored.queue_id)
    message = FaustMessage(
        stored.topic,
        stored.queue_id,
        stored.queue_offset,
        stored.store_timestamp_ms / 1000,
        1,  # Kafka's LogAppendTime
        {},
        changed_key(stored),
        stored.body or None,
        None,
        tp=tp,
    )
    try:
        key, value = decode(message)
    except DecodeError as error:
        raise InvalidMessageError(
            f"{stored.topic}/{stored.queue_id} offset {stored.queue_offset}: the change of a table "
            f"cannot be decoded, so the table cannot be rebuilt: {error!r}; give the table the "
            "key_type and value_type that it was written with, or another name"
        ) from error
    return Event(app, key, value, {}, message)
