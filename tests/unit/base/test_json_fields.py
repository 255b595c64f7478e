"""Dataclasses as JSON: each comes back as it was, and what is no such object is refused by name."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketray.base.json_fields import Natural, json_fields, read_value
from rocketray.errors import ConfigError
from rocketray.filters.subscription import Subscription


class Place(NamedTuple):
    topic: str
    queue_id: Natural


@dataclass(frozen=True)
class Part:
    file_name: str
    size: Natural


@dataclass(frozen=True)
class Whole:
    queue_id: Natural
    last: int = field(metadata={"json": "lastBatch"})
    is_single: bool
    share: float
    ended_ms: Natural | None
    parts: tuple[Part, ...]
    pair: tuple[str, int]
    places: tuple[Place, ...]
    names: frozenset[str]
    offsets: Mapping[int, Natural]
    subscription: Subscription


NATURALS = st.integers(0, 2**63 - 1)
WHOLES = st.builds(
    Whole,
    queue_id=NATURALS,
    last=st.integers(-(2**63), 2**63),
    is_single=st.booleans(),
    share=st.floats(allow_nan=False, allow_infinity=False),
    ended_ms=st.none() | NATURALS,
    parts=st.lists(st.builds(Part, st.text(), NATURALS)).map(tuple),
    pair=st.tuples(st.text(), st.integers()),
    places=st.lists(st.builds(Place, st.text(), NATURALS)).map(tuple),
    names=st.frozensets(st.text()),
    offsets=st.dictionaries(NATURALS, NATURALS),
    subscription=st.sampled_from([Subscription.tags("a"), Subscription.sql("n > 3")]),
)
WHOLE = Whole(
    3,
    -1,
    is_single=True,
    share=0.5,
    ended_ms=None,
    parts=(Part("a", 1),),
    pair=("b", 2),
    places=(Place("T", 4),),
    names=frozenset("ba"),
    offsets={7: 8},
    subscription=Subscription.tags("a || b"),
)
WRITTEN = {
    "queueId": 3,
    "lastBatch": -1,
    "isSingle": True,
    "share": 0.5,
    "endedMs": None,
    "parts": [{"fileName": "a", "size": 1}],
    "pair": ["b", 2],
    "places": [["T", 4]],
    "names": ["a", "b"],
    "offsets": {"7": 8},
    "subscription": {"expressionType": "TAG", "expression": "a || b"},
}


@given(WHOLES)
def test_what_is_written_is_read_again(whole: Whole) -> None:
    assert read_value(Whole, json.loads(json.dumps(json_fields(whole)))) == whole


def test_keys_and_values_are_those_of_the_table() -> None:
    assert json_fields(WHOLE) == WRITTEN
    assert [*json_fields(WHOLE)] == [*WRITTEN]
    assert read_value(Whole, {"version": 1, **WRITTEN}) == WHOLE


def test_keys_may_be_the_names_of_the_fields() -> None:
    part = Part("a", 1)
    assert read_value(Part, asdict(part), str) == part


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"queueId": "3"}, "queueId: '3' is not of type int"),
        ({"queueId": True}, "queueId: True is not of type int"),
        ({"queueId": -1}, "queueId: -1 is no number from 0 to 9223372036854775807"),
        ({"endedMs": 2**63}, "endedMs: 9223372036854775808 is no number"),
        ({"isSingle": 1}, "isSingle: 1 is not of type bool"),
        ({"parts": {}}, "parts: {} is not of type list"),
        ({"parts": [{"fileName": "a"}]}, "parts: it has no 'size'"),
        ({"parts": [{"fileName": "a", "size": None}]}, "parts: size: None is not of type int"),
        ({"pair": ["b"]}, "pair: it has 1 value, not 2"),
        ({"places": [["T", 4, 5]]}, "places: it has 3 values, not 2"),
        ({"names": [1]}, "names: 1 is not of type str"),
        ({"offsets": {"x": 8}}, "offsets: invalid literal"),
        ({"offsets": {"01": 8}}, "offsets: '01' is no number"),
        ({"offsets": {" 1_0": 8}}, "offsets: ' 1_0' is no number"),
        ({"offsets": {"٣": 8}}, "offsets: '٣' is no number"),
        ({"offsets": {"7": -8}}, "offsets: -8 is no number from 0"),
        ({"offsets": [[7, 8]]}, "offsets: .* is not of type dict"),
    ],
)
def test_an_error_names_the_field(changed: dict[str, Any], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        read_value(Whole, WRITTEN | changed)


@pytest.mark.parametrize("value", [None, [], "x", 3])
def test_what_is_no_object_is_refused(value: object) -> None:
    with pytest.raises(ValueError, match="is not of type dict"):
        read_value(Whole, value)


def test_a_missing_key_is_named() -> None:
    with pytest.raises(ValueError, match="it has no 'lastBatch'"):
        read_value(Whole, {key: each for key, each in WRITTEN.items() if key != "lastBatch"})


def test_an_error_of_a_class_itself_stays_one_of_ours() -> None:
    with pytest.raises(ConfigError, match="is not a subscription"):
        read_value(Whole, WRITTEN | {"subscription": {}})
