"""What goes wrong while a member opens and reads its queues: nothing is lost, nobody else is harmed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from support.harness.patience import wait_until
from support.nodes.local_node import LocalNode

from rocketray.broker.filtering.filter_api import FilterApi
from rocketray.errors import CorruptRecordError, ShardUnavailableError, StreamError
from rocketray.filters.subscription import Subscription
from rocketray.groups.lease import LEASE_MS
from rocketray.messaging.consumers.member import GroupConsumer
from rocketray.messaging.consumers.queue_stream import QueueStream
from rocketray.runtime.files.paths import shard_directory

TAGGED = Subscription.tags("a")


class HinderedNode(LocalNode):
    """Something happens each time that a stream is to be attached."""

    def __init__(self, data: Path) -> None:
        super().__init__(data)
        self.calls._served.serve(FilterApi, self._filter)

    def hinder(self) -> None:
        """Nothing, until the test says what."""

    def _filter(self) -> FilterApi:
        self.hinder()
        return self.filter


@pytest.fixture
def node(tmp_path: Path) -> Iterator[HinderedNode]:
    with HinderedNode(tmp_path) as local:
        yield local


def send(node: LocalNode, count: int, queue_id: int = 0, first: int = 1000) -> list[bytes]:
    bodies = [b"%d" % number for number in range(first, first + count)]
    with node.producer() as producer:
        for body in bodies:
            producer.send("T", body, tags="a", queue_id=queue_id)
    return bodies


def join(node: LocalNode, name: str = "m", now_ms: Callable[[], int] = lambda: 0) -> GroupConsumer:
    """A member that beats when the test says so; its clock stands still unless it is another one."""
    return GroupConsumer(node, "g", "T", TAGGED, client_id=name, has_heart=False, clock_ms=now_ms)


def take(
    member: GroupConsumer, until: Callable[[list[bytes]], bool], size: int = 16
) -> list[bytes]:
    """What a reader gets that goes on after each error, and commits what it got."""
    found: list[bytes] = []

    def is_enough() -> bool:
        with suppress(StreamError):
            for batch in member.poll(0.05, size):
                found.extend(batch.bodies())
                member.commit("T", batch.queue_id, batch.next_queue_offset)
        return until(found)

    if not until(found):
        wait_until(is_enough, lambda: f"only {len(found)} came")
    return found


def take_until_error(member: GroupConsumer) -> list[bytes]:
    """What a reader gets before the error of the damaged record; batches are as the filter is fast."""
    found: list[bytes] = []

    def fails() -> bool:
        try:
            batches = member.poll(0.05, 16)
        except CorruptRecordError as error:
            assert "offset 40" in str(error)  # noqa: PT017 - what comes before it counts, too
            return True
        for batch in batches:
            found.extend(batch.bodies())
            member.commit("T", batch.queue_id, batch.next_queue_offset)
        return False

    wait_until(fails, "no error")
    return found


def test_a_queue_without_a_directory_keeps_no_member_from_the_others(node: HinderedNode) -> None:
    node.topics.ensure("T", 2)
    lost, there = send(node, 1, queue_id=0), send(node, 1, queue_id=1, first=2000)
    directory = shard_directory(node.data, "T", 0)
    away = directory.with_name("away")
    directory.rename(away)
    now_ms = 0
    with join(node, now_ms=lambda: now_ms) as member:
        assert take(member, lambda found: found == there) == there
        assert not member.needs_rebalance
        away.rename(directory)
        now_ms = 10_000
        member.beat()
        assert take(member, lambda found: found == lost) == lost


def test_a_queue_that_cannot_be_attached_keeps_no_other_from_it(
    node: HinderedNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    node.topics.ensure("T", 3)
    sent = [send(node, 1, queue_id=queue_id, first=1000 * queue_id + 1000) for queue_id in range(3)]
    attach, now_ms = QueueStream.attach, 0

    def fail_at_the_first(stream: QueueStream) -> None:
        nonlocal now_ms
        if stream.queue_id == 0:
            now_ms += 60_000  # the call takes longer than any pause
            raise ShardUnavailableError("shard T/0", "away, as the test asked")
        attach(stream)

    monkeypatch.setattr(QueueStream, "attach", fail_at_the_first)
    with join(node, now_ms=lambda: now_ms) as member:
        found: list[bytes] = []
        for _ in range(9):
            member.beat()
            found += [body for batch in member.poll(0.05) for body in batch.bodies()]
        assert sorted(found) == [*sent[1], *sent[2]]


@contextmanager
def damaged(node: LocalNode, body: bytes, queue_id: int = 0) -> Iterator[None]:
    """For the block, the header of the message with that body is not what was written."""
    (log,) = (shard_directory(node.data, "T", queue_id) / "commitlog").iterdir()
    sized = len(body).to_bytes(4) + body  # digits alone may also be some of a CRC
    at = log.read_bytes().find(sized) - 56
    with log.open("r+b", buffering=0) as file:
        file.seek(at)
        before = file.read(4)
        file.seek(at)
        file.write(b"\xff\xff\xff\xff")
        yield
        file.seek(at)
        file.write(before)


def test_nothing_is_passed_over_when_a_record_cannot_be_read_for_a_while(
    node: HinderedNode,
) -> None:
    node.topics.ensure("T", 2)
    sent = send(node, 50)
    with join(node) as member:
        with damaged(node, b"1040"):
            found = take(member, lambda found: len(found) >= 32)
            for _ in range(3):
                found += take_until_error(member)
            assert found == sent[: len(found)], "what comes before the batch with the record"
            assert len(found) <= 40
            others = send(node, 20, queue_id=1, first=2000)
            assert take(member, lambda found: len(found) >= 20) == others, "queue 1 is read on"
        rest = sent[len(found) :]
        assert take(member, lambda found: len(found) >= len(rest)) == rest


def test_a_damaged_record_is_told_though_other_queues_have_messages(node: HinderedNode) -> None:
    node.topics.ensure("T", 2)
    send(node, 1)
    with join(node) as member, damaged(node, b"1000"):
        told = 0
        for number in range(6):
            send(node, 1, queue_id=1, first=2000 + number)
            try:
                member.poll(0.5)
            except CorruptRecordError:
                told += 1
        assert told >= 2


def test_a_queue_that_is_taken_away_while_another_is_opened_has_one_reader(
    node: HinderedNode,
) -> None:
    node.topics.ensure("T", 4)
    first, slow = join(node, "a0"), join(node, "b")
    for _ in range(2):
        for each in (first, slow):
            each.beat()
            each.poll(0)
    assert slow.assignment() == {("T", 2), ("T", 3)}
    first.close()
    slow.beat()  # is granted all; the next poll opens two
    others: list[GroupConsumer] = []

    def divide_anew() -> None:
        if not others:
            others.append(join(node, "a1"))
            for each in (slow, *others, slow, *others):
                each.beat()
            others[0].poll(0)

    node.hinder = divide_anew  # type: ignore[method-assign]
    slow.poll(0)
    (other,) = others
    assert not slow.assignment() & other.assignment()
    for _ in range(3):
        for each in (slow, other):
            each.beat()
            each.poll(0)
            assert not slow.assignment() & other.assignment()
    assert {len(slow.assignment()), len(other.assignment())} == {2}
    slow.close()
    other.close()


def test_a_queue_whose_stream_nobody_could_fill_is_read_when_somebody_can(
    node: HinderedNode, caplog: pytest.LogCaptureFixture
) -> None:
    node.topics.ensure("T", 2)
    now_ms = [0]
    attached = [0]

    def fail_once() -> None:
        attached[0] += 1
        if attached[0] == 1:
            raise ShardUnavailableError("actor filter", "away, as the test asked")

    node.hinder = fail_once  # type: ignore[method-assign]
    with join(node, now_ms=lambda: now_ms[0]) as member:
        assert member.assignment() == {("T", 0), ("T", 1)}
        waiting, others = send(node, 5), send(node, 5, queue_id=1, first=2000)
        assert take(member, lambda found: len(found) >= 5) == others
        assert "T/0 waits for group g: actor filter is unavailable" in caplog.text
        now_ms[0] += 1000
        assert member.needs_rebalance
        assert take(member, lambda found: len(found) >= 5) == waiting
        assert attached == [3], "each stream once more at most"
        assert not member.needs_rebalance


def test_a_member_that_is_refused_says_why_though_it_cannot_leave(
    node: HinderedNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    node.topics.ensure("T", 1)

    def fail(*_: object) -> None:
        raise ShardUnavailableError("the coordinator", "away, as the test asked")

    def refuse() -> None:
        raise StreamError("the reason")

    monkeypatch.setattr(node.sessions, "leave", fail)
    monkeypatch.setattr(node, "hinder", refuse)
    with pytest.raises(StreamError, match="the reason"):
        join(node)


def test_a_lease_that_runs_again_wakes_the_poll(node: HinderedNode) -> None:
    now_ms = 0
    node.topics.ensure("T", 1)
    with join(node, now_ms=lambda: now_ms) as member:
        now_ms = LEASE_MS
        seen = [(member.is_leased, member._streams.bell.count())]
        for _ in range(2):
            member.beat()
            seen.append((member.is_leased, member._streams.bell.count()))
    (was_leased, rung), *after = seen
    assert not was_leased
    assert after == [(True, rung + 1)] * 2
