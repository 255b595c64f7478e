"""``store scan``: RocketMQ's own store, ours, and a node's data directory."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from support.harness.command_server import run_here
from support.harness.commands import printed, rocketray
from support.rocketmq.golden import DATA, golden_rows

from rocketray.base.config import StoreConfig
from rocketray.cli.arguments.store_directory import store_directories
from rocketray.errors import StoreError
from rocketray.message import Message
from rocketray.store.message_store import MessageStore

GOLDEN_STORE = DATA / "rocketmq" / "store-v1"
FIELDS = [
    "topic",
    "queueId",
    "queueOffset",
    "commitLogOffset",
    "tags",
    "keys",
    "properties",
    "body",
    "storeTimestamp",
    "offsetMsgId",
]


def put(directory: Path, topic: str, *bodies: bytes) -> None:
    config = StoreConfig(commit_log_segment_bytes=65536, index_hash_slots=10, index_entries=40)
    with MessageStore(directory, config, clock_ms=lambda: 1_700_000_000_000) as store:
        store.put([Message(topic, body, tags="a", keys=("k",)) for body in bodies], 0)


def test_the_store_that_rocketmq_wrote_prints_as_rocketmq_reads_it(tmp_path: Path) -> None:
    copy = shutil.copytree(GOLDEN_STORE, tmp_path / "store")
    lines = run_here("store", "scan", copy, "--json").lines()
    wanted = [
        {name: record[name] for name in FIELDS}
        for record in golden_rows("store-v1")
        if "blank" not in record
    ]
    assert [list(line) for line in lines[:1]] == [FIELDS]
    assert lines == wanted


def test_scanning_changes_nothing(tmp_path: Path) -> None:
    copy = shutil.copytree(GOLDEN_STORE, tmp_path / "store")
    before = {path: path.read_bytes() for path in copy.rglob("*") if path.is_file()}
    assert run_here("store", "scan", copy, "--limit", "3").out.count("\n") == 3
    assert {path: path.read_bytes() for path in copy.rglob("*") if path.is_file()} == before


def test_a_nodes_data_directory_is_scanned_shard_by_shard(tmp_path: Path) -> None:
    put(tmp_path / "shards" / "B" / "0", "B", b"4")
    put(tmp_path / "shards" / "A" / "10", "A", b"3")
    put(tmp_path / "shards" / "A" / "2", "A", b"1", b"2")
    (tmp_path / "shards" / "A" / "3").mkdir()  # a shard that never opened
    done = run_here("store", "scan", tmp_path)
    assert [line.rpartition(" ")[2] for line in done.out.splitlines()] == ["1", "2", "3", "4"]


def test_a_store_that_is_open_for_writing_can_be_scanned(tmp_path: Path) -> None:
    config = StoreConfig(commit_log_segment_bytes=65536, index_hash_slots=10, index_entries=40)
    with MessageStore(tmp_path / "s", config, clock_ms=lambda: 1) as store:
        store.put([Message("A", b"1")], 0)
        assert len(printed(rocketray("store", "scan", tmp_path / "s", "--json"))) == 1


def test_what_is_no_store_says_so(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="is not a store"):
        store_directories(tmp_path)
    done = run_here("store", "scan", tmp_path)
    assert (done.code, done.out) == (1, "")
    assert done.err.startswith(f"rocketray: {tmp_path} is not a store")
    assert run_here("store", "scan", tmp_path / "absent").code == 2
