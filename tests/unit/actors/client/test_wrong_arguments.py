"""What a program gives wrongly is one error of ours, before anything is sent, made or joined."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from support.nodes.local_node import LocalNode

import rocketray as rr
from rocketray.actors.client.connection import Connection
from rocketray.errors import (
    ConfigError,
    InvalidMessageError,
    InvalidNameError,
    NodeNotRunningError,
)
from rocketray.groups.heartbeat import AppInstance
from rocketray.messaging.producers.producer import NodeProducer

ALL = rr.Subscription.tags("*")
ROWS = pa.table({"body": [b"x"]})
Wrong = Callable[[Any], object]
SENDS: list[tuple[Wrong, str]] = [
    (lambda p: p.send("T", b"x", tags=["pay"]), r"the tag is \['pay'\]; a message has one tag"),
    (lambda p: p.send("T", b"x", tags=5), "the tag is 5"),
    (lambda p: p.send("T", b"x", tag="x"), r"send\(\) has no argument tag=; did you mean tags=\?"),
    (lambda p: p.send_async("T", b"x", key="x"), "no argument key=; did you mean keys="),
    (lambda p: p.send("T", b"x", qqq="x"), "no argument qqq=; its arguments are topic"),
    (lambda p: p.send("T", b"x", queue_id="1"), "queues 0 to 1, not '1'"),
    (lambda p: p.send("T", b"x", queue_id=2), "queues 0 to 1, not 2"),
    (lambda p: p.send("T", b"x", queue_id=-1), "queues 0 to 1, not -1"),
    (lambda p: p.send("T", b"x", queue_id=True), "queues 0 to 1, not True"),
    (lambda p: p.send("T", b"x", sharding_key=5), "sharding_key is 5 and no string"),
    (lambda p: p.send(None, b"x"), "None is not a name of a topic; give a string"),
    (lambda p: p.send(["T"], b"x"), r"\['T'\] is not a name of a topic"),
    (lambda p: p.send("T", "x"), "the body is a str; encode it to bytes"),
    (lambda p: p.send("T", None), "the body is a NoneType"),
    (lambda p: p.send("T", b"x", properties=[("a", "b")]), r"properties is \[\('a', 'b'\)\]; give"),
    (lambda p: p.send("T", b"x", properties={"a": 1}), r"give .1."),
    (lambda p: p.send("T", b"x", properties={1: "a"}), "the name of property 1 is not a string"),
    (lambda p: p.send("T", b"x", properties={"TAGS": "a"}), "property TAGS is set by the field"),
    (lambda p: p.send("T", b"x", keys=[5]), "key 5 is not a string"),
    (lambda p: p.send("T", b"x", keys=5), "keys is 5; give a list of strings"),
    (lambda p: p.send("T", b"x", ack="all"), "ack 'all' is not 'memory' or 'disk'"),
    (lambda p: p.send("T", b"x", ack=["disk"]), r"ack \['disk'\] is not"),
    (lambda p: p.send("T", b"x", delay="soon"), "delay is 'soon'; give seconds"),
    (lambda p: p.send_oneway("T", b"x", tags=["pay"]), "the tag is"),
    (lambda p: p.send_oneway("T", b"x", qqq="x"), "its arguments are topic, body, (?!ack)"),
    (lambda p: p.send_oneway("T", b"x", ack="disk"), "a one-way send has no ack="),
    (lambda p: p.send_many_oneway("T", bodies=[b"x"], ack="disk"), "a one-way send has no ack="),
    (lambda p: p.send("T", b"x", timeout_s=0), "timeout_s is 0; give seconds, more than 0"),
    (lambda p: p.send("T", b"x", delay=5, delay_level=1), "a message has one delay"),
    (lambda p: p.send("T", b"x", queue_selector="x"), "queue_selector is 'x'; give a function"),
    (lambda p: p.send("T", b"x", transaction=True), r"transaction is True; .* begin\(\) returned"),
    (lambda p: p.begin(), "no transactions; make it with group= and check="),
    (
        lambda p: p.send_many("T", bodies=[b"x"], tag="x"),
        r"send_many\(\) has no argument tag=; did you mean tags=\?",
    ),
    (lambda p: p.send_many("T"), "give what to send once"),
    (lambda p: p.send_many("T", [], bodies=[]), "give what to send once"),
    (lambda p: p.send_many("T", bodies=b"x"), "bodies is b'x'; give a list of bytes"),
    (lambda p: p.send_many("T", bodies=[b"x", "y"]), "body 1 is 'y'; give bytes"),
    (lambda p: p.send_many("T", bodies=[b"x"], unique_key="u"), "unique_key= belongs to one"),
    (lambda p: p.send_many("T", [rr.Message("T", b"x")], tags="a"), "tags= is part of each"),
    (lambda p: p.send_many("T", [rr.Message("T", b"x")], property_columns=["a"]), "no table is"),
    (lambda p: p.send_many("T", ROWS, delay=5), "delay= is not for a table; send rr.Message"),
    (lambda p: p.send_many("T", ROWS, queue_selector=lambda *_: 0), "queue_selector= is not for"),
    (lambda p: p.send_many("T", [b"x"]), r"message 0 is b'x'; make each of them with rr.Mess"),
    (lambda p: p.send_many("T", b"x"), "the messages are b'x'; give a list"),
    (lambda p: p.send_many("T", 5), "the messages are 5; give a list"),
    (lambda p: p.send_many(None, []), "None is not a name of a topic"),
    (lambda p: p.send_many("T", [rr.Message("U", b"x")]), "message 0 is for topic 'U'"),
    (lambda p: p.send_many(None, ROWS), "None is not a name of a topic"),
    (lambda _: rr.Message("T", "x"), "the body is a str"),  # type: ignore[arg-type]
    (lambda _: rr.Message("T", b"x", tags=["pay"]), "the tag is"),  # type: ignore[arg-type]
]
CONSUMERS: list[tuple[Wrong, str]] = [
    (
        lambda c: c("g", "T", "pay"),
        r"the subscription is 'pay'; make one with rr.Subscription.tags",
    ),
    (lambda c: c("g", "T", None), "the subscription is None"),
    (lambda c: c(None, "T", ALL), "None is not a name of a consumer group"),
    (lambda c: c("", "T", ALL), "a consumer group name is empty"),
    (lambda c: c("g", None, ALL), "None is not a name of a topic"),
    (lambda c: c("g", "T", ALL, stategy="sticky"), r"no option stategy=; did you mean strategy=\?"),
    (lambda c: c("g", "T", ALL, qqq=1), "no option qqq=; there are"),
    (lambda c: c("g", "T", ALL, start="begin"), "start is 'begin'; give 'earliest'"),
    (
        lambda c: c("g", "T", ALL, fetch_compression="gzip"),
        "fetch_compression is 'gzip'; give 'lz4', 'zstd' or None",
    ),
    (lambda c: c("g", "T", ALL, start=-1), "start is -1"),
    (lambda c: c("g", "T", ALL, start=None), "start is None"),
    (lambda c: c("g", "T", ALL, client_id=5), "client_id is 5; give a string"),
    (lambda c: c("g", "T", ALL, strategy="fair"), "no strategy 'fair'"),
    (lambda c: c("g", "T", ALL, broadcast=True), "a broadcast group needs a client_id"),
    (
        lambda c: c("g", "T", ALL, strategy="sticky", together=AppInstance("shop", "1")),
        "app 'shop' needs one assignment",
    ),
]


@pytest.fixture
def node(tmp_path: Path) -> Iterator[LocalNode]:
    with LocalNode(tmp_path) as local:
        local.topics.ensure("T", 2)
        yield local


@pytest.mark.parametrize(("send", "says"), SENDS)
def test_a_wrong_send_is_refused_and_stores_nothing(
    node: LocalNode, send: Wrong, says: str
) -> None:
    with node.producer() as producer, pytest.raises(ConfigError, match=says):
        send(producer)
    assert node.stored("T") == []
    with node.producer() as producer:
        producer.send("T", b"x", queue_id=0)  # the producer that was misused is no worse
        with pytest.raises(ConfigError, match=says):
            send(producer)
        producer.send("T", b"y", queue_id=0)
    assert len(node.stored("T")) == 2


@pytest.mark.parametrize(("join", "says"), CONSUMERS)
@pytest.mark.parametrize("kind", ["consumer", "remote_consumer"])
def test_a_wrong_member_does_not_join(node: LocalNode, kind: str, join: Wrong, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        join(getattr(node, kind))
    assert node.groups.all() == []


def test_a_member_with_the_name_of_a_filter_is_checked_as_any_other() -> None:
    connection = object.__new__(Connection)
    with pytest.raises(ConfigError, match="start is 'begin'"):
        connection.consumer("g", "T", rr.FilterName("large"), start="begin")  # type: ignore[arg-type]


@pytest.mark.parametrize(("join", "says"), CONSUMERS)
def test_a_wrong_member_is_refused_before_the_node_is_asked_anything(
    join: Wrong, says: str
) -> None:
    connection = object.__new__(Connection)  # any call would fail
    with pytest.raises(ConfigError, match=says):
        join(connection.consumer)


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda data: rr.Producer(data, timeout_s="x"), "timeout_s is 'x'; give seconds"),  # type: ignore[arg-type]
        (lambda data: rr.Producer(data, ack="all"), "ack 'all' is not"),  # type: ignore[arg-type]
        (lambda data: rr.Producer(data, compression="gzip"), "compression 'gzip' is not"),  # type: ignore[arg-type]
        (lambda data: rr.Producer(data, compress_over="1k"), "compress_over is '1k'; give a num"),  # type: ignore[arg-type]
        (
            lambda data: rr.Producer(data, group="g", check=lambda _: "unknown", ack="all"),  # type: ignore[arg-type]
            "ack 'all' is not",
        ),
        (
            lambda data: rr.Producer(data, group="g"),
            "transactions need both: group=, .* and check=",
        ),
        (lambda data: rr.Producer(data, check=lambda _: "commit"), "transactions need both"),
        (lambda data: rr.Producer(data, akc="disk"), r"no option akc=; did you mean ack=\?"),  # type: ignore[call-arg]
        (lambda data: rr.Producer(dta=data), r"no option dta=; did you mean data=\?"),  # type: ignore[call-arg]
        (lambda data: rr.AsyncProducer(dta=data), r"no option dta=; did you mean data=\?"),  # type: ignore[call-arg]
        (lambda data: rr.Producer(data, ack="none"), "ack 'none' is not"),  # type: ignore[arg-type]
    ],
)
def test_a_wrong_producer_looks_for_no_node(
    tmp_path: Path, make: Callable[[Path], object], says: str
) -> None:
    with pytest.raises(ConfigError, match=says):
        make(tmp_path)
    with pytest.raises(NodeNotRunningError):
        rr.Producer(tmp_path)


@pytest.mark.parametrize("key", ["", 17, None, ["order-17"]])
def test_a_lookup_without_a_text_is_refused_and_not_answered_with_nothing(
    node: LocalNode, key: Any
) -> None:
    with pytest.raises(InvalidMessageError, match=r"the key to look up is .*; give a text"):
        node.messages.query("T", key)


@pytest.mark.parametrize(
    ("look", "says"),
    [
        (lambda m: m.at("T", 9, 0), "topic 'T' has the queues 0 to 1, not 9"),
        (lambda m: m.at("T", "0", 0), "not '0'; give the number of one"),
        (lambda m: m.at("T", 0, "1"), "queue_offset is '1'; give a whole number$"),
        (lambda m: m.offset_at_time("T", 0, "now"), "time_ms is 'now'; .*, milliseconds since"),
        (lambda m: m.query("T", "k", 0), "max_count is 0; give a whole number from 1"),
        (lambda m: m.query("T", "k", "5"), "max_count is '5'"),
        (lambda m: m.query_by_time("T", "yesterday", 5), "begin_ms is 'yesterday'; give a whole"),
        (lambda m: m.query_by_time("T", 0, True), "end_ms is True"),
    ],
)
def test_a_wrong_lookup_asks_no_shard(node: LocalNode, look: Wrong, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        look(node.messages)


@pytest.mark.parametrize("timeout_s", ["x", 0, -1, None, float("nan")])
def test_a_timeout_is_a_number_of_seconds(node: LocalNode, timeout_s: Any) -> None:
    with pytest.raises(ConfigError, match=r"timeout_s is .*; give seconds, more than 0"):
        NodeProducer(node, timeout_s=timeout_s)


@pytest.mark.parametrize(
    ("arguments", "error", "says"),
    [
        (("T", 8), ConfigError, r"exists and has 2 queues, not 8; .* topics\.alter\('T', 8\)"),
        (("T", 1), ConfigError, "has 2 queues, not 1"),
        (("U", "4"), InvalidNameError, "1 to 1024 queues, not '4'"),
        (("U", 0), InvalidNameError, "not 0"),
        ((None,), InvalidNameError, "None is not a name of a topic"),
    ],
)
def test_a_topic_is_not_taken_for_one_of_another_size(
    node: LocalNode, arguments: tuple[Any, ...], error: type[Exception], says: str
) -> None:
    with pytest.raises(error, match=says):
        node.topics.create(*arguments)
    assert {name: topic.queues for name, topic in node.topics.all().items()} == {"T": 2}
    assert node.topics.create("T").queues == 2
    assert node.topics.create("T", queues=2).queues == 2
    assert node.topics.create("New").queues == 4


@pytest.mark.parametrize("expression", [None, 5, ["pay"], b"pay"])
def test_an_expression_is_a_text(expression: Any) -> None:
    for make in (rr.Subscription.tags, rr.Subscription.sql):
        with pytest.raises(rr.StreamError, match="a filter must be a string, not"):
            make(expression)


def test_a_message_error_is_a_value_error() -> None:
    with pytest.raises(ValueError, match="the tag is 5"):
        rr.Message("T", b"x", tags=5)  # type: ignore[arg-type]
    assert issubclass(InvalidMessageError, ConfigError)
