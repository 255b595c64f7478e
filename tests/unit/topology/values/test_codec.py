from __future__ import annotations

from typing import Any

import faust
import pytest
from faust.serializers.codecs import get_codec

from rocketray.errors import ConfigError
from rocketray.topology.app.app import App
from rocketray.topology.values.codec import make_decoder, refuse_pickle


class Point(faust.Record):  # type: ignore[misc]  # Faust's types are not followed
    x: int
    y: int = 0


class Doubling(faust.Schema):  # type: ignore[misc]  # as above
    def loads_value(self, app: Any, message: Any, **_options: Any) -> Any:
        return message.value * 2


def decode(body: bytes, **options: Any) -> Any:
    app = App("app")
    decoder = make_decoder(app, app.topic("T", **options))
    return body if decoder is None else decoder(body)


def test_raw_bodies_are_not_touched() -> None:
    app = App("app")
    assert make_decoder(app, app.topic("T", value_serializer="raw")) is None
    assert make_decoder(app, app.topic("T", value_type=bytes)) is None
    assert decode(b"{", value_type=str) == "{"


@pytest.mark.parametrize(
    ("body", "value"), [(b'{"a": [1, null]}', {"a": [1, None]}), (b"3", 3), (b"[1]", [1])]
)
def test_json(body: bytes, value: object) -> None:
    assert decode(body) == value


def test_json_that_names_its_model() -> None:
    body = Point(x=1, y=2).dumps(serializer="json")
    assert decode(body) == Point(x=1, y=2)


def test_records_and_scalars() -> None:
    assert decode(b'{"x": 1}', value_type=Point) == Point(x=1, y=0)
    assert decode(b"7", value_type=int) == 7


@pytest.mark.parametrize("value_type", [None, Point, int, float, str])
@pytest.mark.parametrize("body", [b"", b"null"])
def test_a_tombstone_is_none_whatever_the_type(value_type: Any, body: bytes) -> None:
    assert decode(body, value_type=value_type, value_serializer="json") is None


def test_numbers_of_any_width() -> None:
    wide = 123456789012345678901234567890
    assert decode(b"%d" % wide, value_type=int) == wide
    assert decode(b'{"x": %d}' % wide, value_type=Point).x == wide
    assert decode(b'{"x": %d}' % wide) == {"x": wide}


def test_other_codecs_and_schemas_are_fausts() -> None:
    assert decode(b"eyJhIjogMX0=", value_serializer="json|binary") == {"a": 1}
    assert decode(b"ab", schema=Doubling()) == b"abab"


@pytest.mark.parametrize("body", [b"{", b"\xff"])
def test_what_does_not_decode_raises(body: bytes) -> None:
    with pytest.raises(ValueError, match=r"column|str"):
        decode(body)


@pytest.mark.proves("faust", "`pickle`: refused")
@pytest.mark.parametrize("codec", ["pickle", "json|pickle", get_codec("pickle")])
def test_pickle_is_refused_however_it_is_named(codec: Any) -> None:
    with pytest.raises(ConfigError, match=r"any sender of a message can run code"):
        refuse_pickle("it", codec)


def test_other_codecs_are_not() -> None:
    for codec in (None, "json", "raw", "yaml", "json|binary"):
        refuse_pickle("it", codec)
