"""Messages: what a producer sends, and what a store holds.

Limits: body 4 MiB, property string 32,767 bytes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, NewType, Self, TypedDict, Unpack, cast, final

from .base.marks import (
    CRC_PROPERTY,
    IMPORTED_OFFSET_ID,
    KEYS,
    OF_THE_KEY,
    SHARDING_KEY,
    TAGS,
    UNIQUE_KEY,
    is_refused,
    keyed,
    refusal,
    taken_on,
)
from .base.message_time import checked_ms
from .base.names import check_topic
from .base.property_string import (
    NAME_VALUE_SEPARATOR,
    PROPERTY_SEPARATOR,
    decode_properties,
    encode_properties,
    paired,
)
from .base.property_text import text_to_give
from .errors import InvalidMessageError, MessageTooLargeError

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
BODY_MAX_BYTES = 4 * 1024 * 1024  # RocketMQ's maxMessageSize
PROPERTIES_MAX_BYTES = 32_767  # the length field is a signed 16-bit number
_KEY_BLANK = "\u00a0"  # what a key has for each blank: RocketMQ's form separates keys by blanks
JAVA_BLANKS = "".join(map(chr, range(0x21)))
"""U+0000 to U+0020, the characters that Java's ``String.trim`` strips."""
_BODY_TYPES = (bytes, bytearray, memoryview)
_NO_KEYS: Sequence[str] = ()
_CHECKED_MAX = 4096  # then the sets are emptied: names that are always new take no more
_checked: set[tuple[str, str | None]] = set()  # topics with tags that were found valid
_checked_names: set[str] = set()  # names of properties that were found valid


def encode_stored(
    topic: str,
    tags: str | None,
    keys: Sequence[str],
    properties: Mapping[str, str],
    unique_key: str | None = None,
) -> bytes:
    """Return the property string, in UTF-8, of a message whose parts were checked.

    The order is: unique key, keys, tags, then the user's properties.

    Raises:
        InvalidMessageError: the string is not valid Unicode.
        MessageTooLargeError: the string is over the limit.
    """
    if CRC_PROPERTY in properties:  # the store's own property, no longer valid
        properties = {name: properties[name] for name in properties if name != CRC_PROPERTY}
    text = encode_properties(properties) if properties else ""
    if tags:
        text = f"{TAGS}\x01{tags}\x02{text}"
    if keys:
        text = f"{KEYS}\x01{' '.join(keys)}\x02{text}"
    if unique_key:
        text = f"{UNIQUE_KEY}\x01{unique_key}\x02{text}"
    try:
        encoded = text.encode()
    except UnicodeEncodeError as error:
        raise InvalidMessageError(
            f"topic {topic!r}: a property, tag or key is not valid Unicode: {error}"
        ) from None
    if len(encoded) > PROPERTIES_MAX_BYTES:
        raise MessageTooLargeError(
            f"topic {topic!r}: a property string", len(encoded), PROPERTIES_MAX_BYTES
        )
    return encoded


def check_body(topic: str, body: bytes | bytearray | memoryview) -> None:
    """Raise for an invalid body: :class:`InvalidMessageError`, :class:`MessageTooLargeError`."""
    if not isinstance(body, _BODY_TYPES):
        raise InvalidMessageError(
            f"topic {topic!r}: the body is a {type(body).__name__}; encode it to bytes first"
        )
    size = body.nbytes if isinstance(body, memoryview) else len(body)
    if size > BODY_MAX_BYTES:
        raise MessageTooLargeError(f"topic {topic!r}: a body", size, BODY_MAX_BYTES)


def check_tag(tag: str) -> str:
    """Return *tag*, or raise :class:`InvalidMessageError` when no subscription could match it."""
    if not isinstance(tag, str):
        raise InvalidMessageError(
            f"the tag is {tag!r:.60}; a message has one tag, a string, or none: give tags='pay'"
        )
    if not tag or tag == "*" or "||" in tag or tag != tag.strip(JAVA_BLANKS):
        raise InvalidMessageError(
            f"tag {tag!r} can never be matched exactly: a tag is not empty, not '*', has no '||' "
            "and no spaces around it; send the message without a tag or change it"
        )
    return tag


def check_keys(keys: Sequence[str]) -> Sequence[str]:
    """Return *keys* in stored form; raise if one could not be looked up, or may be several."""
    if keys.__class__ is not list and keys.__class__ is not tuple:
        if isinstance(keys, str):
            if " " in keys:
                raise InvalidMessageError(
                    f"keys={keys!r:.80} may be one key or several, as RocketMQ separates them by "
                    f"blanks; give a list: {[keys]!r:.80} or {keys.split()!r:.80}"
                )
            keys = (keys,)
        elif not isinstance(keys, Sequence):
            raise InvalidMessageError(
                f"keys is {keys!r:.60}; give a list of strings, or one string"
            )
    has_blanks = False
    for key in keys:
        if key.__class__ is str and key and key.isprintable() and " " not in key:
            continue  # valid, in a third of the time
        if not isinstance(key, str):
            raise InvalidMessageError(f"key {key!r:.60} is not a string; {text_to_give(key)}")
        if not key:
            raise InvalidMessageError(
                "a key is empty, so it could never be looked up; leave it out"
            )
        has_blanks = has_blanks or " " in key
        _check_text("a key", key)
    return [*map(stored_key, keys)] if has_blanks else keys


def stored_key(key: str) -> str:
    """Return *key* as messages have it: by this form it is stored, indexed and looked up."""
    return key.replace(" ", _KEY_BLANK)


def sent_keys(text: str) -> list[str]:
    """Return the business keys that a message with *text* as its keys was sent with, in order."""
    return [key.replace(_KEY_BLANK, " ") for key in text.split(" ") if key]


def check_properties(properties: Mapping[str, str], topic: str) -> None:
    """Raise :class:`InvalidMessageError` when a property could not be read back, or is the node's.

    In *topic*, if that is one of its own, the node's properties are allowed.
    """
    if properties.__class__ is not dict and not isinstance(properties, Mapping):
        raise InvalidMessageError(
            f"properties is {properties!r:.60}; give a mapping of strings, such as "
            f"{{'region': 'eu'}}"
        )
    for name, value in properties.items():
        if name in _checked_names and value.__class__ is str and value and value.isprintable():
            continue  # valid, in a third of the time
        _check_property(name, value, topic)
        if is_refused(name, ""):
            continue  # it is valid in the node's own topics only
        if len(_checked_names) >= _CHECKED_MAX:
            _checked_names.clear()
        _checked_names.add(name)


def with_sharding_key(
    properties: Mapping[str, str] | None, sharding_key: str, topic: str
) -> Mapping[str, str]:
    """Return the properties of a message to *topic* with *sharding_key*, which it keeps."""
    if not properties:
        return {SHARDING_KEY: sharding_key}
    check_properties(properties, topic)
    return keyed(properties, sharding_key)


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
        try:
            is_checked = (topic, tags) in _checked
        except TypeError:  # one cannot be hashed, so it is no text
            is_checked = False
        if not is_checked:
            _check_topic_and_tag(topic, tags)
        if body.__class__ is not bytes or len(body) > BODY_MAX_BYTES:
            check_body(topic, body)
        if unique_key is not None:
            _check_text("the unique key", unique_key)
        if keys is not _NO_KEYS:
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
        return cast("Self", made)

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


def _has_separator(text: str) -> bool:
    return NAME_VALUE_SEPARATOR in text or PROPERTY_SEPARATOR in text


def _is_refused(text: str) -> bool:
    """Return whether it has a separator, or U+0000, as a sector that a disk did not write has."""
    return "\0" in text or _has_separator(text)


def _check_topic_and_tag(topic: str, tags: str | None) -> None:
    check_topic(topic)
    if tags is not None:
        check_tag(tags)
        _check_text("the tag", tags)
    if len(_checked) >= _CHECKED_MAX:
        _checked.clear()
    _checked.add((topic, tags))


def _check_property(name: str, value: str, topic: str) -> None:
    if not isinstance(name, str):
        raise InvalidMessageError(
            f"the name of property {name!r:.60} is not a string; give a string"
        )
    if is_refused(name, topic):
        raise InvalidMessageError(refusal(name))
    if not isinstance(value, str):
        raise InvalidMessageError(
            f"property {name!r} is a {type(value).__name__}; properties are strings, and "
            f"absent if there is no value: {text_to_give(value)}"
        )
    if not name or not value:
        raise InvalidMessageError(
            f"property {name!r}={value!r} has an empty name or value, which readers cannot see; "
            "leave it out"
        )
    if _is_refused(name + value):
        _check_text(f"the name of property {name!r}", name)
        _check_text(f"property {name!r}", value)


def _check_text(what: str, text: str) -> None:
    if _is_refused(text):
        raise InvalidMessageError(
            f"{what} holds U+0000, or U+0001 or U+0002, which separate properties; remove it"
        )
