"""A member's session: which queues it reads, which commits it sends, and how long its lease runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pytest

from rocketray.errors import ShardUnavailableError, SubscriptionRefusedError
from rocketray.filters.subscription import Subscription
from rocketray.groups.group_registry import GroupRegistry
from rocketray.groups.heartbeat import Heartbeat, HeartbeatReply
from rocketray.groups.lease import LEASE_MS, SESSION_TIMEOUT_MS
from rocketray.messaging.consumers.member_session import MemberSession

QUEUES = 2


class Clock:
    now_ms = 0

    def __call__(self) -> int:
        return self.now_ms


@pytest.fixture
def clock() -> Clock:
    return Clock()


def new_session(clock: Clock, name: str = "m") -> MemberSession:
    member = Heartbeat("g", "T", Subscription.tags("*"), name, f"i{name}", frozenset())
    return MemberSession(member, clock)


def grant(
    session: MemberSession, granted: Mapping[int, int], meanwhile: Callable[[], object] = int
) -> Heartbeat:
    """Send a heartbeat, let something happen before the reply, and return the heartbeat."""
    sent: list[Heartbeat] = []

    def reply(beat: Heartbeat) -> HeartbeatReply:
        sent.append(beat)
        meanwhile()
        return HeartbeatReply(granted, 1)

    session.beat(reply)
    return sent[0]


def read(session: MemberSession) -> dict[int, int]:
    """Begin to read what is granted, where the group stands; return all that is read."""
    for queue_id, offset in session.assign().items():
        session.begin(queue_id, max(offset, 0))
    return session.finished()


def lose(_beat: Heartbeat) -> HeartbeatReply:
    raise ShardUnavailableError("the coordinator", "away, as the test asked", 1)


def test_a_revoked_queue_is_assigned_by_the_reply_to_a_later_heartbeat(clock: Clock) -> None:
    session = new_session(clock)
    grant(session, {0: 5, 1: 5})
    assert read(session) == {0: 5, 1: 5}
    grant(session, {1: 5})
    lost = session.lost()
    assert lost == {0}
    session.commit(0, 7)
    # Granted again, while the polling thread revokes it: this heartbeat had no last commit of it.
    sent = grant(session, {0: 5, 1: 5}, lambda: session.revoke(lost))
    assert sent.held == {0, 1}
    assert read(session) == {1: 5}
    sent = grant(session, {0: 9, 1: 5})
    assert sent.held == {1}, "so the coordinator knows that it is revoked"
    assert sent.commits == {0: 7}
    assert read(session) == {0: 9, 1: 5}


def test_a_late_reply_renews_the_lease_when_the_queues_that_it_lacks_are_revoked(
    clock: Clock,
) -> None:
    session = new_session(clock)
    grant(session, {0: 5, 1: 5})
    read(session)
    clock.now_ms = LEASE_MS
    grant(session, {1: 5})
    assert not session.lease.is_running
    assert session.needs_rebalance
    assert session.lost() == {0}
    clock.now_ms += 100
    session.revoke(frozenset({0}))
    assert session.lease.left_ms == LEASE_MS - 100, "from when that heartbeat was sent"
    assert not session.needs_rebalance


def test_a_reply_that_lacks_a_queue_that_was_not_read_yet_renews_it_after_a_look(
    clock: Clock,
) -> None:
    session = new_session(clock)
    grant(session, {0: 5})  # not assigned before the next reply
    clock.now_ms = LEASE_MS
    grant(session, {})
    assert not session.lease.is_running
    session.revoke(session.lost())
    assert session.lease.is_running


def test_a_late_reply_that_grants_all_that_is_held_renews_the_lease_at_once(clock: Clock) -> None:
    session = new_session(clock)
    grant(session, {0: 5, 1: 5})
    read(session)
    clock.now_ms = 3 * SESSION_TIMEOUT_MS
    grant(session, {0: 5, 1: 5})
    assert session.lease.left_ms == LEASE_MS


def test_a_queue_that_could_not_be_begun_waits_as_long_as_it_is_granted(clock: Clock) -> None:
    session = new_session(clock)
    grant(session, {0: -1, 1: 4})
    assert session.assign() == {0: -1, 1: 4}
    session.begin(1, 4)
    assert session.must_begin
    assert session.assign() == {0: -1}
    assert grant(session, {1: 4}).held == {0, 1}
    session.revoke(session.lost())
    assert (session.assign(), session.must_begin) == ({}, False)


def test_the_start_of_a_new_group_and_a_corrected_offset_are_reported(clock: Clock) -> None:
    session = new_session(clock)
    grant(session, {0: -1, 1: 4})
    session.assign()
    session.begin(0, 3)
    session.begin(1, 6)
    sent = grant(session, {0: 3, 1: 6})
    assert sent.starts == {0: 3}
    assert sent.commits == {0: 3, 1: 6}
    assert grant(session, {0: 3, 1: 6}).commits == {}


def test_commits_of_a_heartbeat_that_is_refused_are_in_the_last_one(clock: Clock) -> None:
    session = new_session(clock)
    grant(session, {0: 0, 1: 0})
    read(session)
    grant(session, {1: 0})
    session.commit(0, 3)
    session.revoke(session.lost())

    def refuse(_beat: Heartbeat) -> HeartbeatReply:
        raise SubscriptionRefusedError("g", "T", "refused, as the test asked")

    with pytest.raises(SubscriptionRefusedError):
        session.beat(refuse)
    session.commit(1, 4)
    assert session.leave().commits == {0: 3, 1: 4}


def test_a_commit_is_repeated_until_it_is_answered_and_to_a_coordinator_that_lost_it(
    clock: Clock,
) -> None:
    session = new_session(clock)
    grant(session, {0: 0, 1: 0})
    read(session)
    session.commit(0, 3)
    session.commit(1, 3)
    with pytest.raises(ShardUnavailableError):
        session.beat(lose)
    session.commit(1, 4)
    assert grant(session, {0: 3, 1: 4}).commits == {0: 3, 1: 4}
    assert grant(session, {0: 1, 1: 4}).commits == {}
    assert grant(session, {0: 3, 1: 4}).commits == {0: 3}, "it restarted, and had saved 1"


def test_the_last_heartbeat_names_what_was_held_and_has_its_commits(clock: Clock) -> None:
    session = new_session(clock)
    grant(session, {0: 0})
    read(session)
    session.commit(0, 8)
    last = session.leave()
    assert last.held == {0}
    assert last.commits == {0: 8}
    session.commit(0, 9)
    assert session.leave().commits == {}, "it is not the member's any more"


@pytest.mark.parametrize("lost_answers", [0, 1, 2, 3])
def test_a_commit_from_before_a_pause_does_not_undo_what_another_finished_meanwhile(
    clock: Clock, lost_answers: int
) -> None:
    """Also where replies are lost after the coordinator acted, before and after the revocation."""
    registry = GroupRegistry()

    def report(beat: Heartbeat) -> HeartbeatReply:
        return registry.heartbeat(beat, QUEUES, clock.now_ms)

    def report_in_vain(beat: Heartbeat) -> HeartbeatReply:
        report(beat)
        return lose(beat)

    one, other = new_session(clock, "one"), new_session(clock, "other")
    one.beat(report)
    read(one)
    one.beat(report)
    one.commit(0, 11)
    one.commit(1, 90)
    clock.now_ms = SESSION_TIMEOUT_MS + 1  # the process was stopped before it could report
    other.beat(report)
    assert sorted(read(other)) == [0, 1]
    other.commit(0, 80)
    other.commit(1, 80)
    other.beat(report)
    registry.leave(other.leave())
    for _ in range(lost_answers):
        with pytest.raises(ShardUnavailableError):
            one.beat(report_in_vain)
    one.beat(report)
    assert not one.lease.is_running
    one.commit(0, 12)  # a handler that had begun before the pause
    one.revoke(one.lost())
    for _ in range(lost_answers):
        with pytest.raises(ShardUnavailableError):
            one.beat(report_in_vain)
    one.beat(report)
    assert read(one) == {0: 80, 1: 80}
    one.beat(report)
    assert [registry.offsets.get("g", "T", queue) for queue in range(QUEUES)] == [80, 80]
    one.commit(0, 81)
    registry.leave(one.leave())
    assert registry.offsets.get("g", "T", 0) == 81


def test_what_was_finished_before_a_pause_counts_where_no_other_had_the_queue(
    clock: Clock,
) -> None:
    registry = GroupRegistry()

    def report(beat: Heartbeat) -> HeartbeatReply:
        return registry.heartbeat(beat, QUEUES, clock.now_ms)

    session = new_session(clock)
    session.beat(report)
    read(session)
    session.beat(report)
    session.commit(0, 11)
    clock.now_ms = 3 * SESSION_TIMEOUT_MS
    assert not registry.memberships.living("g", "T", clock.now_ms).by_member(), "it expired"
    session.beat(report)
    assert session.lease.is_running
    assert registry.offsets.get("g", "T", 0) == 11


def test_a_queue_keeps_the_epoch_with_which_it_was_assigned(clock: Clock) -> None:
    session = new_session(clock)

    def told(epochs: dict[int, int]) -> None:
        session.beat(lambda _: HeartbeatReply(dict.fromkeys(epochs, 0), 1, epochs=epochs))

    told({0: 7, 1: 8})
    read(session)
    assert [session.epoch(queue_id) for queue_id in range(3)] == [7, 8, 0]
    told({1: 8})
    session.revoke(session.lost())
    assert session.epoch(0) == 0
    told({0: 12, 1: 8})
    assert session.epoch(0) == 0, "not before it is assigned"
    read(session)
    assert [session.epoch(0), session.epoch(1)] == [12, 8]


def test_a_queue_that_is_given_up_is_revoked_although_it_is_granted(clock: Clock) -> None:
    session = new_session(clock)
    grant(session, {0: 5, 1: 5})
    read(session)
    session.give_up(0, 70)
    session.give_up(1 + QUEUES)  # which it never had
    sent = grant(session, {0: 5, 1: 5})
    assert sent.held == {0, 1}
    assert sent.newest_epoch == 70
    assert session.needs_rebalance
    assert session.lost() == {0}
    session.revoke(session.lost())
    assert session.lease.is_running
    sent = grant(session, {0: 6, 1: 5})
    assert sent.held == {1}
    assert sent.commits == {0: 5}
    assert read(session) == {0: 6, 1: 5}
    assert session.lost() == frozenset()
