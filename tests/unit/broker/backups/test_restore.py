"""Restoration: a copy beside the original, and every damage of a backup found."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.nodes.local_node import LocalNode

from rocketray.broker.backups import restore as module
from rocketray.broker.backups.backup import back_up
from rocketray.broker.backups.manifest import content_directory, manifest_file
from rocketray.broker.backups.restore import restore
from rocketray.errors import ConfigError, StoreError
from rocketray.filters.subscription import Subscription
from rocketray.runtime.clock import system_clock_ms
from rocketray.runtime.files.home import identity_of
from rocketray.runtime.files.node_lock import lock_node
from rocketray.runtime.files.paths import shard_directory
from rocketray.runtime.files.restorations import Restoration, restorations_of
from rocketray.store.retention import DiskUse

pytestmark = pytest.mark.proves(
    "durability",
    "A backup of a node in use has all that was acknowledged before, and its damage is found",
)

COUNT = 6
LOG = Path("shards/Trade/0/commitlog/00000000000000000000")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with a stopped node's data, and its backup."""
    path = tmp_path_factory.mktemp("made")
    with LocalNode(path / "data") as node, node.producer() as producer:
        node.topics.ensure("Trade", 1)
        for number in range(COUNT):
            producer.send("Trade", b"%d" % number, keys=["k"])
    identity_of(path / "data")
    back_up(path / "data", path / "backup", clock_ms=system_clock_ms)
    return path


@pytest.fixture
def backup(made: Path, tmp_path: Path) -> Path:
    return shutil.copytree(made / "backup", tmp_path / "backup")


def restored(backup: Path, data: Path) -> str:
    return restore(backup, data, clock_ms=system_clock_ms)[0]


def test_a_copy_runs_beside_the_original(made: Path, backup: Path, tmp_path: Path) -> None:
    copied = tmp_path / "copy"
    disk = restored(backup, copied)
    assert disk == identity_of(copied) != identity_of(made / "data")
    assert sorted(path.name for path in copied.iterdir()) == [
        "config",
        "directory.json",
        "directory.json.bak",
        "node.lock",
        "shards",
    ]
    original = shutil.copytree(made / "data", tmp_path / "original")
    with LocalNode(original) as one, LocalNode(copied) as other:
        for node, body in ((one, b"one"), (other, b"other")):
            with node.producer() as producer:
                sent = producer.send("Trade", body)
            assert sent.queue_offset == COUNT
            assert len(node.messages.query("Trade", "k")) == COUNT
            with node.consumer("audit", "Trade", Subscription.tags("*")) as member:
                [batch] = member.poll(30)
                bodies = [one.body for one in batch.reader.messages(batch.entries)]
                assert bodies == [b"%d" % number for number in range(COUNT)] + [body]


def test_a_backup_is_restored_any_number_of_times(backup: Path, tmp_path: Path) -> None:
    first, second = (restored(backup, tmp_path / name) for name in ("first", "second"))
    assert first != second


def flip(path: Path) -> None:
    with path.open("r+b") as file:
        file.seek(100)
        byte = file.read(1)
        file.seek(100)
        file.write(bytes([byte[0] ^ 1]))


DAMAGES: dict[str, tuple[Callable[[Path], object], str]] = {
    "a flipped bit": (flip, "is damaged: its CRC-32 is .{8}, and was .{8}; use another backup"),
    "a file that is cut": (
        lambda path: os.truncate(path, 50),
        "it has 50 bytes, and .* are expected: it was cut",
    ),
    "a file without its end": (
        lambda path: os.truncate(path, path.stat().st_size - 1),
        "is damaged: it has 1048575 bytes, and had 1048576",
    ),
    "a lost file": (Path.unlink, "is damaged: it is missing; use another backup"),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_damage_is_found_and_nothing_is_restored(backup: Path, tmp_path: Path, damage: str) -> None:
    harm, error = DAMAGES[damage]
    harm(content_directory(backup) / LOG)
    with pytest.raises(StoreError, match=error):
        restored(backup, tmp_path / "copy")
    assert [path.name for path in (tmp_path / "copy").iterdir()] == ["node.lock"]


def test_any_flipped_bit_of_a_file_is_found(backup: Path, tmp_path: Path) -> None:
    files = json.loads(manifest_file(backup).read_text())["files"]
    tried = 0
    for path, _, used, _ in files:
        if used > 100:
            flip(content_directory(backup) / path)
            with pytest.raises(StoreError, match=f"{path} is damaged: its CRC-32"):
                restored(backup, tmp_path / "copy")
            flip(content_directory(backup) / path)
            tried += 1
    assert tried >= 4
    restored(backup, tmp_path / "copy")


def change(backup: Path, **fields: Any) -> None:
    path = manifest_file(backup)
    path.write_text(json.dumps(json.loads(path.read_text()) | fields))


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"version": 2}, "its version is 2, and this release of rocketray reads versions up to 1"),
        ({"files": [["../escaped", 1, 1, "0"]]}, r"is damaged .*\.\./escaped"),
        ({"files": [["config/../../escaped", 1, 1, "0"]]}, r"is damaged .*escaped"),
        ({"files": [["node.json", 1, 1, "0"]]}, "is damaged"),
        ({"files": [["config/a", -1, 1, "0"]]}, "is damaged .*number -1"),
        ({"files": 7}, "is damaged"),
        ({"queues": {"Trade/0": "6"}}, "is damaged"),
        ({"queues": {"Trade/0": COUNT + 1}}, "it ends at offset 6, and ended at 7"),
    ],
)
def test_a_manifest_that_does_not_fit_is_refused(
    backup: Path, tmp_path: Path, fields: dict[str, Any], error: str
) -> None:
    change(backup, **fields)
    with pytest.raises(StoreError, match=error):
        restored(backup, tmp_path / "copy")
    assert not (tmp_path / "escaped").exists()


def test_a_directory_without_a_manifest_is_no_backup(backup: Path, tmp_path: Path) -> None:
    manifest_file(backup).write_text("{")
    with pytest.raises(StoreError, match=r"manifest\.json is not valid JSON"):
        restored(backup, tmp_path / "copy")
    manifest_file(backup).unlink()
    with pytest.raises(StoreError, match=r"is no backup: it has no manifest\.json; name"):
        restored(backup, tmp_path / "copy")
    assert not (tmp_path / "copy").exists()


def test_nothing_is_restored_over_other_files(made: Path, backup: Path, tmp_path: Path) -> None:
    data = shutil.copytree(made / "data", tmp_path / "data")
    with pytest.raises(ConfigError, match=f"{data} is not empty .*it has config.*name a new or"):
        restored(backup, data)
    file = tmp_path / "file"
    file.touch()
    with pytest.raises(ConfigError, match=f"{file} is not a directory"):
        restored(backup, file)
    with pytest.raises(ConfigError, match=f"is in the backup {backup}"):
        restored(backup, backup / "data")


def test_an_interrupted_restoration_leaves_nothing_that_a_node_uses(
    backup: Path, tmp_path: Path
) -> None:
    """The process that was killed could not remove what it had made."""
    data = tmp_path / "copy"
    left = data / "restoring" / "shards" / "left"
    left.mkdir(parents=True)
    held = lock_node(data)
    with pytest.raises(StoreError, match="another process runs a node on"):
        restored(backup, data)
    os.close(held)
    restored(backup, data)
    assert not (data / "restoring").exists()
    assert not (data / "shards" / "left").exists()


class KilledError(BaseException):
    """The process is killed: nothing that it would do afterwards happens."""


def killed_at(monkeypatch: pytest.MonkeyPatch, data: Path, count: int) -> None:
    """Have the process that restores to *data* be killed when it moves that part to its place."""
    rename = Path.rename
    left = [count]

    def rename_or_die(path: Path, target: Path) -> Path:
        if target.parent == data:
            left[0] -= 1
            if left[0] < 0:
                monkeypatch.setattr(shutil, "rmtree", lambda *_, **__: None)
                raise KilledError
        return rename(path, target)

    monkeypatch.setattr(Path, "rename", rename_or_die)


@pytest.mark.parametrize("count", range(5))
def test_a_restoration_that_is_killed_among_its_parts_is_refused_or_whole(
    backup: Path, tmp_path: Path, count: int
) -> None:
    data = tmp_path / "copy"
    with pytest.MonkeyPatch.context() as patched:
        killed_at(patched, data, count)
        try:
            disk = restored(backup, data)
        except KilledError:
            disk = ""
    assert any(data.joinpath(part).exists() for part in ("config", "shards")) is (count > 0)
    if count < 3:  # config, shards, UUID
        said = (
            rf"interrupted: complete it with: rocketray restore BACKUP --data {data}, which begins"
        )
        with pytest.raises(StoreError, match=said):
            identity_of(data)
        disk = restored(backup, data)
        assert not (data / "restoring").exists()
    assert disk in {"", identity_of(data)}
    with LocalNode(data) as node:
        assert len(node.messages.query("Trade", "k")) == COUNT


def test_a_part_that_cannot_be_moved_leaves_nothing(
    backup: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rename = Path.rename

    def fail(path: Path, target: Path) -> Path:
        if path.name == "shards":
            raise OSError(5, "Input/output error")
        return rename(path, target)

    monkeypatch.setattr(Path, "rename", fail)
    with pytest.raises(OSError, match="Input/output"):
        restored(backup, tmp_path / "copy")
    assert [path.name for path in (tmp_path / "copy").iterdir()] == ["node.lock"]


def test_other_files_are_no_remains_of_a_restoration(backup: Path, tmp_path: Path) -> None:
    data = tmp_path / "copy"
    with pytest.MonkeyPatch.context() as patched:
        killed_at(patched, data, 0)
        with pytest.raises(KilledError):
            restored(backup, data)
    (data / "shards").mkdir()
    with pytest.raises(ConfigError, match=r"is not empty .it has shards"):
        restored(backup, data)


def test_a_directory_of_another_user_is_refused(
    backup: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = tmp_path / "copy"
    data.mkdir()
    own = os.getuid()
    monkeypatch.setattr(os, "getuid", lambda: own + 1)
    with pytest.raises(StoreError, match=f"{data} belongs to another user; name a directory"):
        restored(backup, data)


def test_too_little_room_is_found_first(
    backup: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "disk_use", lambda _: DiskUse(used=1, free=100))
    with pytest.raises(StoreError, match=r"the backup has \d+ bytes, and there is room for 100"):
        restored(backup, tmp_path / "copy")


@pytest.mark.proves("spark", "Each restored queue says where its backup ended")
def test_each_queue_says_where_its_log_ended_also_in_a_backup_of_the_copy(
    made: Path, backup: Path, tmp_path: Path
) -> None:
    def restorations(data: Path) -> tuple[Restoration, ...]:
        return restorations_of(shard_directory(data, "Trade", 0))

    assert restorations(made / "data") == ()
    copy, again = tmp_path / "copy", tmp_path / "again"
    restored(backup, copy)
    [first] = restorations(copy)
    assert first.end == COUNT
    with LocalNode(copy) as node, node.producer() as producer:
        producer.send("Trade", b"more")
    back_up(copy, tmp_path / "later", clock_ms=system_clock_ms)
    restored(tmp_path / "later", again)
    kept, second = restorations(again)
    assert (kept, second.end) == (first, COUNT + 1)
    assert second.id != first.id
