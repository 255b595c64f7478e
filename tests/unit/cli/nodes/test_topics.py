"""``rocketray topics create``: progress, an interruption in the middle, and the same command again."""

from __future__ import annotations

import io
import sys
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from support.harness.command_server import run_here
from support.nodes.local_node import LocalNode

from rocketray.broker.shards import shard_process
from rocketray.broker.shards.owned_shard import OwnedShard
from rocketray.broker.topics.catalog import TopicConfig
from rocketray.broker.topics.topic_start import TopicProgress
from rocketray.cli.nodes.topics import TopicWait
from rocketray.store.retention import RetentionPolicy


def test_a_topic_that_is_made_at_once_says_nothing_on_stderr(node: LocalNode) -> None:
    done = run_here("topics", "create", "Trade", "--queues", "3", "--json")
    assert (len(done.lines()[0]["queueList"]), done.err) == (3, "")
    again = run_here("topics", "create", "Trade", "--queues", "3", "--json")
    assert (again.lines(), again.err) == (done.lines(), "")
    assert len(node.shards) == 3


@pytest.mark.proves("producers", "The same command completes an interrupted creation")
def test_the_same_command_completes_what_was_interrupted_and_says_so(
    node: LocalNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    make = OwnedShard

    def interrupted(
        data: Path, topic: TopicConfig, queue_id: int, *rest: Any, **options: Any
    ) -> OwnedShard:
        if queue_id == 5:
            raise KeyboardInterrupt
        return make(data, topic, queue_id, *rest, **options)

    command = "topics", "create", "Trade", "--queues", "12", "--bitmaps", "on"
    with monkeypatch.context() as patched:
        patched.setattr(shard_process, "OwnedShard", interrupted)
        assert run_here(*command).code == 130
    assert (
        sum(
            process.find("Trade", each) is not None
            for process in node.processes.values()
            for each in range(12)
        )
        == 5
    )
    done = run_here(*command, "--json")
    assert done.lines()[0]["bitmaps"] == "on"
    assert done.err == (
        "topic Trade existed, with 7 of its 12 queues missing; all of them run now\n"
    )
    assert len(node.shards) == 12
    with node.producer() as producer:
        producer.send("Trade", b"x", queue_id=11)


def test_a_topic_says_when_its_messages_are_acknowledged(node: LocalNode) -> None:
    def shown(*command: str) -> tuple[str, str | None]:
        [fields] = run_here("topics", *command, "--json").lines()
        return fields["ack"], fields["ackOfTopic"]

    assert shown("create", "Plain", "--queues", "1") == ("memory", None)
    assert shown("create", "Safe", "--queues", "1", "--ack", "disk") == ("disk", "disk")
    assert node.topics.get("Safe").ack == "disk"
    assert shown("alter", "Plain", "--ack", "memory") == ("memory", "memory")
    node.topics.set_node_ack("disk")
    assert shown("describe", "Plain") == ("memory", "memory")
    assert shown("alter", "Plain", "--ack", "node") == ("disk", None)
    assert "; ack disk, as the node\n" in run_here("topics", "describe", "Plain").out
    assert "; ack disk\n" in run_here("topics", "describe", "Safe").out


def wait_through(*seconds: float, error: BaseException | None = None) -> None:
    """A progress of eight queues at each of those times, of 64."""
    now = [0.0]
    with pytest.raises(type(error)) if error else nullcontext(), TopicWait(lambda: now[0]) as wait:
        for count, now[0] in enumerate(seconds):
            wait(TopicProgress("Trade", 64, 8 * count, 8 * count))
        if error:
            raise error


def test_where_it_takes_a_while_a_line_tells_how_far_it_is_again_and_again(
    capsys: pytest.CaptureFixture[str],
) -> None:
    wait_through(0, 2, 4)
    assert capsys.readouterr() == ("", "")
    wait_through(0, 3, 6, 9, 12)
    assert capsys.readouterr() == (
        "",
        "topic Trade: 16 of 64 queues run; the others are being started\n",
    )
    wait_through(0, 6, 12, 18, 22, 30)
    assert capsys.readouterr().err.splitlines() == [
        f"topic Trade: {count} of 64 queues run; the others are being started" for count in (8, 32)
    ]


def test_of_queues_that_all_run_no_others_are_told(capsys: pytest.CaptureFixture[str]) -> None:
    wait_through(0, 1, 1, 1, 1, 1, 1, 1, 9)
    assert capsys.readouterr().err == ""


def test_who_interrupts_it_is_told_how_to_go_on(capsys: pytest.CaptureFixture[str]) -> None:
    wait_through(0, 1, 2, error=KeyboardInterrupt())
    assert capsys.readouterr().err == (
        "interrupted: topic Trade: 16 of 64 queues run; the same command starts the others\n"
    )
    wait_through(*range(9), error=KeyboardInterrupt())
    assert "interrupted" not in capsys.readouterr().err


def test_in_a_terminal_a_live_line_counts_the_queues(monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("TERM", "xterm")
    with TopicWait(lambda: 0.0) as wait:
        wait(TopicProgress("Trade", 64, 24, 24))
    assert "topic Trade: 24 of 64 queues run" in terminal.getvalue()


def test_store_hosts_are_said_to_be_no_addresses_of_the_network(node: LocalNode) -> None:
    node.topics.ensure("Trade", 1)
    *_, row, footer = run_here("topics", "describe", "Trade").out.splitlines()
    assert "10.0.0." in row
    assert footer == "store hosts only make message ids unique; nothing listens there"
    described = run_here("topics", "describe", "Trade", "--json").lines()
    assert len(described) == 1
    help_text = run_here("topics", "describe", "--help").out
    assert "nothing listens there" in " ".join(help_text.split())


@pytest.mark.parametrize(("answer", "says"), [("", "not removed; add --yes"), ("n\n", "")])
def test_a_topic_is_not_removed_without_a_yes(node: LocalNode, answer: str, says: str) -> None:
    node.topics.ensure("Big", 1)
    done = run_here("topics", "delete", "Big", stdin=answer)
    assert (done.code, done.out.strip()) == (1, "")
    assert says in done.err
    assert "Big" in node.topics.all()
    done = run_here("topics", "delete", "Big", stdin="y\n")
    assert done.out.strip() == "topic Big was removed"
    assert "Big" not in node.topics.all()


def test_a_topic_says_what_it_stored_today_and_yesterday(node: LocalNode) -> None:
    node.topics.ensure("Trade", 2)
    with node.producer() as producer:
        for number in range(5):
            producer.send("Trade", b"x", queue_id=number % 2)
    [record] = run_here("topics", "describe", "Trade", "--json").lines()
    assert record["stored"]["today"] + record["stored"]["yesterday"] == 5
    shown = run_here("topics", "describe", "Trade").out
    assert shown.splitlines()[1].startswith("messages stored today: ")


@pytest.mark.parametrize(
    ("given", "perm"), [("r", 4), ("4", 4), ("w", 2), ("2", 2), ("rw", 6), ("6", 6)]
)
def test_permissions_are_letters_or_numbers(node: LocalNode, given: str, perm: int) -> None:
    node.topics.ensure("Trade", 1)
    [record] = run_here("topics", "alter", "Trade", "--perm", given, "--json").lines()
    assert record["perm"] == perm
    wrong = run_here("topics", "alter", "Trade", "--perm", "x")
    assert wrong.code == 2
    assert "'x' is no permission; give r, w or rw, or 4, 2 or 6" in " ".join(wrong.err.split())


def test_one_queue_is_one(node: LocalNode) -> None:
    assert node.topics.ensure("Trade", 1)
    assert run_here("topics", "describe", "Trade").out.startswith("topic Trade: 1 queue, allows")


def test_a_changed_limit_leaves_the_rest_of_a_retention_as_it_is(node: LocalNode) -> None:
    kept = RetentionPolicy(max_bytes=1 << 20, compacts=True)
    node.topics.ensure("t-changelog", 1, retention=kept)
    done = run_here("topics", "alter", "t-changelog", "--retention-bytes", "2MiB")
    assert done.code == 0, done.err
    assert node.topics.get("t-changelog").retention == RetentionPolicy(
        max_bytes=2 << 20, compacts=True
    )
