"""Lookups of stored messages by ids whose kind is not known."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rocketray.errors import ConfigError

if TYPE_CHECKING:
    from rocketray.message import StoredMessage
    from rocketray.messaging.api.node_client import NodeClient


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
