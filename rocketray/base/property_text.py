"""The text of a value as a property, a key or a tag: one function for all ways to send.

Filters compare properties as texts and numbers, so a value has one text whichever way it is sent:

    numbers            as in Python, which SQL92 reads back; ``NaN``, ``Infinity`` and ``-Infinity``
    booleans           ``true`` and ``false``
    dates and times    ISO 8601: ``2013-01-02T03:04:00+00:00``
    UUIDs              with hyphens, as JSON has them
    enums              the text of their value
    bytes              UTF-8

None and the empty text are absent: SQL92 distinguishes absent from every value, and RocketMQ's form
has no empty property.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Callable
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any
from uuid import UUID

from rocketray.errors import InvalidMessageError


def property_text(what: str, value: object) -> str | None:
    """Return *value* as the text of a property; None where it is absent.

    Raises:
        InvalidMessageError: it has no text that filters could compare; *what* names it.
    """
    form = _FORMS.get(value.__class__) or _form_of_subclass(value)
    if form is None:
        raise InvalidMessageError(
            f"{what} is a {type(value).__name__}, which filters cannot compare; use a string, a "
            "number, a boolean, a date, a time or a UUID"
        )
    try:
        return form(value) or None
    except UnicodeDecodeError:
        raise InvalidMessageError(
            f"{what} is bytes that are not UTF-8; properties are strings, so encode it first, "
            "for example with base64"
        ) from None


def text_to_give(value: object) -> str:
    """Return what an error says to give in the place of *value*, where only strings are taken."""
    try:
        text = property_text("it", value)
    except InvalidMessageError:
        return "give a string"
    return "leave it out" if text is None else f"give {text!r}"


def _form_of_subclass(value: object) -> Callable[[Any], str | None] | None:
    if isinstance(value, enum.Enum):  # first: it may be a string or a number as well
        return lambda member: property_text("it", member.value)
    return next((form for kind, form in _FORMS.items() if isinstance(value, kind)), None)


def _float_text(value: float) -> str:
    # NaN and infinity minus themselves are NaN, which equals nothing.
    if value - value == 0.0:
        return str(value)
    return "NaN" if math.isnan(value) else _infinity(value)


def _decimal_text(value: Decimal) -> str:
    if value.is_finite():
        return str(value)
    return "NaN" if value.is_nan() else _infinity(value)


def _infinity(value: float | Decimal) -> str:
    """Return the number as Java, and so SQL92, writes it."""
    return "Infinity" if value > 0 else "-Infinity"


_FORMS: dict[type, Callable[[Any], str | None]] = {
    type(None): lambda _: None,
    str: str,
    bool: lambda value: "true" if value else "false",  # before int, of which it is a subclass
    int: str,
    float: _float_text,
    Decimal: _decimal_text,
    UUID: str,
    datetime: datetime.isoformat,
    date: date.isoformat,
    time: time.isoformat,
    bytes: bytes.decode,
}
"""How a value of each type is written; a subclass is written as the first type that it is."""
