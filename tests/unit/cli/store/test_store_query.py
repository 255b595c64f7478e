"""``store query``: RocketMQ's own answers, given by the installed command, and lookups for people."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

from support.harness.command_server import run_here
from support.harness.commands import printed, rocketray
from support.rocketmq.golden import DATA, golden_rows

from rocketray.base.config import StoreConfig
from rocketray.message import Message
from rocketray.store.message_store import MessageStore

ROCKETMQ = DATA / "rocketmq"
STORE = ROCKETMQ / "store-v1"
FILTERS = ROCKETMQ / "store-v1.filters.json"
INPUTS = {
    "range": ("topic", "queueId"),
    "get": ("topic", "queueId", "offset", "max"),
    "tag": ("topic", "queueId", "sub", "offset", "max"),
    "sql": ("topic", "queueId", "group", "sql", "offset", "max"),
    "tag_scan": ("topic", "queueId", "group", "sub"),
    "sql_scan": ("topic", "queueId", "group", "sql"),
    "bytime": ("topic", "queueId", "ts", "boundary"),
    "key": ("topic", "key", "maxNum"),
}
SMALL = StoreConfig(commit_log_segment_bytes=65536, index_hash_slots=10, index_entries=40)


def question(row: dict[str, Any]) -> dict[str, Any]:
    return {name: row[name] for name in ("op", *INPUTS[row["op"]])}


def ask(lines: list[Any], *options: str | Path) -> list[dict[str, Any]]:
    text = "".join(json.dumps(line) + "\n" for line in lines)
    return run_here("store", "query", STORE, "--jsonl", *options, stdin=text).lines()


def make_shard(directory: Path, topic: str, queue_id: int, *bodies: bytes) -> None:
    times = iter(range(1000 + queue_id, 10_000, 10))
    with MessageStore(directory, SMALL, clock_ms=lambda: now[0]) as store:
        for now[0], body in zip(times, bodies, strict=False):
            store.put(
                [Message(topic, body, keys=("k", body.decode()), born_timestamp_ms=1)], queue_id
            )


now = [0]


def test_every_question_is_answered_as_rocketmq_answered_it() -> None:
    rows = golden_rows("store-v1.queries")
    text = "".join(json.dumps(question(row)) + "\n" for row in rows)
    options = ("--jsonl", "--limits", "golden", "--filters", FILTERS)
    answers = printed(rocketray("store", "query", STORE, *options, stdin=text))
    assert len(rows) == 902
    for row, answer in zip(rows, answers, strict=True):
        assert answer == row
        assert list(answer) == list(row)


def test_a_store_that_its_broker_has_open_gives_the_same_answers(tmp_path: Path) -> None:
    copy = shutil.copytree(STORE, tmp_path / "store")
    (copy / "abort").write_text("4711")
    rows = golden_rows("store-v1.queries")
    text = "".join(json.dumps(question(row)) + "\n" for row in rows)
    options = ("--limits", "golden", "--filters", FILTERS, "--max-hash-slots", "100")
    done = run_here("store", "query", copy, "--jsonl", *options, stdin=text)
    assert done.lines() == rows


def test_without_the_registered_filters_stage_two_has_more_to_reject() -> None:
    rows = [row for row in golden_rows("store-v1.queries") if row["op"] in ("sql", "sql_scan")]
    answers = ask([question(row) for row in rows], "--limits", "golden")
    assert all(
        {**answer, "filterMessageCount": 0} == row
        for row, answer in zip(rows, answers, strict=True)
    )
    assert sum(answer["filterMessageCount"] for answer in answers) > 1000


def test_a_brokers_limits_end_a_read_after_32_messages() -> None:
    get = {"op": "get", "topic": "TopicA", "queueId": 1, "offset": 2, "max": 1000}
    scan = {"op": "tag_scan", "topic": "TopicA", "queueId": 1, "group": "g", "sub": "*"}
    read, scanned = ask([get, scan], "--limits", "broker")
    assert read["next"] == 34
    assert read["offsets"] == list(range(2, 34))
    assert scanned["offsets"] == list(range(206))


def test_a_line_that_cannot_be_answered_is_named_and_the_others_are_answered() -> None:
    good = {"op": "range", "topic": "TopicA", "queueId": 0}
    bad: list[str] = [
        "no json",
        "[1]",
        json.dumps({"op": "drop"}),
        json.dumps({"op": "range", "topic": "TopicA", "queueId": "0"}),
        json.dumps({"op": "range", "topic": 1, "queueId": 0}),
        json.dumps({"op": "get", "topic": "TopicA", "queueId": 0, "offset": 1 << 63, "max": 1}),
        json.dumps({"op": "tag_scan", "topic": "TopicA", "queueId": 0, "sub": "||"}),
        json.dumps({"op": "sql_scan", "topic": "TopicA", "queueId": 0, "group": "g", "sql": "a >"}),
        json.dumps({"op": "bytime", "topic": "A", "queueId": 0, "ts": 1, "boundary": "x"}),
    ]
    lines = [json.dumps(good), *bad, json.dumps(good)]
    done = run_here("store", "query", STORE, "--jsonl", stdin="\n".join(lines))
    assert done.code == 1
    first, *errors, last = (json.loads(line) for line in done.out.splitlines())
    assert first == last == {**good, "min": 0, "max": 199}
    assert [error["line"] for error in errors] == list(range(2, 2 + len(bad)))
    assert all(error["error"].startswith(f"line {error['line']}: ") for error in errors)


def test_a_group_and_a_tag_expression_may_be_left_out() -> None:
    scan = {"op": "tag_scan", "topic": "TopicB", "queueId": 0, "sub": None}
    sql = {"op": "sql_scan", "topic": "TopicB", "queueId": 0, "sql": "flag = TRUE"}
    everything, some = ask([scan, sql], "--filters", FILTERS)
    assert everything["offsets"] == list(range(96))
    assert len(some["offsets"]) == 23
    assert some["filterMessageCount"] == 96 - 23


def test_a_queue_that_there_is_not_is_empty() -> None:
    answers = ask(
        [
            {"op": "range", "topic": "None", "queueId": 0},
            {"op": "get", "topic": "TopicA", "queueId": 9, "offset": 5, "max": 1},
            {"op": "key", "topic": "None", "key": "dup", "maxNum": 5},
        ]
    )
    assert (answers[0]["min"], answers[0]["max"]) == (0, 0)
    assert (answers[1]["status"], answers[1]["next"]) == ("NO_MESSAGE_IN_QUEUE", 0)
    assert answers[2]["commitLogOffsets"] == []


def test_a_node_without_shards_answers_nothing(tmp_path: Path) -> None:
    (tmp_path / "shards").mkdir()
    line = json.dumps({"op": "range", "topic": "A", "queueId": 0})
    done = run_here("store", "query", tmp_path, "--jsonl", stdin=line)
    assert (done.code, json.loads(done.out)["line"]) == (1, 1)


def test_messages_are_found_by_key_and_by_time_in_all_shards_of_a_node(tmp_path: Path) -> None:
    make_shard(tmp_path / "shards" / "A" / "0", "A", 0, b"a", b"b", b"c")
    make_shard(tmp_path / "shards" / "A" / "1", "A", 1, b"d", b"e")
    make_shard(tmp_path / "shards" / "B" / "0", "B", 0, b"f")

    def bodies(*options: str) -> list[str]:
        done = run_here("store", "query", tmp_path, *options)
        assert (done.code, done.err) == ((0, "") if done.out else (1, "no such message\n"))
        return [line.rpartition(" ")[2] for line in done.out.splitlines()]

    assert bodies("--key", "b") == ["b"]
    assert bodies("--key", "k", "--topic", "A") == ["a", "d", "b", "e", "c"]
    assert bodies("--key", "k", "--topic", "A", "--max", "2") == ["e", "c"]
    assert bodies("--key", "k", "--topic", "A", "--from", "1001", "--to", "1010") == ["d", "b"]
    assert bodies("--from", "1001", "--to", "1011", "--topic", "A") == ["d", "b", "e"]
    assert bodies("--from", "1000", "--max", "2", "--topic", "A") == ["a", "d"]
    assert bodies("--key", "none") == []
    found = run_here("store", "query", tmp_path, "--key", "f", "--json").lines()
    assert [(line["topic"], line["keys"]) for line in found] == [("B", "k f")]


def test_a_query_without_a_question_is_wrong_usage(tmp_path: Path) -> None:
    assert run_here("store", "query", STORE).code == 2
    assert run_here("store", "query", STORE, "--jsonl", "--key", "a").code == 2
    assert run_here("store", "query", tmp_path, "--key", "a").code == 1
