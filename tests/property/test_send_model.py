"""Random sends by every way, with failures between them: each says what became of its message."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rocketray.errors import InvalidMessageError, ShardUnavailableError
from rocketray.message import Message, StoredMessage
from rocketray.messaging.producers.batch import SendResult
from rocketray.messaging.producers.send_future import SendFuture
from rocketray.testing import Broker

QUEUES = 2
WAYS = ["send", "send_async", "send_async", "send_async", "send_oneway", "send_many"]
OPTIONS: dict[str, Any] = {
    "tags": st.sampled_from([None, "pay"]),
    "keys": st.sampled_from([(), "k", ["k", "van Dyck"]]),
    "properties": st.sampled_from([None, {}, {"a": "b"}, {"a": "\u3042", "region": "eu"}]),
    "sharding_key": st.sampled_from([None, "a", "b"]),
    "queue_id": st.sampled_from([None, 0, 1]),
    "ack": st.sampled_from([None, "disk", "memory"]),
}
STEPS = st.one_of(
    st.tuples(st.sampled_from(WAYS), st.fixed_dictionaries({}, optional=OPTIONS)),
    st.tuples(st.sampled_from(["refuse", "lose"]), st.integers(0, QUEUES - 1)),
    st.tuples(st.sampled_from(["end", "ask", "look", "flush", "wrong"]), st.integers(0, 5)),
)
WRONG: list[dict[str, Any]] = [
    {"tags": "*"},
    {"keys": "a b"},
    {"properties": {"a": 7}},
    {"properties": {"a": "\ud83d"}},
    {"properties": {"TAGS": "x"}},
    {"keys": ["\x02"]},
]


class Sends:
    """A producer whose calls end when the test says so, and what it was asked to send."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.calls: list[Callable[[], None]] = []
        broker.node.calls.in_background = self.calls.append
        self.producer = broker.producer(timeout_s=0.001)
        self.options: list[dict[str, Any]] = []
        """Those of each message, whose body is its number."""
        self.futures: dict[int, SendFuture[SendResult]] = {}
        self.results: dict[int, SendResult] = {}
        self.called: list[int] = []
        self.one_way: set[int] = set()

    def do(self, step: str, argument: Any) -> None:
        if step in WAYS:
            self.send(step, dict(argument))
        elif step == "refuse":
            self.broker.faults.fail_appends(1, "T", argument)
        elif step == "lose":
            self.broker.faults.lose_acks(1, "T", argument)
        elif step == "end":
            self.end(argument)
        elif step == "wrong":
            with pytest.raises(InvalidMessageError):
                self.producer.send_async("T", b"wrong", **WRONG[argument])
        elif step == "flush":
            self.until_known(self.producer.flush)
        elif self.futures:
            number = [*self.futures][argument % len(self.futures)]
            if step == "look" and not self.futures[number].done():
                return
            self.until_known(partial(self.ask, number))

    def send(self, way: str, options: dict[str, Any]) -> None:
        number = len(self.options)
        self.options.append(options)
        body = b"%d" % number
        if way == "send_oneway":
            options.pop("ack", None)
            self.one_way.add(number)
            self.producer.send_oneway("T", body, **options)
        elif way == "send_many":
            parts = {name: options.pop(name, None) for name in ("tags", "keys", "properties")}
            message = Message("T", body, parts["tags"], parts["keys"] or (), parts["properties"])
            self.until_known(partial(self.producer.send_many, "T", [message], **options))
            options |= parts
        elif way == "send":
            self.until_known(partial(self.keep, number, self.producer.send, body, options))
        else:
            future: Any = self.producer.send_async("T", body, **options)
            needs_sync = options.get("ack") == "disk"
            assert future._batch.durability.needs_sync is needs_sync, "also beside others"
            future.add_done_callback(lambda _: self.called.append(number))
            self.futures[number] = future

    def keep(
        self, number: int, send: Callable[..., SendResult], body: bytes, options: dict[str, Any]
    ) -> None:
        self.results[number] = send("T", body, **options)

    def ask(self, number: int) -> None:
        result = self.futures[number].result()
        assert self.results.setdefault(number, result) == result, "the same each time"
        assert self.futures[number].done()

    def until_known(self, call: Callable[[], object]) -> None:
        """Call it; an outcome that is not known, or not that of a message that is stored, is one."""
        try:
            call()
        except ShardUnavailableError:
            return

    def end(self, count: int) -> None:
        ended, self.calls[:count] = self.calls[:count], []
        for run in ended:
            run()

    def end_all(self) -> None:
        self.broker.node.calls.in_background = lambda run: run()
        self.end(len(self.calls))
        for queue in range(QUEUES):
            self.broker.faults.fail_appends(0, "T", queue)
            self.broker.faults.lose_acks(0, "T", queue)
        self.until_known(self.producer.flush)
        for number in self.futures:
            for _ in range(2):
                self.until_known(partial(self.ask, number))


@settings(max_examples=150, deadline=None)
@given(st.lists(STEPS, max_size=25))
def test_each_send_says_what_became_of_its_message(steps: list[tuple[str, Any]]) -> None:
    with Broker() as broker:
        broker.topics.ensure("T", QUEUES)
        sends = Sends(broker)
        for step in steps:
            sends.do(*step)
        sends.end_all()
        lost = sends.producer.one_way_lost
        sends.producer.close()
        stored = {int(one.body): one for one in broker.stored("T")}
        assert len(stored) == len(broker.stored("T")), "each once, and none that was refused"
        for number, one in stored.items():
            check_content(one, sends.options[number])
        for number, result in sends.results.items():
            one = stored[number]
            assert result == (
                *(one.unique_key, one.offset_message_id, one.queue_id, one.queue_offset),
                None,
            )
        assert {*sends.futures} - {*sends.results} == {*sends.futures} - {*stored}
        assert sorted(sends.called) == sorted(sends.futures)
        # One that was stored counts as well if its acknowledgement was lost.
        assert len(sends.one_way - {*stored}) <= lost <= len(sends.one_way)


def check_content(one: StoredMessage, options: dict[str, Any]) -> None:
    keys = options.get("keys") or ()
    assert one.tags == options.get("tags")
    assert one.keys == ([keys] if isinstance(keys, str) else [*keys])
    sharding_key = options.get("sharding_key")
    own = {"__SHARDINGKEY": sharding_key} if sharding_key else {}
    mine = {
        name: text
        for name, text in one.properties.items()
        if name not in ("TAGS", "KEYS", "UNIQ_KEY")
    }
    assert mine == {**(options.get("properties") or {}), **own}
    if options.get("queue_id") is not None:
        assert one.queue_id == options["queue_id"]
