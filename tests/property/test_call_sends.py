"""A producer whose calls end when the test says so: each message is stored once, and in order."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketray.errors import ShardUnavailableError
from rocketray.message import UNIQUE_KEY
from rocketray.messaging.producers.batch import SendResult
from rocketray.messaging.producers.send_future import SendFuture
from rocketray.testing import Broker

QUEUES = 2
STEPS = st.one_of(
    st.tuples(st.just("send"), st.integers(0, QUEUES - 1), st.integers(1, 30)),
    st.tuples(st.just("send large"), st.integers(0, QUEUES - 1), st.integers(1, 3)),
    st.tuples(st.just("lose answers"), st.integers(0, QUEUES - 1), st.integers(1, 5)),
    st.tuples(st.just("refuse"), st.integers(0, QUEUES - 1), st.integers(1, 2)),
    st.tuples(st.just("end calls"), st.just(0), st.integers(1, QUEUES)),
)


class FarProducer:
    """A producer, and the calls that it has begun."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.calls: list[Callable[[], None]] = []
        broker.node.calls.in_background = self.calls.append
        self.producer = broker.producer(timeout_s=0.001)
        self.sent: list[list[tuple[bytes, SendFuture[SendResult]]]] = [[] for _ in range(QUEUES)]

    def do(self, step: str, queue: int, count: int) -> None:
        if step == "lose answers":
            self.broker.faults.lose_acks(count, "T", queue)
        elif step == "refuse":
            self.broker.faults.fail_appends(count, "T", queue)
        elif step == "end calls":
            self.end(count)
        else:
            size = 300_000 if step == "send large" else 10
            for _ in range(count):
                body = b"%d " % len(self.sent[queue]) + bytes(size)
                future = self.producer.send_async("T", body, queue_id=queue)
                self.sent[queue].append((body, future))

    def end(self, count: int) -> None:
        ended, self.calls[:count] = self.calls[:count], []
        for run in ended:
            run()

    def end_all(self) -> None:
        """End all calls, and ask for what stays unknown, until nothing does."""
        self.broker.node.calls.in_background = lambda run: run()
        self.end(len(self.calls))
        for queue, of_queue in enumerate(self.sent):
            self.do("lose answers", queue, 0)
            self.do("refuse", queue, 0)
            for _, future in of_queue:
                with suppress(ShardUnavailableError):
                    future.result()


@pytest.mark.proves(
    "producers",
    "What is sent by calls is stored once and in order, also if calls are lost",
)
@given(st.lists(STEPS, max_size=20))
def test_what_is_sent_by_calls_is_stored_once_and_in_order(
    steps: list[tuple[str, int, int]],
) -> None:
    broker = Broker()
    broker.topics.ensure("T", QUEUES)
    far = FarProducer(broker)
    for step in steps:
        far.do(*step)
    far.end_all()
    stored = broker.stored("T")
    assert len({one.properties[UNIQUE_KEY] for one in stored}) == len(stored)
    for queue, of_queue in enumerate(far.sent):
        found = [one.body for one in stored if one.queue_id == queue]
        numbers = [int(body.split(b" ")[0]) for body in found]
        assert numbers == sorted(set(numbers))
        for number, (body, future) in enumerate(of_queue):
            try:
                result = future.result()
            except ShardUnavailableError:
                assert number not in numbers
            else:
                assert (result.queue_id, found[result.queue_offset]) == (queue, body)
    far.producer.close()
    broker.close()
