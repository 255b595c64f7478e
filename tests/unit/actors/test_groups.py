"""Who owns which queue, and whose commits count."""

from __future__ import annotations

from dataclasses import replace

import pytest

from rocketray.actors.assignment import Strategy
from rocketray.actors.groups import GroupRegistry
from rocketray.actors.heartbeat import AppInstance, Heartbeat
from rocketray.actors.lease import SESSION_TIMEOUT_MS
from rocketray.errors import StrategyConflictError, StreamError, SubscriptionConflictError
from rocketray.filters.counters import NO_COUNTERS, FilterCounters
from rocketray.filters.subscription import Subscription

PAY = Subscription.tags("pay")


def beat(
    member: str,
    held: set[int] | None = None,
    *,
    commits: dict[int, int] | None = None,
    instance: str = "i1",
    subscription: Subscription = PAY,
    counters: FilterCounters = NO_COUNTERS,
) -> Heartbeat:
    held_queues = frozenset(held or ())
    return Heartbeat(
        "group", "Topic", subscription, member, instance, held_queues, commits or {}, counters
    )


def test_one_member_gets_all_queues_without_offsets() -> None:
    reply = GroupRegistry().heartbeat(beat("a"), 4, 0)
    assert reply.granted == {0: -1, 1: -1, 2: -1, 3: -1}
    assert reply.members == 1


def test_a_queue_changes_hands_only_after_it_was_given_up() -> None:
    registry = GroupRegistry()
    registry.heartbeat(beat("a"), 2, 0)
    assert registry.heartbeat(beat("b"), 2, 1).granted == {}
    assert set(registry.heartbeat(beat("a", {0, 1}), 2, 2).granted) == {0}
    assert registry.heartbeat(beat("b"), 2, 3).granted == {}
    registry.heartbeat(beat("a", {0}, commits={1: 17}), 2, 4)
    assert registry.heartbeat(beat("b"), 2, 5).granted == {1: 17}


def test_a_silent_member_loses_its_queues_after_the_session_time() -> None:
    registry = GroupRegistry()
    registry.heartbeat(beat("a"), 2, 0)
    assert registry.heartbeat(beat("b"), 2, SESSION_TIMEOUT_MS).granted == {}
    assert set(registry.heartbeat(beat("b"), 2, SESSION_TIMEOUT_MS + 1).granted) == {0, 1}


def test_a_restarted_member_takes_its_place_at_once() -> None:
    registry = GroupRegistry()
    registry.heartbeat(beat("a"), 2, 0)
    assert set(registry.heartbeat(beat("a", instance="i2"), 2, 1).granted) == {0, 1}


def test_only_the_owner_moves_the_offset() -> None:
    registry = GroupRegistry()
    registry.heartbeat(beat("a"), 1, 0)
    registry.heartbeat(beat("b", commits={0: 99}), 1, 1)
    assert registry.offsets.get("group", "Topic", 0) == -1
    registry.heartbeat(beat("a", {0}, commits={0: 5}), 1, 2)
    assert registry.offsets.get("group", "Topic", 0) == 5


def test_leaving_commits_and_frees_the_queues() -> None:
    registry = GroupRegistry()
    registry.heartbeat(beat("a"), 1, 0)
    registry.leave(beat("a", commits={0: 8}))
    assert registry.heartbeat(beat("b"), 1, 1).granted == {0: 8}


def test_members_of_one_group_subscribe_alike() -> None:
    registry = GroupRegistry()
    registry.heartbeat(beat("a"), 1, 0)
    with pytest.raises(SubscriptionConflictError, match="must subscribe alike"):
        registry.heartbeat(beat("b", subscription=Subscription.tags("order")), 1, 1)
    registry.leave(beat("a"))
    registry.heartbeat(beat("b", subscription=Subscription.tags("order")), 1, 2)


def test_a_group_with_members_is_not_deleted() -> None:
    registry = GroupRegistry()
    registry.heartbeat(beat("a", commits={}), 1, 0)
    with pytest.raises(StreamError, match="stop them first"):
        registry.delete("group", 1)
    registry.leave(beat("a"))
    registry.delete("group", 2)
    with pytest.raises(StreamError, match="does not exist"):
        registry.delete("group", 3)


def restarted(before: GroupRegistry, seen_ms: int) -> GroupRegistry:
    after = GroupRegistry()
    owners = before.owners_to_json()
    after.load(before.subscriptions.to_json(), before.offsets.to_json(), owners, seen_ms)
    return after


def test_who_owns_what_survives_a_restart() -> None:
    before = GroupRegistry()
    before.heartbeat(beat("a"), 2, 0)
    before.heartbeat(beat("a", {0, 1}, commits={0: 3, 1: 4}), 2, 1)
    before.owners_saved()
    after = restarted(before, 10)
    (description,) = after.describe({"Topic": 4}, 10)
    assert (description.group, description.topic) == ("group", "Topic")
    assert description.subscription == PAY
    assert description.members == {"a": [0, 1]}
    assert after.heartbeat(beat("b"), 2, 11).granted == {}
    assert after.heartbeat(beat("a", {0, 1}), 2, 12).granted == {0: 3}
    assert restarted(before, 20).heartbeat(beat("b"), 2, 21 + SESSION_TIMEOUT_MS).granted == {
        0: 3,
        1: 4,
    }


def test_owners_are_saved_when_they_change_only() -> None:
    registry = GroupRegistry()
    changes = []
    for held in (set[int](), {0, 1}, {0, 1}, {0}, {0, 1}):
        registry.heartbeat(beat("a", held), 2, 0)
        changes.append(registry.owners_changed)
        registry.owners_saved()
    assert changes == [True, False, False, True, False]


def test_a_member_that_was_taken_for_dead_first_gives_up_what_it_holds() -> None:
    registry = GroupRegistry()
    registry.heartbeat(beat("a"), 2, 0)
    late = SESSION_TIMEOUT_MS + 1
    registry.heartbeat(beat("b"), 2, late)
    registry.leave(beat("b", commits={0: 5}))
    assert registry.heartbeat(beat("a", {0, 1}, commits={0: 2}), 2, late).granted == {}
    assert registry.heartbeat(beat("a"), 2, late).granted == {0: 5, 1: -1}


def test_a_heartbeat_that_comes_late_changes_nothing() -> None:
    registry = GroupRegistry()
    registry.heartbeat(replace(beat("a"), number=1), 2, 0)
    registry.heartbeat(replace(beat("a", {0, 1}, commits={0: 5}), number=3), 2, 1)
    late = replace(beat("a", commits={0: 2}), number=2)
    assert registry.heartbeat(late, 2, 2).granted == {}
    assert registry.members("group", "Topic", 2) == {"a": [0, 1]}
    assert registry.offsets.get("group", "Topic", 0) == 5


def test_members_that_cannot_be_read_are_an_error_that_says_what_to_do() -> None:
    with pytest.raises(StreamError, match=r"group 'g' on topic 'T'.*consumerOwners.json"):
        GroupRegistry().load(None, None, {"T@g": {"queues": 1, "members": [], "owners": {}}}, 0)


def test_a_queue_is_needed_from_where_the_last_of_its_groups_is() -> None:
    registry = GroupRegistry()
    assert registry.needed_from("Topic", 0) is None
    registry.heartbeat(beat("a"), 2, 1)
    assert registry.needed_from("Topic", 0) == 0, "a group without an offset may need everything"
    assert registry.needed_from("Other", 0) is None
    registry.offsets.commit("group", "Topic", 0, 7)
    registry.offsets.commit("gone", "Topic", 0, 3)  # of a group that was deleted
    assert registry.needed_from("Topic", 0) == 7
    assert registry.needed_from("Topic", 1) == 0


def test_what_filters_did_is_added_once_for_each_member() -> None:
    registry = GroupRegistry()
    registry.heartbeat(beat("a"), 2, 0)
    registry.heartbeat(beat("b"), 2, 0)
    for scanned in (100, 100, 250):  # a report that is repeated adds nothing
        counters = FilterCounters(scanned, tag_rejected=scanned // 2)
        registry.heartbeat(beat("a", counters=counters), 2, 1)
    registry.leave(beat("b", counters=FilterCounters(7, collisions=3)))
    assert registry.counters("group", "Topic") == FilterCounters(257, 125, collisions=3)
    assert registry.counters("group", "Other") == NO_COUNTERS


def test_a_member_that_was_silent_is_not_counted_twice() -> None:
    registry = GroupRegistry()
    registry.heartbeat(beat("a"), 1, 0)
    registry.heartbeat(beat("a", counters=FilterCounters(100)), 1, 1)
    late = SESSION_TIMEOUT_MS + 2
    registry.heartbeat(beat("b"), 1, late)
    registry.heartbeat(beat("a", counters=FilterCounters(130)), 1, late)
    registry.heartbeat(beat("a", counters=FilterCounters(135)), 1, late)
    assert registry.counters("group", "Topic").scanned == 105
    registry.heartbeat(beat("a", instance="i2"), 1, late)
    registry.heartbeat(beat("a", instance="i2", counters=FilterCounters(2)), 1, late)
    assert registry.counters("group", "Topic").scanned == 107


@pytest.mark.parametrize(
    ("strategy", "shares"),
    [("averagely", {0, 1, 2}), ("by_circle", {0, 2, 4}), ("sticky", {0, 1, 2})],
)
def test_a_group_divides_its_queues_as_its_members_say(
    strategy: Strategy, shares: set[int]
) -> None:
    registry = GroupRegistry()
    registry.heartbeat(replace(beat("a"), strategy=strategy), 5, 0)
    registry.heartbeat(replace(beat("b"), strategy=strategy), 5, 0)
    first = registry.heartbeat(replace(beat("a", {0, 1, 2, 3, 4}), strategy=strategy), 5, 1)
    assert first.granted.keys() == shares


def test_members_of_one_group_divide_its_queues_alike() -> None:
    registry = GroupRegistry()
    registry.heartbeat(beat("a"), 2, 0)
    with pytest.raises(StrategyConflictError, match=r"'averagely'.*asks for strategy 'sticky'"):
        registry.heartbeat(replace(beat("b"), strategy="sticky"), 2, 1)
    with pytest.raises(StrategyConflictError, match=r"asks for the queue numbers of app 'trade'"):
        registry.heartbeat(replace(beat("b"), together=AppInstance("trade", "one")), 2, 1)
    registry.leave(beat("a"))
    assert registry.heartbeat(replace(beat("b"), strategy="sticky"), 2, 2).members == 1


def test_a_retry_topic_is_read_with_the_filter_that_its_reader_has() -> None:
    registry = GroupRegistry()
    for name, subscription in (("a", PAY), ("b", Subscription.tags("order"))):
        retries = replace(beat(name, subscription=subscription), topic="%RETRY%group")
        registry.heartbeat(retries, 1, 0)
    assert registry.members("group", "%RETRY%group", 0) == {"a": [0], "b": []}
    assert registry.subscriptions.get("group", "%RETRY%group") == PAY


def test_of_two_processes_with_one_name_the_earlier_is_told_to_end() -> None:
    registry = GroupRegistry()
    registry.heartbeat(beat("a"), 1, 0)
    registry.heartbeat(beat("a", instance="i2"), 1, 1)
    with pytest.raises(StreamError, match=r"another process joined group 'group'.*as 'a'"):
        registry.heartbeat(beat("a", {0}), 1, 2)
    assert registry.heartbeat(beat("a", {0}, instance="i2"), 1, 3).granted.keys() == {0}
    registry.heartbeat(beat("a", instance="i3"), 1, 4)
    registry.leave(beat("a", instance="i2"))
    assert registry.members("group", "Topic", 5) == {"a": [0]}
