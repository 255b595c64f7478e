"""A store directory is read without a node: a broker's, a shard's, or a data directory."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from support.nodes.shards import Shards
from support.nodes.stores import GOLDEN_STORE, open_golden

from rocketray.broker.fetching.read_plan import Bounds, QueueKey, Range, ReadPlan
from rocketray.broker.fetching.reading import read_part
from rocketray.errors import StoreError
from rocketray.filters.subscription import Subscription
from rocketray.queries.ranges.offset_rules import LATEST
from rocketray.queries.ranges.time_rules import TimeRule
from rocketray.queries.ranges.topic_choice import TopicChoice, matching, named
from rocketray.queries.ranges.topic_queues import StoreDirectory, TopicQueues
from rocketray.runtime.files.paths import shard_directory

PAY = Subscription.tags("pay")


@pytest.fixture
def shards(tmp_path: Path) -> Iterator[Shards]:
    with Shards(tmp_path, Trade=3, Other=1) as written:
        written.fill("Trade", 0, 7)
        written.fill("Trade", 2, 5)
        yield written


def opened(directory: Path, choice: TopicChoice) -> TopicQueues:
    return TopicQueues(StoreDirectory(directory), choice)


def bodies(queues: TopicQueues, key: QueueKey, subscription: Subscription) -> list[bytes]:
    held = queues.bounds()[key]
    plan = ReadPlan(subscription, ("body",), batch_rows=100, fail_on_data_loss=True)
    part = Range(key, held.minimum, held.visible)
    batches = read_part(queues.place(key), plan, part, pytest.fail)
    return [body for batch in batches for body in batch.column("body").to_pylist()]


@pytest.mark.proves("spark", "The option `path`")
def test_a_brokers_store_is_read_as_it_lies() -> None:
    with open_golden() as store:
        expected = [message for message in store.reads.scan() if message.topic == "TopicA"]
        held = {key: store.reads.max_queue_offset(*key) for key in store.reads.queues()}
    queues = opened(GOLDEN_STORE, named("TopicA"))

    assert queues.ends() == {key: end for key, end in held.items() if key[0] == "TopicA"}
    found = [body for key in queues.ends() for body in bodies(queues, key, Subscription.tags("*"))]
    assert sorted(found) == sorted(message.body for message in expected)
    assert queues.topic_ids() == {"TopicA": ""}


@pytest.mark.proves("spark", "The option `path`")
def test_a_data_directory_and_a_shard_are_stores(tmp_path: Path, shards: Shards) -> None:
    whole = opened(tmp_path, matching("T.*"))
    assert whole.bounds() == {
        ("Trade", 0): Bounds(0, 7),
        ("Trade", 1): Bounds(0, 0),
        ("Trade", 2): Bounds(0, 5),
    }
    assert len(whole.topic_ids()["Trade"]) == 32

    shard = opened(shard_directory(tmp_path, "Trade", 2), named("Trade"))
    shards.delete_before("Trade", 2, 2)
    assert shard.bounds()["Trade", 2] == Bounds(2, 5)
    paid = [each for each in shards.stored("Trade") if each.tags == "pay" and each.queue_id == 2]
    expected = [each.body for each in paid if each.queue_offset >= 2]
    assert bodies(shard, ("Trade", 2), PAY) == expected


@pytest.mark.proves("spark", "The option `path`")
def test_times_are_found_and_new_messages_seen(tmp_path: Path, shards: Shards) -> None:
    queues = opened(tmp_path, named("Trade"))
    last = max(message.store_timestamp_ms for message in shards.stored("Trade"))
    rule = TimeRule("endingTimestamp", last, {}, LATEST)
    assert queues.offsets(rule, "endingOffsets", queues.bounds()) == {
        ("Trade", 0): 7,
        ("Trade", 1): 0,
        ("Trade", 2): 0,
    }

    shards.fill("Trade", 1, 1)
    assert queues.ends()["Trade", 1] == 1


def test_what_is_no_store_or_not_in_it_is_said(tmp_path: Path, shards: Shards) -> None:
    with pytest.raises(StoreError, match=f"{tmp_path} has no topic 'Trades'; see: rocketray store"):
        opened(tmp_path, named("Trades"))
    nowhere = tmp_path / "nowhere"
    with pytest.raises(StoreError, match=f"{nowhere} is neither a node's data directory nor a sto"):
        opened(nowhere, named("Trade"))
