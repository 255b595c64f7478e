"""``rocketray store import`` on the store that RocketMQ wrote, into a node of this process."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

import pytest
from support.harness.command_server import run_here
from support.nodes.local_node import LocalNode
from support.nodes.stores import GOLDEN_STORE, SMALL, FakeClock, message

from rocketray.base import names
from rocketray.cli.store import store_import
from rocketray.runtime.signal_handlers import StopSignals
from rocketray.store.files.store_settings import SETTINGS_FILES
from rocketray.store.message_store import MessageStore


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[LocalNode]:
    with LocalNode(tmp_path / "node") as made:
        monkeypatch.setattr(store_import, "connect", lambda _data: nullcontext(made))
        yield made


def test_counts_are_printed_as_json(node: LocalNode) -> None:
    [report] = run_here("store", "import", GOLDEN_STORE, "--all", "--json").lines()
    queues = report.pop("queues")
    assert report == {
        "complete": True,
        "read": 600,
        "imported": 600,
        "alreadyThere": 0,
        "skipped": {},
        "retimed": 0,
        "leftOut": {},
    }
    assert [(queue["topic"], queue["queueId"]) for queue in queues] == [
        ("TopicA", 0),
        ("TopicA", 1),
        ("TopicB", 0),
        ("TopicB", 1),
    ]
    assert {queue["firstQueueOffset"] for queue in queues} == {0}
    assert sum(queue["imported"] for queue in queues) == 600


def test_counts_are_printed_for_people_and_the_second_run_finds_all_there(node: LocalNode) -> None:
    first = run_here("store", "import", GOLDEN_STORE, "--topic", "TopicB")
    assert (first.code, "imported" in first.out) == (0, True)
    assert "  other topic: " in first.out
    second = run_here("store", "import", GOLDEN_STORE, "--topic", "TopicB")
    assert second.code == 0
    assert "imported 0, already imported" in second.out


def test_all_leaves_out_topics_that_a_node_cannot_have_and_names_them(
    node: LocalNode, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, long = tmp_path / "source", "L" * 168
    with (
        monkeypatch.context() as patch,
        MessageStore(source, SMALL, clock_ms=FakeClock()) as store,
    ):
        patch.setattr(names, "TOPIC_MAX_BYTES", 255)  # a broker's own limit for a record
        for number, topic in enumerate(["Trade", long, "trade", long, "Trade"]):
            store.put([message(number, topic)], 0)
    done = run_here("store", "import", source, "--all")
    assert done.code == 1
    assert f"topic '{long}' was left out: topic 'LLLL" in done.err
    assert "topic 'trade' was left out: topic 'trade' differs from the existing 'Trade'" in done.err
    assert "  topic left out: 3" in done.out
    there = node.messages.query_by_time("Trade", 0, 2**62)
    assert [one.body for one in there] == [message(number).body for number in (0, 4)]
    [again] = [json.loads(run_here("store", "import", source, "--all", "--json").out)]
    assert again["leftOut"].keys() == {long, "trade"}
    assert (again["complete"], again["alreadyThere"], again["skipped"]) == (
        *(True, 2),
        {"topic left out": 3},
    )
    named = run_here("store", "import", source, "--topic", long)
    assert (named.code, "has 168 characters; at most 127" in named.err) == (1, True)
    shown = run_here("filter", "preview", long, "a IS NULL", "--data", source)
    assert (shown.code, shown.out.count("key-")) == (0, 2), shown.out


@pytest.mark.parametrize("options", [(), ("--all", "--topic", "TopicA")])
def test_topics_are_named_or_all_are_meant(options: tuple[str, ...]) -> None:
    done = run_here("store", "import", GOLDEN_STORE, *options)
    assert (done.code, done.out) == (2, "")
    assert "--topic, once or more, or --all" in done.err


@pytest.mark.parametrize(
    "content",
    ['{"topicConfigTable": []}', '{"topicConfigTable": {"TopicA": {"readQueueNums": []}}}', "["],
)
def test_a_broken_table_of_topics_is_named(node: LocalNode, tmp_path: Path, content: str) -> None:
    copy = shutil.copytree(GOLDEN_STORE, tmp_path / "store")
    (copy / "config").mkdir(exist_ok=True)
    (copy / "config" / "topics.json").write_text(content)
    done = run_here("store", "import", copy, "--all")
    assert (done.code, done.out) == (1, "")
    assert f"{copy}/config/topics.json" in done.err


def test_an_import_that_is_stopped_says_how_to_go_on(
    node: LocalNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    @contextmanager
    def at_once() -> Iterator[StopSignals]:
        signals = StopSignals()
        signals.event.set()
        yield signals

    monkeypatch.setattr(store_import, "stop_signals", at_once)
    done = run_here("store", "import", GOLDEN_STORE, "--all", "--json")
    assert done.code == 1
    assert '"complete": false' in done.out
    assert "run the same command again" in done.err


def test_a_shard_that_lost_its_settings_and_their_copy_is_imported_as_the_error_says(
    node: LocalNode, tmp_path: Path
) -> None:
    data = tmp_path / "data"
    shard = data / "shards" / "Trade" / "0"
    with MessageStore(shard, SMALL, clock_ms=FakeClock()) as store:
        store.put([message(number) for number in range(3)], 0)
    for name in SETTINGS_FILES:
        (shard / name).unlink()
    for command, directory in (("scan", data), ("verify", data), ("recover", shard)):
        done = run_here("store", command, directory)
        assert done.code != 0
        assert f"rocketray store import {shard} --all --data DATA" in done.err
    [report] = run_here("store", "import", shard, "--all", "--json").lines()
    assert (report["read"], report["imported"]) == (3, 3)
    assert node.topics.all()["Trade"].queues == 1
