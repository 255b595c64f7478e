"""What the coordinator tells the disks, when several of its threads do so at once."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from rocketray.actors.cluster.node_disks import NodeDisks
from rocketray.actors.disks.disk_agent import DiskAgent
from rocketray.actors.files.file_documents import FileDocuments
from rocketray.actors.files.home import Home
from rocketray.actors.topics.catalog import TopicCatalog
from rocketray.actors.topics.placement import Placement

DISK = "00000000-0000-0000-0000-000000000002"
_WAIT_S = 20.0


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
            assert go_on.wait(_WAIT_S)
        kept.append(catalog.get("T").queues)

    monkeypatch.setattr(disks, "_call", call)
    first, second = (
        threading.Thread(target=disks.keep_catalog, args=(DISK, lambda each=each: each))
        for each in catalogs
    )
    first.start()
    assert begun.wait(_WAIT_S)
    second.start()
    second.join(0.1)
    go_on.set()
    first.join(_WAIT_S)
    second.join(_WAIT_S)
    assert kept == [1, 2]
    disks.keep_catalog(DISK, lambda: catalogs[1])
    assert kept == [1, 2], "it has that already"
