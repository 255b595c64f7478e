"""The properties of a message as one string: ``name 0x01 value 0x02`` pairs.

The decoder is RocketMQ's: it accepts a missing last separator, drops pairs with an empty name or
value, splits a pair at its first 0x01, and keeps the last duplicate.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from .marks import CRC_PROPERTY

NAME_VALUE_SEPARATOR = "\x01"
PROPERTY_SEPARATOR = "\x02"
_ENCODED_SURROGATE = re.compile(rb"\xed[\xa0-\xbf][\x80-\xbf]?")  # 0xED always begins a character
_REPLACEMENT = "\ufffd".encode()


def encode_properties(properties: Mapping[str, str]) -> str:
    """Return the property string of *properties*, with 0x02 after every pair."""
    return "".join([f"{name}\x01{value}\x02" for name, value in properties.items()])


def decode_text(data: bytes) -> str:
    """Decode UTF-8 as Java's decoder does: U+FFFD for each invalid part.

    Python's decoder replaces the same parts with one exception: Java reads a surrogate in three
    bytes as one U+FFFD, and likewise the first two bytes of one that is cut short.
    """
    try:
        return data.decode()
    except UnicodeDecodeError:
        return _ENCODED_SURROGATE.sub(_REPLACEMENT, data).decode("utf-8", "replace")


def decode_properties(text: str | bytes) -> dict[str, str]:
    """Return the properties in a property string, by RocketMQ's rules (see the top of the file).

    The CRC property is not among them.
    """
    if not isinstance(text, str):
        text = decode_text(text)
    properties: dict[str, str] = {}
    for pair in text.split(PROPERTY_SEPARATOR):
        name, separator, value = pair.partition(NAME_VALUE_SEPARATOR)
        if separator and name and value:
            properties[name] = value
    properties.pop(CRC_PROPERTY, None)  # the store's own, not the message's
    return properties


def paired(pairs: bytes) -> dict[str, str]:
    """Return the same for a string without the CRC property, in which each pair is whole."""
    texts = iter(decode_text(pairs).replace("\x02", "\x01").split("\x01"))
    return dict(zip(texts, texts))  # noqa: B905 - behind the last separator is an empty text


def encoded_values(string: bytes) -> dict[str, bytes]:
    """Return the properties in a stored string as :func:`decode_properties`, values in UTF-8."""
    if not string.isascii():
        string = decode_text(string).encode()
    values: dict[str, bytes] = {}
    for pair in string.split(b"\x02"):
        name, _, value = pair.partition(b"\x01")
        if name and value:
            values[name.decode()] = value
    values.pop(CRC_PROPERTY, None)
    return values
