"""Whatever reads a queue passes a gap, and counts none of its offsets."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest
from support.nodes.apps import numbers, put
from support.nodes.local_node import LocalNode

from rocketray.broker.backups.backup import back_up
from rocketray.broker.backups.restore import restore
from rocketray.broker.filtering.preview import PreviewRange, preview, sample_recent
from rocketray.broker.topics.queue_views import open_queues
from rocketray.filters.subscription import Subscription
from rocketray.message import Message
from rocketray.messaging.api.node_client import lag_of
from rocketray.runtime.clock import system_clock_ms
from rocketray.runtime.files.home import identity_of
from rocketray.runtime.files.paths import shard_directory
from rocketray.store.files.file_system import FileSystem

pytestmark = pytest.mark.proves(
    "durability",
    "No queue offset is given twice, whatever a power failure takes; a group gets each "
    "message that is stored afterwards",
)

ALL = Subscription.tags("*")
SQL = Subscription.sql("missing IS NULL")
GAP = range(10, 5_000)


@pytest.fixture
def node(tmp_path: Path) -> Iterator[LocalNode]:
    """Ten messages, a gap, ten messages."""
    with LocalNode(tmp_path / "data") as local:
        identity_of(local.data)
        local.topics.ensure("T", 1)
        put(local, "T", numbers(10))
        local.shard("T", 0).writer.store.skip_to("T", 0, GAP.stop)
        put(local, "T", numbers(10, first=10))
        yield local


def take(node: LocalNode, group: str, subscription: Subscription, number: int) -> list[bytes]:
    found: list[bytes] = []
    with node.consumer(group, "T", subscription) as member:
        while len(found) < number:
            for batch in member.poll(0.1):
                found += batch.bodies()
                member.commit("T", 0, batch.next_queue_offset)
    return found


@pytest.mark.parametrize("far", [False, True])
@pytest.mark.parametrize("subscription", [ALL, SQL])
def test_a_group_gets_what_is_before_and_behind(
    node: LocalNode, subscription: Subscription, *, far: bool
) -> None:
    node.has_far_members = far
    assert take(node, "g", subscription, 20) == numbers(20)
    assert node.groups.all()[0].offsets == {0: GAP.stop + 10}
    assert node.groups.all()[0].counters.scanned == 20


@pytest.mark.parametrize("subscription", [ALL, SQL])
@pytest.mark.parametrize(
    ("offset", "lag"), [(0, 20), (5, 15), (GAP.start, 10), (77, 10), (GAP.stop, 10), (5_009, 1)]
)
def test_a_gap_is_no_lag(
    node: LocalNode, subscription: Subscription, offset: int, lag: int
) -> None:
    node.consumer("g", "T", subscription).close()
    node.state.registry.offsets.commit("g", "T", 0, offset)
    found = lag_of(node, node.groups.all()[0])[0]
    assert (found.count, found.diff, found.exactness.value) == (lag, lag, "exact")


def test_tools_see_the_messages_and_not_the_gap(node: LocalNode) -> None:
    found = preview(node.data, "T", ALL, PreviewRange(), show=30)
    assert [one.body for one in found.matches] == numbers(20)
    assert found.held == 20
    assert sample_recent(node.data, "T", [], 15).count == 15
    assert node.messages.at("T", 0, 77) is None
    with open_queues(node.data, "T") as (view,):
        assert view.count() == 20
        assert view.first_stored_at(0) == 0
        assert view.first_stored_at(2**60) == GAP.stop + 10
    stored = node.shard("T", 0).lookups.query_by_time(0, 2**60, 64)
    assert [one.body for one in stored] == numbers(20)


def test_a_gap_at_the_end_is_passed_when_a_message_comes(node: LocalNode) -> None:
    node.shard("T", 0).writer.store.skip_to("T", 0, 9_000)
    with open_queues(node.data, "T") as (view,):
        assert view.first_stored_at(2**60) == view.maximum
    put(node, "T", numbers(1, first=20))
    assert take(node, "g", ALL, 21) == numbers(21)
    assert node.groups.all()[0].offsets == {0: 9_001}


def test_a_backup_has_the_gap(node: LocalNode, tmp_path: Path) -> None:
    back_up(node.data, tmp_path / "backup", clock_ms=system_clock_ms)
    restore(tmp_path / "backup", tmp_path / "again", clock_ms=system_clock_ms)
    with LocalNode(tmp_path / "again") as again:
        assert take(again, "g", ALL, 20) == numbers(20)
        put(again, "T", numbers(1, first=20))
        last = again.messages.at("T", 0, GAP.stop + 10)
        assert last is not None
        assert last.body == b"20"


def test_after_a_power_failure_a_group_gets_all_new_messages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The group had finished three messages that the power failure took."""
    data, kept = tmp_path / "data", tmp_path / "what was on disk"
    with LocalNode(data) as node:
        node.topics.ensure("T", 1)
        put(node, "T", numbers(7))
        writer = node.shard("T", 0).writer
        writer.flush()
        shutil.copytree(shard_directory(data, "T", 0), kept)
        put(node, "T", numbers(3, first=7))
        assert take(node, "g", ALL, 10) == numbers(10)
        assert node.groups.all()[0].offsets == {0: 10}
    shutil.rmtree(shard_directory(data, "T", 0))
    shutil.copytree(kept, shard_directory(data, "T", 0))
    boots = count(1)
    monkeypatch.setattr(FileSystem, "boot", lambda _: next(boots))
    with LocalNode(data) as node:
        with node.producer(ack="disk") as producer:
            producer.send_many("T", [Message("T", body) for body in numbers(5, first=100)])
        assert take(node, "g", ALL, 5) == numbers(5, first=100)
        assert [one.body for one in node.shard("T", 0).writer.store.reads.scan()] == [
            *numbers(7),
            *numbers(5, first=100),
        ]
