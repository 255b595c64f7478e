"""Values as JSON, and back, exactly: nothing becomes another value without an error.

orjson does the work, and its limits do not become the format's:

    written   JSON that every parser reads. Whole numbers of any width and lone surrogates, which
              orjson refuses, are written by ``_text``. NaN and infinities, for which orjson writes
              null, have no form in JSON and are refused, as are bytes and decimals that are not
              finite; the error names the field. Times are not left to orjson (3.13), which writes
              10 to 99 milliseconds of a time of day with five digits, so as ten times as many, and
              rounds the zones of before 1972 to whole minutes.
    read      all that ``json.loads`` reads: NaN, lone surrogates, UTF-16 and the other forms that
              orjson refuses, and whole numbers beyond 64 bits, which orjson rounds to doubles

An ordinary value costs orjson's call and one look over its bytes: a NaN can only hide where a null
was written, and a wide number only where 19 digits follow each other. A time costs a Python call.

Importing this module makes these functions Faust's codec ``json``: of topics, keys, tables,
``Record.dumps`` and ``Record.loads``.
"""

from __future__ import annotations

import dataclasses
import enum
import json
import math
import re
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any, NoReturn
from uuid import UUID

import orjson
from faust.agents.models import ModelReqRepResponse, ReqRepResponse
from faust.serializers import codecs
from faust.utils.json import on_default
from mode.utils.text import want_bytes

from rocketray.errors import InvalidMessageError

_OPTIONS = orjson.OPT_PASSTHROUGH_DATETIME  # but for times, as Faust writes
_OTHER_KEYS = _OPTIONS | orjson.OPT_NON_STR_KEYS | orjson.OPT_UTC_Z  # keys that are times: orjson's
# A key that orjson may have written as another time: one of five digits, or with a zone.
_other_time = re.compile(rb'(?::[0-9]{2}\.[0-9]{5}|[+-][0-9]{2}:[0-9]{2})":').search
_WIDE_DIGITS = 19  # 2**63 has 19 digits, so no shorter number needs more than 64 bits
# Maps every digit to "0", and all else to a blank: one search then finds 19 digits in a row.
_TO_ZEROS = bytes(0x30 if 0x30 <= code <= 0x39 else 0x20 for code in range(256))
_ZEROS = b"0" * _WIDE_DIGITS
_wide_number = re.compile(rb"[0-9]{20}|-[0-9]{19}").search  # unsigned, 19 digits fit in 64 bits
_ANSWERS = [
    {"ns": kind._options.namespace}  # noqa: SLF001  # as Faust writes it
    for kind in (ReqRepResponse, ModelReqRepResponse)
]
_MINUTE = timedelta(minutes=1)
_TIMES = (date, time)  # a datetime is a date
_EXACT_ZONES = (None, UTC)
# Exact types, of which no value hides a number that is not finite, nor contains another value.
_PLAIN = frozenset((str, int, bool, type(None)))
# The keys that orjson takes with OPT_NON_STR_KEYS; the slow path must accept no more and no less.
_KEYS = (str, int, float, enum.Enum, datetime, date, time, UUID)


class _ExactJson(codecs.json):  # type: ignore[misc]  # Faust's types are not followed
    """Faust's codec ``json`` with the functions of this module."""

    def _loads(self, s: bytes) -> Any:
        return loads(want_bytes(s))

    def _dumps(self, s: Any) -> bytes:
        return dumps(s)


def is_codec(codec: Any) -> bool:
    """Return whether *codec* of Faust's does what :func:`dumps` and :func:`loads` do."""
    return type(codec) is _ExactJson


def loads(body: bytes) -> Any:
    """Return the value of a JSON text, as ``json.loads`` reads it; None of an empty body.

    An empty body is a null of other systems: it deletes its key, as a body ``null`` does.

    Raises:
        ValueError: neither parser reads it.
    """
    try:
        value = orjson.loads(body)
    except ValueError as error:
        return _loads_slowly(body, error)
    # The two byte operations are much cheaper than the pattern, which runs only for a long row of
    # digits; ``find`` is a quarter faster than ``in``.
    if body.translate(_TO_ZEROS).find(_ZEROS) >= 0 and _wide_number(body):
        return json.loads(body)
    return value


def _loads_slowly(body: bytes, refused: ValueError) -> Any:
    if not body:
        return None
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        # orjson's error, also where ``json.loads`` ended in a RecursionError, which callers do not
        # expect.
        raise refused from None


def dumps(value: Any) -> bytes:
    """Return *value* as JSON from which :func:`loads` makes it again.

    Types without a form of their own are written as Faust does: times as ISO 8601, UUIDs and
    decimals as texts, sets and tuples as arrays, and come back as such.

    Raises:
        InvalidMessageError: a part of it has no form in JSON; the error names the field.
    """
    try:
        body: bytes = orjson.dumps(value, default=_default, option=_OPTIONS)
    except TypeError:
        return _with_other_keys(value)
    if body.find(b"null") >= 0 and _may_hide(value):
        return _whole_text(value)
    return body


def _default(value: Any) -> Any:
    """Return what is written for a *value* of a type that JSON does not have."""
    if isinstance(value, _TIMES):
        return _time_text(value)
    if isinstance(value, bytes | bytearray | memoryview):
        raise TypeError("bytes have no form in JSON; encode them to a text, for example base64")
    if isinstance(value, Decimal) and not value.is_finite():
        raise TypeError("it has no form in JSON; leave the field None, or send a text")
    return on_default(value)


def _time_text(value: date | time) -> str:
    """Return a time in ISO 8601, as orjson writes it where that is the same time."""
    if value.__class__ is datetime and value.tzinfo in _EXACT_ZONES:
        return orjson.dumps(value, option=orjson.OPT_UTC_Z)[1:-1].decode()  # in a third of the time
    text = value.isoformat()
    if not isinstance(value, datetime):
        return text
    if text[-6:] == "+00:00":
        return text[:-6] + "Z"
    offset = value.utcoffset()
    if offset is not None and offset % _MINUTE:
        raise TypeError(
            "its zone is not a whole number of minutes from UTC, which few readers know; send "
            "value.astimezone(UTC)"
        )
    return text


def _with_other_keys(value: Any) -> bytes:
    """Return *value* as JSON; some of its keys are no texts, or orjson refuses another part."""
    try:
        body: bytes = orjson.dumps(value, default=_default, option=_OTHER_KEYS)
    except TypeError:
        return _whole_text(_with_text_key(value))
    if body.find(b"null") >= 0 and _may_hide(value):
        return _whole_text(value)
    # Most keys are numbers without any of these, which costs less to see than the pattern.
    may_be_time = b"." in body or b"+" in body or b"-" in body
    return _whole_text(value) if may_be_time and _other_time(body) else body


def _with_text_key(value: Any) -> Any:
    """Return an answer of one of Faust's agents with its key as a text; all else as it is.

    Faust repeats there the key of the request, which are bytes, and reads it nowhere.
    """
    if not (isinstance(value, dict) and isinstance(value.get("key"), bytes)):
        return value
    if value.get("__faust") not in _ANSWERS:
        return value
    return {**value, "key": value["key"].decode(errors="replace")}


def _may_hide(value: Any) -> bool:
    """Return whether a null in the JSON of *value* may stand for a number that is not finite."""
    kind = value.__class__
    if kind is float:
        # The difference is NaN for NaN and for both infinities, and NaN differs from everything.
        return bool(value - value != 0.0)
    if kind is dict:
        for key, item in value.items():
            # A key of another type may be such a number itself, so it always takes the slow path.
            if key.__class__ is not str or (item.__class__ not in _PLAIN and _may_hide(item)):
                return True
        return False
    if kind is list or kind is tuple:
        return any(item.__class__ not in _PLAIN and _may_hide(item) for item in value)
    if kind in _PLAIN:
        return False
    return not hasattr(value, "__json__") or _may_hide(value.__json__())


def _whole_text(value: Any) -> bytes:
    try:
        return _text(value, "").encode()
    except RecursionError:
        raise InvalidMessageError(
            "the value is nested too deeply, or contains itself, which JSON cannot; send less"
        ) from None


def _text(value: Any, place: str) -> str:  # noqa: C901, PLR0911  # one line a type
    """Return *value* as JSON; *place* is its path in the whole value, for errors."""
    if value is None or value is True or value is False:
        return {None: "null", True: "true", False: "false"}[value]
    # Before str and int, from which an Enum may be derived: its ``repr`` would be written.
    if isinstance(value, enum.Enum):
        return _text(value.value, place)
    if isinstance(value, str):
        return _string(str(value))
    if isinstance(value, int):
        return _whole_number(value, place)
    if isinstance(value, float):
        if not math.isfinite(value):
            _refuse(value, place, "it has no form in JSON; leave the field None, or send a text")
        return orjson.dumps(float(value)).decode()
    if isinstance(value, dict):
        pairs = (
            f"{_key(key, place)}:{_text(item, f'{place}.{key}' if place else str(key))}"
            for key, item in value.items()
        )
        return f"{{{','.join(pairs)}}}"
    if isinstance(value, list | tuple):
        return f"[{','.join(_text(item, f'{place}[{n}]') for n, item in enumerate(value))}]"
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        # orjson leaves out fields with an underscore, too.
        names = [field.name for field in dataclasses.fields(value) if field.name[0] != "_"]
        return _text({name: getattr(value, name) for name in names}, place)
    try:
        written = _default(value)
    except TypeError as error:
        _refuse(value, place, str(error))
    return _text(written, place)


def _string(text: str) -> str:
    try:
        return orjson.dumps(text).decode()
    except TypeError:  # a lone surrogate, which only an escape can write
        return json.dumps(text)


def _whole_number(value: int, place: str) -> str:
    try:
        # Not ``repr``: a subclass of int may have one of its own.
        return int.__repr__(value)
    except ValueError as error:  # thousands of digits, which json.loads refuses as well
        _refuse(value, place, f"it has too many digits: {error}")


def _key(key: Any, place: str) -> str:
    """Return *key* as the name of a member: a text, whatever it is."""
    what = f"a key of {place or 'the value'}"
    if not (key is None or isinstance(key, _KEYS)):
        _refuse(key, what, "keys in JSON are texts")
    text = _text(key, what)
    return text if text.startswith('"') else f'"{text}"'


def _refuse(value: Any, place: str, why: str) -> NoReturn:
    what = "the value" if not place else place if " " in place else f"field {place!r}"
    kind = type(value).__name__
    shown = f"{value!r}" if isinstance(value, float | Decimal) else f"a {kind}"
    raise InvalidMessageError(f"{what} is {shown}: {why}")


# Replaces Faust's codec of that name, for all apps of the process.
codecs.register("json", _ExactJson())
