from __future__ import annotations

import base64
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from support.nodes.stores import (
    GOLDEN_CONFIG,
    GOLDEN_LIMITS,
    GOLDEN_STORE,
    FakeClock,
    open_golden,
    read_jsonl,
)

from rocketray.filters.message_filter import MessageFilter
from rocketray.filters.subscription import Subscription
from rocketray.store.message_store import MessageStore
from rocketray.store.reading.pull import GetMessageResult

QUERIES = list(read_jsonl("store-v1.queries.jsonl"))


def tag_filter(query: dict[str, Any]) -> MessageFilter:
    return MessageFilter(Subscription.tags(query["sub"] or "*"))


def sql_filter(query: dict[str, Any]) -> MessageFilter:
    return MessageFilter(Subscription.sql(query["sql"]))


@pytest.fixture(scope="module")
def store() -> Iterator[MessageStore]:
    with open_golden() as opened:
        yield opened


def of(operation: str) -> list[dict[str, Any]]:
    chosen = [query for query in QUERIES if query["op"] == operation]
    assert chosen
    return chosen


def test_every_record_decodes_as_rocketmq_wrote_it(store: MessageStore) -> None:
    expected = [row for row in read_jsonl("store-v1.jsonl") if not row.get("blank")]
    messages = list(store.reads.scan())
    assert len(messages) == len(expected) == 600
    for message, row in zip(messages, expected, strict=True):
        assert message.topic == row["topic"]
        assert message.queue_id == row["queueId"]
        assert message.queue_offset == row["queueOffset"]
        assert message.physical_offset == row["commitLogOffset"]
        assert message.size == row["storeSize"]
        assert message.flag == row["flag"]
        assert message.sys_flag == row["sysFlag"]
        assert message.body_crc == row["bodyCRC"]
        assert message.born_timestamp_ms == row["bornTimestamp"]
        assert message.store_timestamp_ms == row["storeTimestamp"]
        assert "|".join(map(str, message.born_host)) == row["bornHost"]
        assert "|".join(map(str, message.store_host)) == row["storeHost"]
        assert message.reconsume_times == row["reconsumeTimes"]
        assert message.prepared_transaction_offset == row["preparedTransactionOffset"]
        assert message.offset_message_id == row["offsetMsgId"]
        assert message.properties == row["properties"]
        assert message.tags == row["tags"]
        assert message.properties.get("KEYS") == row["keys"]
        assert message.body == base64.b64decode(row["body"])
        assert store.reads.view(message.physical_offset) == message
        assert store.reads.view_by_id(row["offsetMsgId"]) == message


def test_every_queue_entry_is_as_rocketmq_reads_it(store: MessageStore) -> None:
    for row in read_jsonl("store-v1.jsonl"):
        if row.get("blank"):
            continue
        entry = store.reads.queue_entry(row["topic"], row["queueId"], row["queueOffset"])
        assert entry.physical_offset == row["cq"]["pos"]
        assert entry.size == row["cq"]["size"]
        assert entry.tags_code == row["cq"]["tagsCode"]


def test_ranges(store: MessageStore) -> None:
    for query in of("range"):
        queue = query["topic"], query["queueId"]
        assert store.reads.min_queue_offset(*queue) == query["min"]
        assert store.reads.max_queue_offset(*queue) == query["max"]
    assert store.reads.queues() == sorted(
        (query["topic"], query["queueId"]) for query in of("range")
    )


def test_reads_by_offset(store: MessageStore) -> None:
    for query in of("get"):
        result = store.reads.get_message(
            query["topic"], query["queueId"], query["offset"], query["max"], limits=GOLDEN_LIMITS
        )
        assert result.status.name == query["status"], query
        assert result.next_queue_offset == query["next"], query
        assert result.min_queue_offset == query["min"]
        assert result.max_queue_offset == query["maxOffset"]
        assert [message.queue_offset for message in result.messages] == query["offsets"]


def test_reads_by_tag(store: MessageStore) -> None:
    for query in of("tag"):
        result = read(store, query, tag_filter(query))
        assert result.size == query["bytes"]


def test_reads_by_sql(store: MessageStore) -> None:
    for query in of("sql"):
        result = read(store, query, sql_filter(query))
        # The broker's filter bitmaps had left out most of these before it looked at the record.
        assert result.filter_message_count >= query["filterMessageCount"]


def read(
    store: MessageStore, query: dict[str, Any], message_filter: MessageFilter
) -> GetMessageResult:
    """One read, checked against the query's status, next offset and offsets."""
    queue = query["topic"], query["queueId"]
    result = store.reads.get_message(
        *queue, query["offset"], query["max"], message_filter, limits=GOLDEN_LIMITS
    )
    assert result.status.name == query["status"], query
    assert result.next_queue_offset == query["next"], query
    assert [message.queue_offset for message in result.messages] == query["offsets"]
    return result


def test_scans_by_tag_and_sql(store: MessageStore) -> None:
    filters = [(query, tag_filter(query)) for query in of("tag_scan")]
    filters += [(query, sql_filter(query)) for query in of("sql_scan")]
    for query, message_filter in filters:
        queue = query["topic"], query["queueId"]
        found: list[int] = []
        at = 0
        while at < store.reads.max_queue_offset(*queue):
            result = store.reads.get_message(
                *queue, at, 10_000, message_filter, limits=GOLDEN_LIMITS
            )
            found += [message.queue_offset for message in result.messages]
            at = result.next_queue_offset
        assert found == query["offsets"], query


def test_offsets_by_time(store: MessageStore) -> None:
    for query in of("bytime"):
        offset = store.reads.queue_offset_by_time(
            query["topic"], query["queueId"], query["ts"], query["boundary"]
        )
        assert offset == query["offset"], query


def test_lookups_by_key(store: MessageStore) -> None:
    for query in of("key"):
        found = store.reads.query(query["topic"], query["key"], query["maxNum"], distinct=False)
        assert [message.physical_offset for message in found] == query["commitLogOffsets"], query


def test_a_lookup_gives_a_message_once_though_it_carries_the_key_twice(store: MessageStore) -> None:
    found = store.reads.query("TopicB", "dup", 32)
    assert any(message.keys.count("dup") == 2 for message in found)
    assert len({message.physical_offset for message in found}) == len(found) == 28


def test_reading_changes_no_byte() -> None:
    def content() -> dict[str, bytes]:
        return {str(path): path.read_bytes() for path in GOLDEN_STORE.rglob("*") if path.is_file()}

    before = content()
    with open_golden() as opened:
        opened.reads.query("TopicA", "key-0-0")
        opened.flush()
    assert content() == before


def test_an_ext_that_a_broker_began_is_read_though_the_settings_do_not_know_of_it() -> None:
    config = replace(GOLDEN_CONFIG, consume_queue_ext=False)
    with MessageStore(GOLDEN_STORE, config, read_only=True, clock_ms=FakeClock()) as store:
        for topic, queue_id in store.reads.queues():
            for offset in range(store.reads.max_queue_offset(topic, queue_id)):
                assert store.reads.queue_entry(topic, queue_id, offset).tags_code is not None
