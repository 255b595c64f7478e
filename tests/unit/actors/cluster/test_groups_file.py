"""The snapshot of the groups: its versions, and what is written when."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import pytest

from rocketray.actors.cluster.groups_file import GroupsFile, rocketmq_files
from rocketray.errors import StoreError
from rocketray.filters.subscription import Subscription
from rocketray.groups.group_registry import GroupRegistry
from rocketray.groups.heartbeat import Heartbeat
from rocketray.groups.journal.group_journal import GroupJournals
from rocketray.groups.lease import SESSION_TIMEOUT_MS
from rocketray.runtime.files import state_files
from rocketray.runtime.files.file_documents import FileDocuments

pytestmark = [
    pytest.mark.proves(
        "durability",
        "A damaged file of the node's state is rebuilt from its copy, and each other row of "
        "that table",
    ),
    pytest.mark.proves(
        "durability",
        "Topics and groups are as they were last answered, wherever the power fails; exported "
        "in RocketMQ's forms",
    ),
]

PAY = Subscription.tags("pay")
NUMBERS = itertools.count(1)


def beat(*held: int, **commits: int) -> Heartbeat:
    offsets = {int(queue[1:]): offset for queue, offset in commits.items()}
    return Heartbeat("g", "T", PAY, "a", "i", frozenset(held), offsets, number=next(NUMBERS))


def loaded(data: Path, now_ms: int = 0) -> tuple[GroupsFile, GroupRegistry]:
    file = GroupsFile(FileDocuments(data))
    return file, file.load(GroupJournals(lambda: 0), now_ms)


def a_group(data: Path) -> tuple[GroupsFile, GroupRegistry]:
    """One member that reads both queues, and has come to 7 in the first; it is saved."""
    file, registry = loaded(data)
    registry.heartbeat(beat(), 2, 0)
    registry.heartbeat(beat(0, 1, q0=7), 2, 0)
    registry.moves.order("g", "T", {1: 3}, "somebody")
    save(file, registry)
    return file, registry


def save(file: GroupsFile, registry: GroupRegistry, **options: int) -> None:
    number = file.take(registry, **options)
    if not file.is_written(number):
        file.write()
    assert file.is_written(number)


def content(data: Path) -> dict[str, Any]:
    value = json.loads((data / "config" / "groups.json").read_bytes())
    assert isinstance(value, dict)
    return value


def files(data: Path) -> set[str]:
    return {path.name for path in (data / "config").iterdir()}


def test_all_of_the_groups_come_back_from_one_file(tmp_path: Path) -> None:
    _, first = a_group(tmp_path)
    assert files(tmp_path) == {"groups.json", "groups.json.bak"}
    file, second = loaded(tmp_path)
    assert second.to_json() == first.to_json()
    assert not file.must_take(second)
    assert content(tmp_path) == {"version": 1, "stopped": None, **first.to_json()}


def test_a_commit_is_written_beside_what_did_not_change(tmp_path: Path) -> None:
    file, registry = a_group(tmp_path)
    before = (tmp_path / "config" / "groups.json").stat().st_ino
    save(file, registry)
    assert (tmp_path / "config" / "groups.json").stat().st_ino == before, "nothing changed"
    registry.heartbeat(beat(0, 1, q0=9), 2, 0)
    assert not file.must_take(registry)
    save(file, registry)
    assert content(tmp_path)["offsetTable"] == {"T@g": {"0": 9}}
    assert loaded(tmp_path)[1].offsets.of("g", "T") == {0: 9}
    assert loaded(tmp_path)[1].memberships.get("g", "T").by_member() == {"a": [0, 1]}


def test_a_save_that_fails_is_made_up_for_by_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, registry = a_group(tmp_path)
    registry.heartbeat(beat(0, q0=9), 2, 0)
    with monkeypatch.context() as patched:
        patched.setattr(state_files, "JSON_MAX_BYTES", 100)
        with pytest.raises(
            StoreError, match=r"groups\.json: it would have .* so it was not changed"
        ):
            save(file, registry)
    assert content(tmp_path)["offsetTable"] == {"T@g": {"0": 7}}
    save(file, registry)
    assert loaded(tmp_path)[1].to_json() == registry.to_json()


def test_the_time_of_a_clean_stop_is_overwritten_before_the_next_answer(tmp_path: Path) -> None:
    file, registry = a_group(tmp_path)
    save(file, registry, stopped_ms=5)
    assert content(tmp_path)["stopped"]["steadyMs"] == 5
    later, again = loaded(tmp_path, 6)
    membership = again.memberships.living("g", "T", 5 + SESSION_TIMEOUT_MS)
    assert membership.by_member() == {"a": [0, 1]}
    membership.expire(6 + SESSION_TIMEOUT_MS)
    assert membership.by_member() == {}, "seen at 5"
    later, again = loaded(tmp_path, 6)
    assert later.must_take(again)
    save(later, again)
    assert content(tmp_path)["stopped"] is None
    assert not later.must_take(again)


def test_a_file_of_another_version_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    a_group(tmp_path)
    for suffix in ("", ".bak"):
        path = tmp_path / "config" / f"groups.json{suffix}"
        path.write_bytes(path.read_bytes().replace(b'"version":1', b'"version":2', 1))
    before = path.read_bytes()
    message = r"groups\.json: its version is 2, .* reads versions up to 1; use the release that"
    with pytest.raises(StoreError, match=message):
        loaded(tmp_path)
    with pytest.raises(StoreError, match="its version is 2"):
        rocketmq_files(tmp_path)
    assert path.read_bytes() == before
    assert files(tmp_path) == {"groups.json", "groups.json.bak"}


def test_a_damaged_version_is_repaired_from_the_copy(tmp_path: Path) -> None:
    _, first = a_group(tmp_path)
    path = tmp_path / "config" / "groups.json"
    path.write_bytes(path.read_bytes().replace(b'"version":1', b'"version":3', 1))
    assert loaded(tmp_path)[1].to_json() == first.to_json()
    assert content(tmp_path)["version"] == 1


def test_the_groups_have_the_forms_of_rocketmqs_files(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=r"groups\.json does not exist; start the node"):
        rocketmq_files(tmp_path)
    a_group(tmp_path)
    exported = rocketmq_files(tmp_path)
    assert exported["consumerOffset.json"] == {"offsetTable": {"T@g": {"0": 7}}}
    [group] = exported["subscriptionGroup.json"]["subscriptionGroupTable"].values()
    assert (group["groupName"], group["consumeEnable"]) == ("g", True)
