"""Hosts, transactions and the roll of files, through a whole store."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from support.nodes.stores import SMALL, FakeClock, check_whole, kill, message, read_all

from rocketray.base import names
from rocketray.base.config import StoreConfig
from rocketray.broker.topics.queue_views import open_queues
from rocketray.errors import ConfigError, CorruptRecordError, MessageTooLargeError
from rocketray.message import Message
from rocketray.store.batches.batch_form import EncodedBatch, RecordOptions
from rocketray.store.batches.encoded_batch import encode_messages
from rocketray.store.batches.encoded_table import MeasuredTable
from rocketray.store.formats.message_id import decode_offset_id
from rocketray.store.formats.sys_flag import COMMIT, MULTI_TAGS, PREPARED, ROLLBACK, sys_flag_names
from rocketray.store.message_store import MessageStore
from rocketray.store.reading.columns import read_columns
from rocketray.store.reading.reader import QueueReader

IPV6_HOST = ("fd00::1:2", 10_911)
IPV6 = StoreConfig(
    commit_log_segment_bytes=4096,
    consume_queue_segment_entries=7,
    index_hash_slots=5,
    index_entries=9,
    store_host=IPV6_HOST,
)
LONG_TOPIC = "%RETRY%" + "g" * 200


def encode(messages: list[Message], **options: Any) -> EncodedBatch:
    return encode_messages(
        messages, born_host=("1.2.3.4", 5), clock_ms=FakeClock(), options=RecordOptions(**options)
    )


@pytest.mark.parametrize("topic", ["Trade", LONG_TOPIC])
def test_a_store_with_an_ipv6_host_does_all_that_others_do(tmp_path: Path, topic: str) -> None:
    store = MessageStore(tmp_path, IPV6, clock_ms=FakeClock())
    for number in range(30):
        store.put([message(number, topic)], 0)
    table = pa.table({"body": pa.array([b"from a table"], pa.binary())})
    for born in ("1.2.3.4", "fd00::9"):
        batch = MeasuredTable(
            topic,
            table,
            born_host=(born, 77),
            born_timestamp_ms=5,
            options=RecordOptions(store_ipv6=True),
        ).encode()
        store.append(topic, 0, batch)
    stored = read_all(store, topic, 0)
    assert len(stored) == 32
    assert {one.store_host for one in stored} == {IPV6_HOST}
    assert [one.born_host for one in stored[-2:]] == [("1.2.3.4", 77), ("fd00::9", 77)]
    assert sys_flag_names(stored[0].sys_flag) == ["BORN_IPV6", "STORE_IPV6"]
    for one in stored:
        assert len(one.offset_message_id) == 56
        assert decode_offset_id(one.offset_message_id).store_host == IPV6_HOST
        assert store.reads.view_by_id(one.offset_message_id) == one
    kill(store)
    with MessageStore(tmp_path, clock_ms=FakeClock()) as again:
        assert check_whole(again) == 32
        assert again.config == IPV6
    with QueueReader(tmp_path, topic, 0) as reader:
        entries = reader.entries(0, 32)
        assert reader.messages(entries) == stored
        columns = read_columns(reader, entries, ["msgId", "body", "storeTimestamp"])
        assert columns["msgId"].to_pylist() == [one.offset_message_id for one in stored]
        assert columns["body"].to_pylist() == [one.body for one in stored]


def test_a_batch_without_room_for_the_stores_host_is_refused_whole(tmp_path: Path) -> None:
    with MessageStore(tmp_path, IPV6, clock_ms=FakeClock()) as store:
        with pytest.raises(CorruptRecordError, match="store host of this store's width"):
            store.append("Trade", 0, encode([message(1)]))
        assert store.reads.max_physical_offset == 0
        store.append("Trade", 0, encode([message(1)], store_ipv6=True))
        assert check_whole(store) == 1


@pytest.mark.parametrize("host", ["localhost", "1.2.3", "fd00::1::2", "fe80::1%eth0", ""])
def test_a_store_host_is_an_address(host: str) -> None:
    with pytest.raises(ConfigError, match="not an IPv4 or IPv6 address"):
        StoreConfig(store_host=(host, 1))


@pytest.mark.parametrize("port", [-1, 65_536])
def test_a_store_host_has_a_port(port: int) -> None:
    with pytest.raises(ConfigError, match=f"the port of store_host is {port}"):
        StoreConfig(store_host=("1.2.3.4", port))


def test_a_topic_of_128_bytes_is_the_first_to_make_v2_records(tmp_path: Path) -> None:
    with MessageStore(tmp_path, SMALL, clock_ms=FakeClock()) as store:
        for length, magic in ((127, "daa320a7"), (128, "daa320ab")):
            topic = "%RETRY%".ljust(length, "g")
            put = store.put([Message(topic, b"x")], 0)[0]
            assert store._log.read(put.physical_offset + 4, 4).hex() == magic
            assert store.reads.view(put.physical_offset).topic == topic


def test_a_brokers_topic_with_a_long_name_is_read_verified_and_recovered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = "L" * 168
    store = MessageStore(tmp_path, SMALL, clock_ms=FakeClock())
    with monkeypatch.context() as patch:
        patch.setattr(names, "TOPIC_MAX_BYTES", 255)  # a broker's own limit for a record
        for number in range(20):
            store.put([message(number, topic if number % 2 else "Trade")], number % 3)
    assert check_whole(store) == 20
    kill(store)
    with MessageStore(tmp_path, clock_ms=FakeClock()) as again:
        assert check_whole(again) == 20
        found = again.verify()
        assert (found.records, found.problems) == (20, ())
    with open_queues(tmp_path, topic) as views:
        assert sum(view.count() for view in views) == 10


def test_prepared_and_rolled_back_messages_are_in_the_log_alone(tmp_path: Path) -> None:
    store = MessageStore(tmp_path, SMALL, clock_ms=FakeClock())
    states = [0, PREPARED, ROLLBACK, COMMIT, PREPARED, 0]
    for number, state in enumerate(states):
        done = store.append("Trade", 2, encode([message(number)], sys_flag=state | MULTI_TAGS))
        assert done.count == 1
        assert done.first_queue_offset == (0 if state & PREPARED else [0, 0, 0, 1, 0, 2][number])

    def check(opened: MessageStore) -> None:
        logged = list(opened.reads.scan())
        assert [one.sys_flag for one in logged] == [state | MULTI_TAGS for state in states]
        assert [one.queue_offset for one in logged] == [0, 0, 0, 1, 0, 2]
        assert [one.body for one in read_all(opened, "Trade", 2)] == [
            message(number).body for number in (0, 3, 5)
        ]
        found = [bool(opened.reads.query("Trade", f"key-{number}")) for number in range(6)]
        assert found == [state != ROLLBACK for state in states]
        assert opened.statistics().keys == 3 * 5

    check(store)
    kill(store)
    with MessageStore(tmp_path, clock_ms=FakeClock()) as again:
        check(again)
    with MessageStore(tmp_path, clock_ms=FakeClock()) as again:  # after a clean stop
        check(again)


def test_only_prepared_messages_leave_no_queue_behind(tmp_path: Path) -> None:
    with MessageStore(tmp_path, SMALL, clock_ms=FakeClock()) as store:
        store.append("Trade", 0, encode([message(1), message(2)], sys_flag=PREPARED))
        assert store.reads.queues() == []
        assert len(list(store.reads.scan())) == 2
    with MessageStore(tmp_path, clock_ms=FakeClock()) as again:
        assert again.reads.queues() == []
        assert again.put([message(3)], 0)[0].queue_offset == 0


@pytest.mark.parametrize("sys_flag", [0x1, 0x10, 0x20, 0x40, 0x80, 0x300])
def test_flags_that_follow_from_the_content_cannot_be_given(sys_flag: int) -> None:
    with pytest.raises(ConfigError, match="bits that depend on a record's content"):
        RecordOptions(sys_flag=sys_flag)


@pytest.mark.parametrize("free", [*range(115, 140), 4096])
def test_a_file_is_closed_exactly_when_eight_bytes_would_not_be_left(
    tmp_path: Path, free: int
) -> None:
    record_bytes = 116  # 91, the topic's five and the CRC's 20
    with MessageStore(tmp_path, SMALL, clock_ms=FakeClock()) as store:
        if free < 4096:
            store.put([Message("Trade", bytes(4096 - free - record_bytes))], 0)
        placed = store.put([Message("Trade", b"")], 0)[0].physical_offset
        start = 4096 - free
        rolls = record_bytes + 8 > free
        assert placed == (4096 if rolls else start)
        assert store.reads.max_physical_offset == placed + record_bytes
        assert len(list(store.reads.scan())) == 1 + (free < 4096)
    log = (tmp_path / "commitlog" / f"{0:020d}").read_bytes()
    if rolls:
        assert log[start : start + 8] == free.to_bytes(4, "big") + bytes.fromhex("cbd43194")
        assert not any(log[start + 8 :])
    else:
        assert not any(log[start + record_bytes :])
    with MessageStore(tmp_path, clock_ms=FakeClock()) as again:
        assert check_whole(again) == 1 + (free < 4096)


def test_the_largest_record_leaves_eight_bytes_and_a_larger_one_is_refused(tmp_path: Path) -> None:
    with MessageStore(tmp_path, SMALL, clock_ms=FakeClock()) as store:
        largest = 4096 - 8 - 116
        with pytest.raises(MessageTooLargeError, match="4089 bytes is over the limit of 4088"):
            store.put([Message("Trade", bytes(largest + 1))], 0)
        store.put([Message("Trade", bytes(largest))], 0)
        store.put([Message("Trade", bytes(largest))], 0)
        assert store.reads.max_physical_offset == 4096 + 4088
        assert check_whole(store) == 2
