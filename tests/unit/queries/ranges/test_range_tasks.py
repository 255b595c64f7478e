"""Which range of a query checks the filter, and where each is."""

from __future__ import annotations

from pathlib import Path

from rocketray.broker.fetching.read_plan import DiskPlace, QueueKey, Range
from rocketray.queries.ranges.range_tasks import placed


def place(key: QueueKey) -> DiskPlace:
    return DiskPlace(Path(f"disk-{key[1]}"))


def test_the_first_range_of_each_topic_in_a_query_checks_the_filter() -> None:
    first, second = Range(("Trade", 0), 0, 5), Range(("Trade", 1), 0, 5)
    other = Range(("Other", 0), 0, 5)
    begun = {"Else"}

    tasks = placed([[first, other], [second]], place, begun)
    assert [[(one.range, one.is_first) for one in task] for task in tasks] == [
        [(first, True), (other, True)],
        [(second, False)],
    ]
    assert [one.place.data.name for task in tasks for one in task] == ["disk-0", "disk-0", "disk-1"]
    [[later]] = placed([[second]], place, begun)
    assert not later.is_first
