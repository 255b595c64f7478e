"""The parts of a message that a program sends: their checks, and their stored form.

A part that is valid is passed in a fraction of the time that saying why another one is not takes:
texts that are printable have no separator, no U+0000 and no half of a surrogate pair, and the names
of topics, tags and properties recur. So each check begins with what most messages have, and only
the others are looked at closely.

Limits: body 4 MiB, property string 32,767 bytes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rocketray.errors import InvalidMessageError, MessageTooLargeError

from .marks import (
    CRC_PROPERTY,
    IMPORTED_OFFSET_ID,
    KEYS,
    SHARDING_KEY,
    TAGS,
    UNIQUE_KEY,
    is_refused,
    keyed,
    refusal,
)
from .names import check_topic
from .property_string import NAME_VALUE_SEPARATOR, PROPERTY_SEPARATOR, encode_properties
from .property_text import text_to_give

BODY_MAX_BYTES = 4 * 1024 * 1024  # RocketMQ's maxMessageSize
PROPERTIES_MAX_BYTES = 32_767  # the length field is a signed 16-bit number
JAVA_BLANKS = "".join(map(chr, range(0x21)))
"""U+0000 to U+0020, the characters that Java's ``String.trim`` strips."""
KEY_BLANK = "\u00a0"
"""What a key has for each blank: RocketMQ's form separates keys by blanks."""
UNLIKE_OTHERS = frozenset({CRC_PROPERTY, IMPORTED_OFFSET_ID})
"""Properties that are not stored as they are given: the store's own, and one indexed like a key."""
_BODY_TYPES = (bytes, bytearray, memoryview)
_KNOWN_MAX = 4096  # then a set is emptied: names that are always new take no more
# What was found valid in any message of this process; the checks add to them.
valid_topics: set[str] = set()
valid_tags: set[str] = set()
_valid_names: set[str] = set()
"""Names of properties that a message of any topic may have, and that are stored as given."""


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
        check_text("a key", key)
    return [*map(stored_key, keys)] if has_blanks else keys


def stored_key(key: str) -> str:
    """Return *key* as messages have it: by this form it is stored, indexed and looked up."""
    return key.replace(" ", KEY_BLANK)


def sent_keys(text: str) -> list[str]:
    """Return the business keys that a message with *text* as its keys was sent with, in order."""
    return [key.replace(KEY_BLANK, " ") for key in text.split(" ") if key]


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
        if name in _valid_names and value.__class__ is str and value and value.isprintable():
            continue  # valid, in a third of the time
        _check_property(name, value, topic)
        # The refused ones are valid in the node's own topics only.
        if name not in UNLIKE_OTHERS and not is_refused(name, ""):
            _note(name, _valid_names)


def with_sharding_key(
    properties: Mapping[str, str] | None, sharding_key: str, topic: str
) -> Mapping[str, str]:
    """Return the properties of a message to *topic* with *sharding_key*, which it keeps."""
    if not properties:
        return {SHARDING_KEY: sharding_key}
    check_properties(properties, topic)
    return keyed(properties, sharding_key)


def keys_text(keys: Sequence[str]) -> str:
    """Return the value of the property of *keys*; raise as :func:`check_keys`."""
    if keys.__class__ is str and keys and keys.isprintable() and " " not in keys:
        return keys
    return " ".join(check_keys(keys))


def properties_text(properties: Mapping[str, str], topic: str) -> str:
    """Return the user's part of a property string; raise as :func:`check_properties`."""
    text = ""
    if properties.__class__ is dict:
        for name, value in properties.items():
            if name in _valid_names and value.__class__ is str and value and value.isprintable():
                text = f"{text}{name}\x01{value}\x02"
            else:
                break
        else:
            return text
    check_properties(properties, topic)
    return _stored_text(properties)


def encode_stored(
    topic: str,
    tags: str | None,
    keys: Sequence[str],
    properties: Mapping[str, str],
    unique_key: str | None = None,
) -> bytes:
    """Return the property string, in UTF-8, of a message whose parts were checked.

    The order is: unique key, keys, tags, then the user's properties. Raises as
    :func:`encode_text`.
    """
    text = _stored_text(properties) if properties else ""
    if tags:
        text = f"{TAGS}\x01{tags}\x02{text}"
    if keys:
        text = f"{KEYS}\x01{' '.join(keys)}\x02{text}"
    if unique_key:
        text = f"{UNIQUE_KEY}\x01{unique_key}\x02{text}"
    return encode_text(text, topic)


def encode_text(text: str, topic: str) -> bytes:
    """Return a property string in UTF-8.

    Raises:
        InvalidMessageError: the string is not valid Unicode.
        MessageTooLargeError: the string is over the limit.
    """
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


def check_topic_and_tag(topic: str, tags: str | None) -> None:
    """Raise :class:`InvalidNameError` or :class:`InvalidMessageError` unless both are valid."""
    _note(check_topic(topic), valid_topics)
    if tags is not None:
        check_tag(tags)
        check_text("the tag", tags)
        _note(tags, valid_tags)


def check_text(what: str, text: str) -> None:
    """Raise :class:`InvalidMessageError` if *text* has what separates properties, or U+0000."""
    # U+0000 is what a sector has that a disk did not write.
    if "\0" in text or NAME_VALUE_SEPARATOR in text or PROPERTY_SEPARATOR in text:
        raise InvalidMessageError(
            f"{what} holds U+0000, or U+0001 or U+0002, which separate properties; remove it"
        )


def _stored_text(properties: Mapping[str, str]) -> str:
    if CRC_PROPERTY in properties:  # the store's own property, no longer valid
        properties = {name: properties[name] for name in properties if name != CRC_PROPERTY}
    return encode_properties(properties)


def _note(text: str, known: set[str]) -> None:
    """Keep a text that was found valid."""
    if len(known) >= _KNOWN_MAX:
        known.clear()
    known.add(text)


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
    check_text(f"the name of property {name!r}", name)
    check_text(f"property {name!r}", value)
