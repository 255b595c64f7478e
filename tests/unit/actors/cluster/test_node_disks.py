"""What the coordinator tells the disks, from several threads, and what it takes for their absence."""

from __future__ import annotations

import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from support.harness.patience import patience

from rocketray.actors.cluster import node_disks
from rocketray.actors.cluster.node_disks import NodeDisks
from rocketray.broker.disks.disk_agent import DiskAgent
from rocketray.broker.disks.disks_api import DiskReport
from rocketray.broker.topics.catalog import TopicCatalog
from rocketray.broker.topics.placement import Placement
from rocketray.errors import ShardUnavailableError
from rocketray.runtime.files.file_documents import FileDocuments
from rocketray.runtime.files.home import Home

DISK = "00000000-0000-0000-0000-000000000002"


def test_an_older_catalog_never_replaces_a_newer_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disks = NodeDisks(
        Home(str(tmp_path), "u", "here"), DiskAgent(tmp_path), FileDocuments(tmp_path)
    )
    there = Placement(1, spread=lambda _, queues: (DISK,) * queues)
    catalogs = [TopicCatalog().with_topic("T", queues, there) for queues in (1, 2)]
    kept: list[int] = []
    begun, go_on = threading.Event(), threading.Event()

    def call(_: str, __: Any, catalog: TopicCatalog) -> None:
        if not begun.is_set():
            begun.set()
            assert go_on.wait(patience(60))
        kept.append(catalog.get("T").queues)

    monkeypatch.setattr(disks, "_call", call)
    first, second = (
        threading.Thread(target=disks.keep_catalog, args=(DISK, lambda each=each: each))
        for each in catalogs
    )
    first.start()
    assert begun.wait(patience(60))
    second.start()
    second.join(0.1)
    go_on.set()
    first.join(patience(60))
    second.join(patience(60))
    assert kept == [1, 2]
    disks.keep_catalog(DISK, lambda: catalogs[1])
    assert kept == [1, 2], "it has that already"


def test_a_disk_is_away_when_it_has_not_answered_for_some_time_and_not_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disks = NodeDisks(
        Home(str(tmp_path), "u", "here"), DiskAgent(tmp_path), FileDocuments(tmp_path)
    )
    disks.register.add(Home("/there", DISK, "there", is_joined=True))
    report = DiskReport("first start", "", 1, 2)
    now_s = 0.0
    asked: list[int] = []
    answers: set[int] = set()

    def begin(*_: object) -> int:
        asked.append(len(asked))
        return asked[-1]

    def wait(calls: list[int], **_: object) -> tuple[list[int], list[int]]:
        done = [call for call in calls if call in answers]
        return done, [call for call in calls if call not in answers]

    monkeypatch.setattr(node_disks, "begin", begin)
    monkeypatch.setattr(node_disks, "ray", SimpleNamespace(wait=wait, get=lambda _: report))
    monkeypatch.setattr(node_disks, "time", SimpleNamespace(monotonic=lambda: now_s))
    answers.add(0)
    assert disks.look() == [DISK]
    now_s = 10.0
    assert disks.look() == [], "its machine is busy"
    now_s = 15.9
    disks.look()
    assert asked == [0, 1], "one question at a time"
    assert disks.check(DISK).machine == "there"
    answers.add(1)
    assert disks.look() == [], "the same agent, which is late"
    now_s = 20.0
    disks.look()
    now_s = 26.0
    disks.look()
    with pytest.raises(ShardUnavailableError, match="/there on there does not answer"):
        disks.check(DISK)
    answers.add(3)
    assert disks.look() == [DISK]
    disks.look()
    report = DiskReport("second start", "", 1, 2)
    answers.add(5)
    assert disks.look(DISK) == [DISK], "its last agent, which was asked, is gone"
