"""Ownership epochs: each grant has a larger one than all before it, whatever was lost meanwhile."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.nodes.stores import FakeClock

from rocketray.actors.cluster.cluster_state import ClusterState
from rocketray.actors.cluster.groups_file import GroupsFile
from rocketray.broker.filtering.filter_rules import FilterRules
from rocketray.errors import ShardUnavailableError, StreamError
from rocketray.filters.subscription import Subscription
from rocketray.groups.group_registry import GroupRegistry
from rocketray.groups.heartbeat import AppInstance, Heartbeat
from rocketray.groups.lease import SESSION_TIMEOUT_MS
from rocketray.groups.ownership_epochs import EPOCH_MAX, OwnershipEpochs

pytestmark = pytest.mark.proves(
    "groups",
    "Each grant of a queue has a larger ownership epoch than all before it, also after a "
    "restart, a lost save, or the deletion of its group",
)

PAY = Subscription.tags("pay")
LATE = SESSION_TIMEOUT_MS + 1


class Member:
    """A process that sends heartbeats to a registry, or to a coordinator."""

    def __init__(self, name: str, group: str = "group", app: str | None = None) -> None:
        self.name, self.group = name, group
        self.together = None if app is None else AppInstance(app, name)
        self.held: frozenset[int] = frozenset()
        self.epochs: dict[int, int] = {}
        self.number = 0

    def beat(self, held: frozenset[int] | None = None, **rest: Any) -> Heartbeat:
        self.number += 1
        held = self.held if held is None else held
        return Heartbeat(
            *(self.group, "Topic", PAY, self.name, f"i-{self.name}", held),
            number=self.number,
            together=self.together,
            **rest,
        )

    def send(self, registry: GroupRegistry, now_ms: int = 0, **rest: Any) -> dict[int, int]:
        """Send one, do as the reply says, and return the epochs in it."""
        reply = registry.heartbeat(self.beat(**rest), 2, now_ms)
        self.held = frozenset(reply.granted)
        assert reply.epochs.keys() == reply.granted.keys()
        self.epochs = dict(reply.epochs)
        return self.epochs


def reloaded(registry: GroupRegistry, now_ms: int = 0) -> GroupRegistry:
    """The registry of the next coordinator."""
    after = GroupRegistry()
    after.load(registry.to_json(), now_ms)
    return after


def test_each_grant_has_a_larger_epoch_and_a_heartbeat_changes_none() -> None:
    registry, one, two = GroupRegistry(), Member("a"), Member("b")
    assert one.send(registry) == {0: 1, 1: 2}
    assert one.send(registry) == {0: 1, 1: 2}
    assert two.send(registry) == {}
    assert one.send(registry) == {0: 1}
    one.send(registry)
    assert two.send(registry) == {1: 3}


def test_a_silent_member_keeps_its_epochs_only_if_nobody_had_its_queues() -> None:
    registry, one = GroupRegistry(), Member("a")
    one.send(registry)
    registry.memberships.living("group", "Topic", LATE)
    assert one.send(registry, LATE) == {0: 1, 1: 2}
    two = Member("b")
    assert two.send(registry, 2 * LATE + 1) == {0: 3, 1: 4}
    registry.leave(two.beat())
    assert one.send(registry, 2 * LATE + 1, held=frozenset({0, 1})) == {}
    assert one.send(registry, 2 * LATE + 1) == {0: 5, 1: 6}


def test_a_repeated_heartbeat_and_a_replaced_process_have_the_epochs_of_their_grants() -> None:
    registry, one = GroupRegistry(), Member("a")
    first = one.beat()
    registry.heartbeat(first, 2, 0)
    assert registry.heartbeat(first, 2, 0).epochs == {0: 1, 1: 2}
    namesake = Heartbeat("group", "Topic", PAY, "a", "another", frozenset(), number=1)
    assert registry.heartbeat(namesake, 2, 0).epochs == {}
    assert registry.memberships.get("group", "Topic").owners.epochs == {0: 1, 1: 2}


def test_a_coordinator_that_is_started_again_continues_behind_the_last_epoch() -> None:
    registry, one = GroupRegistry(), Member("a")
    one.send(registry)
    registry = reloaded(registry)
    assert not registry.must_save
    assert one.send(registry) == {0: 1, 1: 2}
    registry.leave(one.beat())
    registry = reloaded(registry)
    assert Member("b").send(registry) == {0: 3, 1: 4}, "also where no owner has them any more"


def test_a_group_that_is_deleted_gets_no_epoch_again() -> None:
    registry, one = GroupRegistry(), Member("a")
    one.send(registry)
    registry.leave(one.beat())
    registry.delete("group", 0)
    registry = reloaded(registry)
    assert Member("a").send(registry) == {0: 3, 1: 4}


def test_the_owners_of_an_earlier_release_get_epochs_before_they_are_answered() -> None:
    registry, one = GroupRegistry(), Member("a")
    one.send(registry)
    saved = registry.to_json()
    del saved["ownershipEpoch"], saved["memberships"]["Topic@group"]["epochs"]
    registry = GroupRegistry()
    registry.load(saved, 0)
    assert registry.must_save
    assert one.send(registry) == {0: 1, 1: 2}


@pytest.mark.parametrize("value", [-1, EPOCH_MAX + 1, None, "x"])
def test_damaged_epochs_are_refused(value: Any) -> None:
    registry, one = GroupRegistry(), Member("a")
    one.send(registry)
    saved = registry.to_json()
    with pytest.raises((StreamError, ValueError, TypeError)):
        GroupRegistry().load({**saved, "ownershipEpoch": value}, 0)
    saved["memberships"]["Topic@group"]["epochs"]["0"] = value
    with pytest.raises(StreamError, match="cannot be read"):
        GroupRegistry().load(saved, 0)


def test_a_counter_that_was_lost_catches_up_with_what_a_store_knows() -> None:
    registry, one = GroupRegistry(), Member("a")
    one.send(registry)
    assert one.send(registry, held=frozenset({0}), newest_epoch=70) == {0: 1, 1: 71}
    assert registry.must_save
    assert reloaded(registry).memberships.epochs.last == 71
    one.send(registry, newest_epoch=EPOCH_MAX + 1)
    assert registry.memberships.epochs.last == 71, "no store has that"
    assert OwnershipEpochs(71).next() == 72


def test_the_epochs_of_an_app_are_comparable_whatever_the_group() -> None:
    """A part of a table belongs to one instance, which may have it from any of its agents."""
    registry = GroupRegistry()
    first = [Member("a", f"g{number}", "app") for number in range(2)]
    for _ in range(2):
        for each in first:
            each.send(registry)
    second = [Member("b", f"g{number}", "app") for number in range(2)]
    for now_ms in range(LATE, LATE + 3):
        for each in second:
            each.send(registry, now_ms)
    assert all(each.held == {0, 1} for each in (*first, *second))
    assert max(max(each.epochs.values()) for each in first) < min(
        min(each.epochs.values()) for each in second
    )


@pytest.fixture
def state(tmp_path: Path) -> Iterator[ClusterState]:
    state = ClusterState(tmp_path, FilterRules(), FakeClock())
    state.create_topic("Topic", 2)
    yield state
    state.stop()


def test_an_epoch_is_on_disk_before_its_owner_learns_it(
    state: ClusterState, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two = Member("a"), Member("b")
    write = GroupsFile.write

    def fail(_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(GroupsFile, "write", fail)
    with pytest.raises(ShardUnavailableError):
        state.heartbeat(one.beat())
    monkeypatch.setattr(GroupsFile, "write", write)
    reply = state.heartbeat(one.beat())
    assert reply.epochs == {0: 3, 1: 4}, "those of the lost save are not given again"
    after = ClusterState(tmp_path, FilterRules(), FakeClock())
    after.leave(one.beat(frozenset({0, 1})))
    assert min(after.heartbeat(two.beat()).epochs.values()) > max(reply.epochs.values())
