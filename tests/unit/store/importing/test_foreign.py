"""Settings that are read off a broker's files, and the directories that are refused."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from support.nodes.stores import GOLDEN_CONFIG, GOLDEN_STORE, FakeClock, read_all, read_jsonl

from rocketray.errors import ConfigError, StoreError
from rocketray.message import StoredMessage
from rocketray.store.importing.foreign import read_foreign_settings
from rocketray.store.message_store import MessageStore


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    return shutil.copytree(GOLDEN_STORE, tmp_path / "store")


def opened(directory: Path) -> MessageStore:
    config = read_foreign_settings(directory).config
    return MessageStore(directory, config, read_only=True, clock_ms=FakeClock())


def offsets(messages: list[StoredMessage]) -> list[int]:
    return [message.physical_offset for message in messages]


def test_all_sizes_are_read_off_the_files() -> None:
    settings = read_foreign_settings(GOLDEN_STORE)
    assert settings.config == GOLDEN_CONFIG
    assert (settings.slots_from, settings.config.index_hash_slots) == ("files", 100)
    assert settings.warnings == ()


def test_the_number_of_hash_slots_can_be_given() -> None:
    assert read_foreign_settings(GOLDEN_STORE, index_hash_slots=100).slots_from == "caller"
    wrong = read_foreign_settings(GOLDEN_STORE, index_hash_slots=105)
    assert "do not agree with 105 hash slots" in wrong.warnings[0]
    with pytest.raises(ConfigError, match="8440 bytes and cannot have 101 hash slots"):
        read_foreign_settings(GOLDEN_STORE, index_hash_slots=101)


def test_damaged_chains_here_and_there_are_said_and_do_not_hide_the_number(copy: Path) -> None:
    newest = max((copy / "index").iterdir())
    raw = bytearray(newest.read_bytes())
    previous_of_9 = 40 + 4 * 100 + 20 * 9 + 16
    raw[previous_of_9 : previous_of_9 + 4] = (9).to_bytes(4, "big")
    newest.write_bytes(raw)
    settings = read_foreign_settings(copy)
    assert settings.config.index_hash_slots == 100
    assert "some entries do not agree" in settings.warnings[0]


def test_an_index_that_says_nothing_of_its_slots_refuses_keys_but_nothing_else(copy: Path) -> None:
    for path in (copy / "index").iterdir():
        path.write_bytes(path.read_bytes()[:40] + b"\x7f" * 8400)
    settings = read_foreign_settings(copy)
    assert settings.slots_from == "unknown"
    with pytest.raises(ConfigError, match="--max-hash-slots"):
        settings.check_keys()
    with opened(copy) as store:
        assert len(list(store.reads.scan())) == 600


def test_an_empty_index_needs_no_number(copy: Path) -> None:
    for path in (copy / "index").iterdir():
        path.write_bytes(bytes(36) + (1).to_bytes(4, "big") + bytes(8400))
    settings = read_foreign_settings(copy)
    assert settings.slots_from == "nothing"
    settings.check_keys()
    with opened(copy) as store:
        assert store.reads.query("TopicB", "dup") == []
    shutil.rmtree(copy / "index")
    assert read_foreign_settings(copy).slots_from == "nothing"


def test_a_nodes_data_directory_is_no_store(tmp_path: Path) -> None:
    (tmp_path / "shards").mkdir()
    with pytest.raises(StoreError, match="give the store of one of its queues"):
        read_foreign_settings(tmp_path)


def test_a_store_that_a_broker_has_open_reads_the_same(copy: Path) -> None:
    (copy / "abort").write_text("4711")
    rows = [row for row in read_jsonl("store-v1.jsonl") if "blank" not in row]
    with opened(copy) as store:
        assert offsets(list(store.reads.scan())) == [row["commitLogOffset"] for row in rows]
        assert store.reads.queues() == [("TopicA", 0), ("TopicA", 1), ("TopicB", 0), ("TopicB", 1)]
        assert store.reads.max_queue_offset("TopicA", 1) == 206
        assert len(store.reads.query("TopicB", "dup")) == 28
    assert (copy / "abort").read_text() == "4711"


def test_a_last_file_that_is_no_more_than_a_name_is_passed_over(copy: Path) -> None:
    for name, start in (("commitlog", 524_288), ("consumequeue/TopicA/0", 4000)):
        (copy / name / f"{start:020d}").touch()
    with opened(copy) as store:
        assert len(list(store.reads.scan())) == 600
        assert len(read_all(store, "TopicA", 0)) == 199


def test_a_queue_without_a_message_is_empty(copy: Path) -> None:
    (copy / "consumequeue" / "TopicC" / "7").mkdir(parents=True)
    (copy / "consumequeue" / "TopicC" / "8").mkdir(parents=True)
    (copy / "consumequeue" / "TopicC" / "8" / f"{0:020d}").write_bytes(bytes(1000))
    with opened(copy) as store:
        for queue_id in (7, 8):
            assert (
                store.reads.get_message("TopicC", queue_id, 3, 1).status.name
                == "NO_MESSAGE_IN_QUEUE"
            )
            assert store.reads.max_queue_offset("TopicC", queue_id) == 0


def test_a_queue_begins_with_the_first_message_that_is_still_in_the_log(copy: Path) -> None:
    for start in (0, 65536, 131072):
        (copy / "commitlog" / f"{start:020d}").unlink()
    (copy / "consumequeue" / "TopicA" / "0" / f"{0:020d}").unlink()
    rows = [row for row in read_jsonl("store-v1.jsonl") if "blank" not in row]
    with opened(copy) as store:
        assert store.reads.min_physical_offset == 196608
        for topic, queue_id in store.reads.queues():
            of_queue = [row for row in rows if (row["topic"], row["queueId"]) == (topic, queue_id)]
            kept = [row["queueOffset"] for row in of_queue if row["commitLogOffset"] >= 196608]
            assert store.reads.min_queue_offset(topic, queue_id) == kept[0] > 0
            found = read_all(store, topic, queue_id)
            assert [message.queue_offset for message in found] == kept
            early = store.reads.get_message(topic, queue_id, 0, 1)
            assert (early.status.name, early.next_queue_offset) == ("OFFSET_TOO_SMALL", kept[0])
        assert store.reads.query("TopicA", "key-0-0") == []


def test_a_queue_whose_messages_are_all_gone_keeps_its_end(copy: Path) -> None:
    queue = copy / "consumequeue" / "TopicD" / "0"
    queue.mkdir(parents=True)
    entry = (0).to_bytes(8, "big") + (314).to_bytes(4, "big") + bytes(8)
    (queue / f"{3000:020d}").write_bytes(entry.ljust(1000, b"\0"))
    (copy / "commitlog" / f"{0:020d}").unlink()
    with opened(copy) as store:
        assert (
            store.reads.min_queue_offset("TopicD", 0)
            == store.reads.max_queue_offset("TopicD", 0)
            == 151
        )
        assert store.reads.get_message("TopicD", 0, 151, 1).status.name == "OFFSET_OVERFLOW_ONE"
        assert store.reads.get_message("TopicD", 0, 150, 1).status.name == "OFFSET_TOO_SMALL"


def test_a_queue_may_begin_with_fillers(copy: Path) -> None:
    queue = copy / "consumequeue" / "TopicD" / "0"
    queue.mkdir(parents=True)
    filler = bytes(8) + (0x7FFFFFFF).to_bytes(4, "big") + bytes(8)
    entry = bytes(8) + (314).to_bytes(4, "big") + bytes(8)
    (queue / f"{1000:020d}").write_bytes((filler * 7 + entry).ljust(1000, b"\0"))
    with opened(copy) as store:
        assert store.reads.min_queue_offset("TopicD", 0) == 57
        assert store.reads.max_queue_offset("TopicD", 0) == 58
        assert store.reads.get_message("TopicD", 0, 57, 1).messages[0].physical_offset == 0


def write(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"1")


def lose_the_log(store: Path) -> None:
    shutil.rmtree(store / "commitlog")


def lose_a_log_file(store: Path) -> None:
    (store / "commitlog" / f"{131072:020d}").unlink()


def queues_in_rocksdb(store: Path) -> None:
    write(store / "consumequeue" / "MANIFEST-000005")


def batch_queues(store: Path) -> None:
    write(store / "batchconsumequeue" / "TopicE" / "0" / f"{0:020d}")


def odd_queues(store: Path) -> None:
    for path in (store / "consumequeue").glob("*/*/*"):
        path.write_bytes(bytes(999))


def odd_index(store: Path) -> None:
    for path in (store / "index").iterdir():
        path.write_bytes(bytes(41))


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lose_the_log, "storePathCommitLog"),
        (lose_a_log_file, "several storePathCommitLog paths"),
        (queues_in_rocksdb, "RocksDB"),
        (batch_queues, "batch queues"),
        (odd_queues, "999 bytes cannot be a queue's"),
        (odd_index, "41 bytes and is not an index file"),
    ],
)
def test_what_cannot_be_read_is_refused_with_the_reason(
    copy: Path, change: Callable[[Path], None], says: str
) -> None:
    change(copy)
    with pytest.raises(StoreError, match=says):
        read_foreign_settings(copy)


def test_compaction_files_are_passed_over(copy: Path) -> None:
    write(copy / "compaction" / "compactionLog" / "TopicF" / "0" / f"{0:020d}")
    with opened(copy) as store:
        assert len(store.reads.queues()) == 4
