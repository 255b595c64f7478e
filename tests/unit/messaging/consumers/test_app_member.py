"""An instance of an app as a member on all its topics at once."""

from __future__ import annotations

import threading
from queue import SimpleQueue

import pytest
from support.harness.patience import patience

from rocketray.broker.topics.log_reader import Queue
from rocketray.errors import ShardUnavailableError, StreamError, TopicNotFoundError
from rocketray.groups.group_registry import GroupRegistry
from rocketray.groups.heartbeat import Heartbeat, HeartbeatReply
from rocketray.groups.lease import LEASE_MS, SESSION_TIMEOUT_MS
from rocketray.messaging.consumers import app_member
from rocketray.messaging.consumers.app_member import AppMember

QUEUES = {"A": 4, "B": 4, "C": 2}


class Coordinator:
    """The registry of groups behind calls that can fail."""

    def __init__(self) -> None:
        self.groups = GroupRegistry()
        self.failure: Exception | None = None
        self.unheard: set[str] = set()
        """The topics whose heartbeats do not arrive."""
        self.deleted: set[str] = set()
        self.loses_answer = False
        """The next heartbeat is handled, and not answered."""
        self.now_ms = 0
        self.lock = threading.Lock()

    def heartbeat(self, beat: Heartbeat) -> HeartbeatReply:
        with self.lock:
            if self.failure is not None:
                raise self.failure
            if beat.topic in self.unheard:
                raise ShardUnavailableError("the coordinator", "away, as the test asked", 1)
            if beat.topic in self.deleted:
                raise TopicNotFoundError(beat.topic)
            reply = self.groups.heartbeat(beat, QUEUES[beat.topic], self.now_ms)
            if self.loses_answer:
                self.loses_answer = False
                raise ShardUnavailableError("the coordinator", "the answer was lost by the test", 1)
            return reply

    def leave(self, beat: Heartbeat) -> None:
        with self.lock:
            if self.failure is not None:
                raise self.failure
            self.groups.leave(beat)

    def offset(self, queue: Queue) -> int:
        return self.groups.offsets.get("g", *queue)


def bounds(queue: Queue) -> tuple[int, int]:
    return 3, 100


def member(coordinator: Coordinator, name: str, failures: list[Exception]) -> AppMember:
    return AppMember(
        coordinator, "g", name, bounds, on_change=lambda: None, on_failure=failures.append
    )


def numbers_of(held: dict[Queue, int], topic: str) -> set[int]:
    return {number for name, number in held if name == topic}


@pytest.mark.proves(
    "groups",
    "The instances of an app with tables own the same queue numbers of all topics",
)
def test_instances_own_the_same_queue_numbers_of_all_topics() -> None:
    coordinator = Coordinator()
    one, other = (member(coordinator, name, []) for name in ("one", "other"))
    one.subscribe(["A", "B", "C"])
    held = one.adopt()
    assert sorted(held) == [(topic, queue) for topic in QUEUES for queue in range(QUEUES[topic])]
    other.subscribe(["A", "B", "C"])
    assert other.adopt() == {}, "the first one still holds them all"
    one.beat()
    assert one.has_changed()
    held = one.adopt()
    other.beat()
    taken = other.adopt()
    assert held.keys().isdisjoint(taken)
    for each in (held, taken):
        assert len(numbers_of(each, "A")) == 2
        assert numbers_of(each, "A") == numbers_of(each, "B") >= numbers_of(each, "C")
    one.close()
    other.close()


def test_what_was_committed_is_told_before_the_queue_is_given_back() -> None:
    coordinator = Coordinator()
    one, other = (member(coordinator, name, []) for name in ("one", "other"))
    one.subscribe(["A"])
    assert set(one.adopt().values()) == {3}, "where messages begin"
    other.subscribe(["A"])
    one.beat()
    one.commit({("A", queue): 10 + queue for queue in range(4)})
    one.adopt()
    other.beat()
    taken = other.adopt()
    assert taken == {queue: 10 + queue[1] for queue in taken}
    assert taken
    one.commit(dict.fromkeys(taken, 50))
    one.beat()
    assert all(coordinator.offset(queue) == at for queue, at in taken.items())
    one.close()
    other.close()


def test_commits_survive_a_coordinator_that_is_away_and_go_out_at_the_end() -> None:
    coordinator = Coordinator()
    failures: list[Exception] = []
    one = member(coordinator, "one", failures)
    one.subscribe(["A"])
    one.adopt()
    coordinator.failure = ShardUnavailableError("the coordinator", "away", 1)
    one.commit({("A", 0): 42})
    coordinator.failure = None
    one.close()
    assert coordinator.offset(("A", 0)) == 42
    assert not failures


@pytest.mark.parametrize("error", [StreamError("closed"), RuntimeError("a fault")])
def test_the_app_hears_of_whatever_ends_the_heartbeats(
    monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    """Without a heartbeat the lease ends, and an app that was not told would only fall silent."""
    monkeypatch.setattr(app_member, "HEARTBEAT_INTERVAL_S", 0.01)
    coordinator, told = Coordinator(), SimpleQueue[Exception]()
    one = AppMember(coordinator, "g", "one", bounds, on_change=lambda: None, on_failure=told.put)
    one.subscribe(["A"])
    coordinator.failure = error
    assert str(error) in str(told.get(timeout=patience(60)))
    coordinator.failure = None
    one.close()


@pytest.mark.parametrize("how", ["beats", "adopts", "closes"])
def test_a_coordinator_that_started_again_is_told_what_it_forgot(
    monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    monkeypatch.setattr(AppMember, "_keep_beating", lambda _: None)  # the test says when
    coordinator = Coordinator()
    one, other = (member(coordinator, name, []) for name in ("one", "other"))
    one.subscribe(["C"])
    one.adopt()
    one.commit({("C", 0): 40, ("C", 1): 40})
    if how == "adopts":
        other.subscribe(["C"])
    one.beat()
    for queue in (0, 1):
        coordinator.groups.offsets.commit("g", "C", queue, 9)  # what the one before had saved
    if how == "beats":
        one.beat()
        one.beat()
    elif how == "adopts":
        assert len(one.adopt()) == 1
        one.beat()
    else:
        one.close()
    assert [coordinator.offset(("C", queue)) for queue in (0, 1)] == [40, 40]
    other.close()
    one.close()


def test_an_offset_out_of_range_is_moved_into_it() -> None:
    coordinator = Coordinator()
    one = member(coordinator, "one", [])
    one.subscribe(["C"])
    one.adopt()
    one.commit({("C", 0): 1, ("C", 1): 200})
    one.close()
    again = member(coordinator, "again", [])
    again.subscribe(["C"])
    assert again.adopt() == {("C", 0): 3, ("C", 1): 3}
    again.close()


def test_a_refused_member_says_so() -> None:
    coordinator = Coordinator()
    refused = threading.Event()
    one = AppMember(
        coordinator,
        "g",
        "one",
        bounds,
        on_change=lambda: None,
        on_failure=lambda _: refused.set(),
    )
    one.subscribe(["A"])
    coordinator.failure = StreamError("the topic is gone")
    assert refused.wait(patience(20))
    one.close()


def test_a_member_ends_in_order_though_the_coordinator_is_gone(
    caplog: pytest.LogCaptureFixture,
) -> None:
    coordinator = Coordinator()
    one = member(coordinator, "one", [])
    one.subscribe(["A"])
    one.adopt()
    one.commit({("A", 0): 42})
    coordinator.failure = ShardUnavailableError("the coordinator", "gone", 1)
    one.close()
    assert "their messages are redelivered" in caplog.text


def test_offsets_that_are_moved_by_hand_are_where_it_goes_on() -> None:
    coordinator = Coordinator()
    one = member(coordinator, "one", [])
    one.subscribe(["C"])
    one.adopt()
    one.commit({("C", 0): 40, ("C", 1): 40})
    coordinator.groups.moves.order("g", "C", {0: 7})
    one.beat()
    assert one.has_changed()
    one.adopt()
    one.beat()
    assert one.adopt() == {("C", 0): 7, ("C", 1): 40}
    one.close()
    assert [coordinator.offset(("C", queue)) for queue in (0, 1)] == [7, 40]


def leased(coordinator: Coordinator, name: str = "one", topics: str = "C") -> AppMember:
    """A member that adopted queues, by the coordinator's clock; the test says when it beats."""
    found = AppMember(
        coordinator,
        "g",
        name,
        bounds,
        on_change=lambda: None,
        on_failure=lambda _: None,
        clock_ms=lambda: coordinator.now_ms,
    )
    found.subscribe(topics)
    found.adopt()
    return found


@pytest.fixture
def coordinator(monkeypatch: pytest.MonkeyPatch) -> Coordinator:
    monkeypatch.setattr(AppMember, "_keep_beating", lambda _: None)
    return Coordinator()


def test_without_an_answer_for_as_long_as_a_lease_nothing_may_be_handed_out(
    coordinator: Coordinator,
) -> None:
    one = leased(coordinator)
    coordinator.now_ms = LEASE_MS - 1
    assert one.may_hand_out()
    coordinator.now_ms = LEASE_MS
    assert not one.may_hand_out()
    one.close()


def test_one_topic_without_an_answer_keeps_all_from_being_handed_out(
    coordinator: Coordinator,
) -> None:
    one = leased(coordinator, topics="AC")
    coordinator.unheard = {"A"}
    coordinator.now_ms = LEASE_MS - 1
    with pytest.raises(ShardUnavailableError):
        one.beat()
    assert one.may_hand_out()
    coordinator.unheard = {"C"}
    coordinator.now_ms = LEASE_MS
    with pytest.raises(ShardUnavailableError):
        one.beat()  # A is answered again, which comes first
    assert not one.may_hand_out()
    coordinator.unheard = set()
    one.close()


def test_an_app_that_dropped_events_hands_out_nothing_before_it_adopts(
    coordinator: Coordinator,
) -> None:
    one = leased(coordinator)
    coordinator.now_ms = LEASE_MS
    assert not one.may_hand_out()
    one.beat()
    assert not one.may_hand_out(), "where events are to be read again, only `adopt` says"
    assert one.has_changed()
    one.adopt()
    assert one.may_hand_out()
    assert not one.has_changed()
    one.close()


def test_a_late_answer_that_grants_all_queues_lets_an_app_go_on_that_dropped_nothing(
    coordinator: Coordinator,
) -> None:
    one = leased(coordinator)
    one.commit({("C", 0): 11})
    coordinator.now_ms = 3 * SESSION_TIMEOUT_MS
    assert not coordinator.groups.memberships.living("g", "C", coordinator.now_ms).by_member(), (
        "it expired"
    )
    one.beat()
    assert one.may_hand_out()
    assert not one.has_changed()
    assert coordinator.offset(("C", 0)) == 11
    one.close()


def test_what_another_finished_meanwhile_is_neither_begun_again_nor_undone(
    coordinator: Coordinator,
) -> None:
    one = leased(coordinator)
    one.beat()
    one.commit({("C", 0): 11, ("C", 1): 90})
    coordinator.now_ms = SESSION_TIMEOUT_MS + 1  # the process was stopped before it could report
    other = leased(coordinator, "other")
    other.beat()
    other.commit({("C", 0): 80, ("C", 1): 80})
    other.close()
    coordinator.loses_answer = True
    with pytest.raises(ShardUnavailableError):
        one.beat()
    one.beat()
    assert not one.may_hand_out()
    assert one.has_changed()
    one.commit({("C", 0): 12})  # a handler that had begun before the pause
    one.adopt()
    assert one.adopt() == {("C", 0): 80, ("C", 1): 80}
    one.beat()
    assert [coordinator.offset(("C", queue)) for queue in (0, 1)] == [80, 80]
    one.commit({("C", 0): 81})
    one.close()
    assert coordinator.offset(("C", 0)) == 81


def test_a_topic_that_is_created_again_is_read_from_its_beginning(
    coordinator: Coordinator,
) -> None:
    """Also if the coordinator was started again meanwhile: it has forgotten that there was one."""
    one = AppMember(
        *(coordinator, "g", "one", bounds),
        start="latest",
        on_change=lambda: None,
        on_failure=lambda _: None,
    )
    one.subscribe("AC")
    assert set(one.adopt().values()) == {100}
    coordinator.deleted = {"C"}
    one.beat()
    assert numbers_of(one.adopt(), "C") == set()
    coordinator.groups = GroupRegistry()
    coordinator.deleted = set()
    one.beat()
    held = one.adopt()
    assert [held["C", queue] for queue in (0, 1)] == [3, 3]
    one.close()


def test_a_queue_whose_bounds_are_not_known_yet_is_adopted_later(coordinator: Coordinator) -> None:
    is_there = False

    def look(queue: Queue) -> tuple[int, int]:
        if queue == ("C", 1) and not is_there:
            raise ShardUnavailableError("shard C/1", "not created yet, as the test asked", 1)
        return bounds(queue)

    one = AppMember(
        coordinator, "g", "one", look, on_change=lambda: None, on_failure=lambda _: None
    )
    one.subscribe(["C"])
    with pytest.raises(ShardUnavailableError):
        one.adopt()
    assert one.has_changed()
    is_there = True
    assert one.adopt() == {("C", 0): 3, ("C", 1): 3}
    assert not one.has_changed()
    one.close()
