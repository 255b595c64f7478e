"""Messages: what a producer sends, and what a store holds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, NewType, Self, TypedDict, Unpack, final

from .base.marks import (
    CRC_PROPERTY,
    IMPORTED_OFFSET_ID,
    KEYS,
    OF_THE_KEY,
    SHARDING_KEY,
    TAGS,
    UNIQUE_KEY,
    taken_on,
)
from .base.message_parts import (
    BODY_MAX_BYTES,
    JAVA_BLANKS,
    PROPERTIES_MAX_BYTES,
    check_body,
    check_keys,
    check_properties,
    check_tag,
    check_text,
    check_topic_and_tag,
    encode_stored,
    sent_keys,
    stored_key,
    valid_tags,
    valid_topics,
    with_sharding_key,
)
from .base.message_time import checked_ms
from .base.names import check_topic
from .base.property_string import decode_properties, encode_properties, paired
from .errors import InvalidMessageError

__all__ = [
    "BODY_MAX_BYTES",
    "CRC_PROPERTY",
    "EMPTY_SHARDING_KEY",
    "IMPORTED_OFFSET_ID",
    "JAVA_BLANKS",
    "KEYS",
    "PROPERTIES_MAX_BYTES",
    "SHARDING_KEY",
    "TAGS",
    "UNIQUE_KEY",
    "ForwardedMessage",
    "Message",
    "PhysicalOffset",
    "QueueOffset",
    "StoredMessage",
    "check_body",
    "check_keys",
    "check_properties",
    "check_tag",
    "decode_properties",
    "encode_properties",
    "encode_stored",
    "stored_key",
    "with_sharding_key",
]

PhysicalOffset = NewType("PhysicalOffset", int)
"""A position in the commit log, in bytes."""
QueueOffset = NewType("QueueOffset", int)
"""A position in a consume queue, in messages."""

EMPTY_SHARDING_KEY = "="
"""What an app's message has as its sharding key if its key is empty, beside a mark."""
_NO_KEYS: Sequence[str] = ()


@final
@dataclass(frozen=True, slots=True, init=False)
class Message:
    """A message from a producer; validated at construction.

    ``properties`` are the user's; tags, keys and the unique key have fields of their own. The keys
    become a tuple, which is lighter than a list for the garbage collector, in their stored form.
    """

    topic: str
    body: bytes
    tags: str | None
    keys: Sequence[str]
    properties: Mapping[str, str]
    flag: int
    unique_key: str | None
    born_timestamp_ms: int | None

    def __new__(  # noqa: PLR0917  # the fields in their order, as a dataclass takes them
        cls,
        topic: str,
        body: bytes,
        tags: str | None = None,
        keys: Sequence[str] = _NO_KEYS,
        properties: Mapping[str, str] | None = None,
        flag: int = 0,
        unique_key: str | None = None,
        born_timestamp_ms: int | None = None,
    ) -> Self:
        """Check the parts; raise :class:`InvalidMessageError` or :class:`MessageTooLargeError`."""
        # No call for a part that is as most are: these calls would take as long as all the rest.
        try:
            is_known = topic in valid_topics and (tags is None or tags in valid_tags)
        except TypeError:  # one cannot be hashed, so it is no text
            is_known = False
        if not is_known:
            check_topic_and_tag(topic, tags)
        if body.__class__ is not bytes or len(body) > BODY_MAX_BYTES:
            check_body(topic, body)
        if unique_key is not None:
            check_text("the unique key", unique_key)
        if keys is not _NO_KEYS:
            if keys.__class__ is str and keys and keys.isprintable() and " " not in keys:
                keys = (keys,)
            else:
                keys = tuple(check_keys(keys))
        if properties is None:
            properties = {}
        elif properties.__class__ is not dict or properties:
            check_properties(properties, topic)
        if born_timestamp_ms is not None:
            born_timestamp_ms = checked_ms("born_timestamp_ms", born_timestamp_ms, "milliseconds")
        made: Any = _Draft()
        made.topic = topic
        made.body = body
        made.tags = tags
        made.keys = keys
        made.properties = properties
        made.flag = flag
        made.unique_key = unique_key
        made.born_timestamp_ms = born_timestamp_ms
        made.__class__ = cls
        return made  # type: ignore[no-any-return]  # a cast is a call

    def __init_subclass__(cls) -> None:
        raise TypeError(
            f"{cls.__name__}: Message has no subclasses; put the message into an object of your own, "
            "or make it in a function"
        )

    def __getnewargs__(self) -> tuple[Any, ...]:
        """Return what a copy is made from."""
        return tuple(getattr(self, each.name) for each in fields(self))

    def encoded_properties(self) -> bytes:
        """Return all properties as the store keeps them; raise as :func:`encode_stored`."""
        return encode_stored(self.topic, self.tags, self.keys, self.properties, self.unique_key)


class _Draft:
    """A message whose fields are being set, which takes thrice as long if the class is frozen.

    Objects of two classes with the same slots can change from one to the other.
    """

    __slots__ = tuple(each.name for each in fields(Message))


class _Undecoded:
    """The parts of a stored message that were not read yet, as bytes (sliced_messages.py).

    ``_head`` is the record before the body, and ``_decode_head`` returns the fields in it;
    ``_pairs`` is for :func:`paired`. A message that was made from its fields has none of them.
    """

    __slots__ = ("_decode_head", "_head", "_pairs")


@dataclass(frozen=True, slots=True)
class StoredMessage(_Undecoded):
    """A decoded record of the commit log. Times are milliseconds since 1970; size is in bytes."""

    topic: str
    queue_id: int
    queue_offset: QueueOffset
    physical_offset: PhysicalOffset
    size: int
    body: bytes
    properties: Mapping[str, str]
    offset_message_id: str
    flag: int
    sys_flag: int
    body_crc: int
    born_timestamp_ms: int
    born_host: tuple[str, int]
    store_timestamp_ms: int
    store_host: tuple[str, int]
    reconsume_times: int
    prepared_transaction_offset: int

    if not TYPE_CHECKING:  # else any name would count as a field

        def __getattr__(self, name: str) -> Any:
            """Return a field that is read for the first time, and keep all that was decoded."""
            if name == "properties":  # most programs read no other one
                properties = paired(self._pairs)
                _set_properties(self, properties)
                return properties
            if name not in StoredMessage.__slots__:
                raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
            found = self._decode_head(self._head)
            for field, value in found.items():
                object.__setattr__(self, field, value)
            return found[name]

    @property
    def tags(self) -> str | None:
        """The tag, or None."""
        return self.properties.get(TAGS)

    @property
    def keys(self) -> list[str]:
        """The business keys as they were sent, in that order."""
        return sent_keys(self.properties.get(KEYS, ""))

    @property
    def stored_keys(self) -> list[str]:
        """The business keys as they are stored (:func:`stored_key`)."""
        return [key for key in self.properties.get(KEYS, "").split(" ") if key]

    def has_key(self, key: str) -> bool:
        """Return whether *key*, as it was sent, is a business key of the message."""
        return stored_key(key) in self.stored_keys

    @property
    def unique_key(self) -> str | None:
        """The id that the producer gave the message, or None."""
        return self.properties.get(UNIQUE_KEY)

    @property
    def user_properties(self) -> dict[str, str]:
        """The properties that another message may have, too: a program may send them.

        Not among them are tag, keys and sharding key (with its form), which a send has arguments
        for, the unique key, and what the node notes about the message (marks.py).
        """
        left = {TAGS, KEYS, *OF_THE_KEY}
        return {name: text for name, text in taken_on(self.properties).items() if name not in left}

    @property
    def imported_offset_id(self) -> str | None:
        """The offset id in the store from which the message was imported, or None."""
        return self.properties.get(IMPORTED_OFFSET_ID)


_set_properties = StoredMessage.__dict__["properties"].__set__
"""Sets the slot in half the time of ``object.__setattr__``."""


class ForwardedChanges(TypedDict, total=False):
    """The fields that a message may change when it is stored again, beside its topic."""

    properties: Mapping[str, str]
    sys_flag: int
    reconsume_times: int
    prepared_transaction_offset: int


@dataclass(frozen=True, slots=True)
class ForwardedMessage:
    """A message that is stored again, unchanged, in another topic or queue.

    ``properties`` are all stored properties, with unique key, keys and tag; the body is
    not compressed. ``born_host`` is an address and a port.
    """

    topic: str
    body: bytes
    properties: Mapping[str, str]
    born_timestamp_ms: int
    born_host: tuple[str, int]
    flag: int = 0
    sys_flag: int = 0
    reconsume_times: int = 0
    prepared_transaction_offset: int = 0

    def __post_init__(self) -> None:
        check_topic(self.topic)
        if decode_properties(encode_properties(self.properties)) != self.properties:
            raise InvalidMessageError(
                "a property of a forwarded message has an empty name or value, or a separator in "
                f"it: {dict(self.properties)!r}"
            )

    @classmethod
    def of(
        cls, stored: StoredMessage, *, topic: str, **changes: Unpack[ForwardedChanges]
    ) -> ForwardedMessage:
        """Return *stored* for *topic*; the given values replace its own."""
        values = {name: getattr(stored, name) for name in _FORWARDED}
        return cls(**{**values, "topic": topic, **changes})

    def is_stored_as(self, stored: StoredMessage) -> bool:
        """Return whether *stored* is this message, rather than another one with its unique key.

        A producer makes a unique key again if it runs for over a month, or if its clock is set.
        """
        return all(getattr(stored, name) == getattr(self, name) for name in _IDENTITY)


_FORWARDED = tuple(each.name for each in fields(ForwardedMessage))
_IDENTITY = (
    "born_timestamp_ms",
    "reconsume_times",
    "prepared_transaction_offset",
    "properties",
    "body",
)
"""The fields that are stored as they are given."""
