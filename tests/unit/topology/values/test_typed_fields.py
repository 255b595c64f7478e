"""A field, a value or an entry of a table comes back as the type that was declared for it."""

from __future__ import annotations

import enum
from collections.abc import Callable
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any, NamedTuple
from uuid import UUID

import pytest

import rocketray as rr
from rocketray.errors import ConfigError
from rocketray.topology.app.app import App
from rocketray.topology.values import exact_json
from rocketray.topology.values.codec import make_decoder

DAY, AT = date(2013, 1, 2), datetime(2013, 1, 2, 3, 4, tzinfo=UTC)


class Color(enum.Enum):
    RED = "r"


class Point(NamedTuple):
    x: int
    at: datetime


class Part(rr.Record, coerce=True):
    name: str
    made: date


PARTS = [Part("a", DAY), Part("b", DAY)]


def record(kind: Any, **options: Any) -> Any:
    """A Record with one field of type *kind*."""
    return type("One", (rr.Record,), {"__annotations__": {"it": kind}}, **options)


def arrived(kind: Any, value: Any, **options: Any) -> Any:
    one = record(kind, **options)
    return one.from_data(exact_json.loads(exact_json.dumps(one(it=value)))).it


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (set[int], {1, 2}),
        (set, {1}),
        (frozenset[str], frozenset({"a"})),
        (tuple[int, str], (1, "a")),
        (tuple[int, ...], (1, 2, 3)),
        (tuple, (1, "a")),
        (set[int] | None, {1}),
        (set[int] | None, None),
        (list[set[int]], [{1}, {2}]),
        (dict[str, tuple[int, int]], {"a": (1, 2)}),
        (set[datetime], {AT}),
        (tuple[Decimal, int], (Decimal("1.5"), 1)),
    ],
)
@pytest.mark.parametrize("coerce", [False, True])
def test_sets_and_tuples(kind: Any, value: Any, coerce: bool) -> None:
    assert arrived(kind, value, coerce=coerce) == value
    assert type(arrived(kind, value, coerce=coerce)) is type(value)


@pytest.mark.proves("faust", "JSON: differs")
@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (date, DAY),
        (date | None, DAY),
        (date | None, None),
        (time, time(3, 4, 5)),
        (UUID, UUID(int=5)),
        (Color, Color.RED),
        (datetime, AT),
        (list[date], [DAY]),
        (set[UUID], {UUID(int=5)}),
        (tuple[date, Color], (DAY, Color.RED)),
        (dict[str, date], {"a": DAY}),
        (dict[date, list[UUID]], {DAY: [UUID(int=5)]}),
        (dict[int, str], {1: "a"}),
        (list[Part], PARTS),
        (tuple[Part, ...], tuple(PARTS)),
        (Point, Point(1, AT)),
    ],
)
def test_with_coerce_every_type(kind: Any, value: Any) -> None:
    assert arrived(kind, value, coerce=True) == value


def test_without_coerce_a_date_is_json_s() -> None:
    assert arrived(date, DAY) == "2013-01-02"
    assert arrived(dict[str, date], {"a": DAY}) == {"a": "2013-01-02"}


def test_what_is_no_value_of_the_type_raises_as_for_faust_s_own_types() -> None:
    for kind, data in (
        (date, "tomorrow"),
        (UUID, "x"),
        (Color, "blue"),
        (tuple[int, int], [1, 2, 3]),
        (tuple[int, int], [1]),
    ):
        with pytest.raises(ValueError, match=r"."):
            _ = record(kind, coerce=True).from_data({"it": data}).it


def test_a_coercion_of_ones_own_comes_first() -> None:
    def parse(_: Any) -> date:
        return date(1, 1, 1)

    assert arrived(date, DAY, coerce=True, coercions={date: parse}) == date(1, 1, 1)


def test_subclasses_nested_records_and_fields_that_are_left_out() -> None:
    class Batch(rr.Record, coerce=True):
        id: UUID
        parts: list[Part]
        tags: set[str] | None = None

    class Named(Batch):
        name: str | None = None

    named = Named(id=UUID(int=1), parts=PARTS, tags={"a"}, name="n")
    assert Named.from_data(exact_json.loads(exact_json.dumps(named))) == named
    assert Named.from_data({"id": str(UUID(int=1)), "parts": []}).tags is None


APP = App("typed-fields")


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (dict, {"a": 1}),
        (list, [1]),
        (bool, True),
        (set, {1}),
        (tuple, (1, 2)),
        (date, DAY),
        (datetime, AT),
        (UUID, UUID(int=1)),
        (Color, Color.RED),
        (Decimal, Decimal("1.5")),
    ],
)
def test_whole_values(kind: Any, value: Any) -> None:
    topic: Any = APP.topic("T", value_type=kind)
    decode: Callable[[bytes], Any] | None = make_decoder(APP, topic)
    assert decode is not None
    assert decode(exact_json.dumps(value)) == value
    assert decode(b"null") is None


def test_whole_values_of_another_type_are_decode_errors() -> None:
    decode: Any = make_decoder(APP, APP.topic("T", value_type=dict))
    with pytest.raises(ValueError, match="not a dict"):
        decode(b"[1]")


def test_a_type_that_no_consumer_could_make_is_refused_where_it_is_declared() -> None:
    with pytest.raises(ConfigError, match="value_type is timedelta"):
        APP.topic("T", value_type=timedelta)
    with pytest.raises(ConfigError, match="Record declares no fields"):
        APP.topic("T", value_type=rr.Record, properties=["x"])


class Plain(rr.Record, include_metadata=False):
    n: int


class Longer(Plain):
    m: int


@pytest.mark.parametrize("make", [Plain, lambda: Plain.from_data({})])
def test_a_missing_field_names_its_class(make: Callable[[], object]) -> None:
    with pytest.raises(TypeError, match=r"^Plain\.__init__\(\) missing 1 .* argument: 'n'$"):
        make()
    with pytest.raises(TypeError, match=r"^Longer\.__init__\(\) missing 2 .* 'n' and 'm'$"):
        Longer()  # type: ignore[call-arg]


def test_metadata_may_be_left_out() -> None:
    assert Longer(1, 2).to_representation() == {"n": 1, "m": 2}
