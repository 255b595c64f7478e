"""Records of decoded JSON are those of Faust's own ``from_data``, whatever their fields."""

from __future__ import annotations

import copy
import random
import re
from collections.abc import Callable
from datetime import date, datetime
from typing import Any
from uuid import UUID

import faust
import pytest
from faust.models import fields
from faust.models.tags import Secret

import rocketray as rr
from rocketray.topology.values.record_maker import record_maker


class Plain(rr.Record):
    text: str
    number: int
    price: float
    is_paid: bool


class WithDefaults(rr.Record):
    text: str
    number: int = 7
    note: str | None = None
    tags: list[str] = []  # noqa: RUF012  # a default of Faust's


class Coerced(rr.Record, coerce=True):
    number: int
    price: float
    day: date
    at: datetime | None = None
    whose: UUID | None = None


class Dated(rr.Record):
    at: datetime
    day: date


class Nested(rr.Record):
    one: Plain
    many: list[Plain]
    by_name: dict[str, Coerced] | None = None


class Sets(rr.Record):
    numbers: set[int]
    pair: tuple[int, str] | None = None


class Ended(rr.Record):
    number: int

    def __post_init__(self) -> None:
        self.twice = self.number * 2


class Checked(rr.Record, validation=True):
    number: int
    text: str = fields.StringField(max_length=5)


class Tagged(rr.Record):
    name: Secret[str]
    number: int


class Renamed(rr.Record):
    order: str = fields.StringField(input_name="orderId")


class OwnConstructor(rr.Record):
    number: int

    def __init__(self, number: int, **_: Any) -> None:
        self.number = number + 1


class OwnFromData(rr.Record):
    number: int

    @classmethod
    def from_data(cls, data: Any, *, preferred_type: Any = None) -> Any:
        return super().from_data({"number": 3}, preferred_type=preferred_type)


class OwnSetter(rr.Record):
    number: int

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, value if name.startswith("_") else [value])


class Below(Plain):
    more: int


class OfFaust(faust.Record):  # type: ignore[misc]  # Faust's types are not followed
    text: str
    number: int = 1


class Polymorphic(rr.Record, polymorphic_fields=True):
    number: int


class Doubling(fields.IntegerField):  # type: ignore[misc]  # Faust's types are not followed
    def prepare_value(self, value: Any, *, coerce: bool | None = None) -> Any:
        return super().prepare_value(value, coerce=coerce) * 2


class OwnField(rr.Record):
    number: int = Doubling()


KINDS = [
    *(Plain, WithDefaults, Coerced, Dated, Nested, Sets, Ended, Checked, Tagged, Renamed),
    *(OwnConstructor, OwnFromData, OwnSetter, Below, OfFaust, Polymorphic, OwnField),
]
PLAIN = {"text": "a", "number": 1, "price": 1.5, "is_paid": True}
TIMES = {"day": "2013-01-02", "at": "2013-01-02T03:04:05Z"}
VALUES: list[Any] = [
    *(None, 0, 5, -1, 1.5, "", "a", "long text", "7", True, [], [1, 2], ["a"], [1, "b"], {}),
    *("2013-01-02", "2013-01-02T03:04:05Z", "12345678-1234-5678-1234-567812345678"),
    *(PLAIN, [PLAIN, PLAIN], {"x": {"number": "1", "price": "2", **TIMES}}),
    {"ns": "other.Kind"},
]
NAMES = ["unknown", "orderId", "self", "__strict__", "__evaluated_fields__", "__faust"]


def outcome(make: Callable[[Any], Any], data: Any) -> tuple[Any, ...]:
    """The kind and all that it holds, each field as it is read; or the error."""
    try:
        made = make(copy.deepcopy(data))
        names = type(made)._options.descriptors if isinstance(made, faust.Record) else ()
        read = [shown(getattr(made, name)) for name in names]
    except Exception as error:  # noqa: BLE001  # whatever Faust raises
        return type(error), str(error)
    return type(made), shown(vars(made)), read, shown(made)


def shown(value: Any) -> str:
    """Its text, without the address of a secret."""
    return re.sub(r"@0x\w+", "", repr(value))


def by_faust(kind: Any) -> Callable[[Any], Any]:
    return lambda data: kind.from_data(data, preferred_type=kind)


@pytest.mark.parametrize("kind", KINDS)
def test_it_is_what_faust_makes(kind: Any, rng: random.Random) -> None:
    make, names = record_maker(kind), list(kind._options.descriptors)
    for _ in range(1500):
        given = [name for name in names if rng.random() < 0.85]
        if rng.random() < 0.2:
            given.append(rng.choice(NAMES))
        data = {name: rng.choice(VALUES) for name in given}
        if rng.random() < 0.5:
            named: Any = rng.choice((kind, kind, Plain, Polymorphic))
            data["__faust"] = {"ns": named._options.namespace}
        assert outcome(make, data) == outcome(by_faust(kind), data), data


@pytest.mark.parametrize("data", [[], "text", 5, True, [1], Plain("a", 1, 1.0, is_paid=True)])
def test_what_is_no_object_is_left_to_faust(data: Any) -> None:
    assert outcome(record_maker(Plain), data) == outcome(by_faust(Plain), data)


@pytest.mark.parametrize("kind", [Plain, WithDefaults, Sets, Nested])
def test_most_kinds_are_made_without_faust(kind: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    make = record_maker(kind)
    monkeypatch.setattr(kind, "__init__", None)
    data = {"text": "a", "numbers": [1], "one": PLAIN, "many": [PLAIN]}
    wanted = {name: data.get(name, 1) for name in kind._options.descriptors}
    own = {"ns": kind._options.namespace}
    for given in (wanted, {**wanted, "__faust": own}, dict(reversed([*wanted.items()]))):
        assert type(make(given)) is kind


def test_a_class_that_took_the_place_of_another_is_what_its_name_means() -> None:
    def declared() -> Any:
        class Again(rr.Record, polymorphic_fields=True):
            number: int

        return Again

    first = declared()
    make, data = record_maker(first), {"number": 1, "__faust": {"ns": first._options.namespace}}
    assert type(make({**data})) is first
    second = declared()
    assert type(make({**data})) is type(by_faust(first)({**data})) is second


def test_records_share_no_value_that_is_their_own() -> None:
    make = record_maker(WithDefaults)
    one, other = make({"text": "a"}), make({"text": "b"})
    assert one.__evaluated_fields__ is not other.__evaluated_fields__


def test_a_plain_field_stores_what_it_gets() -> None:
    """What the fast way rests on: without a coercion these descriptors change nothing."""
    for kind in (fields.BooleanField, fields.FloatField, fields.IntegerField, fields.StringField):
        for value in VALUES:
            assert kind(field="a", type=str, model=Plain).prepare_value(value) is value
