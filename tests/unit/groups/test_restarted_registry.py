"""Owners and offsets when the coordinator starts again."""

from __future__ import annotations

import pytest
from support.models.heartbeats import PAY, beat, restarted

from rocketray.groups.group_registry import GroupRegistry
from rocketray.groups.journal.group_journal import EntryKind
from rocketray.groups.lease import SESSION_TIMEOUT_MS


@pytest.mark.proves("groups", "The assignment survives a restart of the coordinator")
def test_who_owns_what_survives_a_restart() -> None:
    before = GroupRegistry()
    before.heartbeat(beat("a"), 2, 0)
    before.heartbeat(beat("a", {0, 1}, commits={0: 3, 1: 4}), 2, 1)
    before.saved()
    after = restarted(before, 10)
    (description,) = after.describe({"Topic": 4}, 10)
    assert (description.group, description.topic) == ("group", "Topic")
    assert description.subscription == PAY
    assert description.members == {"a": [0, 1]}
    assert after.heartbeat(beat("b"), 2, 11).granted == {}
    assert after.heartbeat(beat("a", {0, 1}), 2, 12).granted == {0: 3}
    assert restarted(before, 20).heartbeat(beat("b"), 2, 21 + SESSION_TIMEOUT_MS).granted == {
        0: 3,
        1: 4,
    }


def forgetful_restart(*, has_owner: bool) -> GroupRegistry:
    """Member a read queue 0 up to 14; the coordinator that starts again knows 5, and perhaps a."""
    before = GroupRegistry()
    before.heartbeat(beat("a"), 1, 0)
    before.heartbeat(beat("a", {0}, commits={0: 14}), 1, 1)
    before.journals.note(EntryKind.MOVE, "group", "Topic", {0: (14, 14)}, who="somebody")
    before.offsets.commit("group", "Topic", 0, 5)
    if not has_owner:
        before.leave(beat("a"))
    after = GroupRegistry(before.journals)
    after.load(before.to_json(), 2)
    after.agree_with_journals()
    assert after.journals.entries("group")[-1].queues == {0: (14, 5)}
    return after


def test_a_member_that_lived_through_a_restart_read_nothing_twice() -> None:
    after = forgetful_restart(has_owner=True)
    assert after.heartbeat(beat("a", {0}), 1, 3).granted == {0: 5}
    after.heartbeat(beat("a", {0}, commits={0: 17}), 1, 4)
    last = after.journals.entries("group")[-1]
    assert (last.kind, last.who, last.queues) == (EntryKind.RESTART, "a", {0: (5, 14)})


def test_who_gets_a_queue_after_a_restart_reads_again_what_was_forgotten() -> None:
    after = forgetful_restart(has_owner=False)
    assert after.heartbeat(beat("b"), 1, 3).granted == {0: 5}
    count = len(after.journals.entries("group"))
    after.heartbeat(beat("b", {0}, commits={0: 17}), 1, 4)
    assert len(after.journals.entries("group")) == count
