"""Conversion between Faust's messages and ours, without loss: keys, values, headers and names.

    key        sharding key and business key, as text; a key that no property can hold (binary,
               or with U+0000 to U+0002 in it) as base64, an empty one as a mark
    value      the body; a null, which deletes its key from a table, is a mark beside an empty body
    headers    properties, which filters can read; others are stored together as a list of pairs
    timestamp  the born timestamp, in milliseconds
    names      RocketMQ's names have no dots, and Faust's do: other characters are written as in a
               URL, ``%2E`` for a dot, and the end of a name that is too long becomes its hash

Marks are properties of their own, so that null, empty and absent stay distinct. Messages of other
producers are read alike: their sharding key is the key, and their properties are headers, except
what the node noted there (base/marks.py). A header with such a name is stored as one that no
property can hold.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any
from urllib.parse import quote
from zlib import crc32

from rocketray.base.marks import (
    FAUST_HEADERS,
    FAUST_KEY,
    FAUST_NULL,
    KEYS,
    LEFT_BEHIND,
    SHARDING_KEY,
    TAGS,
)
from rocketray.base.message_parts import sent_keys
from rocketray.base.message_time import checked_ms
from rocketray.base.names import GROUP_MAX_CHARS, TOPIC_MAX_BYTES
from rocketray.base.property_string import NAME_VALUE_SEPARATOR, PROPERTY_SEPARATOR
from rocketray.errors import InvalidMessageError
from rocketray.hashing import java_hash_code
from rocketray.message import (
    EMPTY_SHARDING_KEY,
    PROPERTIES_MAX_BYTES,
    Message,
    StoredMessage,
)

_BASE64, _EMPTY, _TRUE = "base64", "empty", "true"
EMPTY_KEY = {FAUST_KEY: _EMPTY, SHARDING_KEY: EMPTY_SHARDING_KEY}
"""The properties of a message whose key is empty: no property can be, and absent is no key.

No base64 encodes to this key, and compaction needs one."""
KEY_PROPERTIES = (FAUST_KEY, SHARDING_KEY, KEYS)
_NOT_HEADERS = LEFT_BEHIND | {SHARDING_KEY, FAUST_KEY, KEYS, FAUST_NULL, FAUST_HEADERS}
"""What a node notes about a message is no header, so no stock app sends it on."""
_SAFE = "%|"  # in RocketMQ's names, besides letters, digits, "_" and "-"
# ASCII of so many characters fits: there is at most one separator for each, and three names.
_FITTING_CHARS = PROPERTIES_MAX_BYTES // 2 - 32
_HASH_CHARS = 9  # "-" and the eight hexadecimal digits of a CRC-32

Headers = Mapping[str, Any] | Iterable[tuple[str, Any]]
"""Names with bytes, texts or None."""


def message_of(
    topic: str,
    key: bytes | str | None,
    value: bytes | None,
    headers: Headers | None,
    timestamp_s: float | None,
) -> Message:
    """Return the message that stores a Faust message in the topic stored as *topic*.

    Raises:
        InvalidMessageError: a key or a value is not bytes.
        MessageTooLargeError: the body, or all properties together, exceed their limits.
    """
    if not (value is None or isinstance(value, bytes)):
        raise InvalidMessageError(
            f"topic {topic!r}: the value is a {type(value).__name__} and not bytes; choose a "
            "value_serializer that returns bytes"
        )
    properties, tag = _properties_of(headers)
    key_text = _add_key(topic, key, properties)
    if value is None:
        properties[FAUST_NULL] = _TRUE
    message = Message(
        topic,
        value or b"",
        tags=tag,
        keys=(key_text,) if key_text else (),
        properties=properties,
        born_timestamp_ms=born_ms(timestamp_s, f"topic {topic!r}: timestamp"),
    )
    check_encoding(message)  # now, not in the middle of a batch
    return message


def check_encoding(message: Message) -> None:
    """Raise as its :meth:`~.Message.encoded_properties`; most messages are not encoded for it."""
    names = message.properties
    own = message.tags or "", message.unique_key or ""
    text = "".join([*message.keys, *names, *names.values(), *own])
    if len(text) > _FITTING_CHARS or not text.isascii():
        message.encoded_properties()


def born_ms(timestamp_s: float | None, what: str = "timestamp") -> int | None:
    """Return Faust's timestamp as the born time; raise as :func:`checked_ms`."""
    return None if timestamp_s is None else checked_ms(what, timestamp_s, "seconds")


def parts_of(
    message: StoredMessage,
) -> tuple[bytes | None, bytes | None, list[tuple[str, bytes | None]]]:
    """Return key, value and headers of a stored message."""
    properties = message.properties
    value = None if FAUST_NULL in properties and not message.body else message.body
    headers: list[tuple[str, bytes | None]] = [
        (name, text.encode()) for name, text in properties.items() if name not in _NOT_HEADERS
    ]
    if FAUST_HEADERS in properties:
        headers += [
            (name, _from_base64(text)) for name, text in json.loads(properties[FAUST_HEADERS])
        ]
    return key_of(properties), value, headers


def key_hash(key: bytes | str) -> int:
    """Return the hash that chooses a key's queue: the one all producers use, so equal keys meet."""
    data = key.encode() if isinstance(key, str) else key
    # The text that ``_add_key`` stores as the sharding key; base64 of an empty key is empty, too.
    return java_hash_code(utf8_text(data) or _to_base64(data) or EMPTY_SHARDING_KEY)


# Asked at each send and each read of a stock app.
@lru_cache(maxsize=4096)
def topic_name(name: str) -> str:
    """Return the name under which Faust's topic *name* is stored."""
    return _stored_name(name, TOPIC_MAX_BYTES)


def group_name(app_id: str) -> str:
    return _stored_name(app_id, GROUP_MAX_CHARS)


def _stored_name(name: str, limit: int) -> str:
    # ``quote`` leaves "." and "~" alone, whatever ``safe`` says.
    stored = quote(name, safe=_SAFE).replace(".", "%2E").replace("~", "%7E")
    if len(stored) <= limit:
        return stored
    # The hash is of the whole name, so two long names with the same beginning stay apart.
    return f"{stored[: limit - _HASH_CHARS]}-{crc32(name.encode()):08x}"


def _add_key(topic: str, key: bytes | str | None, properties: dict[str, str]) -> str | None:
    """Write *key* into *properties*; return its text, if a property can hold it."""
    if key is None:
        return None
    if not isinstance(key, (bytes, str)):
        raise InvalidMessageError(
            f"topic {topic!r}: the key is a {type(key).__name__} and not bytes; choose a "
            "key_serializer that returns bytes"
        )
    data = key.encode() if isinstance(key, str) else key
    text = utf8_text(data)
    if not data:
        properties |= EMPTY_KEY
    elif text is None:
        properties[FAUST_KEY], properties[SHARDING_KEY] = _BASE64, _to_base64(data)
    else:
        properties[SHARDING_KEY] = text
    return text


def key_of(properties: Mapping[str, str]) -> bytes | None:
    """Return the sharding key of a message with *properties*, as it was sent."""
    return _sharding_key(properties.get(FAUST_KEY), properties.get(SHARDING_KEY))


def message_key(form: str | None, sharding_key: str | None, keys: str | None) -> bytes | None:
    """Return the key of a message with these ``KEY_PROPERTIES``, in Faust's sense.

    It is the sharding key, as it was sent, else the first business key.
    """
    key = _sharding_key(form, sharding_key)
    if key is not None or keys is None:
        return key
    first = next(iter(sent_keys(keys)), None)
    return None if first is None else first.encode()


def _sharding_key(form: str | None, text: str | None) -> bytes | None:
    if form == _EMPTY:
        return b""
    if text is None:
        return None
    return _from_base64(text) if form == _BASE64 else text.encode()


def _properties_of(headers: Headers | None) -> tuple[dict[str, str], str | None]:
    """Return the properties that hold *headers*, and the tag among them."""
    pairs = list(headers.items() if isinstance(headers, Mapping) else headers or ())
    properties: dict[str, str] = {}
    others: list[tuple[str, str | None]] = []
    tag = None
    for name, value in pairs:
        data = value.encode() if isinstance(value, str) else value
        text = None if data is None else utf8_text(data)
        if name == TAGS and text is not None and tag is None:
            tag = text
        elif (
            text is None
            or name in properties
            or name in _NOT_HEADERS
            or not utf8_text(name.encode())
        ):
            others.append((name, None if data is None else _to_base64(data)))
        else:
            properties[name] = text
    if others:
        properties[FAUST_HEADERS] = json.dumps(others)
    return properties, tag


def utf8_text(data: bytes) -> str | None:
    """Return *data* as the text of a property; None when no property can hold it."""
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return None
    if not text or any(one in text for one in ("\0", NAME_VALUE_SEPARATOR, PROPERTY_SEPARATOR)):
        return None
    return text


def _to_base64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _from_base64(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text)
