"""The backups of the disks of one cluster, restored one by one under another name."""

from __future__ import annotations

import json
import shutil
import uuid
from pathlib import Path

import pytest
from support.nodes.local_node import LocalNode

from rocketray.broker.backups.backup import back_up
from rocketray.broker.backups.renaming import renamed_disk
from rocketray.broker.backups.restore import restore
from rocketray.broker.disks.disk_register import DiskRegister, saved_disks
from rocketray.broker.disks.joined_cluster import JoinedCluster, note_joined, read_joined
from rocketray.broker.topics.catalog import TopicCatalog
from rocketray.errors import ConfigError, StoreError
from rocketray.runtime.clock import system_clock_ms
from rocketray.runtime.files.file_documents import FileDocuments
from rocketray.runtime.files.home import Home, identity_of

LOST = "6f1c2a52-9d0e-4b0c-8a7c-3f5e0f6f9d11"


class Disks:
    """Two disks of cluster "floor", with a queue of a topic on each, and a third one that is lost."""

    def __init__(self, path: Path) -> None:
        self.path = path
        first, second = path / "first", path / "second"
        with LocalNode(first) as node, node.producer() as producer:
            node.topics.ensure("Trade", 3)
            for number in range(6):
                producer.send("Trade", b"%d" % number, queue_id=number % 3)
        shutil.copytree(first, second)
        homes = [
            Home(str(data), identity_of(data), machine, cluster="floor", is_joined=joined)
            for data, machine, joined in ((first, "m1", False), (second, "m2", True))
        ]
        self.first, self.second = (each.uuid for each in homes)
        catalog = TopicCatalog.load(first).with_disk("Trade", 1, self.second)
        catalog = catalog.with_disk("Trade", 2, LOST)
        (second / "config" / "topics.json").unlink()
        (second / "config" / "topics.json.bak").unlink()
        note_joined(homes[1], homes[0])
        for data in (first, second):
            catalog.save(data)
        register = DiskRegister(homes[0], FileDocuments(first))
        register.add(homes[1])
        register.add(Home("/lost", LOST, "m3", cluster="floor", is_joined=True))
        register.set_draining(LOST, draining=True)
        (first / "config" / "moves.json").write_text('{"version": 1, "moves": []}')

    def back_up(self, name: str) -> Path:
        backup = self.path / f"backup of {name}"
        back_up(self.path / name, backup, clock_ms=system_clock_ms)
        return backup


@pytest.fixture(scope="module")
def disks(tmp_path_factory: pytest.TempPathFactory) -> Disks:
    return Disks(tmp_path_factory.mktemp("disks"))


@pytest.fixture(scope="module")
def backups(disks: Disks) -> dict[str, Path]:
    return {name: disks.back_up(name) for name in ("first", "second")}


def restored(backup: Path, data: Path, cluster: str | None = "copy") -> str:
    return restore(backup, data, clock_ms=system_clock_ms, cluster=cluster)[0]


def test_disks_that_are_restored_apart_find_each_other_under_the_new_name(
    disks: Disks, backups: dict[str, Path], tmp_path: Path
) -> None:
    data = {name: tmp_path / name for name in backups}
    uuids = {name: restored(backup, data[name]) for name, backup in backups.items()}
    assert uuids == {name: identity_of(each) for name, each in data.items()}
    assert {*uuids.values()}.isdisjoint({disks.first, disks.second, LOST})
    lost = renamed_disk("copy", LOST)
    for each in data.values():
        assert TopicCatalog.load(each).get("Trade").disks == ("", uuids["second"], lost)
    assert read_joined(data["first"]) is None
    assert read_joined(data["second"]) == JoinedCluster("copy", uuids["first"])
    home = Home(str(data["first"]), uuids["first"], "m9", cluster="copy")
    register = DiskRegister(home, FileDocuments(data["first"]))
    saved = saved_disks(FileDocuments(data["first"]))
    assert saved is not None
    assert (saved.cluster, saved.cluster_id) == ("copy", uuids["first"])
    assert register.homes.keys() == {"", uuids["second"], lost}
    assert {home.cluster for home in register.homes.values()} == {"copy"}
    assert register.homes[lost].machine == ""
    assert register.draining == {lost}
    assert not (data["first"] / "config" / "moves.json").exists()
    note_joined(
        Home(str(data["second"]), uuids["second"], "m9", cluster="copy", is_joined=True),
        register.homes[""],
    )


def test_each_disk_gets_the_messages_of_its_queues_only(
    backups: dict[str, Path], tmp_path: Path
) -> None:
    for queue_id, (name, backup) in enumerate(backups.items()):
        restored(backup, tmp_path / name)
        found = (tmp_path / name / "shards" / "Trade").iterdir()
        assert [path.name for path in found] == [str(queue_id)]


def test_another_name_makes_other_disks_and_the_original_is_as_it_was(
    disks: Disks, backups: dict[str, Path], tmp_path: Path
) -> None:
    before = {
        path: path.read_bytes()
        for path in sorted((disks.path / "first" / "config").glob("*.json*"))
    }
    names = ("copy", "other", "floor")
    uuids = {restored(backups["first"], tmp_path / name, name) for name in names}
    assert len(uuids | {disks.first}) == 4
    assert all(str(uuid.UUID(each)) == each for each in uuids)
    assert {path: path.read_bytes() for path in before} == before


@pytest.mark.parametrize("name", ["first", "second"])
def test_a_disk_of_several_needs_the_name_of_the_new_cluster(
    backups: dict[str, Path], tmp_path: Path, name: str
) -> None:
    with pytest.raises(ConfigError, match=r"of several disks: name the restored cluster with --cl"):
        restored(backups[name], tmp_path / "copy", None)
    with pytest.raises(ConfigError, match="cluster"):
        restored(backups[name], tmp_path / "copy", "a/b")
    assert not (tmp_path / "copy").exists()


@pytest.mark.parametrize(("name", "file"), [("first", "disks.json"), ("second", "joined.json")])
@pytest.mark.parametrize("content", ["{", None])
def test_a_lost_or_damaged_file_of_the_disks_is_damage_of_the_backup(
    backups: dict[str, Path], tmp_path: Path, name: str, file: str, content: str | None
) -> None:
    backup = shutil.copytree(backups[name], tmp_path / "backup")
    for path in (backup / "data" / "config").glob(f"{file}*"):
        if content is None:
            path.unlink()
        else:
            path.write_text(content)
    error = "it is missing; use another" if content is None else "it was cut"
    with pytest.raises(StoreError, match=rf"{file}(\.bak)?( is damaged)?: .*{error}"):
        restored(backup, tmp_path / "copy")
    assert [path.name for path in (tmp_path / "copy").iterdir()] == ["node.lock"]


def test_the_name_of_a_cluster_with_one_disk_is_given_at_its_start(tmp_path: Path) -> None:
    with LocalNode(tmp_path / "data") as node:
        node.topics.ensure("Trade", 1)
    identity_of(tmp_path / "data")
    backup = tmp_path / "backup"
    back_up(tmp_path / "data", backup, clock_ms=system_clock_ms)
    assert json.loads((backup / "manifest.json").read_text())["queues"] == {"Trade/0": 0}
    with pytest.raises(ConfigError, match="with one disk, whose name is not in its files: leave"):
        restored(backup, tmp_path / "copy")
    assert not (tmp_path / "copy").exists()
