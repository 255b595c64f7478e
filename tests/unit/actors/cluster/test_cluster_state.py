"""What a coordinator decides survives it, and does not need Ray to be decided."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rocketray.actors.cluster import groups_file
from rocketray.actors.cluster.cluster_state import ClusterState
from rocketray.actors.cluster.groups_file import GroupsFile
from rocketray.broker.filtering.filter_rules import FilterRules
from rocketray.broker.topics.catalog import TopicCatalog
from rocketray.errors import ConfigError, StoreError, TopicNotFoundError
from rocketray.filters.subscription import Subscription
from rocketray.groups.heartbeat import Heartbeat
from rocketray.groups.lease import SESSION_TIMEOUT_MS
from rocketray.runtime.files import state_files
from rocketray.store.retention import RetentionPolicy

pytestmark = pytest.mark.proves(
    "durability",
    "A damaged file of the node's state is rebuilt from its copy, and each other row of that table",
)

SQL = Subscription.sql("amount > 10")


def state(data: Path, now_ms: int = 0) -> ClusterState:
    return ClusterState(data, FilterRules(), lambda: now_ms)


NUMBERS = itertools.count(1)


def beat(*held: int, commits: dict[int, int] | None = None) -> Heartbeat:
    return Heartbeat(
        "g", "Trade", SQL, "one", "instance", frozenset(held), commits or {}, number=next(NUMBERS)
    )


def test_another_one_goes_on_where_it_saved(tmp_path: Path) -> None:
    first = state(tmp_path)
    made = first.topics.create("Trade", 2, retention=RetentionPolicy(max_bytes=5))
    first.heartbeat(beat())
    first.heartbeat(beat(0, 1, commits={0: 7}))
    first.save()
    first.heartbeat(beat(0, 1, commits={0: 9}))  # and this it forgets
    second = state(tmp_path)
    assert second.topics.catalog.topics == {"Trade": made}
    (group,) = second.administration.all()
    assert (group.subscription, group.offsets, group.members) == (
        SQL,
        {0: 7, 1: -1},
        {"one": [0, 1]},
    )
    assert [order.needed_from for order in second.expiry_orders()] == [7, 0]
    assert second.heartbeat(beat(0, 1)).granted == {0: 7, 1: -1}


def test_how_far_a_queue_was_finished_is_saved_when_it_is_given_up(tmp_path: Path) -> None:
    first = state(tmp_path)
    first.topics.create("Trade", 2)
    first.heartbeat(beat())
    first.heartbeat(beat(0, 1, commits={0: 7}))
    first.heartbeat(beat(1, commits={0: 9}))  # its owner does not say so again
    second = state(tmp_path)
    assert second.heartbeat(beat(1)).granted == {0: 9, 1: -1}


def test_commits_of_a_member_add_nothing_to_the_journal_of_its_group(tmp_path: Path) -> None:
    first = state(tmp_path)
    first.topics.create("Trade", 2)
    first.heartbeat(beat())
    first.heartbeat(beat(0, 1, commits={0: 0, 1: 0}))
    first.save()
    [path] = (tmp_path / "config" / "groupJournal").iterdir()
    entries, written = (
        first.administration.journal("g"),
        (path.stat().st_mtime_ns, path.read_bytes()),
    )
    for offset in range(1, 1_001):
        first.heartbeat(beat(0, 1, commits={0: offset, 1: 2 * offset}))
        assert first._journals.unsaved() == {}
    first.save()
    assert first.administration.journal("g") == entries
    assert (path.stat().st_mtime_ns, path.read_bytes()) == written
    (group,) = first.administration.all()
    assert group.offsets == {0: 1_000, 1: 2_000}


class Killed(BaseException):
    """The process ends here."""


def kill_at(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the process end before step number *count* of its writes, counted from 0."""
    done = 0

    def watched(step: Callable[..., Any]) -> Callable[..., Any]:
        def take(*arguments: Any, **options: Any) -> Any:
            nonlocal done
            if done == count:
                raise Killed
            done += 1
            return step(*arguments, **options)

        return take

    for name in ("write_beside", "sync_directory"):
        monkeypatch.setattr(state_files, name, watched(getattr(state_files, name)))
    monkeypatch.setattr(Path, "replace", watched(Path.replace))


@pytest.mark.parametrize("is_leaving", [False, True])
def test_a_report_that_ends_a_move_and_gives_up_another_queue_is_forgotten_nowhere(
    tmp_path: Path, *, is_leaving: bool
) -> None:
    """Whenever the coordinator is killed; what it did not answer comes again."""
    count, is_killed = -1, True
    while is_killed:
        count += 1
        data = tmp_path / str(count)
        first = state(data)
        first.topics.create("Trade", 2)
        first.heartbeat(beat())
        first.heartbeat(beat(0, 1, commits={0: 3, 1: 4}))
        first.administration.move_offsets("g", "Trade", {0: 1})
        last = beat(commits={0: 5, 1: 7})
        with pytest.MonkeyPatch.context() as monkeypatch:
            kill_at(count, monkeypatch)
            try:
                first.leave(last) if is_leaving else first.heartbeat(last)
            except Killed:
                is_killed = True
            else:
                is_killed = False
        second = state(data)
        second.leave(last) if is_leaving else second.heartbeat(last)
        member, instance = ("two", "other") if is_leaving else ("one", "instance")
        second.heartbeat(replace(beat(), member=member, instance=instance))
        found = second.heartbeat(replace(beat(), member=member, instance=instance))
        assert found.granted == {0: 1, 1: 7}, f"killed before step {count}"
        assert state(data).administration.all()[0].offsets == {0: 1, 1: 7}
    assert count >= 5, "the file, its copy, and the directory"


def test_members_are_not_silent_while_nobody_can_hear_them(tmp_path: Path) -> None:
    first = state(tmp_path)
    first.topics.create("Trade", 1)
    first.heartbeat(beat())
    now_ms = 0
    second = ClusterState(tmp_path, FilterRules(), lambda: now_ms)
    now_ms = 10 * SESSION_TIMEOUT_MS  # its shards came slowly
    second.begin_to_listen()
    assert [group.members for group in second.administration.all()] == [{"one": [0]}]
    now_ms += SESSION_TIMEOUT_MS + 1
    assert [group.members for group in second.administration.all()] == [{}]


@pytest.mark.proves(
    "groups",
    "Members keep their queues while the coordinator itself stands still, and lose them "
    "by their own silence only",
)
@pytest.mark.parametrize("stands_still", [True, False])
def test_members_are_not_silent_while_the_coordinator_stands_still(
    tmp_path: Path, *, stands_still: bool
) -> None:
    now_ms = 0
    coordinator = ClusterState(tmp_path, FilterRules(), lambda: now_ms)
    coordinator.topics.create("Trade", 2)
    coordinator.look_at_clock()

    def report(member: str, *held: int, **changes: Any) -> dict[int, int]:
        nonlocal now_ms
        now_ms += 100
        coordinator.look_at_clock()
        told = replace(beat(*held, **changes), member=member, instance=member)
        return dict(coordinator.heartbeat(told).granted)

    report("one", *report("one"))
    report("two")
    assert report("one", 0, 1) == report("one", 0) == {0: -1}  # it gives one up
    assert report("two") == {1: -1}
    assert report("two", 1, commits={1: 3}) == {1: 3}
    for _ in range(20):
        now_ms += SESSION_TIMEOUT_MS // 10
        if not stands_still:
            coordinator.look_at_clock()
    one, two = report("one", 0), report("two", 1, commits={1: 9})
    assert (one, two) == (({0: -1}, {1: 9}) if stands_still else ({0: -1, 1: 3}, {}))


def test_a_member_that_leaves_is_saved_at_once(tmp_path: Path) -> None:
    first = state(tmp_path)
    first.topics.create("Trade", 1)
    first.heartbeat(beat())
    first.leave(beat(0, commits={0: 3}))
    (group,) = state(tmp_path).administration.all()
    assert group.offsets == {0: 3}


def test_a_topic_that_may_not_be_read_has_no_members(tmp_path: Path) -> None:
    only = state(tmp_path)
    only.topics.create("Trade", 1)
    only.topics.change("Trade", lambda topics: topics.with_permission("Trade", 2))
    with pytest.raises(ConfigError, match=r"permission 2.*rocketray topics alter Trade --perm 6"):
        only.heartbeat(beat())


def test_a_deleted_topic_takes_its_offsets_along(tmp_path: Path) -> None:
    only = state(tmp_path)
    only.topics.create("Trade", 1)
    only.heartbeat(beat())
    only.heartbeat(beat(0, commits={0: 3}))
    deleted = only.delete_topic("Trade")
    with pytest.raises(TopicNotFoundError):
        only.topics.catalog.get("Trade")
    with pytest.raises(ConfigError, match="its files are not removed yet"):
        only.topics.create("Trade", 1)
    only.topics.remove_files(deleted)
    only.topics.create("Trade", 1)
    assert only.heartbeat(beat()).granted == {0: -1}


def test_a_deletion_that_was_interrupted_is_finished_by_the_next_one(tmp_path: Path) -> None:
    first = state(tmp_path)
    first.topics.create("Trade", 1)
    first.heartbeat(beat())
    first.heartbeat(beat(0, commits={0: 3}))
    first.stop()
    TopicCatalog.load(tmp_path).without_topic("Trade").save(tmp_path)
    second = state(tmp_path)
    assert second.administration.all() == []
    [deleted] = second.topics.deleted()
    second.topics.remove_files(deleted)
    assert second.topics.deleted() == state(tmp_path).topics.deleted() == []
    second.topics.create("Trade", 1)
    assert second.heartbeat(beat()).granted == {0: -1}


def test_members_of_a_node_that_was_stopped_for_long_are_gone(tmp_path: Path) -> None:
    first = state(tmp_path)
    first.topics.create("Trade", 1)
    first.heartbeat(beat())
    first.stop()
    second = state(tmp_path, SESSION_TIMEOUT_MS)
    (soon,) = second.administration.all()
    assert (soon.members, soon.unheard) == ({"one": [0]}, frozenset({"one"}))
    second.heartbeat(beat(0))
    (heard,) = second.administration.all()
    assert (heard.members, heard.unheard) == ({"one": [0]}, frozenset())
    first.stop()
    (later,) = state(tmp_path, SESSION_TIMEOUT_MS + 1).administration.all()
    assert later.members == {}


def test_the_time_of_a_stop_is_forgotten_with_the_first_heartbeat_after_it(tmp_path: Path) -> None:
    """Otherwise a member with a lease would be gone for the coordinator after the next one."""
    first = state(tmp_path)
    first.topics.create("Trade", 1)
    first.heartbeat(beat())
    first.heartbeat(beat(0))
    first.stop()
    second = state(tmp_path, 1_000)
    second.heartbeat(beat(0))  # and it is killed
    (group,) = state(tmp_path, SESSION_TIMEOUT_MS + 1).administration.all()
    assert group.members == {"one": [0]}


@pytest.mark.parametrize("set_to_ms", [1_800_000_000_000, 0])
def test_a_clock_that_is_set_while_the_node_is_stopped_takes_no_queue_away(
    tmp_path: Path, set_to_ms: int
) -> None:
    """A member may have a lease still, and the stop took no second."""
    first = ClusterState(tmp_path, FilterRules(), lambda: 1_700_000_000_000, lambda: 500_000)
    first.topics.create("Trade", 1)
    first.heartbeat(beat())
    first.stop()
    second = ClusterState(tmp_path, FilterRules(), lambda: set_to_ms, lambda: 500_900)
    (group,) = second.administration.all()
    assert group.members == {"one": [0]}


def test_after_a_start_of_the_machine_members_have_the_session_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = state(tmp_path, 10 * SESSION_TIMEOUT_MS)
    first.topics.create("Trade", 1)
    first.heartbeat(beat())
    first.stop()
    monkeypatch.setattr(groups_file, "here", lambda: {"bootId": "another"})
    now_ms = 5
    second = ClusterState(tmp_path, FilterRules(), lambda: now_ms)
    assert [group.members for group in second.administration.all()] == [{"one": [0]}]
    now_ms += SESSION_TIMEOUT_MS + 1
    assert [group.members for group in second.administration.all()] == [{}]


def test_asking_for_bitmap_orders_goes_by_the_clock_that_members_are_heard_by(
    tmp_path: Path,
) -> None:
    """The time of day is far ahead of the steady clock; nobody is taken for silent."""
    only = ClusterState(tmp_path, FilterRules(), lambda: 1_700_000_000_000, lambda: 5)
    only.topics.create("Trade", 1)
    only.topics.change("Trade", lambda topics: topics.with_bitmaps("Trade", "on"))
    only.heartbeat(beat())
    [order] = only.bitmap_orders()
    assert [one.group for one in order.living or ()] == ["g"]
    assert only.administration.all()[0].members == {"one": [0]}


def test_a_heartbeat_that_comes_while_its_topic_is_deleted_leaves_nothing_behind(
    tmp_path: Path,
) -> None:
    class Rules(FilterRules):
        def check(self, *_: object) -> None:
            only.delete_topic("Trade")  # by another thread, while this one looks at the filter

    only = ClusterState(tmp_path, Rules(), lambda: 0)
    only.topics.create("Trade", 1)
    with pytest.raises(TopicNotFoundError):
        only.heartbeat(beat())
    assert only.administration.all() == []


@pytest.mark.parametrize("report", ["heartbeat", "leave"])
def test_a_move_is_not_undone_by_a_report_that_comes_to_another_coordinator(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, report: str
) -> None:
    """The first one died after it saved the move, so nobody was answered."""
    first = state(tmp_path)
    first.topics.create("Trade", 1)
    first.heartbeat(beat())
    first.heartbeat(beat(0, commits={0: 100}))
    first.administration.move_offsets("g", "Trade", {0: 7})
    first.heartbeat(beat(0))
    write = GroupsFile.write

    def write_and_die(file: GroupsFile) -> None:
        write(file)
        raise KeyboardInterrupt

    monkeypatch.setattr(GroupsFile, "write", write_and_die)
    last = beat(commits={0: 100})
    with pytest.raises(KeyboardInterrupt):
        getattr(first, report)(last)
    monkeypatch.undo()
    second = state(tmp_path)
    getattr(second, report)(last)
    second.heartbeat(beat())
    assert second.registry.offsets.get("g", "Trade", 0) == 7


STATE_FILES = ("topics.json", "groups.json")


def written(tmp_path: Path) -> ClusterState:
    """A cluster in which one group has come to 700 and 9, and a topic was deleted last."""
    first = state(tmp_path)
    first.topics.create("Gone", 1)
    first.topics.create("Trade", 2, retention=RetentionPolicy(max_bytes=5))
    first.heartbeat(beat())
    first.heartbeat(beat(0, 1, commits={0: 700, 1: 9}))
    first.save()
    first.delete_topic("Gone")
    return first


def damage(tmp_path: Path, *names: str) -> None:
    for name in names:
        (tmp_path / "config" / name).write_bytes(b"\0\0{")


def contents(tmp_path: Path) -> dict[str, bytes]:
    files = (path for path in (tmp_path / "config").iterdir() if path.is_file())
    return {path.name: path.read_bytes() for path in files}


def test_each_damaged_file_is_made_anew_from_its_copy(tmp_path: Path) -> None:
    first = written(tmp_path)
    damage(tmp_path, *STATE_FILES)
    second = state(tmp_path)
    assert second.topics.catalog.topics == first.topics.catalog.topics
    groups, before = second.administration.all(), first.administration.all()
    # What only a heartbeat tells is not known again yet.
    assert [replace(each, unheard=frozenset(), clients={}) for each in groups] == [
        replace(each, clients={}) for each in before
    ]
    assert len(second.problems.lines()) == len(STATE_FILES)
    assert state(tmp_path).problems.lines() == second.problems.lines()


def test_a_damaged_file_of_groups_brings_no_group_forward_past_its_reset(tmp_path: Path) -> None:
    first = written(tmp_path)
    path = tmp_path / "config" / "groups.json"
    first.leave(beat())
    first.administration.move_offsets("g", "Trade", {0: 3, 1: 0})
    assert json.loads(path.read_bytes())["offsetTable"]["Trade@g"] == {"0": 3, "1": 0}
    damage(tmp_path, "groups.json")
    (group,) = state(tmp_path).administration.all()
    assert group.offsets == {0: 3, 1: 0}


def test_without_topics_nothing_starts_and_both_files_are_named(tmp_path: Path) -> None:
    written(tmp_path)
    damage(tmp_path, "topics.json", "topics.json.bak")
    with pytest.raises(StoreError, match=r"topics\.json: damaged .*topics\.json\.bak"):
        state(tmp_path)


def test_groups_of_which_nobody_knows_how_far_they_are_stay_closed_and_topics_open(
    tmp_path: Path,
) -> None:
    name = "groups.json"
    first = written(tmp_path)
    assert len(first.expiry_orders()) == 2
    damage(tmp_path, name, f"{name}.bak")
    left = contents(tmp_path)
    second = state(tmp_path)
    [line] = second.problems.lines()
    assert line.startswith("consumer groups are closed")
    assert name in line
    questions: list[Callable[[], object]] = [
        second.administration.all,
        lambda: second.heartbeat(beat()),
        lambda: second.leave(beat()),
        lambda: second.administration.delete("g"),
        lambda: second.administration.journal("g"),
        lambda: second.administration.change_progress("g", "T"),
    ]
    for question in questions:
        with pytest.raises(StoreError, match="groups are closed"):
            question()
    assert second.expiry_orders() == []
    second.save()
    second.stop()
    assert contents(tmp_path) == left
    second.topics.create("New", 1)
    second.delete_topic("New")
    for suffix in ("", ".bak"):
        (tmp_path / "config" / f"{name}{suffix}").write_bytes(b'{"version":1}')
    assert state(tmp_path).problems.lines() == []


def test_a_removed_file_does_not_bring_back_what_was(tmp_path: Path) -> None:
    written(tmp_path)
    (tmp_path / "config" / "topics.json").unlink()
    assert state(tmp_path).topics.catalog.topics == {}


def test_a_deleted_topic_does_not_come_back_with_a_copy(tmp_path: Path) -> None:
    first = state(tmp_path)
    gone = first.topics.create("Gone", 1)
    first.delete_topic("Gone")  # and the coordinator is killed before its files are removed
    damage(tmp_path, "topics.json")
    second = state(tmp_path)
    assert second.topics.catalog.topics == {}
    assert second.topics.deleted() == [gone]
