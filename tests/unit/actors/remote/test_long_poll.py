"""Long polls that fail: what goes by itself costs nothing, and what does not is said."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.local_node import LocalNode

from rocketray.actors.remote import long_poll, remote_consumer
from rocketray.actors.remote.remote_calls import CommitReply, PollReply
from rocketray.actors.remote.remote_consumer import RemoteGroupConsumer
from rocketray.actors.remote.remote_members import RemoteMembers
from rocketray.errors import FilterError, InvalidMessageError, ShardUnavailableError, StreamError
from rocketray.filters.subscription import Subscription

ALL = Subscription.tags("*")


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[LocalNode]:
    monkeypatch.setattr(long_poll, "LONG_POLL_S", 0.1)
    monkeypatch.setattr(long_poll, "_RETRY_S", 0.01)
    monkeypatch.setattr(remote_consumer, "_COMMIT_INTERVAL_S", 0.05)
    with LocalNode(tmp_path / "data") as node:
        node.create_topic("Trade", 1)
        yield node


class FailingGateway:
    """A call raises what the test says, once its answer was made."""

    def __init__(self, members: RemoteMembers) -> None:
        self._members = members
        self.failures: dict[str, Exception] = {}
        self.has_failed = 0

    def __getattr__(self, name: str) -> Any:
        call = getattr(self._members, name)

        def answer(*arguments: Any) -> Any:
            found = call(*arguments)
            if name in self.failures:
                self.has_failed += 1
                raise self.failures.pop(name)
            return found

        return answer


def bodies(member: RemoteGroupConsumer, count: int) -> list[bytes]:
    found: list[bytes] = []
    deadline = time.monotonic() + 60
    while len(found) < count:
        assert time.monotonic() < deadline
        for batch in member.poll(0.1):
            found += batch.bodies()
            member.commit(batch.topic, batch.queue_id, batch.next_queue_offset)
    return found


@pytest.mark.parametrize(
    "failure", [OSError("lost in the test"), ShardUnavailableError("gateway", 0, "test")]
)
def test_a_poll_that_failed_is_made_again_and_loses_nothing(
    node: LocalNode, failure: Exception
) -> None:
    gateway = FailingGateway(node.gateway)
    with RemoteGroupConsumer(gateway, "g", "Trade", ALL) as member, node.producer() as producer:
        producer.send("Trade", b"1")
        assert bodies(member, 1) == [b"1"]
        gateway.failures["poll"] = failure
        producer.send("Trade", b"2")
        assert bodies(member, 1) == [b"2"]
        assert gateway.has_failed


@pytest.mark.parametrize("call", ["poll", "commit"])
def test_every_poll_raises_what_does_not_go_by_itself(node: LocalNode, call: str) -> None:
    gateway = FailingGateway(node.gateway)
    with RemoteGroupConsumer(gateway, "g", "Trade", ALL) as member:
        gateway.failures[call] = ZeroDivisionError("of the test")
        with pytest.raises(StreamError, match=f"failed at a .*{call}.*of the test"):
            bodies(member, 1)
        assert member.needs_rebalance
        for _ in range(2):
            with pytest.raises(StreamError, match="of the test"):
                member.poll(60)


def test_every_poll_says_that_the_filter_failed(node: LocalNode) -> None:
    gateway = FailingGateway(node.gateway)
    with RemoteGroupConsumer(gateway, "g", "Trade", ALL) as member:
        gateway.failures["poll"] = FilterError("failed in the test")
        with pytest.raises(FilterError):
            bodies(member, 1)
        with pytest.raises(FilterError):
            member.poll(60)


class DamagingGateway:
    """The frames of its replies lack their ends, as long as the test wants that."""

    def __init__(self, members: RemoteMembers) -> None:
        self._members = members
        self.is_damaging = True

    def __getattr__(self, name: str) -> Any:
        return getattr(self._members, name)

    def poll(self, name: str, timeout_s: float, received: int) -> PollReply:
        reply = self._members.poll(name, timeout_s, received)
        frames = [frame[:-1] if self.is_damaging else frame for frame in reply.frames]
        return reply._replace(frames=frames)


def test_a_damaged_reply_is_not_passed_over(node: LocalNode) -> None:
    gateway = DamagingGateway(node.gateway)
    with RemoteGroupConsumer(gateway, "g", "Trade", ALL) as member, node.producer() as producer:
        producer.send("Trade", b"1")
        with pytest.raises(InvalidMessageError):
            bodies(member, 1)
        gateway.is_damaging = False
        producer.send("Trade", b"2")
        with pytest.raises(InvalidMessageError):
            bodies(member, 1)


def test_a_join_whose_answer_is_lost_leaves_nobody_who_holds_queues(node: LocalNode) -> None:
    gateway = FailingGateway(node.gateway)
    with (
        RemoteGroupConsumer(gateway, "g", "Trade", ALL, clock_ms=lambda: 0) as member,
        node.producer() as producer,
    ):
        node.gateway.close()
        gateway.failures["join"] = ShardUnavailableError("gateway", 0, "lost in the test")
        with pytest.raises(ShardUnavailableError, match="lost in the test"):
            bodies(member, 1)
        producer.send("Trade", b"1")
        assert bodies(member, 1) == [b"1"]
        assert len(node.groups.all()[0].members) == 1


class ToldGateway:
    """It says what the test wants it to say, and the answer to the first word is lost."""

    def __init__(self) -> None:
        self.poll_reply = PollReply(1, [], frozenset({0, 1}))
        self.commit_reply = CommitReply(8000)
        self.given_up = 0

    def join(self, *_: object) -> None: ...

    def leave(self, *_: object) -> None: ...

    def poll(self, *_: object) -> PollReply:
        return self.poll_reply

    def commit(self, *_: object) -> CommitReply:
        return self.commit_reply

    def give_up(self, *_: object) -> None:
        self.given_up += 1
        if self.given_up == 1:
            raise ShardUnavailableError("gateway", 0, "the answer was lost by the test")

    leave_alone = count_returns = report_failing = leave


def test_a_queue_that_was_given_up_does_not_come_back_with_an_older_reply() -> None:
    gateway = ToldGateway()
    member = RemoteGroupConsumer(gateway, "g", "Trade", ALL, has_heart=False, clock_ms=lambda: 0)
    member.receive()
    member.poll(0)
    assert member.assignment() == {("Trade", 0), ("Trade", 1)}
    gateway.poll_reply = PollReply(2, [], frozenset({0}), 1, frozenset({1}))
    gateway.commit_reply = CommitReply(8000, 1, frozenset({1}))
    member.receive()
    member.beat()
    with pytest.raises(ShardUnavailableError, match="lost by the test"):
        member.poll(0)
    gateway.commit_reply = CommitReply(8000, 1)  # it had heard the word
    member.beat()
    member.poll(0)
    assert gateway.given_up == 2
    assert member.assignment() == {("Trade", 0)}
    member.close()
