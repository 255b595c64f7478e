"""Who owns which queue, and whose commits count."""

from __future__ import annotations

from dataclasses import replace

import pytest
from support.models.heartbeats import NUMBERS, PAY, beat, restarted

from rocketray.errors import StrategyConflictError, StreamError, SubscriptionConflictError
from rocketray.filters.counters import NO_COUNTERS, FilterCounters
from rocketray.filters.subscription import EVERYTHING, Subscription
from rocketray.groups.assignment import Strategy
from rocketray.groups.failing import FailingMessage
from rocketray.groups.group_registry import GroupRegistry
from rocketray.groups.heartbeat import AppInstance, Heartbeat
from rocketray.groups.lease import SESSION_TIMEOUT_MS


def test_one_member_gets_all_queues_without_offsets() -> None:
    reply = GroupRegistry().heartbeat(beat("a"), 4, 0)
    assert reply.granted == {0: -1, 1: -1, 2: -1, 3: -1}
    assert reply.members == 1


@pytest.mark.proves("groups", "A queue changes its owner only after the old owner released it")
def test_a_queue_changes_hands_only_after_it_was_given_up() -> None:
    registry = GroupRegistry()
    registry.heartbeat(beat("a"), 2, 0)
    assert registry.heartbeat(beat("b"), 2, 1).granted == {}
    assert set(registry.heartbeat(beat("a", {0, 1}), 2, 2).granted) == {0}
    assert registry.heartbeat(beat("b"), 2, 3).granted == {}
    registry.heartbeat(beat("a", {0}, commits={1: 17}), 2, 4)
    assert registry.heartbeat(beat("b"), 2, 5).granted == {1: 17}


def test_only_the_owner_of_a_queue_says_at_which_message_it_is_held() -> None:
    registry = GroupRegistry()
    failing = {0: FailingMessage(3, 1, None, "ValueError: odd")}
    registry.heartbeat(beat("a"), 1, 0)
    registry.heartbeat(replace(beat("a", {0}), failing=failing), 1, 1)
    registry.heartbeat(replace(beat("b"), failing={0: FailingMessage(9, 9, 9, "")}), 1, 2)
    [described] = registry.describe({"Topic": 1}, 3)
    assert described.failing == failing
    registry.heartbeat(beat("a", {0}), 1, 4)
    [described] = registry.describe({"Topic": 1}, 5)
    assert described.failing == {}


@pytest.mark.proves("groups", "A silent member loses its queues after the session timeout")
def test_a_silent_member_loses_its_queues_after_the_session_time() -> None:
    registry = GroupRegistry()
    registry.heartbeat(beat("a"), 2, 0)
    assert registry.heartbeat(beat("b"), 2, SESSION_TIMEOUT_MS).granted == {}
    assert set(registry.heartbeat(beat("b"), 2, SESSION_TIMEOUT_MS + 1).granted) == {0, 1}


@pytest.mark.proves(
    "groups",
    "A member with the client id of a dead one gets its queues after the session timeout",
)
def test_a_restarted_member_gets_what_its_predecessor_had_once_that_one_cannot_live() -> None:
    registry = GroupRegistry()
    registry.heartbeat(beat("a"), 2, 0)
    for seen_ms in (1, SESSION_TIMEOUT_MS):
        assert registry.heartbeat(beat("a", instance="i2"), 2, seen_ms).granted == {}
    late = SESSION_TIMEOUT_MS + 1
    assert set(registry.heartbeat(beat("a", instance="i2"), 2, late).granted) == {0, 1}


def test_a_restarted_member_gets_what_its_predecessor_had_at_once_if_that_one_left() -> None:
    registry = GroupRegistry()
    registry.heartbeat(beat("a"), 2, 0)
    assert registry.heartbeat(beat("a", instance="i2"), 2, 1).granted == {}
    order = registry.moves.order("group", "Topic", {1: 6})
    registry.leave(beat("a", {0, 1}, commits={0: 4, 1: 9}))
    assert registry.moves.left(order) == set()
    assert registry.heartbeat(beat("a", instance="i2"), 2, 2).granted == {0: 4, 1: 6}
    registry.leave(beat("a", {0, 1}, instance="i2"))
    assert set(registry.heartbeat(beat("a", instance="i3"), 2, 3).granted) == {0, 1}


def test_a_predecessor_keeps_its_queues_when_the_coordinator_starts_again() -> None:
    before = GroupRegistry()
    before.heartbeat(beat("a"), 2, 0)
    before.heartbeat(beat("a", instance="i2"), 2, 1)
    after = restarted(before, 10)
    assert after.heartbeat(beat("a", instance="i2"), 2, 11).granted == {}
    with pytest.raises(StreamError, match="another process joined"):
        after.heartbeat(beat("a"), 2, 12)
    late = 11 + SESSION_TIMEOUT_MS
    assert set(after.heartbeat(beat("a", instance="i2"), 2, late).granted) == {0, 1}


def test_a_group_whose_predecessor_may_live_is_not_deleted() -> None:
    registry = GroupRegistry()
    registry.heartbeat(beat("a"), 1, 0)
    registry.heartbeat(beat("a", instance="i2"), 1, 1)
    registry.leave(beat("a", instance="i2"))
    with pytest.raises(StreamError, match=r"still read by 1 members of group"):
        registry.delete("group", 2)
    registry.delete("group", SESSION_TIMEOUT_MS + 1)


def test_an_app_gets_no_queue_number_that_its_predecessor_may_have_in_another_topic() -> None:
    registry = GroupRegistry()
    first, second = (AppInstance("trade", name) for name in ("one", "two"))
    other = replace(beat("b"), topic="Other")
    registry.heartbeat(replace(beat("a"), together=first), 2, 0)
    registry.heartbeat(replace(beat("a", instance="i2"), together=second), 2, 1)
    assert registry.heartbeat(replace(other, together=second), 2, 2).granted == {}
    late = SESSION_TIMEOUT_MS + 1
    again = replace(other, together=second, number=next(NUMBERS))
    assert set(registry.heartbeat(again, 2, late).granted) == {0, 1}


def test_only_the_owner_moves_the_offset() -> None:
    registry = GroupRegistry()
    registry.heartbeat(beat("a"), 1, 0)
    registry.heartbeat(beat("b", commits={0: 99}), 1, 1)
    assert registry.offsets.get("group", "Topic", 0) == -1
    registry.heartbeat(beat("a", {0}, commits={0: 5}), 1, 2)
    assert registry.offsets.get("group", "Topic", 0) == 5


@pytest.mark.proves("groups", "A member that leaves commits and releases its queues")
def test_leaving_commits_and_frees_the_queues() -> None:
    registry = GroupRegistry()
    registry.heartbeat(beat("a"), 1, 0)
    registry.leave(beat("a", {0}, commits={0: 8}))
    assert registry.heartbeat(beat("b"), 1, 1).granted == {0: 8}


@pytest.mark.proves("groups", "Members with different subscriptions are refused")
def test_members_of_one_group_subscribe_alike() -> None:
    registry = GroupRegistry()
    registry.heartbeat(beat("a"), 1, 0)
    with pytest.raises(SubscriptionConflictError, match="must subscribe alike"):
        registry.heartbeat(beat("b", subscription=Subscription.tags("order")), 1, 1)
    registry.leave(beat("a"))
    registry.heartbeat(beat("b", subscription=Subscription.tags("order")), 1, 2)


def test_members_with_one_text_in_two_dialects_are_told_so(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """One runs an earlier release, whose default was RocketMQ's dialect."""
    old, new = Subscription.sql("a > 5", "rocketmq"), Subscription.sql("a > 5")
    for first, second in ((old, new), (new, old)):
        registry = GroupRegistry()
        registry.heartbeat(beat("a", subscription=first), 1, 0)
        words = f"dialect {first.dialect} before, {second.dialect} now"
        with pytest.raises(SubscriptionConflictError, match=words) as caught:
            registry.heartbeat(beat("b", subscription=second), 1, 1)
        assert 'dialect="rocketmq"' in str(caught.value)
        assert registry.subscriptions.get("group", "Topic") == first
        registry.leave(beat("a", subscription=first))
        registry.heartbeat(beat("b", subscription=second), 1, 2)
        assert registry.subscriptions.get("group", "Topic") == second
        assert f"its filter changed: the same text, but {words}" in caplog.text


def test_a_stored_subscription_without_a_dialect_is_rocketmqs() -> None:
    registry = GroupRegistry()
    registry.heartbeat(beat("a", subscription=Subscription.sql("a > 5")), 1, 0)
    stored = registry.subscriptions.to_json()
    [[topic]] = [
        each["subscriptions"].items() for each in stored["subscriptionGroupTable"].values()
    ]
    again = GroupRegistry()
    again.subscriptions.load(stored)
    assert again.subscriptions.get("group", topic[0]) == Subscription.sql("a > 5")
    del topic[1]["dialect"], topic[1]["dialectRules"]
    earlier = GroupRegistry()
    earlier.subscriptions.load(stored)
    assert earlier.subscriptions.get("group", topic[0]) == Subscription.sql("a > 5", "rocketmq")


def test_a_group_with_members_is_not_deleted() -> None:
    registry = GroupRegistry()
    registry.heartbeat(beat("a", commits={}), 1, 0)
    with pytest.raises(StreamError, match="stop them first"):
        registry.delete("group", 1)
    registry.leave(beat("a"))
    registry.delete("group", 2)
    with pytest.raises(StreamError, match="does not exist"):
        registry.delete("group", 3)


def test_a_commit_alone_waits_for_the_next_save() -> None:
    registry = GroupRegistry()
    registry.heartbeat(beat("a"), 1, 0)
    registry.heartbeat(beat("a", {0}), 1, 0)
    registry.saved()
    assert registry.to_json(only_unsaved=True) == {}
    registry.heartbeat(beat("a", {0}, commits={0: 5}), 1, 0)
    assert not registry.must_save
    [(table, offsets), (_, starts)] = registry.to_json(only_unsaved=True).items()
    assert (table, offsets, starts) == ("offsetTable", {"Topic@group": {"0": 5}}, {})


def test_members_of_a_deleted_topic_are_not_saved_again() -> None:
    registry = GroupRegistry()
    registry.heartbeat(beat("a"), 1, 0)
    registry.saved()
    registry.keep_topics(())
    assert registry.to_json(only_unsaved=True)["memberships"] == {}


def test_owners_are_saved_when_they_change_only() -> None:
    registry = GroupRegistry()
    changes = []
    for held in (set[int](), {0, 1}, {0, 1}, {0}, {0, 1}):
        registry.heartbeat(beat("a", held), 2, 0)
        changes.append(registry.must_save)
        assert ("memberships" in registry.to_json(only_unsaved=True)) is registry.must_save
        registry.saved()
    assert changes == [True, True, False, True, True], "also when an owner learns that it is one"


def test_a_member_that_was_taken_for_dead_first_gives_up_what_it_holds() -> None:
    registry = GroupRegistry()
    registry.heartbeat(beat("a"), 2, 0)
    late = SESSION_TIMEOUT_MS + 1
    registry.heartbeat(beat("b"), 2, late)
    registry.leave(beat("b", {0}, commits={0: 5}))
    assert registry.heartbeat(beat("a", {0, 1}, commits={0: 2}), 2, late).granted == {}
    assert registry.heartbeat(beat("a"), 2, late).granted == {0: 5, 1: -1}


def test_a_heartbeat_that_arrives_after_its_process_is_gone_moves_no_offset_back() -> None:
    registry = GroupRegistry()
    registry.heartbeat(beat("a"), 1, 0)
    early = beat("a", {0}, commits={0: 2})
    registry.heartbeat(early, 1, 1)
    registry.heartbeat(beat("a", {0}, commits={0: 5}), 1, 2)
    silent = SESSION_TIMEOUT_MS + 3
    registry.carry_out_moves("group", "Topic", silent)  # which removes it
    assert registry.heartbeat(early, 1, silent).granted == {}
    assert registry.heartbeat(beat("a", {0}), 1, silent).granted == {0: 5}
    registry.leave(beat("a", {0}, commits={0: 6}))
    assert registry.heartbeat(early, 1, silent).granted == {}
    assert registry.heartbeat(beat("b"), 1, silent).granted == {0: 6}


@pytest.mark.proves("groups", "A report that is handled late or twice changes nothing")
@pytest.mark.parametrize("number", [2, 3])
def test_a_heartbeat_that_comes_late_or_twice_changes_nothing(number: int) -> None:
    registry = GroupRegistry()
    registry.heartbeat(replace(beat("a"), number=1), 2, 0)
    registry.heartbeat(replace(beat("a", {0, 1}, commits={0: 5}), number=3), 2, 1)
    late = replace(beat("a", commits={0: 2}), number=number)
    assert registry.heartbeat(late, 2, 2).granted == {0: 5, 1: -1}, "what it has"
    assert registry.memberships.living("group", "Topic", 2).by_member() == {"a": [0, 1]}
    assert registry.offsets.get("group", "Topic", 0) == 5
    reply = registry.heartbeat(replace(beat("a", {0, 1}), number=4), 2, SESSION_TIMEOUT_MS + 1)
    assert reply.granted.keys() == {0, 1}, "it was heard at 1"


def moved_while_the_answer_was_lost() -> tuple[GroupRegistry, Heartbeat]:
    """A member gave a queue up, with a last commit, for a move; it does not hear that it has it."""
    registry = GroupRegistry()
    registry.heartbeat(beat("a"), 1, 0)
    registry.heartbeat(beat("a", {0}, commits={0: 100}), 1, 1)
    order = registry.moves.order("group", "Topic", {0: 7})
    assert registry.heartbeat(beat("a", {0}), 1, 2).granted == {}
    given_up = beat("a", commits={0: 100})
    assert registry.heartbeat(given_up, 1, 3).granted == {0: 7}
    assert registry.moves.left(order) == set()
    return registry, given_up


def test_a_move_is_not_undone_by_a_report_that_is_handled_twice() -> None:
    registry, given_up = moved_while_the_answer_was_lost()
    assert registry.heartbeat(given_up, 1, 4).granted == {0: 7}
    after = restarted(registry, 5)
    assert after.heartbeat(given_up, 1, 6).granted == {0: 7}


def test_a_move_is_not_undone_by_what_is_reported_again() -> None:
    registry, given_up = moved_while_the_answer_was_lost()
    again = replace(given_up, number=next(NUMBERS))
    for each in (restarted(registry, 4), registry):
        assert each.heartbeat(again, 1, 5).granted == {0: 7}


def test_a_move_is_not_undone_by_a_member_that_leaves() -> None:
    registry, given_up = moved_while_the_answer_was_lost()
    registry.leave(replace(given_up, number=next(NUMBERS)))
    assert registry.offsets.get("group", "Topic", 0) == 7


def test_what_a_member_finished_counts_across_a_restart_though_it_gives_the_queue_up() -> None:
    before = GroupRegistry()
    before.heartbeat(beat("a"), 1, 0)
    before.heartbeat(beat("a", {0}), 1, 1)
    after = restarted(before, 2)
    after.heartbeat(beat("a", commits={0: 9}), 1, 3)
    assert after.offsets.get("group", "Topic", 0) == 9


def test_a_member_that_is_refused_leaves_nothing_behind() -> None:
    registry = GroupRegistry()
    with pytest.raises(StreamError, match="1 to 255 printable"):
        registry.heartbeat(beat("a\ni1"), 1, 0)
    assert registry.to_json()["memberships"] == {}
    registry.heartbeat(beat("a"), 1, 0)
    registry.heartbeat(beat("a", instance="i2"), 1, 1)
    with pytest.raises(StreamError, match="another process joined"):
        registry.heartbeat(beat("a", subscription=Subscription.tags("order")), 1, 2)
    assert registry.subscriptions.get("group", "Topic") == PAY


def test_members_that_cannot_be_read_are_an_error_that_says_what_to_do() -> None:
    damaged = {"T@g": {"queues": 1, "members": [], "owners": {}}}
    with pytest.raises(StreamError, match=r"group 'g' on topic 'T'.*restore config/groups.json"):
        GroupRegistry().load({"memberships": damaged}, 0)


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
    assert registry.memberships.counters("group", "Topic") == FilterCounters(257, 125, collisions=3)
    assert registry.memberships.counters("group", "Other") == NO_COUNTERS


def test_a_member_that_was_silent_is_not_counted_twice() -> None:
    registry = GroupRegistry()
    registry.heartbeat(beat("a"), 1, 0)
    registry.heartbeat(beat("a", counters=FilterCounters(100)), 1, 1)
    late = SESSION_TIMEOUT_MS + 2
    registry.heartbeat(beat("b"), 1, late)
    registry.heartbeat(beat("a", counters=FilterCounters(130)), 1, late)
    registry.heartbeat(beat("a", counters=FilterCounters(135)), 1, late)
    assert registry.memberships.counters("group", "Topic").scanned == 105
    registry.heartbeat(beat("a", instance="i2"), 1, late)
    registry.heartbeat(beat("a", instance="i2", counters=FilterCounters(2)), 1, late)
    assert registry.memberships.counters("group", "Topic").scanned == 107


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


@pytest.mark.proves("groups", "Members with different strategies are refused")
def test_members_of_one_group_divide_its_queues_alike() -> None:
    registry = GroupRegistry()
    registry.heartbeat(beat("a"), 2, 0)
    with pytest.raises(StrategyConflictError, match=r"'averagely'.*asks for strategy 'sticky'"):
        registry.heartbeat(replace(beat("b"), strategy="sticky"), 2, 1)
    with pytest.raises(StrategyConflictError, match=r"asks for the queue numbers of app 'trade'"):
        registry.heartbeat(replace(beat("b"), together=AppInstance("trade", "one")), 2, 1)
    registry.leave(beat("a"))
    assert registry.heartbeat(replace(beat("b"), strategy="sticky"), 2, 2).members == 1


@pytest.mark.proves(
    "groups",
    "A group reads its retry topic without a filter, also with members of an earlier release",
)
def test_a_group_has_no_filter_on_its_retry_topic_whatever_members_of_earlier_releases_ask_for() -> (
    None
):
    registry = GroupRegistry()
    for name, subscription in (("a", PAY), ("b", EVERYTHING), ("c", Subscription.tags("order"))):
        retries = replace(beat(name, subscription=subscription), topic="%RETRY%group")
        registry.heartbeat(retries, 1, 0)
    membership = registry.memberships.living("group", "%RETRY%group", 0)
    assert membership.by_member() == {"a": [0], "b": [], "c": []}
    assert registry.subscriptions.get("group", "%RETRY%group") == EVERYTHING


def test_a_filter_on_a_retry_topic_that_an_earlier_release_saved_is_dropped() -> None:
    before = GroupRegistry()
    before.heartbeat(replace(beat("a"), topic="%RETRY%other"), 1, 0)
    saved = before.to_json()
    [subscriptions] = [one["subscriptions"] for one in saved["subscriptionGroupTable"].values()]
    subscriptions["%RETRY%group"] = subscriptions["%RETRY%other"]
    after = GroupRegistry()
    after.load(saved, 0)
    assert after.subscriptions.get("group", "%RETRY%group") == EVERYTHING
    assert after.subscriptions.get("group", "%RETRY%other") == PAY, "another group's"
    after.heartbeat(replace(beat("a", subscription=EVERYTHING), topic="%RETRY%group"), 1, 1)


@pytest.mark.proves(
    "groups",
    "Of several processes with one client id, all but the last are told to end",
)
def test_of_processes_with_one_name_all_but_the_last_are_told_to_end() -> None:
    registry = GroupRegistry()
    registry.heartbeat(beat("a"), 1, 0)
    registry.heartbeat(beat("a", instance="i2"), 1, 1)
    with pytest.raises(StreamError, match=r"another process joined group 'group'.*as 'a'"):
        registry.heartbeat(beat("a", {0}), 1, 2)
    registry.leave(beat("a", {0}))
    assert registry.heartbeat(beat("a", instance="i2"), 1, 3).granted.keys() == {0}
    registry.heartbeat(beat("a", instance="i3"), 1, 4)
    for former in ("i1", "i2"):
        with pytest.raises(StreamError, match="another process joined"):
            registry.heartbeat(beat("a", instance=former), 1, 5)
    registry.leave(beat("a", {0}, instance="i2"))
    assert registry.heartbeat(beat("a", instance="i3"), 1, 6).granted.keys() == {0}
    registry.leave(beat("a", {0}, instance="i3"))
    assert registry.heartbeat(beat("a"), 1, 7).granted.keys() == {0}, "nobody has the name now"
