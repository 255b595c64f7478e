"""The command that consumes, over a node in this process."""

from __future__ import annotations

import json
import platform
from base64 import b64decode
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path

import pytest
from support.apps import numbers, put
from support.command_server import run_here
from support.local_node import LocalNode

from rocketray.actors.heartbeat import Heartbeat
from rocketray.cli import consume
from rocketray.filters.subscription import Subscription


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[LocalNode]:
    with LocalNode(tmp_path) as local:
        monkeypatch.setattr(consume, "connect", lambda _data: nullcontext(local))
        local.create_topic("T", 2)
        yield local


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
    assert node.groups()[0].offsets == {0: -1, 1: -1}, "the node knows nothing of them"


def test_two_broadcast_members_of_one_id_are_refused(node: LocalNode) -> None:
    with node.consumer("g", "T", Subscription.tags("*"), broadcast=True, client_id="one"):
        done = run_here("consume", "T", "--group", "g", "--broadcast", "--client-id", "one")
    assert done.code == 1
    assert "needs an id of its own" in done.err


def test_a_client_id_names_the_member(node: LocalNode, monkeypatch: pytest.MonkeyPatch) -> None:
    put(node, "T", numbers(1))
    left: list[str] = []
    leave = node.leave

    def note(beat: Heartbeat) -> None:
        left.append(beat.member)
        leave(beat)

    monkeypatch.setattr(node, "leave", note)
    assert bodies("--client-id", "mine", max_count=1) == numbers(1)
    assert left == ["mine"]
