"""Lookups of stored messages: by ids whose kind is not known, and by bounds that users write."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, NamedTuple

from rocketray.base.message_time import checked_node_ms
from rocketray.errors import ConfigError, InvalidMessageError

if TYPE_CHECKING:
    from rocketray.message import StoredMessage
    from rocketray.messaging.api.node_client import NodeClient

TIME_MAX_MS = 2**63 - 1  # a record has 64 bits for its times, with a sign
_OFFSET_DIGITS_MAX = 11  # as a time, a number of 12 digits is in 1973


class Bound(NamedTuple):
    """A queue offset, or a time in milliseconds since 1970."""

    is_time: bool
    number: int


def found_by_id(node: NodeClient, topic: str, message_id: str) -> list[StoredMessage]:
    """Look up an id of unknown kind: as RocketMQ does, each kind is tried.

    Raises:
        ConfigError: it is no id of any kind.
    """
    # RocketMQ writes ids in capitals, which the index compares.
    old_id = message_id.upper()
    found = node.messages.query(topic, old_id)
    found = [message for message in found if message.imported_offset_id == old_id]
    if found:
        return found
    try:
        message, reason = node.messages.view(message_id), None
    except ConfigError as error:
        # No offset id; it may be a unique key, and this is the error if it is none.
        message, reason = None, error
    if message is not None and message.topic == topic:
        return [message]
    found = found_by_unique_key(node, topic, message_id)
    if reason is not None and not found:
        raise reason
    return found


def found_by_unique_key(node: NodeClient, topic: str, unique_key: str) -> list[StoredMessage]:
    """Return the messages with the unique id that their producer created."""
    found = node.messages.query(topic, unique_key)
    return [message for message in found if message.unique_key == unique_key]


def time_ms_of(text: str, wanted: str = "a time") -> int:
    """Return milliseconds since 1970 of a number or of ISO 8601, in local time without a zone.

    Raises:
        ConfigError: *text* is neither, so not what was *wanted*; or a number in another unit.
    """
    try:
        if text.isascii() and text.isdecimal():
            return checked_node_ms("the time", int(text))
        return int(datetime.fromisoformat(text).astimezone().timestamp() * 1000)
    except InvalidMessageError:
        raise
    except (ValueError, OverflowError):
        raise ConfigError(
            f"{text[:80]!r} is not {wanted}; write a time as milliseconds since 1970, or in ISO "
            "8601: 2026-11-21T08:30:00Z"
        ) from None


def bound_of(text: str, wanted: str = "an offset or a time") -> Bound:
    """Return a bound of a range: up to 11 digits are an offset, all else is a time.

    Raises:
        ConfigError: *text* is neither, so not what was *wanted*.
    """
    if text.isascii() and text.isdecimal() and len(text) <= _OFFSET_DIGITS_MAX:
        return Bound(is_time=False, number=int(text))
    return Bound(is_time=True, number=time_ms_of(text, wanted))
