"""JSON that is written is JSON, and JSON that is read is what ``json.loads`` reads."""

from __future__ import annotations

import dataclasses
import enum
import json
import math
from collections import Counter
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

import faust
import orjson
import pytest
from faust.agents.models import ModelReqRepResponse, ReqRepResponse
from hypothesis import example, given
from hypothesis import strategies as st

from rocketray.errors import InvalidMessageError
from rocketray.topology.values.exact_json import dumps, loads

WIDE = 123456789012345678901234567890
ID = UUID(int=7)


class Level(enum.IntEnum):
    HIGH = 2**70


class Inner(faust.Record):  # type: ignore[misc]  # Faust's types are not followed
    temp: float
    note: str | None = None


class Outer(faust.Record):  # type: ignore[misc]  # as above
    inner: Inner
    items: list[float]


@dataclasses.dataclass
class Point:
    x: int
    _hidden: int = 0


@pytest.mark.proves("faust", "JSON: differs")
@pytest.mark.parametrize(
    "value",
    [
        *(None, True, 0, -1, 1.5, "", "é", [], {}, {"a": [1, None, {"b": 2.0}]}),
        *(2**63 - 1, 2**63, 2**64 - 1, 2**64, -(2**63), -(2**63) - 1, WIDE, -WIDE, 10**400),
        *([WIDE], {"a": {"b": [WIDE, 1, None]}}, {"n": 1790000000000000000, "w": WIDE}),
        *("\ud83d", {"\ud83d": 1}, {"a": ["x\udc00y", WIDE]}),
        *(1e300, 1e22, 2.0**64, -(2.0**63), 5e-324, 0.1234567890123456789),
        {"text": "12345678901234567890123", "null": "null"},
    ],
)
def test_what_is_sent_is_received(value: object) -> None:
    body = dumps(value)
    assert loads(body) == value == json.loads(body)
    assert repr(loads(body)) == repr(value)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (math.nan, "the value is nan: it has no form in JSON"),
        ({"temp": math.inf}, "field 'temp' is inf"),
        ({"a": [1.0, {"b": -math.inf}]}, r"field 'a\[1\].b' is -inf"),
        (Outer(inner=Inner(temp=math.nan), items=[]), "field 'inner.temp' is nan"),
        (Outer(inner=Inner(temp=1.0), items=[math.nan]), r"field 'items\[0\]' is nan"),
        ({math.nan: 1}, "a key of the value is nan"),
        ({"a": {(1, 2): 1}}, "a key of a is a tuple: keys in JSON are texts"),
        ({"price": Decimal("NaN")}, r"field 'price' is Decimal\('NaN'\): it has no form"),
        ({"raw": b"x"}, "field 'raw' is a bytes: bytes have no form in JSON"),
        ({"it": object(), "w": WIDE}, "field 'it' is a object: JSON cannot serialize 'object'"),
        ({"n": 10**5000}, "field 'n' is a int: it has too many digits"),
        ((1, {"x": {math.inf}}), r"field '\[1\].x\[0\]' is inf"),
    ],
)
def test_what_json_cannot_write_is_refused_with_its_field(value: Any, text: str) -> None:
    is_record = isinstance(value, faust.Record)
    with pytest.raises(InvalidMessageError, match=text):
        value.dumps(serializer="json") if is_record else dumps(value)


def test_a_value_that_contains_itself_is_refused() -> None:
    value: dict[str, Any] = {}
    value["it"] = value
    with pytest.raises(InvalidMessageError, match="nested too deeply, or contains itself"):
        dumps(value)


@pytest.mark.parametrize(
    "value",
    [
        *(ID, date(2013, 1, 2), time(3, 4), datetime(2013, 1, 2, tzinfo=UTC), Decimal("1.10")),
        *((1, 2), [(1, (2,))], Counter("aab"), Point(1), {7: "a", True: 2, None: 3, ID: 4}),
    ],
)
def test_the_slow_form_is_the_fast_one(value: object) -> None:
    slow = dumps([WIDE, value])
    assert slow == b"[%d," % WIDE + dumps(value) + b"]"


@given(
    st.times(timezones=st.none() | st.just(UTC))
    | st.dates()
    | st.datetimes(timezones=st.none() | st.sampled_from([UTC, timezone(-timedelta(hours=23.5))]))
)
@example(time(0, 0, 0, 10_000))
@example(time(1, 2, 3, 12_345))
@example(datetime(1, 1, 1, 0, 0, 0, 10_000, tzinfo=UTC))
def test_a_time_is_written_in_iso_8601_wherever_it_stands(value: date | time) -> None:
    text = value.isoformat()
    if isinstance(value, datetime):
        text = text.replace("+00:00", "Z")
        assert dumps(value) == orjson.dumps(value, option=orjson.OPT_UTC_Z), "as Faust writes it"
    assert loads(dumps(value)) == text
    assert loads(dumps({"a": [value], "b": WIDE})) == {"a": [text], "b": WIDE}
    assert loads(dumps({value: 1})) == {text: 1}
    assert loads(dumps({value: WIDE, "b": None})) == {text: WIDE, "b": None}


def test_a_zone_with_seconds_is_refused() -> None:
    """Amsterdam was 19 minutes and 32 seconds ahead; orjson rounds, and few readers know more."""
    at = datetime(1930, 1, 1, tzinfo=ZoneInfo("Europe/Amsterdam"))
    for value, place in (({"at": at}, "field 'at'"), ([at, WIDE], r"field '\[0\]'")):
        with pytest.raises(InvalidMessageError, match=rf"{place} .*; send value.astimezone\(UTC"):
            dumps(value)
    with pytest.raises(InvalidMessageError, match="a key of the value is a datetime: its zone"):
        dumps({at: 1})
    assert loads(dumps(at.astimezone(UTC))) == "1929-12-31T23:40:28Z"


def test_forms_that_only_the_slow_way_has() -> None:
    assert dumps(time(3, 4, tzinfo=UTC)) == b'"03:04:00+00:00"'
    assert loads(dumps({Level.HIGH: Level.HIGH})) == {str(2**70): 2**70}


@pytest.mark.proves("producers", "JSON of others is read as the standard library reads it")
@pytest.mark.parametrize(
    "body",
    [
        *(b"NaN", b"[Infinity, -Infinity]", b"1e400", b'"\\ud83d"', b'{"a": "\\udc00x"}'),
        *('{"é": 1}'.encode("utf-16"), b'\xef\xbb\xbf{"a": 1}', b"-0", b"1E5", b" [1] "),
        *(b"18446744073709551616", b"-9223372036854775809", b"[1,123456789012345678901234]"),
        *(b'{"a": 12345678901234567890.0}', b'{"a": 123456789012345678901e3}'),
    ],
)
def test_json_of_others_is_read_as_the_standard_library_reads_it(body: bytes) -> None:
    assert repr(loads(body)) == repr(json.loads(body))


@pytest.mark.parametrize("shift", range(40))
def test_a_wide_number_is_found_wherever_it_stands(shift: int) -> None:
    for number in (WIDE, 2**64, -(2**63) - 1):
        body = b" " * shift + b'{"n": %d}' % number
        assert loads(body) == {"n": number}


@pytest.mark.parametrize("body", [b" ", b"{", b"\xff", b"nan", b"[" * 100_000])
def test_what_neither_reads_is_refused_as_orjson_says(body: bytes) -> None:
    with pytest.raises(orjson.JSONDecodeError):
        loads(body)


def test_an_empty_body_is_null() -> None:
    assert loads(b"") is None


def test_records_are_read_and_written_so_without_a_topic() -> None:
    record = Inner(temp=1.0, note="\ud83d")
    assert Inner.loads(record.dumps(serializer="json"), serializer="json") == record


@pytest.mark.parametrize("kind", [ReqRepResponse, ModelReqRepResponse])
def test_an_answer_of_an_agent_has_the_key_of_its_request_as_a_text(kind: Any) -> None:
    """Faust reads it nowhere; a stock app's agents answer with this codec as well."""
    answer = kind(key=b"k\xff", value=3, correlation_id="c")
    assert loads(answer.dumps(serializer="json"))["key"] == "k\N{REPLACEMENT CHARACTER}"
