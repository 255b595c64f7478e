"""What a coordinator decides survives it, and does not need Ray to be decided."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from rocketray.actors.catalog import TopicCatalog
from rocketray.actors.cluster_state import ClusterState
from rocketray.actors.filter_rules import FilterRules
from rocketray.actors.heartbeat import Heartbeat
from rocketray.actors.lease import SESSION_TIMEOUT_MS
from rocketray.errors import ConfigError, TopicNotFoundError
from rocketray.filters.subscription import Subscription
from rocketray.store.retention import RetentionPolicy

SQL = Subscription.sql("amount > 10")


def state(data: Path, now_ms: int = 0) -> ClusterState:
    return ClusterState(data, FilterRules(), lambda: now_ms)


NUMBERS = itertools.count(1)


def beat(*held: int, commits: dict[int, int] | None = None) -> Heartbeat:
    return Heartbeat(
        "g", "Trade", SQL, "one", "instance", frozenset(held), commits or {}, number=next(NUMBERS)
    )


def test_another_one_goes_on_where_it_saved(tmp_path: Path) -> None:
    first = state(tmp_path)
    made = first.create_topic("Trade", 2, RetentionPolicy(max_bytes=5))
    first.heartbeat(beat())
    first.heartbeat(beat(0, 1, commits={0: 7}))
    first.save()
    first.heartbeat(beat(0, 1, commits={0: 9}))  # and this it forgets
    second = state(tmp_path)
    assert second.topics() == {"Trade": made}
    (group,) = second.groups()
    assert (group.subscription, group.offsets, group.members) == (
        SQL,
        {0: 7, 1: -1},
        {"one": [0, 1]},
    )
    assert [order.needed_from for order in second.expiry_orders()] == [7, 0]
    assert second.heartbeat(beat(0, 1)).granted == {0: 7, 1: -1}


def test_how_far_a_queue_was_finished_is_saved_when_it_is_given_up(tmp_path: Path) -> None:
    first = state(tmp_path)
    first.create_topic("Trade", 2)
    first.heartbeat(beat())
    first.heartbeat(beat(0, 1, commits={0: 7}))
    first.heartbeat(beat(1, commits={0: 9}))  # its owner does not say so again
    second = state(tmp_path)
    assert second.heartbeat(beat(1)).granted == {0: 9, 1: -1}


def test_members_are_not_silent_while_nobody_can_hear_them(tmp_path: Path) -> None:
    first = state(tmp_path)
    first.create_topic("Trade", 1)
    first.heartbeat(beat())
    now_ms = 0
    second = ClusterState(tmp_path, FilterRules(), lambda: now_ms)
    now_ms = 10 * SESSION_TIMEOUT_MS  # its shards came slowly
    second.begin_to_listen()
    assert [group.members for group in second.groups()] == [{"one": [0]}]
    now_ms += SESSION_TIMEOUT_MS + 1
    assert [group.members for group in second.groups()] == [{}]


def test_a_member_that_leaves_is_saved_at_once(tmp_path: Path) -> None:
    first = state(tmp_path)
    first.create_topic("Trade", 1)
    first.heartbeat(beat())
    first.leave(beat(0, commits={0: 3}))
    (group,) = state(tmp_path).groups()
    assert group.offsets == {0: 3}


def test_a_topic_that_may_not_be_read_has_no_members(tmp_path: Path) -> None:
    only = state(tmp_path)
    only.create_topic("Trade", 1)
    only.set_permission("Trade", 2)
    with pytest.raises(ConfigError, match=r"permission 2.*rocketray topics alter Trade --perm 6"):
        only.heartbeat(beat())


def test_a_deleted_topic_takes_its_offsets_along(tmp_path: Path) -> None:
    only = state(tmp_path)
    only.create_topic("Trade", 1)
    only.heartbeat(beat())
    only.heartbeat(beat(0, commits={0: 3}))
    only.delete_topic("Trade")
    with pytest.raises(TopicNotFoundError):
        only.topic("Trade")
    only.create_topic("Trade", 1)
    assert only.heartbeat(beat()).granted == {0: -1}


def test_a_deletion_that_was_interrupted_is_finished_by_the_next_one(tmp_path: Path) -> None:
    first = state(tmp_path)
    first.create_topic("Trade", 1)
    first.heartbeat(beat())
    first.heartbeat(beat(0, commits={0: 3}))
    first.stop()
    TopicCatalog.load(tmp_path).without_topic("Trade").save(tmp_path)
    second = state(tmp_path)
    assert second.groups() == []
    second.create_topic("Trade", 1)
    assert second.heartbeat(beat()).granted == {0: -1}


def test_members_of_a_node_that_was_stopped_for_long_are_gone(tmp_path: Path) -> None:
    first = state(tmp_path)
    first.create_topic("Trade", 1)
    first.heartbeat(beat())
    first.stop()
    (soon,) = state(tmp_path, SESSION_TIMEOUT_MS).groups()
    assert soon.members == {"one": [0]}
    (later,) = state(tmp_path, SESSION_TIMEOUT_MS + 1).groups()
    assert later.members == {}


def test_asking_for_bitmap_orders_goes_by_the_clock_that_members_are_heard_by(
    tmp_path: Path,
) -> None:
    """The time of day is far ahead of the steady clock; nobody is taken for silent."""
    only = ClusterState(tmp_path, FilterRules(), lambda: 1_700_000_000_000, lambda: 5)
    only.create_topic("Trade", 1)
    only.set_bitmaps("Trade", "on")
    only.heartbeat(beat())
    [order] = only.bitmap_orders()
    assert [one.group for one in order.living or ()] == ["g"]
    assert only.groups()[0].members == {"one": [0]}


def test_a_heartbeat_that_comes_while_its_topic_is_deleted_leaves_nothing_behind(
    tmp_path: Path,
) -> None:
    class Rules(FilterRules):
        def check(self, *_: object) -> None:
            only.delete_topic("Trade")  # by another thread, while this one looks at the filter

    only = ClusterState(tmp_path, Rules(), lambda: 0)
    only.create_topic("Trade", 1)
    with pytest.raises(TopicNotFoundError):
        only.heartbeat(beat())
    assert only.groups() == []


@pytest.mark.parametrize("saving", ["_save_owners", "_save_offsets"])
@pytest.mark.parametrize("report", ["heartbeat", "leave"])
def test_a_move_is_not_undone_by_a_report_that_comes_to_another_coordinator(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, report: str, saving: str
) -> None:
    """The first one died between the files that it writes, so nobody was answered."""
    first = state(tmp_path)
    first.create_topic("Trade", 1)
    first.heartbeat(beat())
    first.heartbeat(beat(0, commits={0: 100}))
    first.ask_groups("move_offsets", "g", "Trade", {0: 7})
    first.heartbeat(beat(0))
    save = getattr(first, saving)

    def save_and_die() -> None:
        save()
        raise KeyboardInterrupt

    monkeypatch.setattr(first, saving, save_and_die)
    last = beat(commits={0: 100})
    with pytest.raises(KeyboardInterrupt):
        getattr(first, report)(last)
    second = state(tmp_path)
    getattr(second, report)(last)
    second.heartbeat(beat())
    assert second.registry.offsets.get("g", "Trade", 0) == 7
