"""The node's side of members on other nodes: positions, limits, and sessions that end."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.harness.patience import patience, wait_until
from support.nodes.local_node import LocalNode

from rocketray.errors import FilterError, InvalidNameError, ShardUnavailableError, StreamError
from rocketray.filters.subscription import Subscription
from rocketray.groups.filter_plan import QueuePart
from rocketray.message import Message
from rocketray.messaging.consumers.queue_stream import QueueStream
from rocketray.messaging.remote import fetch_sessions
from rocketray.messaging.remote.fetch_api import Fetch, FetchedQueue, QueueFetch
from rocketray.messaging.remote.fetch_sessions import IDLE_S, FetchSessions
from rocketray.store.reading.packed_records import unpack_records
from rocketray.store.retention import RetentionPolicy
from rocketray.testing import Broker

PART = QueuePart(Subscription.tags("a"), None)
OTHER_PART = QueuePart(Subscription.tags("b"), None)
CREDIT = 1 << 20


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker() as broker:
        broker.topics.ensure("Trade", 4)
        yield broker


class Clock:
    now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def sessions(broker: Broker, clock: Clock) -> Iterator[FetchSessions]:
    found = FetchSessions(broker.node, clock)
    yield found
    found.close()


def send(broker: Broker, queue_id: int, count: int, size: int = 1) -> None:
    with broker.producer() as producer:
        messages = [Message("Trade", b"x" * size, "ab"[number % 2]) for number in range(count)]
        producer.send_many("Trade", messages, queue_id=queue_id)


class Calls:
    """One member's fetches, numbered as it numbers them."""

    def __init__(self, sessions: FetchSessions, name: str = "one") -> None:
        self._sessions = sessions
        self._name = name
        self.number = 0

    def wanted(self, *positions: int, credit: int = CREDIT, part: QueuePart = PART) -> Fetch:
        self.number += 1
        queues = {at: QueueFetch(part, one, credit) for at, one in enumerate(positions)}
        return Fetch.of(self._name, self.number, "g", "Trade", queues)

    def fetch(self, *positions: int, credit: int = CREDIT) -> dict[int, FetchedQueue]:
        return self._sessions.fetch(self.wanted(*positions, credit=credit), 0)


def offsets(found: FetchedQueue) -> list[int]:
    return [at for frame in found.frames for at in unpack_records(frame).entries.queue_offsets]


def test_frames_continue_at_the_position_that_is_asked_for(
    broker: Broker, sessions: FetchSessions
) -> None:
    send(broker, 0, 10)
    calls = Calls(sessions)
    for position, wanted in ((0, [0, 2, 4, 6, 8]), (10, []), (4, [4, 6, 8]), (0, [0, 2, 4, 6, 8])):
        found = calls.fetch(position)[0]
        assert offsets(found) == wanted
        assert (found.next_position, found.end, found.error) == (10, 10, None)


def test_a_stream_that_is_asked_to_continue_is_not_opened_again(
    broker: Broker, sessions: FetchSessions
) -> None:
    send(broker, 0, 10)
    calls = Calls(sessions)
    first = calls.fetch(0)[0]
    send(broker, 0, 2)
    second = calls.fetch(10)[0]
    assert offsets(second) == [10]
    assert second.stream == first.stream
    assert second.counters.scanned == 12
    third = calls.fetch(4)[0]
    assert third.stream != first.stream
    assert third.counters.scanned == 8


def test_a_fetch_that_is_late_or_repeated_returns_and_moves_nothing(
    broker: Broker, sessions: FetchSessions
) -> None:
    send(broker, 0, 10)
    calls = Calls(sessions)
    late, asked = calls.wanted(2), calls.wanted(0)
    first = sessions.fetch(asked, 0)[0]
    assert sessions.fetch(asked, 0) == {}
    assert sessions.fetch(late, 0) == {}
    send(broker, 0, 1)
    assert calls.fetch(10)[0].stream == first.stream


def test_a_queue_without_credit_keeps_its_stream_and_one_that_is_not_named_loses_it(
    broker: Broker, sessions: FetchSessions
) -> None:
    for queue_id in (0, 1):
        send(broker, queue_id, 2)
    calls = Calls(sessions)
    first = calls.fetch(0, 0)
    calls.number += 1
    without = {0: QueueFetch(PART, 2, 0), 1: QueueFetch(PART, 2, CREDIT)}
    assert sessions.fetch(Fetch.of("one", calls.number, "g", "Trade", without), 0).keys() == {1}
    assert calls.fetch(2, 2)[0].stream == first[0].stream
    streams = broker.node.filter.statistics().streams
    calls.fetch(2)
    broker._stepped.step()
    assert broker.node.filter.statistics().streams == streams - 1


def test_all_queues_have_a_turn_in_a_full_reply(
    broker: Broker, sessions: FetchSessions, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetch_sessions, "FRAME_BYTES", 3000)
    monkeypatch.setattr(fetch_sessions, "REPLY_BYTES", 5000)
    for queue_id in range(4):
        send(broker, queue_id, 20, size=1000)
    calls, positions, began = Calls(sessions), [0] * 4, set()
    for _ in range(2):
        found = calls.fetch(*positions)
        assert 5000 <= sum(len(frame) for one in found.values() for frame in one.frames) <= 8500
        began |= {queue_id for queue_id, one in found.items() if one.frames}
        positions = [found[queue_id].next_position for queue_id in range(4)]
    assert len(began) > 2
    got: dict[int, list[int]] = {queue_id: [] for queue_id in range(4)}
    positions = [0] * 4
    while any(position < 20 for position in positions):
        found = calls.fetch(*positions)
        for queue_id, one in found.items():
            got[queue_id] += offsets(one)
        positions = [found[queue_id].next_position for queue_id in range(4)]
    assert list(got.values()) == [list(range(0, 20, 2))] * 4


def test_a_queue_gets_no_more_than_its_credit_and_one_frame(
    broker: Broker, sessions: FetchSessions, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetch_sessions, "FRAME_BYTES", 2000)
    send(broker, 0, 40, size=900)
    found = Calls(sessions).fetch(0, credit=3000)[0]
    assert 3000 <= sum(map(len, found.frames)) <= 5000


def test_matches_behind_those_that_are_no_match_after_all_do_not_wait(
    broker: Broker, sessions: FetchSessions, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetch_sessions, "_TAKE_MESSAGES", 2)
    with broker.producer() as producer:  # the hashes of these tags are the same
        messages = [Message("Trade", b"", tag) for tag in ["BB"] * 5 + ["Aa"]]
        producer.send_many("Trade", messages, queue_id=0)
    part = QueuePart(Subscription.tags("Aa"), None)
    found = sessions.fetch(Calls(sessions).wanted(0, part=part), 0)[0]
    assert (offsets(found), found.counters.collisions) == ([5], 5)


def test_a_part_that_stops_is_read_no_further(broker: Broker, sessions: FetchSessions) -> None:
    send(broker, 0, 10)
    calls = Calls(sessions)
    found = sessions.fetch(calls.wanted(0, part=QueuePart(PART.subscription, 5)), 0)[0]
    assert (offsets(found), found.next_position, found.end) == ([0, 2, 4], 5, 10)
    found = sessions.fetch(calls.wanted(5, part=QueuePart(Subscription.tags("b"), None)), 0)[0]
    assert (offsets(found), found.next_position) == ([5, 7, 9], 10)


def test_one_queue_that_fails_keeps_no_other(broker: Broker, sessions: FetchSessions) -> None:
    send(broker, 0, 2)
    found = Calls(sessions).fetch(0, 0, 0, 0, 0)  # there are four
    assert offsets(found[0]) == [0]
    assert isinstance(found[4].error, ShardUnavailableError)
    assert (found[4].next_position, found[4].stream) == (0, "")


def test_attaching_says_what_is_wrong_with_a_filter(sessions: FetchSessions) -> None:
    for subscription in (Subscription.sql("a >"), Subscription.where("os.path:exists")):
        wanted = Calls(sessions).wanted(0, part=QueuePart(subscription, None))
        with pytest.raises(FilterError):
            sessions.attach(wanted)


def test_names_that_are_no_names_are_refused(sessions: FetchSessions) -> None:
    with pytest.raises(InvalidNameError):
        sessions.bounds("../Trade", 0)
    with pytest.raises(InvalidNameError):
        sessions.fetch(Fetch.of("one", 1, "g", "../Trade", {}), 0)
    with pytest.raises(ShardUnavailableError):
        sessions.bounds("Trade", 4)


@pytest.mark.proves("groups", "No more members on other nodes than the limit fetch from a node")
def test_no_more_members_than_the_limit_have_a_session(
    sessions: FetchSessions, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetch_sessions, "SESSIONS_MAX", 2)
    for name in ("first", "second", "first"):
        Calls(sessions, name).fetch(0)
    with pytest.raises(StreamError, match="2 members on other nodes read through this node"):
        Calls(sessions, "third").fetch(0)
    sessions.leave("first")
    Calls(sessions, "third").fetch(0)
    with pytest.raises(StreamError, match="is the limit"):
        Calls(sessions, "first").fetch(0)


@pytest.mark.proves(
    "groups",
    "The place of a member on another node that does not fetch becomes free",
)
def test_an_idle_session_is_dropped_and_the_next_fetch_begins_another(
    broker: Broker, sessions: FetchSessions, clock: Clock
) -> None:
    calls = Calls(sessions)
    first = calls.fetch(0)[0]
    clock.now_s = IDLE_S
    sessions.sweep()
    second = calls.fetch(0)[0]
    assert second.stream == first.stream
    clock.now_s = 2 * IDLE_S + 0.1
    sessions.sweep()
    broker._stepped.step()
    assert broker.node.filter.statistics().streams == 0
    send(broker, 0, 1)
    assert offsets(calls.fetch(0)[0]) == [0]


def test_a_fetch_waits_no_longer_than_the_limit_whatever_is_asked(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetch_sessions, "POLL_MAX_S", 0.05)
    sessions = FetchSessions(broker.node, time.monotonic)
    calls = Calls(sessions)
    for timeout_s in (1e9, float("inf"), float("nan"), -1.0):
        assert sessions.fetch(calls.wanted(0), timeout_s)[0].frames == []
    sessions.close()


class Waiting:
    """A fetch that waits in a thread, for as long as the test wants: time stands still."""

    def __init__(self, sessions: FetchSessions, wanted: Fetch) -> None:
        self._wanted = wanted
        self._sessions = sessions
        self.result: Any = None
        self._thread = threading.Thread(target=self._fetch)
        self._thread.start()
        wait_until(lambda: self._session is not None and self._session._latest == wanted.number)

    @property
    def _session(self) -> Any:
        return self._sessions._sessions.get(self._wanted.session)

    def get(self) -> Any:
        self._thread.join(patience(60))
        return self.result

    def _fetch(self) -> None:
        try:
            self.result = self._sessions.fetch(self._wanted, 15)
        except StreamError as error:
            self.result = error


def test_a_fetch_that_waits_returns_with_the_first_message(
    broker: Broker, sessions: FetchSessions
) -> None:
    waiting = Waiting(sessions, Calls(sessions).wanted(0))
    send(broker, 0, 1)
    assert offsets(waiting.get()[0]) == [0]


def test_a_fetch_that_waits_is_ended_by_a_call_a_newer_fetch_and_the_end_of_its_session(
    sessions: FetchSessions,
) -> None:
    calls = Calls(sessions)
    waiting = Waiting(sessions, calls.wanted(0))
    sessions.wake("one", calls.number)
    assert waiting.get()[0].frames == []
    sessions.wake("one", calls.number + 1)
    assert sessions.fetch(calls.wanted(0), 15)[0].frames == [], "it was woken before it came"
    waiting = Waiting(sessions, calls.wanted(0))
    assert calls.fetch(0)[0].frames == []
    assert waiting.get()[0].frames == []
    waiting = Waiting(sessions, calls.wanted(0))
    sessions.leave("one")
    assert isinstance(waiting.get(), ShardUnavailableError)


def test_a_fetch_that_waits_returns_when_a_stream_begins(sessions: FetchSessions) -> None:
    """It may wait for the stream that is replaced."""
    calls = Calls(sessions)
    waiting = Waiting(sessions, calls.wanted(0))
    sessions.attach(Fetch.of("one", 0, "g", "Trade", {0: QueueFetch(OTHER_PART, 0, CREDIT)}))
    assert waiting.get() == {}
    assert calls.fetch(0)[0].error is None


def test_a_filter_that_is_away_is_called_once_a_fetch(
    broker: Broker, sessions: FetchSessions, monkeypatch: pytest.MonkeyPatch
) -> None:
    send(broker, 3, 1)
    calls, tried = Calls(sessions), []
    sessions.attach(Fetch.of("one", 0, "g", "Trade", {3: QueueFetch(PART, 0, CREDIT)}))

    def be_away(stream: QueueStream) -> None:
        tried.append(stream.queue_id)
        raise ShardUnavailableError("actor filter", "away, as the test asked")

    with monkeypatch.context() as meanwhile:
        meanwhile.setattr(QueueStream, "attach", be_away)
        found = calls.fetch(0, 0, 0, 0)
    assert len(tried) == 1
    assert [type(found[at].error) for at in range(3)] == [ShardUnavailableError] * 3
    assert offsets(found[3]) == [0]
    assert all(one.error is None for one in calls.fetch(0, 0, 0, 1).values())


def test_a_fetch_that_nobody_waits_for_calls_the_filter_no_more(
    broker: Broker, sessions: FetchSessions, monkeypatch: pytest.MonkeyPatch
) -> None:
    for queue_id in range(4):
        send(broker, queue_id, 1)
    calls, attach = Calls(sessions), QueueStream.attach

    def be_woken(stream: QueueStream) -> None:
        sessions.wake("one", calls.number)
        attach(stream)

    with monkeypatch.context() as meanwhile:
        meanwhile.setattr(QueueStream, "attach", be_woken)
        assert list(map(offsets, calls.fetch(0, 0, 0, 0).values())) == [[0]]
    assert [offsets(one) for _, one in sorted(calls.fetch(1, 0, 0, 0).items())] == [[], *[[0]] * 3]


def test_a_session_whose_call_takes_long_is_not_idle(
    broker: Broker, sessions: FetchSessions, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    send(broker, 0, 1)
    attach = QueueStream.attach

    def take_long(stream: QueueStream) -> None:
        clock.now_s += 2 * IDLE_S
        sessions.sweep()
        attach(stream)

    calls = Calls(sessions)
    with monkeypatch.context() as meanwhile:
        meanwhile.setattr(QueueStream, "attach", take_long)
        found = calls.fetch(0)[0]
        assert offsets(found) == [0]
        sessions.attach(Fetch.of("one", 0, "g", "Trade", {1: QueueFetch(PART, 0, CREDIT)}))
    sessions.sweep()
    assert calls.fetch(1)[0].stream == found.stream


def test_rejected_messages_end_a_wait_after_a_while(
    broker: Broker, sessions: FetchSessions, clock: Clock
) -> None:
    calls = Calls(sessions)
    send(broker, 0, 2)
    waiting = Waiting(sessions, calls.wanted(1))
    time.sleep(0.05)
    assert waiting.result is None
    clock.now_s = 1
    sessions._sessions["one"]._streams.bell.ring()
    found = waiting.get()[0]
    assert (found.frames, found.next_position) == ([], 2)


def test_files_of_removed_messages_are_unmapped_when_they_were_sent(tmp_path: Path) -> None:
    with LocalNode(tmp_path / "data") as node:
        node.topics.ensure("Trade", 1, retention=RetentionPolicy(max_bytes=1))
        send_large(node, 45)
        sessions, position = FetchSessions(node, time.monotonic), 0
        calls = Calls(sessions)
        while position < 45:
            position = sessions.fetch(calls.wanted(position), 1)[0].next_position
        reader = sessions._sessions["one"]._queues[0].stream._reader
        mapped = len(reader._log)
        node.expire()
        calls.fetch(position)
        assert len(reader._log) == 1 < mapped
        sessions.close()


def send_large(node: LocalNode, count: int) -> None:
    """Ten messages fill a file."""
    with node.producer() as producer:
        for _ in range(count):
            producer.send("Trade", b"x" * 100_000, tags="a")
