"""What is wrong with a node: each kind of trouble from readings, and their order."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from rocketray.broker.filtering.filtered_lag import Exactness, FilteredLag
from rocketray.broker.retries.dead_letter_api import LetterBox
from rocketray.filters.counters import FilterCounters
from rocketray.filters.subscription import EVERYTHING
from rocketray.groups.failing import FailingMessage
from rocketray.groups.group_descriptions import GroupDescription
from rocketray.services.health.node_readings import NodeReadings
from rocketray.services.health.troubles import (
    BEHIND_MS,
    GROWING_MS,
    UNREAD_MS,
    HealthReadings,
    Trouble,
    TroubleKind,
    duration,
    growth_of,
    time_until_read,
    troubles_of,
)
from rocketray.views.trouble_records import troubles_of_hosts

NOW_MS = 1_800_000_000_000
WELL = GroupDescription(
    group="audit",
    topic="Trade",
    subscription=EVERYTHING,
    offsets={0: 5, 1: 5, 2: 5, 3: 5},
    starts={},
    members={"one": [0, 1], "two": [2, 3]},
    counters=FilterCounters(),
    since_ms=0,
)
BOX = LetterBox("audit", "%DLQ%audit", 1390, 8, "ValueError: no such account")


def health(
    group: GroupDescription = WELL, lag: int = 0, oldest_ms: int = 0, **parts: Any
) -> HealthReadings:
    """Readings of a node with one group, whose oldest unread message is *oldest_ms* old."""
    stored_ms = NOW_MS - oldest_ms if lag else None
    found = {0: FilteredLag(lag, lag, Exactness.EXACT, stored_ms)}
    place = group.group, group.topic
    return HealthReadings(
        NodeReadings("c", 2, {}, [group], {place: found}, time_ms=NOW_MS), **parts
    )


def only(readings: HealthReadings) -> Trouble:
    [trouble] = troubles_of(readings)
    return trouble


def test_nothing_is_wrong_with_a_group_that_reads() -> None:
    assert troubles_of(health()) == []
    assert troubles_of(health(lag=500, oldest_ms=3000)) == []
    assert troubles_of(health(lag=500, growth={("audit", "Trade"): 0.5})) == []
    on_its_way = health(lag=500, oldest_ms=GROWING_MS, growth={("audit", "Trade"): 5.0})
    assert troubles_of(on_its_way) == []


def test_a_held_group_is_named_with_the_queues_and_the_way_past() -> None:
    failing = {
        queue: FailingMessage(7, attempt, None, "RuntimeError: no database")
        for queue, attempt in ((0, 3), (1, 177), (2, 4), (3, 5))
    }
    found = only(health(replace(WELL, failing=failing)))
    assert found.kind is TroubleKind.HELD
    assert found.text == (
        "group audit is held in 4 of 4 queues of topic Trade, such as queue 1, at offset 7: attempt "
        "177, RuntimeError: no database"
    )
    assert "rocketray groups seek audit Trade --queue 1 --offset 8" in found.advice
    assert found.weight == 4
    found = only(health(replace(WELL, failing={2: failing[2]})))
    assert found.text.startswith("group audit is held in queue 2 of topic Trade, at offset 7: ")


def test_a_lag_that_grows_is_worse_than_one_that_is_old() -> None:
    growing = health(lag=878_000, oldest_ms=7_500_000, growth={("audit", "Trade"): 512.0})
    found = only(growing)
    assert found.kind is TroubleKind.GROWING
    assert (
        "878,000 messages of topic Trade wait, and the oldest unread message is 2 h 5 min old"
        in found.text
    )
    assert "512 more come each second than it reads" in found.text
    behind = health(lag=3000, oldest_ms=BEHIND_MS + 1, growth={("audit", "Trade"): -10.0})
    found = only(behind)
    assert found.kind is TroubleKind.BEHIND
    assert "at this rate it is read in 5 min" in found.text
    assert only(health(lag=3000, oldest_ms=BEHIND_MS + 1)).kind is TroubleKind.BEHIND


def test_messages_of_a_group_without_members_are_not_read() -> None:
    for members, unheard in (({}, frozenset[str]()), ({"one": [0]}, frozenset({"one"}))):
        group = replace(WELL, members=members, unheard=unheard)
        found = only(health(group, lag=1, oldest_ms=61_000))
        assert found.kind is TroubleKind.UNREAD
        assert (
            "1 message of topic Trade waits, and the oldest unread message is 1 min old"
            in found.text
        )
        assert troubles_of(health(group)) == []
        assert troubles_of(health(group, lag=1, oldest_ms=UNREAD_MS)) == [], "it may just start"
    broadcast = replace(WELL, members={}, is_broadcast=True)
    assert troubles_of(health(broadcast, lag=9)) == []
    assert troubles_of(health(replace(WELL, topic="%RETRY%audit", members={}), lag=9)) == []


def test_letters_that_were_not_redriven_wait() -> None:
    found = only(health(letters=[BOX]))
    assert found.kind is TroubleKind.LETTERS
    assert "1,382 dead letters of group audit wait" in found.text
    assert "ValueError: no such account" in found.text
    assert "rocketray dlq redrive audit" in found.advice
    assert troubles_of(health(letters=[replace(BOX, redriven=1390)])) == []


def test_what_is_not_known_is_not_well() -> None:
    readings = health(problems=None, letters=None, unknown={"problems": "no answer"})
    found = only(readings)
    assert (found.kind, found.text) == (TroubleKind.UNKNOWN, "problems: no answer")
    node = replace(readings.node, unknown={"topic T": "its disk is away"})
    assert len(troubles_of(replace(readings, node=node))) == 2


@pytest.mark.parametrize(("number", "name"), [(0, "host 0"), ("sinks", "the sinks")])
def test_a_host_that_does_not_answer_is_named(number: int | str, name: str) -> None:
    host: dict[str, Any] = {
        "host": number,
        "app": "shop",
        "state": "silent",
        "lastError": None,
        "stall": None,
        "sinks": [],
    }
    [trouble] = troubles_of_hosts([host], None)
    assert trouble.text == f"{name} of app shop does not answer"


@pytest.mark.parametrize("seed", range(5))
def test_the_worst_comes_first(seed: int) -> None:
    """Planted troubles, whatever order they were found in."""
    group = replace(
        WELL,
        failing={1: FailingMessage(7, 2, None, "it burns")},
        counters=FilterCounters(scanned=9, evaluation_errors=9),
    )
    readings = health(
        group,
        lag=100,
        oldest_ms=16_000,
        growth={("audit", "Trade"): 5.0},
        letters=[BOX],
        problems=["the clock is off", "a disk is full"][:: 1 if seed % 2 else -1],
    )
    app = Trouble(TroubleKind.APP, "host 0 of app shop failed")
    found = troubles_of(readings, [app])
    assert [one.kind.value for one in found] == [
        *("node", "node", "app", "held", "growing", "letters", "filter")
    ]
    assert [one.kind.is_error for one in found] == [True] * 4 + [False] * 3
    assert found[0].text == "a disk is full"


def test_growth_is_measured_between_known_samples() -> None:
    assert growth_of([(0, 10), (10_000, None), (20_000, 50)]) == 2.0
    assert growth_of([(0, 50), (10_000, 10)]) == -4.0
    for samples in ([], [(0, 5)], [(0, 5), (10, None)], [(5, 1), (5, 9)]):
        assert growth_of(samples) is None
    assert time_until_read(100, -4.0) == 25.0
    assert time_until_read(100, 0.0) is time_until_read(100, None) is None


@pytest.mark.parametrize(
    ("seconds", "said"),
    [
        (0.4, "0 s"),
        (59.9, "59 s"),
        (60, "1 min"),
        (3599, "59 min"),
        (3600, "1 h"),
        (7500, "2 h 5 min"),
        (90_000, "1 d 1 h"),
        (86_400, "1 d"),
    ],
)
def test_durations(seconds: float, said: str) -> None:
    assert duration(seconds) == said
