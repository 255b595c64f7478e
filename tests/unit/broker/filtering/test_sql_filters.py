"""SQL92 filters are born, die and come back with the members of their groups, across restarts."""

from __future__ import annotations

import itertools
import json
import os
from pathlib import Path

import pytest
from support.nodes.stores import FakeClock

from rocketray.broker.filtering.sql_filters import SqlFilters
from rocketray.filters.consumer_filter_data import ConsumerFilterData, read_filters
from rocketray.filters.subscription import Subscription
from rocketray.groups.group_registry import GroupRegistry
from rocketray.groups.heartbeat import Heartbeat
from rocketray.groups.lease import SESSION_TIMEOUT_MS
from rocketray.runtime.files.paths import filters_file

DAY_MS = 24 * 60 * 60 * 1000


class Coordinator:
    """What the actor does with groups and filters, at a time that is told."""

    def __init__(self, data: Path, clock: FakeClock) -> None:
        self.clock = clock
        self.data = data
        self.registry = GroupRegistry()
        self.filters = SqlFilters(filters_file(data), clock)
        self.numbers = itertools.count(1)

    def beat(self, group: str, subscription: Subscription, topic: str = "T") -> None:
        number = next(self.numbers)
        beat = Heartbeat(group, topic, subscription, "member", "i", frozenset(), number=number)
        self.registry.heartbeat(beat, 1, self.clock.now_ms)
        self.settle()

    def leave(self, group: str, subscription: Subscription, topic: str = "T") -> None:
        self.registry.leave(Heartbeat(group, topic, subscription, "member", "i", frozenset()))
        self.settle()

    def settle(self) -> None:
        self.filters.register_living(self.registry.live_subscriptions(self.clock.now_ms))

    def restarted(self) -> Coordinator:
        new = Coordinator(self.data, self.clock)
        new.registry.load(self.registry.subscriptions.to_json(), self.clock.now_ms)
        return new

    def filter_of(self, group: str, topic: str = "T") -> ConsumerFilterData:
        found = self.filters.manager.find(topic, group)
        assert found is not None
        return found


SMALL, LARGE = Subscription.sql("a < 5"), Subscription.sql("a > 5")


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def coordinator(tmp_path: Path, clock: FakeClock) -> Coordinator:
    return Coordinator(tmp_path, clock)


def test_a_filter_is_born_with_its_groups_first_member(
    coordinator: Coordinator, clock: FakeClock
) -> None:
    coordinator.beat("g", SMALL)
    found = coordinator.filter_of("g")
    assert (found.subscription.expression, found.born_time_ms, found.is_dead) == (
        "a < 5",
        clock.now_ms,
        False,
    )
    assert found.client_version == clock.now_ms
    assert read_filters(filters_file(coordinator.data)) == {"T": {"g": found}}


def test_sql_is_registered_with_its_dialect_and_rules(coordinator: Coordinator) -> None:
    coordinator.beat("tags", Subscription.tags("a"))
    assert coordinator.filters.manager.find("T", "tags") is None
    assert not filters_file(coordinator.data).exists()
    theirs = Subscription.sql("a > 1", "rocketmq")
    ours = Subscription.sql('"a-b" IS NULL')
    first = Subscription("SQL92", "a IN (1)", dialect="rocketray", rules=1)
    for group, subscription in (("theirs", theirs), ("ours", ours), ("first", first)):
        coordinator.beat(group, subscription)
        assert coordinator.filter_of(group).subscription == subscription
    filters = read_filters(filters_file(coordinator.data))["T"]
    assert [filters[group].subscription for group in ("theirs", "ours", "first")] == [
        *(theirs, ours, first)
    ]
    kept = json.loads(filters_file(coordinator.data).read_text())["filterDataByTopic"]["T"]
    assert "dialect" not in kept["groupFilterData"]["theirs"], "as a broker writes it"


def test_a_filter_dies_with_the_last_member_and_comes_back_unchanged(
    coordinator: Coordinator, clock: FakeClock
) -> None:
    coordinator.beat("g", SMALL)
    first = coordinator.filter_of("g")
    clock.now_ms += 1000
    coordinator.leave("g", SMALL)
    assert coordinator.filter_of("g").dead_time_ms == clock.now_ms
    clock.now_ms += 1000
    coordinator.beat("g", SMALL)
    assert coordinator.filter_of("g") == first


def test_a_silent_member_and_a_deleted_group_leave_dead_filters(
    coordinator: Coordinator, clock: FakeClock
) -> None:
    coordinator.beat("g", SMALL)
    clock.now_ms += SESSION_TIMEOUT_MS + 1
    coordinator.settle()
    assert coordinator.filter_of("g").dead_time_ms == clock.now_ms
    coordinator.beat("g", SMALL)
    coordinator.leave("g", SMALL)
    coordinator.registry.delete("g", clock.now_ms)
    coordinator.settle()
    assert coordinator.filter_of("g").is_dead
    clock.now_ms += DAY_MS
    coordinator.beat("other", SMALL)
    assert read_filters(filters_file(coordinator.data)).keys() == {"T"}
    assert coordinator.filters.manager.find("T", "g") is None


def test_another_expression_is_another_birth_even_when_the_clock_goes_back(
    coordinator: Coordinator, clock: FakeClock
) -> None:
    coordinator.beat("g", SMALL)
    before = coordinator.filter_of("g")
    clock.now_ms -= 5000
    coordinator.beat("g", LARGE)
    after = coordinator.filter_of("g")
    assert (after.subscription.expression, after.born_time_ms) == ("a > 5", clock.now_ms)
    assert after.client_version > before.client_version


def test_a_group_that_changes_to_tags_leaves_a_dead_filter(coordinator: Coordinator) -> None:
    coordinator.beat("g", SMALL)
    coordinator.beat("g", SMALL, "U")
    coordinator.beat("g", Subscription.tags("a"))
    assert coordinator.filter_of("g").is_dead
    assert not coordinator.filter_of("g", "U").is_dead


def test_after_a_restart_a_filter_is_dead_until_its_members_are_back(
    coordinator: Coordinator, clock: FakeClock
) -> None:
    coordinator.beat("g", SMALL)
    first = coordinator.filter_of("g")
    clock.now_ms += 60_000
    again = coordinator.restarted()
    assert again.filter_of("g").dead_time_ms == clock.now_ms - 30_000
    again.settle()  # nobody is back yet
    assert again.filter_of("g").dead_time_ms == clock.now_ms - 30_000
    again.beat("g", SMALL)
    assert again.filter_of("g") == first


def test_the_file_before_never_stands_in(coordinator: Coordinator, clock: FakeClock) -> None:
    """It may have a filter that was changed since, and changed back: its bits lie."""
    coordinator.beat("g", SMALL)
    born_ms = coordinator.filter_of("g").born_time_ms
    path = filters_file(coordinator.data)
    path.replace(path.with_name(path.name + ".bak"))
    clock.now_ms += 1000
    again = coordinator.restarted()
    assert again.filters.manager.find("T", "g") is None
    again.beat("g", SMALL)
    assert again.filter_of("g").born_time_ms > born_ms


def test_what_could_not_be_written_is_written_later(coordinator: Coordinator) -> None:
    half_made = filters_file(coordinator.data).with_name(f"consumerFilter.json.{os.getpid()}.tmp")
    half_made.mkdir(parents=True)  # in the way
    with pytest.raises(OSError, match=half_made.name):
        coordinator.beat("g", SMALL)
    half_made.rmdir()
    coordinator.settle()
    assert read_filters(filters_file(coordinator.data))["T"].keys() == {"g"}


def test_in_place_of_a_damaged_file_filters_are_born_again(
    coordinator: Coordinator, clock: FakeClock, caplog: pytest.LogCaptureFixture
) -> None:
    coordinator.beat("g", SMALL)
    filters_file(coordinator.data).write_text("[1]")
    clock.now_ms += 1000
    again = coordinator.restarted()
    assert "has no valid consumer filters" in caplog.text
    again.beat("g", SMALL)
    assert again.filter_of("g").born_time_ms == clock.now_ms
    assert read_filters(filters_file(coordinator.data))["T"].keys() == {"g"}
