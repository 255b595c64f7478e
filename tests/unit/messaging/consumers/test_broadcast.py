"""Broadcast groups: each member gets everything, and knows itself how far it came."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.harness.patience import patience
from support.nodes.apps import numbers, put
from support.nodes.local_node import LocalNode

from rocketray.errors import ConfigError, StoreError, StrategyConflictError, StreamError
from rocketray.filters.subscription import Subscription
from rocketray.messaging.consumers import local_offsets
from rocketray.messaging.consumers.local_offsets import SAVE_INTERVAL_MS, LocalOffsets
from rocketray.messaging.consumers.member import GroupConsumer

ALL = Subscription.tags("*")


@pytest.fixture(params=[False, True], ids=["near", "far"])
def node(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[LocalNode]:
    with LocalNode(tmp_path / "data") as local:
        local.topics.ensure("T", 2)
        local.has_far_members = request.param
        yield local


def join(node: LocalNode, client_id: str, directory: Path | None = None) -> GroupConsumer:
    return node.consumer(
        "g", "T", ALL, client_id=client_id, broadcast=True, offsets_directory=directory
    )


def take(member: GroupConsumer, count: int) -> list[bytes]:
    found: list[bytes] = []
    for _ in range(300):
        for batch in member.poll(0.1):
            found += batch.bodies()
            member.commit(batch.topic, batch.queue_id, batch.next_queue_offset)
        if len(found) >= count:
            break
    return found


@pytest.mark.proves(
    "groups",
    "Each member of a broadcast group gets all messages, and resumes at its offsets",
)
def test_each_member_gets_all_messages_and_goes_on_where_it_was(
    node: LocalNode, tmp_path: Path
) -> None:
    with join(node, "one", tmp_path) as one, join(node, "two", tmp_path) as two:
        assert one.assignment() == two.assignment() == {("T", 0), ("T", 1)}
        put(node, "T", numbers(5))
        assert take(one, 5) == take(two, 5) == numbers(5)
        assert one.is_leased
        (group,) = node.groups.all()
        assert group.members == {"one": [0, 1], "two": [0, 1]}
        assert group.offsets == {0: -1, 1: -1}, "the coordinator knows nothing of them"
        assert node.state.registry.needed_from("T", 0) is None
    assert node.groups.all()[0].offsets == {0: -1, 1: -1}, "nor when they left"
    assert (tmp_path / "one" / "g" / "T.json").exists()
    put(node, "T", numbers(2, first=5))
    with join(node, "one", tmp_path) as one:
        assert take(one, 2) == numbers(2, first=5)


def test_a_group_is_broadcast_or_shared_and_each_client_runs_once(node: LocalNode) -> None:
    with join(node, "one"):
        with pytest.raises(StrategyConflictError, match="broadcast, all queues to each member"):
            node.consumer("g", "T", ALL)
        with pytest.raises(ConfigError, match="'one' of group 'g' already runs"):
            join(node, "one")
        with pytest.raises(StreamError, match="members keep their own offsets"):
            node.groups.move_offsets("g", "T", {0: 1})
    with node.consumer("g", "T", ALL):
        for _ in range(2):  # who is refused lets its id go
            with pytest.raises(StrategyConflictError):
                join(node, "one")
    with pytest.raises(ConfigError, match="needs a client_id"):
        node.consumer("g", "T", ALL, broadcast=True)
    with pytest.raises(ConfigError, match="letters, digits"):
        join(node, "../one")


def test_who_commits_does_not_wait_for_the_disk(
    node: LocalNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    is_writing, may_write = threading.Event(), threading.Event()

    def write(*_: object) -> None:
        is_writing.set()
        may_write.wait(patience(30))

    with join(node, "one") as member:
        put(node, "T", numbers(1))
        assert take(member, 1) == numbers(1)
        monkeypatch.setattr(local_offsets, "write_json", write)
        monkeypatch.setattr(local_offsets, "SAVE_INTERVAL_MS", 0)
        assert is_writing.wait(patience(30)), "the heartbeat saves what was committed"
        committing = threading.Thread(target=member.commit, args=("T", 0, 1), daemon=True)
        committing.start()
        committing.join(patience(5))
        has_committed = not committing.is_alive()
        may_write.set()
        assert has_committed, "the commit waits until the file is written"


def test_offsets_are_saved_from_time_to_time_and_at_the_end(tmp_path: Path) -> None:
    now_ms = [0]

    def opened() -> LocalOffsets:
        return LocalOffsets(tmp_path, "c", "g", "T", lambda: now_ms[0])

    offsets, file = opened(), tmp_path / "c" / "g" / "T.json"
    offsets.commit({0: 5})
    assert not file.exists()
    now_ms[0] = SAVE_INTERVAL_MS
    offsets.commit({1: 7})
    assert file.exists()
    offsets.commit({0: 6})
    offsets.close()
    again = opened()
    assert (again.get(0), again.get(1), again.get(2)) == (6, 7, -1)
    again.close()
    file.write_text('{"offsetTable": [1]}')
    again = opened()
    assert (again.get(0), again.get(1)) == (6, 7)
    again.close()
    assert file.with_name("T.json.damaged").read_text() == '{"offsetTable": [1]}'
    file.write_text('{"offsetTable": [1]}')
    file.with_name("T.json.bak").write_text('{"offsetTable": [1]}')
    for _ in range(2):
        with pytest.raises(StoreError, match=r"T\.json: damaged"):
            opened()
