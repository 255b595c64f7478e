"""Saves of the groups that fail or wait: who is answered meanwhile."""

from __future__ import annotations

import itertools
import threading
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.harness.patience import patience, wait_until

from rocketray.actors.cluster.cluster_state import ClusterState
from rocketray.broker.filtering.filter_rules import FilterRules
from rocketray.errors import RegisterUnavailableError, ShardUnavailableError
from rocketray.filters.subscription import Subscription
from rocketray.groups.heartbeat import Heartbeat
from rocketray.groups.lease import SESSION_TIMEOUT_MS
from rocketray.runtime.files.file_documents import FileDocuments
from rocketray.testing import Broker

NUMBERS = itertools.count(1)
ALL = Subscription.tags("*")


def beat() -> Heartbeat:
    return Heartbeat("g", "Trade", ALL, "one", "instance", frozenset(), number=next(NUMBERS))


def state(data: Path) -> ClusterState:
    return ClusterState(data, FilterRules(), lambda: 0)


def test_only_groups_whose_change_is_not_saved_get_no_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now_ms = 0
    one = ClusterState(tmp_path, FilterRules(), lambda: now_ms)
    one.topics.create("Trade", 2)
    quiet, expiring = (replace(beat(), group=name) for name in ("quiet", "expiring"))
    one.heartbeat(expiring)
    now_ms = SESSION_TIMEOUT_MS
    one.heartbeat(quiet)
    one.heartbeat(replace(quiet, number=next(NUMBERS), held=frozenset({0, 1})))

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    def again(group: Heartbeat, *held: int) -> Any:
        return one.heartbeat(replace(group, number=next(NUMBERS), held=frozenset(held))).granted

    with monkeypatch.context() as patched:
        patched.setattr(FileDocuments, "save", full)
        now_ms += 1
        one.expiry_orders()
        one.bitmap_orders()  # finds out that a member has expired
        for _ in range(2):
            assert again(quiet, 0, 1) == {0: -1, 1: -1}
            with pytest.raises(ShardUnavailableError, match=r"cannot be saved: .*No space left"):
                one.heartbeat(beat())
            with pytest.raises(ShardUnavailableError, match="No space left"):
                again(expiring)
    assert one.heartbeat(beat()).granted == {0: -1, 1: -1}
    assert again(expiring) == {0: -1, 1: -1}
    assert state(tmp_path).registry.to_json()["memberships"].keys() == {
        "Trade@g",
        "Trade@quiet",
        "Trade@expiring",
    }


@pytest.mark.proves("durability", "Members outlive a time in which the coordinator cannot save")
def test_a_member_outlives_a_time_in_which_its_groups_state_cannot_be_saved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Broker(tmp_path) as broker, broker.producer() as producer:
        broker.topics.create("Trade", 2)
        member = broker.consumer("g", "Trade", ALL)

        def away(*_: object, **__: object) -> None:
            raise RegisterUnavailableError("memory://test", "no answer")

        with monkeypatch.context() as patched:
            patched.setattr(FileDocuments, "save", away)
            with pytest.raises(ShardUnavailableError, match="no answer"):
                broker.consumer("g", "Trade", ALL)  # queues have to change hands
            broker.clock.advance(seconds=3)
        broker.clock.advance(seconds=30)
        for queue_id in range(2):
            producer.send("Trade", b"later", queue_id=queue_id)
        assert sum(map(len, member.poll())) == 2


def test_while_a_save_waits_other_groups_are_answered_and_one_save_serves_all_that_wait(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = state(tmp_path)
    one.topics.create("Trade", 2)
    settled = replace(beat(), group="settled")
    one.heartbeat(settled)
    one.heartbeat(replace(settled, number=next(NUMBERS), held=frozenset({0, 1})))
    begun, goes_on, saves = threading.Event(), threading.Event(), []
    save = FileDocuments.save

    def slow(file: FileDocuments, name: str, *arguments: Any, **options: Any) -> None:
        begun.set()
        assert goes_on.wait(patience(30))
        saves.append(name)
        save(file, name, *arguments, **options)

    monkeypatch.setattr(FileDocuments, "save", slow)
    heard: list[str] = []
    decided = one._decided

    def hears(group: str = "") -> int:
        heard.append(group)
        return decided(group)

    monkeypatch.setattr(one, "_decided", hears)
    with ThreadPoolExecutor() as threads:
        waiting = [threads.submit(one.heartbeat, beat())]
        assert begun.wait(patience(30))
        again = replace(settled, number=next(NUMBERS), held=frozenset({0, 1}))
        assert one.heartbeat(again).granted == {0: -1, 1: -1}
        others = [replace(beat(), group=group) for group in ("g", "new", "newer")]
        waiting += [threads.submit(one.heartbeat, each) for each in others]
        wait_until(lambda: len(heard) >= 5)
        assert wait(waiting, timeout=0.1).done == set()
        goes_on.set()
        assert [call.result(patience(30)).granted for call in waiting] == [{0: -1, 1: -1}] * 4
    assert saves == ["groups", "groups"]
    assert state(tmp_path).registry.to_json() == one.registry.to_json()


def test_the_end_of_a_member_is_saved_before_the_next_answer_of_any_group(tmp_path: Path) -> None:
    now_ms = 0
    one = ClusterState(tmp_path, FilterRules(), lambda: now_ms)
    one.topics.create("Trade", 2)
    one.heartbeat(beat())
    now_ms = SESSION_TIMEOUT_MS
    quiet = replace(beat(), group="quiet")
    one.heartbeat(quiet)
    held = frozenset({0, 1})
    one.heartbeat(replace(quiet, number=next(NUMBERS), held=held))
    now_ms += 1
    one.bitmap_orders()  # finds out that the member of g has expired
    assert one.heartbeat(replace(quiet, number=next(NUMBERS), held=held)).granted.keys() == held
    assert state(tmp_path).registry.memberships.get("g", "Trade").by_member() == {}


def test_while_a_change_of_topics_is_saved_groups_are_answered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = state(tmp_path)
    one.topics.create("Trade", 2)
    one.topics.create("Gone", 1)
    one.heartbeat(beat())
    begun, goes_on = threading.Event(), threading.Event()
    save = FileDocuments.save

    def slow(file: FileDocuments, name: str, *arguments: Any, **options: Any) -> None:
        if name == "topics":
            begun.set()
            assert goes_on.wait(patience(30))
        save(file, name, *arguments, **options)

    monkeypatch.setattr(FileDocuments, "save", slow)
    with ThreadPoolExecutor() as threads:
        deleting = threads.submit(one.delete_topic, "Gone")
        assert begun.wait(patience(30))
        creating = threads.submit(one.topics.create, "New", 1)
        assert one.heartbeat(beat()).granted == {0: -1, 1: -1}
        assert one.expiry_orders() == []
        assert one.topics.catalog.topics.keys() == {"Trade", "Gone"}
        goes_on.set()
        deleting.result(patience(30))
        creating.result(patience(30))
    assert one.topics.catalog.topics.keys() == {"Trade", "New"}
    assert state(tmp_path).topics.catalog == one.topics.catalog


def test_a_slow_save_is_no_silence_of_the_members(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No heartbeat is heard meanwhile."""
    now_ms = 0
    one = ClusterState(tmp_path, FilterRules(), lambda: now_ms)
    one.topics.create("Trade", 2)
    one.heartbeat(beat())
    save = FileDocuments.save

    def slow(*arguments: Any, **options: Any) -> None:
        nonlocal now_ms
        now_ms += 2 * SESSION_TIMEOUT_MS
        save(*arguments, **options)

    monkeypatch.setattr(FileDocuments, "save", slow)
    other = replace(beat(), member="two", instance="other", number=next(NUMBERS))
    assert one.heartbeat(other).granted == {}, "the first one has both"
    assert one.heartbeat(replace(other, number=next(NUMBERS))).granted == {}, "and still lives"
