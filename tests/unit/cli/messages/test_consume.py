"""The command that consumes, over a node in this process."""

from __future__ import annotations

import json
import os
import platform
import select
import signal
import time
from base64 import b64decode
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import redirect_stdout
from pathlib import Path
from typing import IO

import pytest
from support.harness.command_server import run_here
from support.harness.patience import patience
from support.nodes.apps import numbers, put
from support.nodes.local_node import LocalNode

from rocketray.cli import main
from rocketray.cli.messages import consume
from rocketray.filters.subscription import Subscription
from rocketray.groups.heartbeat import Heartbeat


@pytest.fixture
def node(node: LocalNode) -> LocalNode:
    node.topics.ensure("T", 2)
    return node


def bodies(*options: str, max_count: int) -> list[bytes]:
    done = run_here("consume", "T", "--group", "g", "--json", "--max", str(max_count), *options)
    return sorted(b64decode(line["body"]) for line in done.lines())


def test_each_member_of_a_broadcast_group_gets_everything_once(
    node: LocalNode, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(platform, "node", lambda: "this-host")
    put(node, "T", numbers(6))
    assert bodies("--broadcast", max_count=6) == numbers(6)
    assert bodies("--broadcast", "--client-id", "other", max_count=6) == numbers(6)
    saved = json.loads((tmp_path / "broadcast" / "this-host" / "g" / "T.json").read_text())
    assert sum(saved["offsetTable"].values()) == 6
    put(node, "T", numbers(2, first=6))
    assert bodies("--broadcast", max_count=2) == numbers(2, first=6), "it goes on where it was"
    assert node.groups.all()[0].offsets == {0: -1, 1: -1}, "the node knows nothing of them"


def test_two_broadcast_members_of_one_id_are_refused(node: LocalNode) -> None:
    with node.consumer("g", "T", Subscription.tags("*"), broadcast=True, client_id="one"):
        done = run_here("consume", "T", "--group", "g", "--broadcast", "--client-id", "one")
    assert done.code == 1
    assert "needs an id of its own" in done.err


def test_a_client_id_names_the_member(node: LocalNode, monkeypatch: pytest.MonkeyPatch) -> None:
    put(node, "T", numbers(1))
    left: list[str] = []
    leave = node.sessions.leave

    def note(beat: Heartbeat) -> None:
        left.append(beat.member)
        leave(beat)

    monkeypatch.setattr(node.sessions, "leave", note)
    assert bodies("--client-id", "mine", max_count=1) == numbers(1)
    assert left == ["mine"]


def consume_into(
    reader: Callable[[IO[bytes]], list[bytes]], *options: str
) -> tuple[int, list[bytes]]:
    """The exit code of a consume whose stdout is a pipe, and what *reader* made of its lines."""
    reading, writing = os.pipe()
    with ThreadPoolExecutor(1) as pool, os.fdopen(reading, "rb", 0) as lines:
        read = pool.submit(reader, lines)
        with os.fdopen(writing, "w") as out, redirect_stdout(out), pytest.raises(SystemExit) as end:
            main(["consume", "T", "--group", "g", *options])
        return int(end.value.code or 0), read.result(patience(30))


def head(count: int) -> Callable[[IO[bytes]], list[bytes]]:
    """Like head -n: reads as much as there is, and closes when it has seen enough lines."""

    def read(pipe: IO[bytes]) -> list[bytes]:
        taken = b""
        while taken.count(b"\n") < count:
            taken += pipe.read(65_536)
        pipe.close()
        return taken.splitlines()[:count]

    return read


def committed(node: LocalNode) -> int:
    return sum(max(offset, 0) for offset in node.groups.all()[0].offsets.values())


@pytest.mark.proves(
    "groups",
    "`rocketray consume` does not commit what the reader of a pipe did not read",
)
@pytest.mark.parametrize("count", [1, 2, 7])
def test_what_the_reader_of_a_pipe_did_not_take_is_not_committed(
    node: LocalNode, count: int
) -> None:
    put(node, "T", numbers(40))
    code, seen = consume_into(head(count), "--timeout", "5")
    assert code == 141
    assert committed(node) == count
    rest = bodies(max_count=40 - count)
    assert len(rest) == 40 - count
    assert len(seen) == count


def test_a_line_that_waits_in_the_pipe_is_not_committed_when_a_signal_ends_it(
    node: LocalNode,
) -> None:
    put(node, "T", numbers(3))

    def wait_and_signal(pipe: IO[bytes]) -> list[bytes]:
        first = pipe.read(65_536)
        while not select.select([pipe], [], [], 10)[0]:
            pass
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(1)  # the command ends before this reads on
        return [first, pipe.read(65_536)]

    code, read = consume_into(wait_and_signal)
    assert code == 0
    assert len(read) == 2
    assert committed(node) == 1, "the second line was printed, and read only after the end"


def test_all_is_committed_that_a_slow_reader_takes(node: LocalNode) -> None:
    put(node, "T", [b"x" * 10_000, *numbers(20)])

    def slowly(pipe: IO[bytes]) -> list[bytes]:
        taken = b""
        while piece := pipe.read(500):
            taken += piece
            time.sleep(0.001)
        return taken.splitlines()

    code, read = consume_into(slowly, "--max", "21")
    assert code == 0
    assert len(read) == 21
    assert committed(node) == 21


def test_who_waits_is_told_so_once(node: LocalNode, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(consume, "_HINT_S", 0.3)
    put(node, "T", numbers(1))
    done = run_here("consume", "T", "--group", "g", "--timeout", "1.5")
    assert done.code == 0
    assert done.err.count("waiting for messages of topic T that match tags '*'; Ctrl-C stops") == 1
    assert len(done.out.splitlines()) == 1


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (("--tags", "pay, ship"), "pay || ship"),
        (("--tags", "pay|ship"), "pay || ship"),
        (("--sql", "regoin = 'mars'"), "regoin"),
        (("--sql", "TAGS = 'pay || order'"), "TAGS"),
    ],
)
def test_a_filter_that_looks_like_a_slip_is_told(
    node: LocalNode, options: tuple[str, str], says: str
) -> None:
    with node.producer() as producer:
        producer.send("T", b"x", tags="pay", properties={"region": "mars"})
    done = run_here("consume", "T", "--group", "g", "--timeout", "0.1", *options)
    assert done.code == 0
    assert "warning: topic T" in done.err
    assert says in done.err


def test_who_replaces_a_subscription_is_told_the_old_one(node: LocalNode) -> None:
    command = "consume", "T", "--group", "audit", "--timeout", "0.1"
    assert "had the subscription" not in run_here(*command, "--sql", "amount > 100").err
    done = run_here(*command, "--sql", "amount > 200")
    assert done.code == 0
    assert "group audit had the subscription sql 'amount > 100' before\n" in done.err
    assert "had the subscription" not in run_here(*command, "--sql", "amount > 200").err
