"""What we write is, byte for byte, what RocketMQ's own classes wrote of the same messages.

The 600 messages of ``store-v1`` are stored again: each record as its producer encoded it, with the
fields zeroed that only a store knows, at the store time that RocketMQ gave it. Different by nature
are the names of the index files, which say when they were made, the checkpoint, whose times depend
on when it was flushed, and ``lock``, ``abort`` and ``store.json``.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.nodes.stores import (
    GOLDEN,
    GOLDEN_CONFIG,
    GOLDEN_STORE,
    FakeClock,
    golden_batch,
    kill,
    read_jsonl,
)

from rocketray.errors import CorruptRecordError
from rocketray.filters.consumer_filter import ConsumerFilterManager
from rocketray.store.files.store_settings import SETTINGS_FILES
from rocketray.store.importing.foreign import read_foreign_settings
from rocketray.store.message_store import MessageStore

ROWS = [row for row in read_jsonl("store-v1.jsonl") if "blank" not in row]


def files(directory: Path) -> dict[str, bytes]:
    """The content of all files of *directory* by their names."""
    paths = sorted(path for path in directory.rglob("*") if path.is_file())
    return {str(path.relative_to(directory)): path.read_bytes() for path in paths}


def same_as_rocketmq(directory: Path) -> None:
    for name in ("commitlog", "consumequeue", "consumequeue_ext"):
        assert files(directory / name) == files(GOLDEN_STORE / name), name
    ours, theirs = files(directory / "index"), files(GOLDEN_STORE / "index")
    assert list(ours.values()) == list(theirs.values())
    assert all(len(name) == 17 for name in ours)


def filters() -> ConsumerFilterManager:
    manager = ConsumerFilterManager(clock_ms=FakeClock())
    manager.load(GOLDEN / "store-v1.filters.json")
    return manager


def put(store: MessageStore, clock: FakeClock, rows: list[dict[str, Any]]) -> None:
    for row in rows:
        clock.now_ms = row["storeTimestamp"]
        store.append(row["topic"], row["queueId"], golden_batch([row]))


@pytest.mark.parametrize("crash_after", [None, 1, 333, 600])
def test_the_same_messages_make_the_same_files(tmp_path: Path, crash_after: int | None) -> None:
    clock = FakeClock()

    def opened() -> MessageStore:
        return MessageStore(tmp_path, GOLDEN_CONFIG, clock_ms=clock, bitmap_source=filters())

    store, rest = opened(), ROWS
    if crash_after is not None:
        put(store, clock, ROWS[:crash_after])
        kill(store)
        store, rest = opened(), ROWS[crash_after:]
    put(store, clock, rest)
    store.close()
    same_as_rocketmq(tmp_path)


def test_runs_of_messages_of_one_time_make_the_same_files_as_single_ones(tmp_path: Path) -> None:
    clock = FakeClock()
    runs: list[list[dict[str, Any]]] = []
    for row in ROWS:
        last = runs[-1][-1] if runs else None
        same = ("topic", "queueId", "storeTimestamp", "sysFlag")
        follows = last and last["commitLogOffset"] + last["storeSize"] == row["commitLogOffset"]
        if last and follows and all(last[name] == row[name] for name in same):
            runs[-1].append(row)
        else:
            runs.append([row])
    with MessageStore(tmp_path, GOLDEN_CONFIG, clock_ms=clock, bitmap_source=filters()) as store:
        for run in runs:
            clock.now_ms = run[0]["storeTimestamp"]
            store.append(run[0]["topic"], run[0]["queueId"], golden_batch(run))
    assert len(runs) < len(ROWS)
    same_as_rocketmq(tmp_path)


@pytest.mark.parametrize("lost", ["consumequeue_ext", "consumequeue", "index"])
def test_what_the_log_can_make_again_is_made_again_the_same(tmp_path: Path, lost: str) -> None:
    clock = FakeClock()
    with MessageStore(tmp_path, GOLDEN_CONFIG, clock_ms=clock, bitmap_source=filters()) as store:
        put(store, clock, ROWS)
    for path in sorted((tmp_path / lost).rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    (tmp_path / "abort").touch()
    MessageStore(tmp_path, GOLDEN_CONFIG, clock_ms=clock, bitmap_source=filters()).close()
    same_as_rocketmq(tmp_path)


def test_the_settings_of_what_we_wrote_are_read_off_it_like_a_brokers(tmp_path: Path) -> None:
    clock = FakeClock()
    with MessageStore(tmp_path, GOLDEN_CONFIG, clock_ms=clock, bitmap_source=filters()) as store:
        put(store, clock, ROWS)
    for name in SETTINGS_FILES:
        (tmp_path / name).unlink()
    assert read_foreign_settings(tmp_path).config == GOLDEN_CONFIG


def test_a_record_that_is_not_whole_is_refused_before_its_bitmap_is_made(tmp_path: Path) -> None:
    batch = golden_batch(ROWS[:1])
    batch.records[84:88] = np.frombuffer((1 << 20).to_bytes(4, "big"), np.uint8)
    with (
        MessageStore(tmp_path, GOLDEN_CONFIG, clock_ms=FakeClock()) as store,
        pytest.raises(CorruptRecordError),
    ):
        store.append("TopicA", 1, batch)
