"""The states of a queue that is handed over: the table of the docstring, and what follows from it."""

from __future__ import annotations

import re

import pytest

from rocketray.filters.subscription import Subscription
from rocketray.groups import handover
from rocketray.groups.group_registry import GroupRegistry
from rocketray.groups.handover import TRANSITIONS, QueueOwners, QueueState, process_name
from rocketray.groups.heartbeat import Heartbeat
from rocketray.groups.lease import SESSION_TIMEOUT_MS
from rocketray.groups.ownership_epochs import OwnershipEpochs

PROCESS = process_name("a", "i")


def owners_in(state: QueueState) -> QueueOwners:
    """The owners of queue 0, brought to *state*."""
    owners = QueueOwners()
    if state != QueueState.FREE:
        owners.assign(0, "a", OwnershipEpochs())
    if state == QueueState.REVOKED:
        owners.revoke("a", ())
    if state == QueueState.ORPHANED:
        owners.replace("a", PROCESS)
    if state == QueueState.LAPSED:
        owners.expire("a", PROCESS)
    assert owners.state(0) == state
    owners.changed = False
    return owners


def test_the_docstring_has_each_transition_and_no_other() -> None:
    assert handover.__doc__ is not None
    rows = re.findall(r"^    (\w+) +([\w, ]+?) +-> (\w+)$", handover.__doc__, re.MULTILINE)
    described: dict[str, tuple[frozenset[QueueState], QueueState]] = {
        event: (frozenset(map(QueueState, before.split(", "))), QueueState(after))
        for event, before, after in rows
    }
    assert described == TRANSITIONS
    states = handover.__doc__.partition("Transitions")[0]
    assert re.findall(r"^    (\w+) ", states, re.MULTILINE) == [each.value for each in QueueState]


@pytest.mark.proves(
    "groups",
    "A queue goes through the states of the hand-over table, and through no others",
)
@pytest.mark.parametrize("event", TRANSITIONS)
@pytest.mark.parametrize("state", QueueState)
def test_an_event_leads_where_the_table_says_or_is_refused(event: str, state: QueueState) -> None:
    owners = owners_in(state)
    allowed, after = TRANSITIONS[event]
    if state in allowed:
        owners._enter(event, 0, "b")
        assert owners.state(0) == after
        has_owner = {QueueState.OWNED, QueueState.REVOKED, QueueState.ORPHANED}
        assert (0 in owners.names) == (after in has_owner)
    else:
        with pytest.raises(AssertionError, match=f"{event} of queue 0, which is {state.value}"):
            owners._enter(event, 0, "b")
        assert owners.state(0) == state


@pytest.mark.parametrize("state", QueueState)
def test_only_a_queue_without_an_owner_is_assigned_to_another_member(state: QueueState) -> None:
    owners = owners_in(state)
    is_free = state in (QueueState.FREE, QueueState.LAPSED)
    assert owners.assign(0, "b", OwnershipEpochs()) == is_free == owners.changed
    assert (owners.owned("b") == {0}) == is_free


def test_a_revoked_queue_that_comes_back_into_the_share_stays_with_its_owner() -> None:
    owners = owners_in(QueueState.REVOKED)
    assert owners.assign(0, "a", OwnershipEpochs())
    assert (owners.state(0), owners.changed) == (QueueState.OWNED, False)
    owners.revoke("a", [0])
    assert owners.state(0) == QueueState.OWNED


def test_a_lapsed_queue_waits_for_its_owner_until_it_is_assigned_or_forgotten() -> None:
    owners = owners_in(QueueState.LAPSED)
    assert (owners.lapsed(PROCESS), owners.owned(PROCESS)) == ({0}, set())
    assert owners.lapsed(process_name("a", "another")) == set()
    owners.forget([0, 1])
    assert owners.lapsed(PROCESS) == set()
    owners = owners_in(QueueState.LAPSED)
    assert owners.assign(0, "b", OwnershipEpochs())
    assert owners.lapsed(PROCESS) == set()
    owners.forget()
    assert owners.owned("b") == {0}


def test_owners_that_are_restored_are_members_or_replaced_processes() -> None:
    owners = QueueOwners({0: "a", 1: PROCESS})
    assert [owners.state(queue) for queue in range(3)] == [
        QueueState.OWNED,
        QueueState.ORPHANED,
        QueueState.FREE,
    ]
    assert owners.names == {0: "a", 1: PROCESS}
    assert not owners.changed


def beat(member: str, number: int, *held: int) -> Heartbeat:
    return Heartbeat("g", "T", Subscription.tags("a"), member, "i", frozenset(held), number=number)


def state_of(registry: GroupRegistry, queue: int) -> QueueState:
    return registry.memberships.get("g", "T").owners.state(queue)


def test_a_queue_changes_hands_by_revoke_release_and_assign() -> None:
    registry = GroupRegistry()
    registry.heartbeat(beat("a", 1), 2, 0)
    registry.heartbeat(beat("a", 2, 0, 1), 2, 0)
    assert registry.heartbeat(beat("b", 1), 2, 0).granted == {}
    assert state_of(registry, 1) == QueueState.OWNED, "its owner does not know yet"
    assert registry.heartbeat(beat("a", 3, 0, 1), 2, 0).granted.keys() == {0}
    assert state_of(registry, 1) == QueueState.REVOKED
    assert registry.heartbeat(beat("b", 2), 2, 0).granted == {}
    registry.heartbeat(beat("a", 4, 0), 2, 0)
    assert state_of(registry, 1) == QueueState.FREE
    assert registry.heartbeat(beat("b", 3), 2, 0).granted.keys() == {1}
    assert state_of(registry, 1) == QueueState.OWNED
    registry.heartbeat(beat("a", 5, 0), 2, SESSION_TIMEOUT_MS + 1)
    assert state_of(registry, 1) == QueueState.OWNED, "it is in the share of the one left"
