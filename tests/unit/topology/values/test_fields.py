from __future__ import annotations

from uuid import UUID

import faust
import pytest

from rocketray.base.property_text import property_text
from rocketray.errors import ConfigError, InvalidMessageError
from rocketray.topology.values.fields import MessageFields, texts


class Shown(str):
    __slots__ = ()


class Order(faust.Record):  # type: ignore[misc]  # Faust's types are not followed
    order_id: str
    kind: str
    region: str | None = None
    amount: float | None = None


FIELDS = MessageFields("kind", ("order_id",), ("region", "amount"))


def test_fields_of_a_record() -> None:
    order = Order(order_id="o-1", kind="pay", region="eu", amount=1.5)
    assert FIELDS.tag_of(order) == "pay"
    assert FIELDS.keys_of(order) == ["o-1"]
    assert FIELDS.properties_of(order) == {"region": "eu", "amount": "1.5"}


def test_fields_of_a_mapping() -> None:
    order = {"kind": "pay", "amount": 3}
    assert FIELDS.tag_of(order) == "pay"
    assert FIELDS.keys_of(order) == []
    assert FIELDS.properties_of(order) == {"amount": "3"}


def test_none_is_absent() -> None:
    assert FIELDS.properties_of(Order(order_id="o", kind="k")) == {}


def test_a_value_without_the_field_is_an_error() -> None:
    with pytest.raises(InvalidMessageError, match=r"'kind'.*int has no such field"):
        FIELDS.tag_of(5)


def test_a_record_type_is_checked_when_declared() -> None:
    with pytest.raises(ConfigError, match=r"Order has no field 'colour'; it has order_id, kind"):
        MessageFields(tag="colour").check("Trade", Order)
    MessageFields(tag="colour").check("Trade", dict)


@pytest.mark.parametrize("value", [b"\xff", [1], {"a": 1}, object()])
def test_what_has_no_text_is_refused(value: object) -> None:
    with pytest.raises(InvalidMessageError, match=r"^header 'h' is"):
        texts("header", {"h": value})


@pytest.mark.parametrize(
    "value",
    ["x", "", "é", b"x", b"", "é".encode(), b"\0", None, True, 7, 1.5, UUID(int=7), Shown("t")],
)
def test_a_text_is_that_of_property_text(value: object) -> None:
    text = property_text("it", value)
    assert texts("header", {"a": value}) == ({} if text is None else {"a": text})


def test_of_two_headers_of_a_name_the_last_one_counts() -> None:
    assert texts("header", [("a", "1"), ("b", "2"), ("a", "3"), ("b", None)]) == {"a": "3"}


def test_pairs_are_taken_as_a_mapping() -> None:
    assert texts("header", [("a", b"1"), ("b", None)]) == {"a": "1"}
