"""The schema of a value type reads what the type's own codec wrote."""

from __future__ import annotations

import datetime as dt
import enum
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import faust
import pytest

import rocketray as rr
from rocketray.errors import ConfigError

pytestmark = pytest.mark.proves("spark", "`rr.spark.schema`")


class Side(enum.Enum):
    BUY = "buy"
    SELL = "sell"


class Item(rr.Record):
    sku: str
    count: int


class Order(rr.Record, coerce=True):
    order_id: str
    amount: float
    paid: bool
    side: Side
    items: list[Item]
    notes: Mapping[str, str]
    at: dt.datetime
    day: dt.date
    total: Decimal
    tags: set[str]
    parent: str | None = None
    kind: str = faust.models.fields.StringField(field="type", default="")


@dataclass
class Position:
    x: int
    path: tuple[float, ...]
    inner: Item | None


def test_a_record_has_a_column_for_each_field_by_its_name_in_json() -> None:
    assert rr.spark.schema(Order).simpleString() == (
        "struct<order_id:string,amount:double,paid:boolean,side:string,"
        "items:array<struct<sku:string,count:bigint>>,notes:map<string,string>,at:timestamp,"
        "day:date,total:decimal(38,18),tags:array<string>,parent:string,type:string>"
    )


def test_a_dataclass_is_a_record_too() -> None:
    assert rr.spark.schema(Position).simpleString() == (
        "struct<x:bigint,path:array<double>,inner:struct<sku:string,count:bigint>>"
    )


@pytest.mark.parametrize("kind", [complex, int | str, dict[int, str], tuple[int, str], Any, object])
def test_a_field_without_a_type_in_spark_is_named(kind: Any) -> None:
    record = type("Odd", (), {"__annotations__": {"value": kind}})

    with pytest.raises(ConfigError, match=r"Odd\.value is .*, for which Spark has no type"):
        rr.spark.schema(dataclass(record))


def test_what_has_no_fields_is_refused() -> None:
    with pytest.raises(ConfigError, match="'int'> is neither a Record nor a dataclass"):
        rr.spark.schema(int)
