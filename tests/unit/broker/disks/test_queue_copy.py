"""The copy of a queue while it is used, against a copy of the closed directory."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from rocketray.base.ack_mode import Durability
from rocketray.base.config import StoreConfig
from rocketray.broker.disks import queue_copy
from rocketray.broker.disks.copy_rounds import FileSums, RoundProgress
from rocketray.broker.disks.queue_copy import (
    BLOCK_BYTES,
    BLOCKS_AT_ONCE,
    QueueCopy,
    read_blocks,
    sums_of,
)
from rocketray.broker.shards.owned_shard import OwnedShard
from rocketray.broker.topics.catalog import TopicCatalog, TopicConfig
from rocketray.errors import StoreError
from rocketray.message import Message
from rocketray.store.batches.encoded_batch import encode_messages, pack_batch
from rocketray.store.retention import RetentionPolicy

CONFIG = StoreConfig(
    commit_log_segment_bytes=256 * 1024,
    consume_queue_segment_entries=300,
    index_hash_slots=100,
    index_entries=500,
)


@pytest.fixture(autouse=True)
def _small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queue_copy, "BLOCK_BYTES", 4096)


class Source:
    """A directory whose blocks are fetched, and counted."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.fetched = 0

    def sums(self, copy: QueueCopy) -> dict[str, FileSums]:
        return sums_of(self.directory, copy.known)

    def blocks(self, wanted: Sequence[tuple[str, list[int]]]) -> Iterator[bytes]:
        for name, numbers in wanted:
            self.fetched += len(numbers)
            yield read_blocks(self.directory, name, numbers)

    def round(self, copy: QueueCopy) -> dict[str, FileSums]:
        found = self.sums(copy)
        copy.take_files(found, self.blocks)
        return found


def topic() -> TopicConfig:
    return TopicCatalog().with_topic("T", 1).get("T")


def append(shard: OwnedShard, first: int, count: int, size: int) -> None:
    messages = [
        Message("T", os.urandom(size), keys=str(at), unique_key=f"{at:032d}")
        for at in range(first, first + count)
    ]
    batch = encode_messages(messages, born_host=("127.0.0.1", 1), clock_ms=lambda: first)
    shard.append(pack_batch(batch), Durability.MEMORY)


def content(directory: Path) -> dict[str, bytes]:
    """All files but the lock: what a copy has to have."""
    return {
        path.relative_to(directory).as_posix(): path.read_bytes()
        for path in directory.rglob("*")
        if path.is_file() and path.name != "lock"
    }


def test_after_the_round_of_the_closed_queue_the_copy_is_the_same_and_opens(
    tmp_path: Path, seed: int
) -> None:
    chance = random.Random(seed)
    shard = OwnedShard(tmp_path / "a", topic(), 0, CONFIG, clock_ms=lambda: 1_000)
    source, target = Source(shard.directory), tmp_path / "b" / "shards" / "T" / "0"
    copy, sent = QueueCopy(target), 0
    for _ in range(chance.randint(1, 6)):
        for _ in range(chance.randint(0, 4)):
            count = chance.randint(1, 150)
            append(shard, sent, count, chance.choice([10, 700]))
            sent += count
        what = chance.choice(["flush", "expire", "nothing", "forget"])
        if what == "flush":
            shard.flush()
        elif what == "expire":
            shard.expire(RetentionPolicy(max_bytes=256 * 1024), None)
        elif what == "forget":  # the target starts again, with what it has
            copy = QueueCopy(target)
        source.round(copy)
    shard.close()
    found = source.round(copy)
    copy.sync()
    assert copy.differences(found) == []
    assert content(target) == content(shard.directory)
    (tmp_path / "b" / "config").mkdir()
    again = OwnedShard(tmp_path / "b", topic(), 0, CONFIG, clock_ms=lambda: 1_000)
    reads = again.writer.store.reads
    assert reads.max_queue_offset("T", 0) == sent
    if sent:
        last = reads.query("T", f"{sent - 1:032d}", 1)
        assert [one.queue_offset for one in last] == [sent - 1]
    again.close()


def test_what_was_copied_and_cannot_change_is_not_looked_at_again(tmp_path: Path) -> None:
    shard = OwnedShard(tmp_path / "a", topic(), 0, CONFIG, clock_ms=lambda: 1_000)
    source, copy = Source(shard.directory), QueueCopy(tmp_path / "copy")
    for first in range(0, 1000, 100):
        append(shard, first, 100, 700)
    shard.flush()
    source.round(copy)
    whole, source.fetched = source.fetched, 0
    append(shard, 1000, 1, 700)
    found = source.round(copy)
    assert source.fetched < whole / 20
    logs = {name: file for name, file in found.items() if name.startswith("commitlog/")}
    assert logs[min(logs)].sums == ()
    assert logs[max(logs)].sums
    shard.close()


def test_an_interrupted_copy_goes_on_and_a_wrong_block_in_it_is_found(tmp_path: Path) -> None:
    shard = OwnedShard(tmp_path / "a", topic(), 0, CONFIG, clock_ms=lambda: 1_000)
    for first in range(0, 500, 100):
        append(shard, first, 100, 700)
    shard.close()
    source = Source(shard.directory)
    source.round(QueueCopy(tmp_path / "copy"))
    log = min((tmp_path / "copy" / "commitlog").iterdir())
    with log.open("r+b") as file:
        file.seek(5000)
        file.write(b"wrong")
    (tmp_path / "copy" / "too much").write_bytes(b"1")
    source.fetched = 0
    found = source.round(QueueCopy(tmp_path / "copy"))
    assert source.fetched == 1
    assert found
    assert content(tmp_path / "copy") == content(shard.directory)


def test_holes_stay_holes_and_data_that_became_zeros_is_zeroed(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    big = tmp_path / "a" / "big"
    with big.open("wb") as file:
        file.write(b"1" * 8192)
        file.truncate(1 << 30)
    source, copy = Source(tmp_path / "a"), QueueCopy(tmp_path / "b")
    source.round(copy)
    assert source.fetched == 2
    assert (tmp_path / "b" / "big").stat().st_blocks * 512 < 1 << 20
    with big.open("r+b") as file:
        file.write(bytes(4096))
        file.truncate(9000)
    source.round(copy)
    assert (tmp_path / "b" / "big").read_bytes() == big.read_bytes()


def test_a_difference_in_the_last_round_is_told(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "file").write_bytes(b"before")
    source, copy = Source(tmp_path / "a"), QueueCopy(tmp_path / "b")
    found = source.sums(copy)
    (tmp_path / "a" / "file").write_bytes(b"after!")
    copy.take_files(found, source.blocks)
    assert copy.differences(found) == ["file"]


@pytest.mark.parametrize(
    "name", ["../x", "/etc/passwd", "a//b", "", "a/../../x", "a\0b", "x" * 2000]
)
def test_no_name_leads_out_of_the_directory(tmp_path: Path, name: str) -> None:
    copy = QueueCopy(tmp_path / "copy")
    with pytest.raises(StoreError, match="is no file of a queue"):
        copy.take_files({name: FileSums(1, 1, 0, 0, (5,))}, lambda _: iter(()))
    with pytest.raises(StoreError, match="is no file of a queue"):
        read_blocks(tmp_path, name, [0])


def test_links_are_not_followed_and_limits_hold(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "secret").write_bytes(b"secret")
    (tmp_path / "a" / "link").symlink_to(tmp_path / "secret")
    assert sums_of(tmp_path / "a", {}) == {}
    with pytest.raises(OSError, match="link"):
        read_blocks(tmp_path / "a", "link", [0])
    with pytest.raises(StoreError, match="blocks are asked for at once"):
        read_blocks(tmp_path / "a", "link", range(BLOCKS_AT_ONCE + 1))
    with pytest.raises(StoreError, match="is missing"):
        sums_of(tmp_path / "b", {})
    assert BLOCK_BYTES == 1 << 20


@pytest.mark.parametrize("fails", [False, True])
def test_a_round_tells_the_bytes_that_were_fetched_of_those_that_differ(
    tmp_path: Path, fails: bool
) -> None:
    source = Source(tmp_path / "source")
    content = os.urandom(20 * 4096 + 7)
    source.directory.mkdir()
    (source.directory / "kept").write_bytes(content)
    (source.directory / "sparse").write_bytes(bytes(9 * 4096))
    copy = QueueCopy(tmp_path / "copy")
    seen = [copy.progress]

    def fetch(wanted: Sequence[tuple[str, list[int]]]) -> Iterator[bytes]:
        for block in source.blocks(wanted):
            yield block
            seen.append(copy.progress)
            if fails:
                raise OSError("on purpose")

    if fails:
        with pytest.raises(OSError, match="on purpose"):
            copy.take_files(source.sums(copy), fetch)
    else:
        assert copy.take_files(source.sums(copy), fetch) == len(content)
        assert [each.fetched_bytes for each in seen] == [0, 8 * 4096, 16 * 4096, len(content)]
    assert {each.differing_bytes for each in seen[1:]} == {len(content)}
    assert seen[0] == copy.progress == RoundProgress()
