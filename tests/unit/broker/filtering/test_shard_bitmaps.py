"""A shard's bitmaps are those that a broker would make, whichever way its messages come."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from oracles.bitmaps import bitmap_of
from support.nodes.stores import FakeClock

from rocketray.base.ack_mode import Durability
from rocketray.base.config import StoreConfig
from rocketray.broker.filtering.shard_bitmaps import StreamBits
from rocketray.broker.shards.shard_writer import ShardWriter
from rocketray.errors import StoreFullError
from rocketray.filters.consumer_filter import ConsumerFilterManager, ConsumerSubscription
from rocketray.filters.subscription import Subscription
from rocketray.groups.group_descriptions import LiveSubscription
from rocketray.message import Message
from rocketray.runtime.files.paths import filters_file
from rocketray.runtime.ipc.ring import ProducerRing
from rocketray.runtime.processes import owned_name
from rocketray.store.batches.encoded_batch import encode_messages, pack_batch
from rocketray.store.queues.consume_queue_ext import ConsumeQueueExt

EXPRESSIONS = {"small": "a < 5", "even": "a IN ('0', '2', '4', '6', '8')", "other": "b IS NOT NULL"}
LIVING = [
    LiveSubscription(group, "T", Subscription.sql(sql), 1) for group, sql in EXPRESSIONS.items()
]


@pytest.fixture
def writer(tmp_path: Path) -> Iterator[ShardWriter]:
    writer = ShardWriter(tmp_path / "shard", "T", 0, StoreConfig(), clock_ms=FakeClock())
    yield writer
    writer.close()


def payload(numbers: range) -> bytes:
    messages = [Message("T", b"x", "tag", properties={"a": str(number)}) for number in numbers]
    return pack_batch(encode_messages(messages, born_host=("127.0.0.1", 1), clock_ms=lambda: 1))


def broker_bitmap(number: int) -> bytes | None:
    manager = ConsumerFilterManager(clock_ms=lambda: 0)
    for group, sql in EXPRESSIONS.items():
        manager.register(group, [ConsumerSubscription("T", Subscription.sql(sql, "rocketmq"), 1)])
    return bitmap_of(manager, "T", {"TAGS": "tag", "a": str(number)})


def test_what_a_killed_shard_had_begun_to_write_is_removed(tmp_path: Path) -> None:
    directory = tmp_path / "shard"
    writer = ShardWriter(directory, "T", 0, StoreConfig(), clock_ms=FakeClock())
    writer.keep_bitmaps(LIVING)
    writer.close()
    path = filters_file(directory)
    left = path.with_name(f"{path.name}.99999999999999999.tmp")  # no process has that id
    left.write_bytes(b"{")
    ShardWriter(directory, "T", 0, StoreConfig(), clock_ms=FakeClock()).close()
    assert path.exists()
    assert not left.exists()


def test_many_frames_get_their_units_in_one_pass(writer: ShardWriter, tmp_path: Path) -> None:
    writer.keep_bitmaps(LIVING)
    writer.append(payload(range(2)), Durability.MEMORY)  # makes the files
    ring = ProducerRing(tmp_path / owned_name("r"))
    writer.rings.attach_ring(ring.path)
    for first in range(2, 50, 3):
        ring.try_write(payload(range(first, first + 3)), Durability.MEMORY)
    ring.publish()
    assert writer.rings.drain() == 16
    entries = [writer.store.reads.queue_entry("T", 0, number) for number in range(50)]
    assert len({entry.tags_code for entry in entries}) == 1
    found = [entry.unit and entry.unit.bitmap for entry in entries]
    assert found == [broker_bitmap(number) for number in range(50)]


def test_messages_are_stored_without_units_where_there_is_no_room_for_them(
    writer: ShardWriter, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer.keep_bitmaps(LIVING)
    writer.append(payload(range(2)), Durability.MEMORY)
    ring = ProducerRing(tmp_path / owned_name("r"))
    writer.rings.attach_ring(ring.path)
    for first in (2, 4):
        ring.try_write(payload(range(first, first + 2)), Durability.MEMORY)

    def full(*_: object) -> None:
        raise StoreFullError("no room")

    ring.publish()
    with monkeypatch.context() as patch:
        patch.setattr(ConsumeQueueExt, "reserve", full)
        assert writer.rings.drain() == 2
    entries = [writer.store.reads.queue_entry("T", 0, number) for number in range(6)]
    assert [entry.unit is not None for entry in entries] == [True] * 2 + [False] * 4
    assert len({entry.tags_code for entry in entries}) == 1
    assert writer.store.is_sound


def test_no_bitmaps_are_kept_before_they_are_asked_for(writer: ShardWriter) -> None:
    writer.append(payload(range(2)), Durability.MEMORY)
    assert not writer.statistics().keeps_bitmaps
    assert not writer.store.config.consume_queue_ext
    assert not filters_file(writer.store.directory).exists()


def test_filters_of_which_no_bitmaps_can_be_made_are_not_registered(writer: ShardWriter) -> None:
    others = [
        LiveSubscription("tags", "T", Subscription.tags("a"), 1),
        LiveSubscription("where", "T", Subscription.where("a:f"), 1),
    ]
    assert writer.keep_bitmaps([*LIVING, *others]).keys() == EXPRESSIONS.keys()
    for one in others:
        assert StreamBits(writer.store.directory, writer.control, one).test() is None


def test_a_file_that_cannot_be_written_ends_the_bitmaps(writer: ShardWriter) -> None:
    writer.keep_bitmaps(LIVING[:1])
    path = filters_file(writer.store.directory)
    in_the_way = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    in_the_way.mkdir()
    with pytest.raises(IsADirectoryError):
        writer.keep_bitmaps(LIVING)
    assert not writer.statistics().keeps_bitmaps
    writer.append(payload(range(2)), Durability.MEMORY)
    assert writer.store.reads.queue_entry("T", 0, 0).unit is None
    in_the_way.rmdir()
    writer.keep_bitmaps(LIVING)
    writer.append(payload(range(2)), Durability.MEMORY)
    assert writer.store.reads.queue_entry("T", 0, 2).unit is not None
