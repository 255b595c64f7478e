"""A member that was silent for too long loses to nobody what nobody took."""

from __future__ import annotations

import itertools

import pytest

from rocketray.filters.subscription import Subscription
from rocketray.groups.group_registry import GroupRegistry
from rocketray.groups.heartbeat import Heartbeat
from rocketray.groups.lease import SESSION_TIMEOUT_MS
from rocketray.groups.roster import _LATE_MS

PAY = Subscription.tags("pay")
NUMBERS = itertools.count(100)
LATE = SESSION_TIMEOUT_MS + 1


def beat(
    member: str,
    held: set[int] | None = None,
    commits: dict[int, int] | None = None,
    subscription: Subscription = PAY,
) -> Heartbeat:
    told = frozenset(held or ()), commits or {}
    return Heartbeat("group", "Topic", subscription, member, "i1", *told, number=next(NUMBERS))


def silent() -> GroupRegistry:
    """One member finished up to 5 in both queues, and finishes more that nobody hears of."""
    registry = GroupRegistry()
    registry.heartbeat(beat("a"), 2, 0)
    registry.heartbeat(beat("a", {0, 1}, commits={0: 5, 1: 5}), 2, 0)
    return registry


@pytest.mark.proves("groups", "A member that returns keeps queues that are still unassigned")
def test_who_was_silent_keeps_what_nobody_took() -> None:
    registry = silent()
    assert registry.memberships.living("group", "Topic", LATE).by_member() == {}
    reply = registry.heartbeat(beat("a", {0, 1}, commits={0: 9, 1: 9}), 2, LATE)
    assert reply.granted == {0: 9, 1: 9}


def test_who_was_silent_may_give_up_and_leave_with_last_commits() -> None:
    registry = silent()
    registry.memberships.living("group", "Topic", LATE)
    assert registry.heartbeat(beat("a", {1}, commits={0: 9}), 2, LATE).granted == {0: 9, 1: 5}
    registry = silent()
    registry.memberships.living("group", "Topic", LATE)
    registry.leave(beat("a", {0, 1}, commits={0: 9, 1: 9}))
    assert registry.heartbeat(beat("b"), 2, LATE).granted == {0: 9, 1: 9}


@pytest.mark.parametrize("is_back", [True, False])
def test_who_was_silent_does_not_undo_what_another_did(*, is_back: bool) -> None:
    registry = silent()
    registry.heartbeat(beat("b"), 2, LATE)
    registry.leave(beat("b", {0, 1}, commits={0: 20, 1: 20}))
    last = beat("a", {0, 1}, commits={0: 9, 1: 9})
    if is_back:
        assert registry.heartbeat(last, 2, LATE).granted == {}
    else:
        registry.leave(last)
    assert [registry.offsets.get("group", "Topic", queue) for queue in (0, 1)] == [20, 20]


def test_who_was_silent_does_not_undo_a_move() -> None:
    registry = silent()
    registry.memberships.living("group", "Topic", LATE)
    registry.moves.order("group", "Topic", {0: 2})
    registry.carry_out_moves("group", "Topic", LATE)
    reply = registry.heartbeat(beat("a", {0, 1}, commits={0: 9, 1: 9}), 2, LATE)
    assert reply.granted == {1: 9}
    assert registry.heartbeat(beat("a", {1}), 2, LATE).granted == {0: 2, 1: 9}


def test_who_was_silent_while_the_group_changed_what_it_reads_speaks_of_other_messages() -> None:
    registry = silent()
    other = Subscription.tags("order")
    registry.heartbeat(beat("b", subscription=other), 0, LATE)  # takes no queue
    registry.leave(beat("b", subscription=other))
    reply = registry.heartbeat(beat("a", {0, 1}, commits={0: 9, 1: 9}), 2, LATE)
    assert reply.granted == {}
    assert registry.heartbeat(beat("a"), 2, LATE).granted == {0: 5, 1: 5}


@pytest.mark.parametrize("is_late", [False, True], ids=["left", "removed before it left"])
def test_a_report_that_is_late_lets_no_process_that_left_join_again_after_a_restart(
    *, is_late: bool
) -> None:
    registry = silent()
    if is_late:
        registry.memberships.living("group", "Topic", LATE)
    late = beat("a", {0, 1}, commits={0: 7})
    registry.leave(beat("a", {0, 1}, commits={0: 9, 1: 9}))
    for _ in range(2):  # the second restart knows it from what the first one saved
        tables, registry = registry.to_json(), GroupRegistry()
        registry.load(tables, LATE)
        assert registry.heartbeat(late, 2, LATE).granted == {}
        assert registry.memberships.living("group", "Topic", LATE).by_member() == {}
    assert registry.heartbeat(beat("b"), 2, LATE).granted == {0: 9, 1: 9}


def test_a_process_that_left_is_forgotten_when_no_report_can_be_on_its_way() -> None:
    registry = silent()
    registry.leave(beat("a", {0, 1}))
    registry.memberships.living("group", "Topic", _LATE_MS)
    assert registry.to_json()["memberships"] != {}
    registry.memberships.living("group", "Topic", _LATE_MS + 1)
    assert registry.to_json()["memberships"] == {}


def test_a_process_that_left_is_remembered_while_no_report_could_arrive() -> None:
    registry = silent()
    registry.leave(beat("a", {0, 1}))
    registry.memberships.excuse(1000, 1000)
    registry.memberships.living("group", "Topic", _LATE_MS + 1000)
    assert registry.to_json()["memberships"] != {}
    registry.memberships.living("group", "Topic", _LATE_MS + 1001)
    assert registry.memberships.changed, "the file forgets it, too"
    assert registry.to_json()["memberships"] == {}
