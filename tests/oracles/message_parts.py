"""The texts of ``rocketray/base/message_parts.py`` in plain steps: first all checks, then the text.

A part that is refused raises ValueError.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rocketray.base.marks import CRC_PROPERTY, refused_names


def keys_text(keys: Sequence[object]) -> str:
    """The value of the property of the keys: with blanks between them, and none in them."""
    found = [keys] if isinstance(keys, str) else list(keys)
    if isinstance(keys, str) and " " in keys:
        raise ValueError("one key, or several?")
    return " ".join(_text(key).replace(" ", "\u00a0") for key in found)


def properties_text(properties: Mapping[object, object], topic: str) -> str:
    """The properties of the user as pairs, without the one that only the store writes."""
    pairs = [(_text(name), _text(value)) for name, value in properties.items()]
    if refused_names(topic).intersection(name for name, _ in pairs):
        raise ValueError("a property of the node's")
    return "".join(f"{name}\x01{value}\x02" for name, value in pairs if name != CRC_PROPERTY)


def _text(part: object) -> str:
    if not isinstance(part, str) or not part or {"\0", "\1", "\2"} & {*part}:
        raise ValueError(part)
    return part
