"""Staged batches in a shard: what it has of one is not stored again, whoever asks and how often."""

from __future__ import annotations

from pathlib import Path

import pytest

from rocketray.base.ack_mode import Durability
from rocketray.base.config import StoreConfig
from rocketray.broker.shards.shard_writer import ShardWriter
from rocketray.message import Message
from rocketray.runtime.ipc.acknowledgement import AppendStatus
from rocketray.store.batches.batch_form import EncodedBatch
from rocketray.store.batches.encoded_batch import encode_messages, pack_batch

CONFIG = StoreConfig(
    commit_log_segment_bytes=64 * 1024,
    consume_queue_segment_entries=100,
    index_hash_slots=100,
    index_entries=1000,
)
COUNT = 10


def batch_of(first: int, count: int) -> EncodedBatch:
    # Each has a business key that is the unique key of the first one, which is not that message.
    messages = [
        Message("Topic", b"%d" % n, keys=[f"{first:032d}"], unique_key=f"{n:032d}")
        for n in range(first, first + count)
    ]
    return encode_messages(messages, born_host=("127.0.0.1", 1), clock_ms=lambda: 1)


def open_writer(directory: Path) -> ShardWriter:
    return ShardWriter(directory / "shard", "Topic", 0, CONFIG, clock_ms=lambda: 1000)


def bodies(writer: ShardWriter) -> list[bytes]:
    return [message.body for message in writer.store.reads.scan()]


@pytest.mark.proves("spark", "What is decided is stored after a restart, and once")
@pytest.mark.parametrize("stored", range(COUNT + 1))
@pytest.mark.parametrize("others", [0, 3])
def test_what_a_shard_that_died_has_of_a_batch_is_not_stored_again(
    tmp_path: Path, stored: int, others: int
) -> None:
    writer = open_writer(tmp_path)
    writer.append(pack_batch(batch_of(100, 5)), Durability.MEMORY)
    if stored:
        writer.append(pack_batch(batch_of(0, stored)), Durability.MEMORY)
    writer.close()
    writer = open_writer(tmp_path)
    if others:
        writer.append(pack_batch(batch_of(200, others)), Durability.MEMORY)
    for _ in range(2):
        ack = writer.append_staged([batch_of(0, COUNT), batch_of(300, 2)], in_doubt=True)
        assert ack.status is AppendStatus.OK
    found = bodies(writer)
    assert sorted(found, key=int) == [b"%d" % n for n in (*range(COUNT), *range(100, 105))] + [
        b"%d" % n for n in (*range(200, 200 + others), 300, 301)
    ]
    assert [one for one in found if int(one) < COUNT] == [b"%d" % n for n in range(COUNT)]
    assert writer.control.visible() == len(found)
    writer.close()


def test_an_old_call_that_comes_late_stores_nothing(tmp_path: Path) -> None:
    writer = open_writer(tmp_path)
    writer.append_staged([batch_of(0, COUNT)], in_doubt=True)
    writer.append_staged([batch_of(0, COUNT)], in_doubt=False)
    assert len(bodies(writer)) == COUNT
    writer.close()


def test_without_doubt_a_new_process_does_not_look(tmp_path: Path) -> None:
    """So the caller has to say it: a look costs as much as a hundred messages."""
    writer = open_writer(tmp_path)
    writer.append_staged([batch_of(0, COUNT)], in_doubt=False)
    writer.close()
    writer = open_writer(tmp_path)
    writer.append_staged([batch_of(0, COUNT)], in_doubt=False)
    assert len(bodies(writer)) == 2 * COUNT
    writer.close()


def test_a_batch_that_is_refused_ends_the_call(tmp_path: Path) -> None:
    writer = open_writer(tmp_path)
    writer.appends.writable = False
    ack = writer.append_staged([batch_of(0, 1), batch_of(10, 1)], in_doubt=False)
    assert ack.status is AppendStatus.NOT_WRITABLE
    writer.appends.writable = True
    writer.append_staged([batch_of(0, 1), batch_of(10, 1)], in_doubt=False)
    assert bodies(writer) == [b"0", b"10"]
    writer.close()
