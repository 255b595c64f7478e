"""Message fields for filters: the tag, keys and properties, taken from named fields of a value.

Filters never read a body. A topic declares which fields of its values become the tag, the business
keys and the properties. A field that is None is absent from the message, because SQL92
distinguishes absent from every value. Fields of a Record type are checked at declaration.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import faust

from rocketray.base.marks import is_refused, refusal
from rocketray.base.property_text import property_text
from rocketray.errors import ConfigError, InvalidMessageError


@dataclass(frozen=True, slots=True)
class MessageFields:
    """Field names: one for the tag, any number for keys and properties."""

    tag: str | None = None
    keys: tuple[str, ...] = ()
    properties: tuple[str, ...] = ()

    def check(self, topic: str, value_type: Any) -> None:
        """Raise :class:`ConfigError` for a field that a Record lacks, or a name of the node's."""
        for name in self.properties:
            if is_refused(name, topic):
                raise ConfigError(f"topic {topic!r}: {refusal(name)}")
        if not (isinstance(value_type, type) and issubclass(value_type, faust.Record)):
            return
        record_type: Any = value_type
        named = [*([self.tag] if self.tag else []), *self.keys, *self.properties]
        if named and record_type.__is_abstract__:
            raise ConfigError(
                f"topic {topic!r}: {value_type.__name__} declares no fields, so it has no "
                f"{named[0]!r}; give a subclass that has"
            )
        # Private, but the only list that has the fields of base classes, too;
        # test_faust_contract.py fails when Faust moves it.
        declared = list(record_type._options.fields or ())  # noqa: SLF001  # contract-tested
        for name in named:
            if name not in declared:
                raise ConfigError(
                    f"topic {topic!r}: {value_type.__name__} has no field {name!r}; "
                    f"it has {', '.join(declared)}"
                )

    def tag_of(self, value: Any) -> str | None:
        """Return the text of the tag's field in *value*; None without such a field."""
        return None if self.tag is None else _text_of(value, self.tag)

    def keys_of(self, value: Any) -> list[str]:
        """Return the business keys in *value*, without those that are absent."""
        if not self.keys:
            return []
        texts = (_text_of(value, name) for name in self.keys)
        return [text for text in texts if text is not None]

    def properties_of(self, value: Any) -> dict[str, str]:
        """Return the properties in *value*, without those that are absent."""
        if not self.properties:
            return {}
        texts = {name: _text_of(value, name) for name in self.properties}
        return {name: text for name, text in texts.items() if text is not None}


def texts(what: str, values: Mapping[str, Any] | Sequence[tuple[str, Any]]) -> dict[str, str]:
    """Return *values*, a mapping or pairs, as properties; absent values are left out."""
    found: dict[str, str] = {}
    for name, value in values.items() if isinstance(values, Mapping) else values:
        text: str | None
        if value.__class__ is str:  # as ``property_text``, in a third of the time
            text = value
        elif value.__class__ is bytes and value.isascii():
            text = value.decode()
        else:
            text = property_text(f"{what} {name!r}", value)
        if text:
            found[name] = text
        else:  # of two of a name the last one counts
            found.pop(name, None)
    return found


def _text_of(value: Any, name: str) -> str | None:
    """Return the text of field *name* of a Record, a mapping or any object with attributes."""
    try:
        field = value[name] if isinstance(value, Mapping) else getattr(value, name)
    except (KeyError, AttributeError):
        if value is None or isinstance(value, Mapping):  # None is a tombstone, without fields
            return None
        raise InvalidMessageError(
            f"the topic takes {name!r} from its values, and a {type(value).__name__} has no such "
            "field; send a value that has it, or give tags=, keys= and properties="
        ) from None
    return property_text(f"field {name!r}", field)
