"""Fetches of members: limits of what they send, and a real fetch service that answers them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest
from support.harness.patience import wait_until
from support.nodes.local_node import LocalNode

from rocketray.broker.fetching.flight_calls import FlightCalls, Served, write_request
from rocketray.broker.fetching.flight_link import FlightLink
from rocketray.broker.fetching.range_service import RangeService
from rocketray.errors import (
    FilterSyntaxError,
    InvalidMessageError,
    ShardUnavailableError,
    StreamError,
)
from rocketray.filters.counters import FilterCounters
from rocketray.filters.subscription import Subscription
from rocketray.groups.filter_plan import QueuePart
from rocketray.groups.member_options import FetchCompression
from rocketray.messaging.consumers.member import GroupConsumer
from rocketray.messaging.remote.fetch_api import (
    FETCHES,
    POLL_MAX_S,
    Fetch,
    FetchApi,
    FetchedQueue,
    QueueFetch,
)
from rocketray.messaging.remote.fetched_streams import FetchedStreams
from rocketray.runtime.calls.call_text import read_text, write_text
from rocketray.runtime.calls.endpoint import client_of
from rocketray.runtime.calls.value_forms import call_form
from rocketray.runtime.files.home import Home, settle_identity

pytestmark = pytest.mark.proves(
    "groups",
    "Members get what they ask for through a real fetch service, compressed or not; a "
    "request or reply that is wrong is refused",
)

HOST = "127.0.0.1"
COUNT = 6000
OLD, NEW = Subscription.tags("a || b"), Subscription.sql("a > 1")
SESSION = "0123456789abcdef" * 2
QUEUES = {
    0: QueueFetch(QueuePart(OLD, 90), 3, 4096),
    5: QueueFetch(QueuePart(NEW, None), (1 << 63) - 1, 0),
    6: QueueFetch(QueuePart(OLD, None), 0, 1),
}
FETCH = Fetch.of(SESSION, 7, "g", "Trade", QUEUES)
FORM = call_form(FetchApi.fetch)


def sent(fetch: Fetch) -> bytes:
    return write_text(FORM.write([fetch, 2.5], {}))


def test_a_fetch_is_the_same_one_at_the_service() -> None:
    [fetch, timeout_s], _ = FORM.read(read_text(sent(FETCH)))
    assert (fetch.session, fetch.number, fetch.group, fetch.topic) == (SESSION, 7, "g", "Trade")
    assert (fetch.queues, timeout_s) == (QUEUES, 2.5)


def test_a_filter_of_many_queues_is_sent_once() -> None:
    part = QueuePart(Subscription.tags("t" * 1000), None)
    queues = {at: QueueFetch(part, 0, 0) for at in range(256)}
    assert len(sent(Fetch.of(SESSION, 1, "g", "Trade", queues))) < 5_000


FILTER = ["TAG", "a", "stop", None, None, ""]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({0: "../one"}, "no name of a session"),
        ({0: None}, "not of type str"),
        ({1: -1}, "-1 is no number"),
        ({1: True}, "True is no number"),
        ({1: 1 << 63}, "is no number"),
        ({2: "a/b"}, "a/b"),
        ({3: "../up"}, "../up"),
        ({4: 7}, "arguments of fetch are invalid"),
        ({4: [[FILTER, [], [], [], []]] * 17}, "is not as long as 0 to 16"),
        ({4: [[["SQL92", "a >", "stop", None, None, ""], [], [], [], []]]}, "a >"),
        ({4: [[["SQL", "a", "stop", None, None, ""], [], [], [], []]]}, "'SQL' is not one of"),
        ({4: [[FILTER, [-1], [None], [0], [0]]]}, "-1 is no number"),
        ({4: [[FILTER, [1 << 31], [None], [0], [0]]]}, "is no number"),
        ({4: [[FILTER, [0], ["9"], [0], [0]]]}, "'9' is no number"),
        ({4: [[FILTER, [0], [None], [0.5], [0]]]}, "0.5 is no number"),
        ({4: [[FILTER, [0], [None], [0], [-1]]]}, "-1 is no number"),
        ({4: [[FILTER, [0], [None], [0]]]}, "4 values, and not 5"),
        ({4: [[FILTER, [0, 1], [None], [0], [0]]]}, "arguments of fetch are invalid"),
    ],
)
def test_a_fetch_with_a_wrong_value_is_refused(change: dict[int, Any], said: str) -> None:
    places, options = json.loads(sent(FETCH))
    for at, value in change.items():
        places[0][at] = value
    with pytest.raises(StreamError) as caught:
        FORM.read([places, options])
    assert said in str(caught.value)


@pytest.mark.parametrize("timeout_s", [POLL_MAX_S + 1, -1, float("nan"), "1", None, True])
def test_a_fetch_that_waits_too_long_is_refused(timeout_s: Any) -> None:
    places, options = json.loads(sent(FETCH))
    with pytest.raises(StreamError, match="arguments of fetch are invalid"):
        FORM.read([[places[0], timeout_s], options])


def test_changed_bytes_of_a_request_never_make_another_error(seed: int) -> None:
    gateway: Any = SimpleNamespace(fetch=lambda *_: {})
    answer = FlightCalls([Served(FetchApi, gateway)]).find("FetchApi.fetch")
    assert answer is not None
    random, good, refused = Random(seed), write_request(FORM.write([FETCH, 1.0], {}), "lz4"), 0
    for _ in range(3000):
        text = bytearray(good)
        for _ in range(random.randint(1, 3)):
            text[random.randrange(len(text))] = random.choice(b'0123456789-.{}[]",:nulltrue\\x\xff')
        try:
            answer(bytes(text))
        except StreamError:
            refused += 1
    assert refused > 1000


def test_a_reply_is_the_same_one_at_the_member() -> None:
    counters = FilterCounters(scanned=9, tag_rejected=4, delivered=5)
    error = ShardUnavailableError("shard Trade/6", "it starts", 50)
    reply = {
        0: FetchedQueue([memoryview(b"one")], 12, 20, "s", counters),
        5: FetchedQueue([], 4, error=OSError(5, "no disk")),
        6: FetchedQueue([], 4, error=error),
    }
    found = FORM.result.read(read_text(write_text(FORM.result.write(reply))))
    assert found[0] == reply[0]
    assert [(type(one.error), one.error and one.error.args) for one in found.values()] == [
        (type(None), None),
        (OSError, (5, "no disk", None)),
        (ShardUnavailableError, error.args),
    ]


def test_a_reply_about_a_queue_that_was_not_asked_for_is_refused() -> None:
    gateway: Any = None
    streams = FetchedStreams(gateway, "g", "Trade")
    with pytest.raises(InvalidMessageError, match=r"other queues: \[9\]"):
        streams._take_in(FETCH, {9: FetchedQueue([], 0)})


@pytest.fixture
def node(tmp_path: Path) -> Iterator[LocalNode]:
    with LocalNode(tmp_path / "data") as node:
        node.topics.ensure("Trade", 2)
        yield node


@pytest.fixture
def service(node: LocalNode) -> Iterator[RangeService]:
    home = Home(str(node.data), settle_identity(node.data), "elsewhere")
    found = RangeService(
        home, HOST, has_tls=True, others=FlightCalls([Served(FetchApi, node.gateway)])
    )
    yield found
    node.gateway.close()
    found.close()


def member(
    node: LocalNode, service: RangeService, compression: FetchCompression | None = None
) -> GroupConsumer:
    fetches = client_of(FlightLink(service, compression), FETCHES)
    streams = FetchedStreams(fetches, "g", "Trade")
    return GroupConsumer(node, "g", "Trade", Subscription.tags("odd"), streams=streams)


@pytest.mark.parametrize("compression", [None, "lz4", "zstd"])
def test_messages_arrive_in_order_through_the_service(
    node: LocalNode, service: RangeService, compression: FetchCompression | None
) -> None:
    with node.producer() as producer, member(node, service, compression) as far:
        for number in range(COUNT):
            tag = ("even", "odd")[number // 2 % 2]
            producer.send_async("Trade", b"%d" % number * 20, tags=tag, queue_id=number % 2)
        found: dict[int, list[bytes]] = {0: [], 1: []}

        def has_all() -> bool:
            for batch in far.poll(0.5):
                found[batch.queue_id] += batch.bodies()
                far.commit("Trade", batch.queue_id, batch.next_queue_offset)
            return sum(map(len, found.values())) >= COUNT // 2

        wait_until(has_all)
    wanted = [b"%d" % number * 20 for number in range(COUNT) if number // 2 % 2]
    for queue_id in (0, 1):
        assert found[queue_id] == [body for at, body in enumerate(wanted) if at % 2 == queue_id]


def test_errors_of_the_gateway_are_raised_at_the_member(
    node: LocalNode, service: RangeService
) -> None:
    fetches = client_of(FlightLink(service), FETCHES)
    with pytest.raises(ShardUnavailableError, match="Trade/7"):
        fetches.bounds("Trade", 7)
    with member(node, service) as far:
        stream = far._queues.streams[0]
        wrong = Subscription.sql("a = 1")
        object.__setattr__(wrong, "expression", "a =")
        stream.read_on(stream.part._replace(subscription=wrong))
        with pytest.raises(FilterSyntaxError):
            stream.attach()
