"""A tail of a topic on two disks shows what one on a single disk would, and names a lost disk."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TypeVar

import pytest
from support.harness.patience import wait_until
from support.nodes.local_node import LocalNode

from rocketray.broker.fetching.flight_calls import FlightCalls, Served
from rocketray.broker.fetching.range_service import RangeService
from rocketray.broker.fetching.read_plan import DiskPlace
from rocketray.broker.filtering.seen_messages import SeenMessage
from rocketray.broker.filtering.tail import TailStart, TopicTail
from rocketray.broker.topics.catalog import TopicConfig
from rocketray.errors import (
    ConfigError,
    CorruptRecordError,
    InvalidMessageError,
    NodeElsewhereError,
    NodeNotRunningError,
    ShardUnavailableError,
    TopicNotFoundError,
)
from rocketray.filters.subscription import Subscription
from rocketray.message import Message
from rocketray.messaging.remote import tail_service
from rocketray.messaging.remote.disks_tail import DisksTail, UnreadQueues
from rocketray.messaging.remote.tail_api import SeenFrame, TailApi, TailQuery
from rocketray.messaging.remote.tail_service import TailService
from rocketray.runtime.calls.value_forms import call_form
from rocketray.runtime.files.home import Home, settle_identity

_T = TypeVar("_T")
FAR = "00000000-0000-0000-0000-000000000002"
EARLIEST = TailStart("earliest")
EVERYTHING = Subscription.tags("*")
SPREAD = {"": [0, 2], FAR: [1, 3]}
COUNT = 800


class TwoDisks:
    """A node some of whose queues are said to be on another machine: their files are here, too."""

    def __init__(self, node: LocalNode, spread: dict[str, list[int]]) -> None:
        self.node = node
        self.spread = spread
        self.answering = {"", FAR}
        self.is_running = True
        self.service: RangeService | None = None
        self._lock = threading.Lock()
        self.data, self.disk = node.data, ""
        self.disks = SimpleNamespace(homes=self._homes, reports=lambda: self.answering)
        self.topics = SimpleNamespace(get=self._topic)

    def ask(self, question: Callable[[Any], _T]) -> _T:
        if not self.is_running:
            raise NodeNotRunningError("no node runs there")
        return question(self)

    def files(self, _: str) -> Path:
        return self.node.data

    def at(self, disk: str) -> Any:
        def files(_: str) -> Path:
            if disk == FAR:
                raise NodeElsewhereError("elsewhere")
            return self.node.data

        return SimpleNamespace(files=files, service=SimpleNamespace(place=self._place))

    def serve(self) -> None:
        """Answer as the other disk's fetch service does."""
        home = Home(str(self.node.data), settle_identity(self.node.data), "far")
        calls = FlightCalls([Served(TailApi, TailService(self.node.data))])
        self.service = RangeService(home, "127.0.0.1", others=calls)
        self.service.service.open_again()

    def stop(self) -> None:
        with self._lock:  # else a tail that asks for its place now would open it again
            if self.service is not None:
                self.service.close()
            self.service = None

    def _place(self) -> DiskPlace:
        with self._lock:
            if self.service is None:
                raise ShardUnavailableError("the gateway", "its machine does not answer")
            return self.service.place()

    def _homes(self) -> dict[str, Home]:
        return {"": Home("/near", "n" * 36, "near"), FAR: Home("/far", FAR, "far", FAR)}

    def _topic(self, name: str) -> Any:
        config: TopicConfig = self.node.topics.get(name)
        return SimpleNamespace(queues=config.queues, by_disk=lambda: self.spread)


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalNode]:
    with LocalNode(tmp_path_factory.mktemp("node") / "data") as node:
        node.topics.ensure("Trade", 4)
        send(node, "Trade", range(COUNT))
        yield node


@contextmanager
def two_disks(node: LocalNode, spread: dict[str, list[int]] | None = None) -> Iterator[TwoDisks]:
    disks = TwoDisks(node, SPREAD if spread is None else spread)
    disks.serve()
    try:
        yield disks
    finally:
        disks.stop()


@contextmanager
def tail_of(disks: TwoDisks, query: TailQuery) -> Iterator[DisksTail]:
    tail = DisksTail(disks.ask, query)
    try:
        yield tail
    finally:
        tail.close()


def send(node: LocalNode, topic: str, numbers: range, queues: int = 4, size: int = 20) -> None:
    with node.producer() as producer:
        for queue in range(queues):
            of_queue = [made(topic, number, size) for number in numbers if number % queues == queue]
            producer.send_many(topic, of_queue, queue_id=queue)


def made(topic: str, number: int, size: int) -> Message:
    amount = ["3", "12", None, "abc"][number % 5 % 4]
    properties = {"n": str(number)} | ({} if amount is None else {"amount": amount})
    return Message(topic, b"x" * size, ["Aa", "BB", "C"][number % 3], (), properties)


def read_all(tail: DisksTail, room: int | None = None) -> list[SeenMessage]:
    """Read until every disk that answers has said that there is nothing new."""
    found: list[SeenMessage] = []

    def is_over() -> bool:
        found.extend(tail.read(room))
        return not tail.has_more

    if tail.has_more:
        wait_until(is_over)
    return found


def await_numbers(tail: DisksTail, count: int) -> list[int]:
    found: list[int] = []

    def has_all() -> bool:
        found.extend(map(number_of, tail.read()))
        return len(found) >= count

    wait_until(has_all, lambda: (sorted(found), tail.unread))
    return found


def number_of(seen: SeenMessage) -> int:
    return int(seen.message.properties["n"])


@pytest.mark.parametrize("with_rejected", [False, True])
@pytest.mark.parametrize(
    "subscription",
    [
        EVERYTHING,
        Subscription.tags("Aa"),  # "BB" has the same hash
        Subscription.sql("amount > 10 AND n <> '5' OR amount IS NULL"),
    ],
    ids=str,
)
def test_it_reads_what_a_tail_on_one_disk_reads(
    node: LocalNode, subscription: Subscription, *, with_rejected: bool
) -> None:
    alone = TopicTail(node.data, "Trade", subscription, EARLIEST, with_rejected=with_rejected)
    expected: list[SeenMessage] = []
    while found := [*alone.read()]:
        expected += found
    query = TailQuery("Trade", subscription, EARLIEST, with_rejected)
    with two_disks(node) as disks, tail_of(disks, query) as tail:
        seen = read_all(tail)
        assert sorted(seen, key=number_of) == sorted(expected, key=number_of)
        assert tail.counts == alone.counts
        assert tail.positions == alone.positions
        assert tail.unread == []
        for queue in range(4):
            ours = [each.message.queue_offset for each in seen if each.message.queue_id == queue]
            assert ours == sorted(ours)
    alone.close()


def test_a_disk_that_does_not_answer_is_named_and_the_others_are_read(node: LocalNode) -> None:
    node.topics.ensure("Away", 4)
    with two_disks(node) as disks:
        disks.stop()
        with tail_of(disks, TailQuery("Away", EVERYTHING, EARLIEST)) as tail:
            send(node, "Away", range(40))
            assert {number % 2 for number in await_numbers(tail, 20)} == {0}
            said = f"queues 1, 3 on disk {FAR}, /far on far: not read, because "

            def refused() -> UnreadQueues | None:
                assert not [*tail.read()]
                return next((each for each in tail.unread if str(each).startswith(said)), None)

            unread = wait_until(refused)
            assert unread.queues == (1, 3)
            assert "its machine does not answer" in unread.reason
            assert tail.positions == {0: 10, 1: None, 2: 10, 3: None}
            disks.serve()
            assert {number % 2 for number in await_numbers(tail, 20)} == {1}
            assert tail.unread == []
            disks.stop()
            wait_until(refused)  # a call that was under way may still be answered
            send(node, "Away", range(40, 80))
            assert {number % 2 for number in await_numbers(tail, 20)} == {0}
            disks.serve()
            late = await_numbers(tail, 20)
            assert sorted(late) == [number for number in range(40, 80) if number % 2]
            assert tail.counts.filter.scanned == 80


def test_a_disk_that_fails_is_named_and_asked_again(
    node: LocalNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise CorruptRecordError("log/0", 0, "as the test wants")

    with two_disks(node) as disks, monkeypatch.context() as failing:
        failing.setattr(TailService, "step", fail)
        with tail_of(disks, TailQuery("Trade", EVERYTHING, EARLIEST)) as tail:
            assert len(read_all(tail)) == COUNT // 2
            [unread] = tail.unread
            assert "as the test wants" in unread.reason
            failing.undo()
            assert len(await_numbers(tail, COUNT // 2)) == COUNT // 2
            assert tail.unread == []


def test_a_disk_here_whose_node_does_not_answer_is_named(node: LocalNode) -> None:
    with two_disks(node) as disks:
        disks.answering = {FAR}
        with tail_of(disks, TailQuery("Trade", EVERYTHING, EARLIEST)) as tail:
            assert len(read_all(tail)) == COUNT
            [unread] = tail.unread
            assert unread.queues == (0, 2)
            assert "what was stored is read, but the disk does not answer" in unread.reason


def test_queues_that_move_or_are_added_are_followed_without_a_message_lost(node: LocalNode) -> None:
    node.topics.ensure("Moves", 2)
    with two_disks(node, {"": [0], FAR: [1]}) as disks:
        query = TailQuery("Moves", EVERYTHING, TailStart())
        with tail_of(disks, query) as tail:
            read_all(tail)
            numbers = iter(range(0, 1000, 20))
            got: list[int] = []
            for spread in ({FAR: [0, 1]}, {"": [1], FAR: [0]}, {"": [0, 1]}):
                begin = next(numbers)
                send(node, "Moves", range(begin, begin + 20), 2)
                got += await_numbers(tail, 20)
                disks.spread = spread
                tail.look_for_queues()
            node.topics.alter("Moves", 3)
            begin = next(numbers)
            send(node, "Moves", range(begin, begin + 21), 3)
            disks.spread = {"": [0, 1], FAR: [2]}
            tail.look_for_queues()
            got += await_numbers(tail, 21)
            assert Counter(got) == Counter(range(begin + 21))
            assert tail.counts.filter.scanned == begin + 21


def test_it_continues_without_the_coordinator_and_ends_with_the_topic(node: LocalNode) -> None:
    node.topics.ensure("Short", 4)
    with two_disks(node) as disks, tail_of(disks, TailQuery("Short", EVERYTHING)) as tail:
        read_all(tail)
        disks.is_running = False
        tail.look_for_queues()
        send(node, "Short", range(8))
        assert sorted(await_numbers(tail, 8)) == [*range(8)]
        disks.is_running = True
        node.topics.delete("Short")
        with pytest.raises(TopicNotFoundError):
            tail.look_for_queues()


def test_room_is_for_the_newest_of_each_disk_and_the_others_are_counted(node: LocalNode) -> None:
    query = TailQuery("Trade", Subscription.tags("Aa"), EARLIEST)
    with two_disks(node) as disks, tail_of(disks, query) as tail:
        seen = read_all(tail, 20)
        counts = tail.counts
        assert len(seen) == 20
        assert counts.filter.scanned == COUNT
        assert counts.unshown == counts.filter.delivered - 20


@pytest.mark.parametrize(("limit", "expected"), [(2500, [[2], [1]]), (10, [[1], [1], [1]])])
@pytest.mark.parametrize("room", [None, 3])
def test_an_answer_has_a_limit_and_a_message_above_it_comes_alone(
    node: LocalNode,
    monkeypatch: pytest.MonkeyPatch,
    limit: int,
    expected: list[list[int]],
    room: int | None,
) -> None:
    topic = f"Large-{limit}-{room}"
    node.topics.ensure(topic, 1)
    send(node, topic, range(3), 1, size=1000)
    monkeypatch.setattr(tail_service, "STEP_BYTES", limit)
    query = TailQuery(topic, EVERYTHING, EARLIEST)
    sizes, unshown = [], 0
    while True:
        step = TailService(node.data).step(query, [0], room)
        if not step.frames:
            break
        sizes.append([len(frame.entries().entries) for frame in step.frames])
        start = TailStart("earliest", positions=step.positions, stored=step.stored)
        query = replace(query, start=start)
        unshown += step.counts.unshown
    assert sizes == (expected if room is None else expected[:1])
    assert unshown == (0 if room is None else 3 - sizes[0][0])


def test_a_predicate_is_refused_where_files_are_elsewhere(node: LocalNode) -> None:
    where = Subscription.where("support.predicates:body_is_short")
    with two_disks(node) as disks, pytest.raises(ConfigError, match="queues 1, 3 on disk 00000000"):
        DisksTail(disks.ask, TailQuery("Trade", where))


FILTER, START = ["TAG", "*", "stop", None, None, ""], ["earliest", 0, [], []]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ([], "the arguments of step are invalid"),
        ([["../up", FILTER, START, False], [0], 1], "'../up'"),
        ([["T", ["CLASS", "a:b", "stop", None, None, ""], START, False], [0], 1], "no predicates"),
        ([["T", FILTER, ["first", 0, [], []], False], [0], 1], "'first' is not one of"),
        ([["T", FILTER, ["offset", -1, [], []], False], [0], 1], "-1 is no number"),
        ([["T", FILTER, ["earliest", 0, [[0, -1]], []], False], [0], 1], "-1 is no number"),
        ([["T", FILTER, START, False], [1 << 31], 1], "is no number"),
        ([["T", FILTER, START, False], [0], -1], "-1 is no number"),
        ([["T", FILTER, START, False], [0], 10_001], "10001 is no number"),
    ],
)
def test_another_request_is_refused(given: Any, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        call_form(TailApi.step).read([given, {}])


def test_a_frame_that_does_not_fit_its_codes_is_refused(node: LocalNode) -> None:
    query = TailQuery("Trade", Subscription.tags("Aa"), EARLIEST, with_rejected=True)
    [frame, *_] = TailService(node.data).step(query, [0], None).frames
    for change in (
        {"codes": [1, 2]},
        {"codes": [1 << 64] * len(frame.codes)},
        {"frame": memoryview(b"")},
        {"frame": frame.frame[:-1]},
    ):
        with pytest.raises(InvalidMessageError):
            replace(frame, **change).entries()
    assert isinstance(frame, SeenFrame)
