"""A member that fetches from a real fetch service, in each way that it may compress replies."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from support.harness.patience import wait_until
from support.nodes.local_node import LocalNode

from rocketray.broker.fetching.flight_link import FlightLink
from rocketray.broker.fetching.range_service import RangeService
from rocketray.errors import FilterSyntaxError, ShardUnavailableError
from rocketray.filters.subscription import Subscription
from rocketray.groups.member_options import FetchCompression
from rocketray.messaging.consumers.member import GroupConsumer
from rocketray.messaging.remote.fetch_calls import calls_of
from rocketray.messaging.remote.fetched_streams import FetchedStreams
from rocketray.messaging.remote.sent_fetches import SentFetches
from rocketray.runtime.files.home import Home, settle_identity

HOST = "127.0.0.1"
COUNT = 6000


@pytest.fixture
def node(tmp_path: Path) -> Iterator[LocalNode]:
    with LocalNode(tmp_path / "data") as node:
        node.topics.ensure("Trade", 2)
        yield node


@pytest.fixture
def service(node: LocalNode) -> Iterator[RangeService]:
    home = Home(str(node.data), settle_identity(node.data), "elsewhere")
    found = RangeService(home, HOST, has_tls=True, others=calls_of(node.gateway))
    yield found
    node.gateway.close()
    found.close()


def member(
    node: LocalNode, service: RangeService, compression: FetchCompression | None = None
) -> GroupConsumer:
    fetches = SentFetches(FlightLink(service), compression)
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
    fetches = SentFetches(FlightLink(service))
    with pytest.raises(ShardUnavailableError):
        fetches.bounds("Trade", 7)
    with member(node, service) as far:
        stream = far._queues.streams[0]
        wrong = Subscription.sql("a = 1")
        object.__setattr__(wrong, "expression", "a =")
        stream.read_on(stream.part._replace(subscription=wrong))
        with pytest.raises(FilterSyntaxError):
            stream.attach()
