"""Rates from two samples, and what has none."""

from __future__ import annotations

import json

import pytest

from rocketray.cli.nodes.flow_status import (
    Flows,
    FlowSample,
    GroupFlow,
    flows_between,
    growth_between,
    sample_of,
    show_flows,
    shown_days,
)
from rocketray.services.health.day_totals import DayReadings, DayTotals
from rocketray.services.health.node_readings import NodeReadings

KEY = ("shop", "Orders")


def flows(
    before: int | str | None, after: int | str, lag: tuple[int, str] | str = (0, "exact")
) -> Flows:
    """Of a topic and a group with the same numbers, in two seconds."""
    first = {} if before is None else {"Orders": before}
    of_group = {} if before is None else {KEY: before}
    return flows_between(
        FlowSample(10.0, first, of_group),
        FlowSample(12.0, {"Orders": after}, {KEY: after}, {KEY: lag}),
    )


def test_rates_are_differences_in_a_second() -> None:
    found = flows(100, 150, (7, "exact"))
    assert found.seconds == 2.0
    assert [(each.topic, each.stored_per_s) for each in found.topics] == [("Orders", 25.0)]
    assert found.groups == [GroupFlow("shop", "Orders", 25.0, 7, "exact")]


def test_one_sample_has_lags_and_no_rates(capsys: pytest.CaptureFixture[str]) -> None:
    one = FlowSample(10.0, {"Orders": 5, "Bills": "no answer"}, {KEY: 3}, {KEY: (2, "exact")})
    found = flows_between(None, one)
    assert found.seconds is None
    show_flows(found, as_json=False)
    shown = capsys.readouterr().out
    assert [line.split() for line in shown.splitlines() if line.startswith(("Orders", "shop"))] == [
        ["Orders", "–"],
        ["shop", "Orders", "–", "2"],
    ]
    assert "rocketray status --over 2" in shown
    assert "Bills: unknown, because no answer" in shown
    assert "Orders: unknown" not in shown
    show_flows(found, as_json=True)
    rates = json.loads(capsys.readouterr().out)["rates"]
    assert rates["seconds"] is None
    assert rates["groups"][0]["finishedPerS"] is None
    assert rates["groups"][0]["lag"] == 2


@pytest.mark.parametrize(
    ("before", "after", "why"),
    [
        (None, 5, "new since the first sample"),
        ("no answer", 5, "no answer"),
        (5, "no answer", "no answer"),
        (9, 5, "moved back"),
    ],
)
def test_what_is_unknown_says_why_and_is_not_zero(
    before: int | str | None, after: int | str, why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    found = flows(before, after)
    assert [each.stored_per_s for each in found.topics] == [None]
    assert [each.finished_per_s for each in found.groups] == [None]
    show_flows(found, as_json=False)
    shown = capsys.readouterr().out
    assert f"Orders: unknown, because {found.topics[0].unknown}" in shown
    assert why in shown
    assert "0.0" not in shown


def test_a_lag_that_nobody_could_count_is_unknown(capsys: pytest.CaptureFixture[str]) -> None:
    show_flows(flows(5, 5, "the filter does not answer"), as_json=False)
    shown = capsys.readouterr().out
    assert "shop on Orders: unknown, because lag: the filter does not answer" in shown
    assert "0.0  unknown" in shown


def test_totals_of_days_stand_beside_the_rates(capsys: pytest.CaptureFixture[str]) -> None:
    found = flows(100, 150, (7, "exact"))
    known = DayReadings(1, 2, {"Orders": DayTotals(1_234, 99, False, True)})
    show_flows(found, known, as_json=False)
    shown = capsys.readouterr().out
    assert ["Orders", "25.0", "1,234", "at", "least", "99"] in [
        line.split() for line in shown.splitlines()
    ]
    assert shown_days(known, "Orders") == "messages stored today: 1,234, yesterday: at least 99"
    show_flows(found, known, as_json=True)
    rates, stored = map(json.loads, capsys.readouterr().out.splitlines())
    assert rates["rates"]["topics"]
    assert stored == {
        "stored": [
            {
                "topic": "Orders",
                "unknown": None,
                "yesterdayMs": 1,
                "todayMs": 2,
                "today": 1234,
                "yesterday": 99,
                "todayIsLeast": False,
                "yesterdayIsLeast": True,
            }
        ]
    }
    unknown = DayReadings(topics={"Orders": "queue 0: it burns"})
    show_flows(found, unknown, as_json=False)
    assert ["Orders", "25.0", "unknown", "unknown"] in [
        line.split() for line in capsys.readouterr().out.splitlines()
    ]
    assert shown_days(unknown, "Orders") == (
        "messages stored today: unknown, yesterday: unknown, because queue 0: it burns"
    )


def test_no_time_gives_no_rate() -> None:
    first = FlowSample(1.0, {"Orders": 1}, {})
    [topic] = flows_between(first, first).topics
    assert (topic.stored_per_s, topic.unknown) == (None, "no time has passed between the samples")


def test_programs_get_one_object(capsys: pytest.CaptureFixture[str]) -> None:
    show_flows(flows(100, 150, (7, "at_least")), as_json=True)
    found = json.loads(capsys.readouterr().out)["rates"]
    assert found["seconds"] == 2.0
    assert found["topics"] == [{"topic": "Orders", "storedPerS": 25.0, "unknown": None}]
    assert found["groups"][0] | {"unknown": None} == {
        "group": "shop",
        "topic": "Orders",
        "finishedPerS": 25.0,
        "lag": 7,
        "exactness": "at_least",
        "unknown": None,
    }


def test_a_lag_that_is_no_exact_number_is_marked(capsys: pytest.CaptureFixture[str]) -> None:
    show_flows(flows(100, 100_150, (7, "unfiltered")), as_json=False)
    shown = capsys.readouterr().out
    assert "7 (unfiltered)" in shown
    assert "50,025" in shown
    assert "rates over 2.0 s" in shown


def test_a_sample_says_why_something_is_unknown_and_leaves_out_the_node_s_own_topics() -> None:
    readings = NodeReadings(
        "c",
        3,
        {"SCHEDULE_TOPIC_XXXX": [], "Orders": []},
        unknown={"topic Bills": "no answer", "delayed messages": "no answer"},
    )
    found = sample_of(readings, 7.0)
    assert (found.time_s, found.stored) == (7.0, {"Bills": "no answer", "Orders": 0})


def test_a_lag_grows_between_two_known_ones() -> None:
    first = FlowSample(10.0, {}, {}, {KEY: (100, "exact"), ("a", "B"): "no answer"})
    later = FlowSample(12.0, {}, {}, {KEY: (150, "exact"), ("a", "B"): (9, "exact")})
    assert growth_between(first, later) == {KEY: 25.0}
    assert growth_between(None, later) == growth_between(later, later) == {}
