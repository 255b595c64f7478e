"""Filters of a query: what the source takes of them, and what it leaves to Spark."""

from __future__ import annotations

import random
import sys
from typing import Any, NamedTuple

import pytest
from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    IsNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringStartsWith,
)

from rocketray.broker.fetching.read_plan import Range
from rocketray.filters.subscription import Subscription, matches_exactly, parse
from rocketray.queries.spark.pushed_filters import PushedFilters, are_handed_over

ALL = Subscription.tags("*")
TAGS = (None, "", "*", "a", "b", "Aa", "BB", "a||b", " a")
COMPARISONS: dict[type[Any], Any] = {
    EqualTo: lambda known, value: known == value,
    EqualNullSafe: lambda known, value: known == value,
    GreaterThan: lambda known, value: known > value,
    GreaterThanOrEqual: lambda known, value: known >= value,
    LessThan: lambda known, value: known < value,
    LessThanOrEqual: lambda known, value: known <= value,
    In: lambda known, value: known in value,
}


class Row(NamedTuple):
    topic: str
    queue_id: int
    queue_offset: int
    tags: str | None


ROWS = [
    Row(topic, queue_id, offset, tags)
    for topic in ("Trade", "Other")
    for queue_id in range(3)
    for offset, tags in enumerate(TAGS)
]
RANGES = [
    Range((topic, queue_id), 0, len(TAGS)) for topic in ("Trade", "Other") for queue_id in range(3)
]
COLUMNS: dict[Any, dict[str, str]] = {
    "rocketray": {"topic": "topic", "queueId": "queue_id", "queueOffset": "queue_offset"},
    "kafka": {"topic": "topic", "partition": "queue_id", "offset": "queue_offset"},
}


def is_true(one: Any, row: Row, columns: dict[str, str]) -> bool:
    """What Spark finds."""
    known = getattr(row, columns[one.attribute[0]])
    if known is None:
        return False
    return isinstance(one, IsNotNull) or bool(COMPARISONS[type(one)](known, one.value))


def read(pushed: PushedFilters, given: Subscription) -> list[Row]:
    """What the source reads."""
    wanted = parse(pushed.subscription(given).expression)
    ranges = {each.key: each for each in pushed.ranges(RANGES)}
    return [
        row
        for row in ROWS
        if (part := ranges.get((row.topic, row.queue_id)))
        and part.start <= row.queue_offset < part.stop
        and (wanted.sub_string == "*" or matches_exactly(wanted, row.tags))
    ]


@pytest.mark.proves(
    "spark",
    "Conditions of a batch on topic, queue, offset and tags are applied by the source, and the "
    "result is the same",
)
@pytest.mark.parametrize("name", COLUMNS)
def test_the_source_and_spark_together_find_what_spark_finds_alone(name: Any, seed: int) -> None:
    chance = random.Random(seed)
    columns = COLUMNS[name] | ({"tags": "tags"} if name == "rocketray" else {})
    taken = 0
    for _ in range(300):
        filters = [some_filter(chance, columns) for _ in range(chance.randrange(4))]
        given = Subscription.tags(chance.choice(("*", "a || Aa", "BB")))
        pushed, left = PushedFilters.of(filters, name, given)
        taken += len(filters) - len(left)
        everything = read(PushedFilters(), given)
        expected = [row for row in everything if all(is_true(f, row, columns) for f in filters)]
        found = read(pushed, given)
        assert [row for row in found if all(is_true(f, row, columns) for f in left)] == expected
    assert taken > 100


def some_filter(chance: random.Random, columns: dict[str, str]) -> Filter:
    column = chance.choice([*columns])
    known: dict[str, list[Any]] = {
        "topic": ["Trade", "Other", "Third"],
        "queue_id": [-1, 0, 1, 2, 3],
        "queue_offset": [-1, 0, 3, 7, 100],
        "tags": [tag for tag in TAGS if tag is not None],
    }
    values = known[columns[column]]
    kind: Any = chance.choice([*COMPARISONS, IsNotNull])
    if kind is IsNotNull:
        return IsNotNull((column,))
    value = tuple(chance.sample(values, 2)) if kind is In else chance.choice(values)
    found: Filter = kind((column,), value)
    return found


@pytest.mark.parametrize(
    "one",
    [
        EqualTo(("body",), b"x"),
        EqualTo(("properties", "amount"), "3"),
        EqualTo(("nothing",), 1),
        EqualTo(("queueId",), True),
        EqualTo(("queueOffset",), 1.5),
        EqualTo(("tags",), "a|b||c"),
        EqualTo(("tags",), "x" * 100_000),
        In(("tags",), ("a", None)),
        IsNotNull(("tags",)),
        IsNull(("tags",)),
        Not(EqualTo(("tags",), "a")),
        StringStartsWith(("topic",), "T"),
        GreaterThan(("topic",), "A"),
    ],
    ids=repr,
)
def test_what_the_source_cannot_compare_is_left_to_spark(one: Filter) -> None:
    assert PushedFilters.of([one], "rocketray", ALL) == (PushedFilters(), [one])


def test_tags_are_left_to_spark_where_the_source_has_another_filter() -> None:
    tag, queue = EqualTo(("tags",), "a"), EqualTo(("queueId",), 1)
    for given in (Subscription.sql("amount > 5"), Subscription.where("os.path:exists")):
        pushed, left = PushedFilters.of([tag, queue], "rocketray", given)
        assert left == [tag]
        assert pushed.subscription(given) is given
        assert [each.key[1] for each in pushed.ranges(RANGES)] == [1, 1]


def test_filters_are_taken_only_from_a_process_that_hands_them_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    planner = "pyspark.sql.worker.data_source_pushdown_filters"
    monkeypatch.delitem(sys.modules, planner, raising=False)
    assert not are_handed_over()
    monkeypatch.setitem(sys.modules, planner, sys)
    assert are_handed_over()
