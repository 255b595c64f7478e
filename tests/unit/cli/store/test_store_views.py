"""``store info``, ``topics``, ``get`` and the filters of ``scan``, on RocketMQ's store and on ours."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from support.harness.command_server import run_here
from support.nodes.stores import FakeClock
from support.rocketmq.golden import DATA, golden_rows

from rocketray.base.config import StoreConfig
from rocketray.filters.sql92 import compile_expression
from rocketray.message import Message
from rocketray.store.message_store import MessageStore

STORE = DATA / "rocketmq" / "store-v1"
ROWS = [row for row in golden_rows("store-v1") if "blank" not in row]
SMALL = StoreConfig(commit_log_segment_bytes=65536, index_hash_slots=10, index_entries=40)


@pytest.fixture
def node(tmp_path: Path) -> Path:
    """A node's data directory with two shards, stopped cleanly."""
    for queue_id, bodies in ((0, [b"a", b"\x1b[2Jb"]), (1, [b"c"])):
        directory = tmp_path / "shards" / "T" / str(queue_id)
        with MessageStore(directory, SMALL, clock_ms=FakeClock(1000)) as store:
            store.put(
                [
                    Message("T", body, tags="t", unique_key=f"U{queue_id}{i}")
                    for i, body in enumerate(bodies)
                ],
                queue_id,
            )
    return tmp_path


def test_info_of_a_brokers_store_says_what_was_inferred() -> None:
    (found,) = run_here("store", "info", STORE, "--json").lines()
    assert found["writtenBy"] == "RocketMQ"
    assert found["cleanStop"] is True
    assert (found["topics"], found["queues"], found["messages"]) == (2, 4, 600)
    assert (found["minPhyOffset"], found["maxPhyOffset"]) == (0, 502_996)
    assert found["firstStoreTime"] == min(row["storeTimestamp"] for row in ROWS)
    assert found["lastStoreTime"] == max(row["storeTimestamp"] for row in ROWS)
    assert found["files"]["commitlog"] == {"count": 8, "bytes": 8 * 65536}
    assert found["files"]["consumequeue_ext"]["count"] == 6
    assert [file["keys"] for file in found["index"]] == [399, 399, 315]
    assert found["settings"]["index_hash_slots"] == 100
    assert (found["indexHashSlotsFrom"], found["warnings"]) == ("files", [])


def test_info_of_a_nodes_directory_has_a_part_for_each_shard(node: Path) -> None:
    found = run_here("store", "info", node, "--json").lines()
    assert [Path(one["directory"]).name for one in found] == ["0", "1"]
    assert [one["messages"] for one in found] == [2, 1]
    assert {one["writtenBy"] for one in found} == {"rocketray"}
    shown = run_here("store", "info", node)
    assert shown.code == 0
    assert shown.out.count("written by") == 2


def test_an_index_that_cannot_be_divided_is_said_and_keys_are_refused(tmp_path: Path) -> None:
    copy = shutil.copytree(STORE, tmp_path / "s")
    for path in (copy / "index").iterdir():
        path.write_bytes(path.read_bytes()[:40] + b"\x7f" * 8400)
    told = run_here("store", "info", copy)
    assert told.code == 0
    assert "keys cannot be looked up" in told.out
    assert "warning:" in told.err
    refused = run_here("store", "query", copy, "--key", "dup")
    assert refused.code == 1
    assert "--max-hash-slots" in refused.err
    given = run_here("store", "query", copy, "--key", "dup", "--max-hash-slots", "100")
    assert (given.code, given.out) == (1, ""), "it is asked, and there is none"


def test_topics_lists_every_queue(node: Path) -> None:
    found = run_here("store", "topics", STORE, "--json").lines()
    for line in found:
        rows = [r for r in ROWS if (r["topic"], r["queueId"]) == (line["topic"], line["queueId"])]
        assert line == {
            "topic": rows[0]["topic"],
            "queueId": rows[0]["queueId"],
            "minOffset": 0,
            "maxOffset": len(rows),
            "messages": len(rows),
            "firstStoreTime": rows[0]["storeTimestamp"],
            "lastStoreTime": rows[-1]["storeTimestamp"],
        }
    assert len(found) == 4
    assert len(run_here("store", "topics", node, "--json").lines()) == 2
    assert "maxOffset" in run_here("store", "topics", node).out


@pytest.mark.parametrize("number", [0, 17, 599])
def test_a_message_is_got_by_each_of_its_names(number: int) -> None:
    row = ROWS[number]
    names: list[list[Any]] = [
        ["--id", row["offsetMsgId"]],
        ["--id", row["offsetMsgId"].lower()],
        ["--physical-offset", row["commitLogOffset"]],
        ["--topic", row["topic"], "--queue", row["queueId"], "--offset", row["queueOffset"]],
    ]
    if "UNIQ_KEY" in row["properties"]:
        names.append(["--id", row["properties"]["UNIQ_KEY"]])
        names.append(["--id", row["properties"]["UNIQ_KEY"], "--topic", row["topic"]])
    for name in names:
        (found,) = run_here("store", "get", STORE, *map(str, name), "--json").lines()
        assert found["commitLogOffset"] == row["commitLogOffset"]
        assert found["properties"] == row["properties"]


def test_what_a_terminal_would_obey_is_not_shown(node: Path) -> None:
    shown = run_here("store", "get", node, "--id", "U01")
    assert shown.code == 0
    assert "\x1b" not in shown.out
    assert "·[2Jb" in shown.out


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        ((), 2),
        (("--id", "A", "--offset", "1"), 2),
        (("--offset", "1"), 2),
        (("--topic", "T"), 2),
        (("--physical-offset", "1", "--topic", "T"), 2),
        (("--id", "nothing"), 1),
        (("--topic", "T", "--offset", "9"), 1),
        (("--topic", "T", "--queue", "7", "--offset", "0"), 1),
        (("--physical-offset", "3"), 1),
        (("--physical-offset", "9999999"), 1),
    ],
)
def test_a_message_that_there_is_not(node: Path, arguments: tuple[str, ...], code: int) -> None:
    done = run_here("store", "get", node, *arguments)
    assert (done.code, done.out) == (code, "")
    assert done.err


def test_scan_takes_filters() -> None:
    def offsets(*options: str) -> list[int]:
        found = run_here("store", "scan", STORE, "--json", *options).lines()
        return [line["commitLogOffset"] for line in found]

    def wanted(rows: list[dict[str, Any]]) -> list[int]:
        return [row["commitLogOffset"] for row in rows]

    middle = ROWS[300]["storeTimestamp"]
    sql = compile_expression("price > 50.5")
    assert offsets("--topic", "TopicB", "--queue", "1") == wanted(
        [row for row in ROWS if (row["topic"], row["queueId"]) == ("TopicB", 1)]
    )
    assert offsets("--from", str(middle), "--to", str(middle)) == wanted(
        [row for row in ROWS if row["storeTimestamp"] == middle]
    )
    assert offsets("--tags", "Aa || TagB") == wanted(
        [r for r in ROWS if r["tags"] in ("Aa", "TagB")]
    )
    assert offsets("--sql", "price > 50.5") == wanted(
        [row for row in ROWS if sql.matches(row["properties"])]
    )
    assert run_here("store", "scan", STORE, "--sql", "a >").code == 2


def test_scan_takes_the_extended_dialect() -> None:
    options = ("--sql", "price LIKE '50%'")
    found = run_here("store", "scan", STORE, "--json", *options).lines()
    prices = [row["properties"].get("price", "") for row in ROWS]
    wanted = [price for price in prices if price.startswith("50")]
    assert [line["properties"]["price"] for line in found] == wanted
    theirs = (*options, "--dialect", "rocketmq")
    assert run_here("store", "scan", STORE, *theirs).code == 2
