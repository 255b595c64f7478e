"""Messages to send, as JSON and as people write them: what is read is checked here.

- The form in which messages are printed is accepted, so that ``store scan`` can be piped into
  ``send``; fields that only a store knows are ignored, and so is what a node noted about a
  message (base/marks.py).
- Shorter: ``text`` for a body of text, ``keys`` as a list.
- To deliver a message later: ``delayLevel``, ``delayMs`` or ``deliverAt``, in milliseconds since
  1970.
- An unknown field is refused, because a mistyped one would silently not be sent.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from rocketray.base.delay import DELAY_MAX_MS, Delay
from rocketray.base.marks import taken_on
from rocketray.base.property_text import property_text
from rocketray.base.system_topics import is_internal_by_name
from rocketray.errors import InvalidMessageError
from rocketray.message import KEYS, SHARDING_KEY, TAGS, UNIQUE_KEY, Message

if TYPE_CHECKING:
    from rocketray.messaging.producers.producer_options import SendOptions

_OF_THE_STORE = {"topic", "queueOffset", "commitLogOffset", "storeTimestamp", "offsetMsgId"}
_DELAYS = ("delayLevel", "delayMs", "deliverAt")
_READ = ("body", "text", "tags", "keys", "properties", "queueId", "shardingKey", *_DELAYS)


@dataclass(frozen=True, slots=True)
class Outgoing:
    """A message to send, and where to."""

    message: Message
    queue_id: int | None
    sharding_key: str | None
    delay: Delay | None

    @property
    def options(self) -> SendOptions:
        """The options with which a producer sends the body."""
        message, delay = self.message, self.delay or Delay()
        delay_ms = delay.delay_ms
        return {
            "tags": message.tags,
            "keys": message.keys,
            "properties": message.properties,
            "unique_key": message.unique_key,
            "queue_id": self.queue_id,
            "sharding_key": self.sharding_key,
            "delay_level": delay.level,
            "delay": None if delay_ms is None else timedelta(milliseconds=delay_ms),
            "deliver_at": delay.deliver_at_ms,
        }


def from_json(topic: str, value: Mapping[str, Any]) -> Outgoing:
    """Return the message for *topic* that *value* describes.

    Raises:
        InvalidMessageError: a field is unknown or of the wrong kind, or too large for a store.
    """
    for name in value:
        if name not in _READ and name not in _OF_THE_STORE:
            raise InvalidMessageError(
                f"a message has no field {name!r}; the fields are {', '.join(_READ)}"
            )
    properties = _texts(value.get("properties"))
    tags = _text(value, "tags") or properties.pop(TAGS, None)
    keys = _keys(value.get("keys")) or _keys(properties.pop(KEYS, None))
    properties.pop(TAGS, None)
    properties.pop(KEYS, None)
    unique_key = properties.pop(UNIQUE_KEY, None)
    if "offsetMsgId" in value and not is_internal_by_name(topic):  # it was printed
        properties = taken_on(properties)
    message = Message(topic, _body(value), tags, keys, properties, unique_key=unique_key)
    sharding_key = _text(value, "shardingKey")
    if sharding_key is None:
        sharding_key = properties.get(SHARDING_KEY)
    return Outgoing(message, _number(value, "queueId"), sharding_key, _delay(value))


def _delay(value: Mapping[str, Any]) -> Delay | None:
    level, delay_ms, deliver_at_ms = (_number(value, name) for name in _DELAYS)
    if sum(one is not None for one in (level, delay_ms, deliver_at_ms)) > 1:
        raise InvalidMessageError(f"give one of {', '.join(_DELAYS)}: a message has one delay")
    # Twice the limit is refused as any larger delay, at which ``timedelta`` would overflow.
    delay = None if delay_ms is None else timedelta(milliseconds=min(delay_ms, 2 * DELAY_MAX_MS))
    return Delay.of(level, delay, deliver_at_ms)


def _body(value: Mapping[str, Any]) -> bytes:
    text, encoded = _text(value, "text"), _text(value, "body")
    if (text is None) == (encoded is None):
        raise InvalidMessageError("give the body once: as body (base64) or as text")
    try:
        if encoded is not None:
            return base64.b64decode(encoded, validate=True)
        assert text is not None
        return text.encode()
    except (binascii.Error, ValueError) as error:
        what = "text" if encoded is None else "base64 in body"
        raise InvalidMessageError(f"invalid {what}: {error}") from None


def _keys(value: object) -> tuple[str, ...]:
    if value is None:
        return ()
    if isinstance(value, str):
        return tuple(filter(None, value.split(" ")))
    if isinstance(value, list) and all(isinstance(key, str) for key in value):
        return tuple(value)
    raise InvalidMessageError(f"keys is {_json(value)}; give a list of strings, or one string")


def _texts(value: object) -> dict[str, str]:
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise InvalidMessageError(f"properties is {_json(value)}; give an object of strings")
    for name, text in value.items():
        if not isinstance(text, str):
            raise InvalidMessageError(
                f"property {name!r} is {_json(text)}; properties are strings: {_to_write(name, text)}"
            )
    return dict(value)


def _text(value: Mapping[str, Any], name: str) -> str | None:
    text = value.get(name)
    if text is not None and not isinstance(text, str):
        raise InvalidMessageError(f"{name} is {_json(text)}; give a string, or leave it out")
    return text


def _number(value: Mapping[str, Any], name: str) -> int | None:
    number = value.get(name)
    if number is None or (isinstance(number, int) and not isinstance(number, bool)):
        return number
    raise InvalidMessageError(f"{name} is {_json(number)}; give a number, or leave it out")


def _json(value: object) -> str:
    """Return *value* as the line has it, shortened."""
    return f"{json.dumps(value):.80}"


def _to_write(name: str, value: object) -> str:
    """Return what the line says to send the text of *value*, as an app would write it."""
    if value is None:
        return "leave it out"
    if isinstance(value, bool | int | float):
        return f"write {json.dumps(name)}: {json.dumps(property_text(name, value))}"
    return "write a string"


def pairs_of(texts: Iterable[str], instead: Mapping[str, str]) -> dict[str, str]:
    """Return the properties that are written as ``NAME=VALUE``.

    *instead* has the names that are not given so, each with what is given in its place.

    Raises:
        InvalidMessageError: a text has no name, or one that was given before, or not so.
    """
    pairs: dict[str, str] = {}
    for text in texts:
        name, separator, value = text.partition("=")
        if not separator:
            raise InvalidMessageError(f"{text!r} has no '='; write NAME=VALUE")
        if name in instead:
            raise InvalidMessageError(
                f"property {name} is RocketMQ's own, not one of the sender; {instead[name]}"
            )
        if name in pairs:
            raise InvalidMessageError(f"property {name} is given twice; a message has it once")
        pairs[name] = value
    return pairs
