"""When a shard is compacted; what stays is told by tests/property/test_compaction.py."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.nodes.stores import SMALL

from rocketray.base.ack_mode import Durability
from rocketray.broker.shards.owned_shard import OwnedShard
from rocketray.broker.topics.catalog import TopicCatalog
from rocketray.message import SHARDING_KEY, Message, StoredMessage
from rocketray.store.batches.encoded_batch import encode_messages, pack_batch
from rocketray.store.reading.reader import QueueReader
from rocketray.store.reading.record_spans import EntryColumns
from rocketray.store.retention import KEEP_ALL, RetentionPolicy

COMPACTS = RetentionPolicy(compacts=True)


def test_a_shard_is_compacted_where_its_topic_says_so(data: Path) -> None:
    topic = TopicCatalog().with_topic("C", 1, retention=COMPACTS).get("C")
    shard = OwnedShard(data, topic, 0, SMALL, clock_ms=lambda: 1)
    for number in range(40):
        message = Message("C", b"%d" % number * 50, properties={SHARDING_KEY: "k"})
        batch = encode_messages([message], born_host=("::1", 1), clock_ms=lambda: 1)
        shard.append(pack_batch(batch), Durability.MEMORY)
    shard.expire(KEEP_ALL, None)
    assert shard.statistics().min_queue_offset == 0
    shard.expire(COMPACTS, 0)  # a group that is behind does not hold it up
    assert shard.statistics().min_queue_offset > 10
    shard.close()


def test_the_catalogue_keeps_that_a_topic_is_compacted(tmp_path: Path) -> None:
    TopicCatalog().with_topic("C", 2, retention=COMPACTS).with_topic("D", 1).save(tmp_path)
    catalog = TopicCatalog.load(tmp_path)
    assert catalog.get("C").retention == COMPACTS
    assert catalog.get("D").retention == KEEP_ALL
    assert catalog.get("C").to_json()["attributes"]["cleanup.policy"] == "COMPACTION"


def test_a_topic_that_is_compacted_is_looked_after() -> None:
    assert KEEP_ALL.keeps_all
    assert not COMPACTS.keeps_all


def test_old_files_are_read_while_producers_need_not_wait(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = TopicCatalog().with_topic("C", 1, retention=COMPACTS).get("C")
    shard = OwnedShard(data, topic, 0, SMALL, clock_ms=lambda: 1)

    def put(number: int, key: str) -> None:
        message = Message("C", b"%d" % number * 50, properties={SHARDING_KEY: key})
        batch = encode_messages([message], born_host=("::1", 1), clock_ms=lambda: 1)
        shard.append(pack_batch(batch), Durability.MEMORY)

    put(0, "rare")
    for number in range(1, 40):
        put(number, "often")
    waits: list[bool] = []
    read = QueueReader.messages

    def messages(reader: QueueReader, entries: EntryColumns) -> list[StoredMessage]:
        waits.append(shard.writer._lock.locked())
        return read(reader, entries)

    monkeypatch.setattr(QueueReader, "messages", messages)
    shard.expire(COMPACTS, None)
    assert waits == [False]
    assert shard.statistics().min_queue_offset > 10
    assert [one.body for one in shard.writer.store.reads.scan()][-1] == b"0" * 50
    shard.close()
