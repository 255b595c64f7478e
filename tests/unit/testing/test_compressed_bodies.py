"""A compressed body is the same on every way that a message takes: half or delayed."""

from __future__ import annotations

import pytest

from rocketray.filters.subscription import Subscription
from rocketray.store.formats.compression import CompressionKind
from rocketray.testing import Broker

BODY = b"x" * 20_000


@pytest.mark.parametrize("codec", ["zlib", "lz4", "zstd"])
def test_a_committed_and_a_delayed_body_arrive_as_they_were_sent(
    broker: Broker, codec: CompressionKind
) -> None:
    broker.topics.ensure("T", 1)
    options = {"compression": codec, "group": "pg", "check": lambda _: "unknown"}
    with broker.producer(**options) as producer:  # type: ignore[arg-type]
        with producer.begin() as transaction:
            producer.send("T", BODY, transaction=transaction)
        producer.send("T", BODY, delay=1.0)
        producer.send("T", BODY)
    member = broker.consumer("g", "T", Subscription.tags("*"))
    taken: list[bytes] = []
    for _ in range(5):
        broker.clock.advance(seconds=1)
        for batch in member.poll():
            taken += batch.bodies()
            member.commit("T", 0, batch.next_queue_offset)
    assert taken == [BODY] * 3
    assert min(message.size for message in broker.stored("T")) < len(BODY)
