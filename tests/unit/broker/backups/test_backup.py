"""Backups of a node's directory while it is written to, and what is refused."""

from __future__ import annotations

import json
import os
import random
import resource
import shutil
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from support.harness.amounts import tenth
from support.harness.patience import wait_until
from support.nodes.local_node import SEGMENT, LocalNode

from rocketray.broker.backups import backup as module
from rocketray.broker.backups.backup import back_up
from rocketray.broker.backups.manifest import Manifest, content_directory, manifest_file
from rocketray.broker.backups.restore import restore
from rocketray.broker.topics.catalog import TopicCatalog
from rocketray.errors import ConfigError, StoreError, StoreLockedError
from rocketray.filters.subscription import Subscription
from rocketray.runtime.clock import system_clock_ms
from rocketray.runtime.files.home import identity_of
from rocketray.runtime.files.node_lock import lock_node
from rocketray.runtime.files.paths import config_directory, node_file, shard_directory
from rocketray.runtime.files.state_files import write_json
from rocketray.runtime.machine import here
from rocketray.store.files.store_settings import SETTINGS_FILES
from rocketray.store.message_store import MessageStore
from rocketray.store.retention import DiskUse, RetentionPolicy

pytestmark = pytest.mark.proves(
    "durability",
    "A backup of a node in use has all that was acknowledged before, and its damage is found",
)

ALL = Subscription.tags("*")


@pytest.fixture
def node(tmp_path: Path) -> Iterator[LocalNode]:
    data = tmp_path / "data"
    with LocalNode(data) as opened:
        identity_of(data)
        yield opened


def copy(node_or_data: LocalNode | Path, backup: Path, **options: object) -> Manifest:
    data = node_or_data if isinstance(node_or_data, Path) else node_or_data.data
    return back_up(data, backup, clock_ms=system_clock_ms, **options)  # type: ignore[arg-type]


def again(backup: Path, data: Path) -> Path:
    restore(backup, data, clock_ms=system_clock_ms)
    return data


def stored(data: Path, topic: str, queue_id: int) -> list[tuple[int, bytes]]:
    """The offsets and bodies of a queue, of a store without problems."""
    with MessageStore(
        shard_directory(data, topic, queue_id), read_only=True, clock_ms=system_clock_ms
    ) as store:
        assert store.verify().problems == ()
        return [(one.queue_offset, one.body) for one in store.reads.scan()]


def test_what_was_acknowledged_before_the_start_is_restored_in_its_place(
    node: LocalNode, tmp_path: Path, rng: random.Random
) -> None:
    """Producers and a group go on meanwhile: of what they do, the copy has a beginning."""
    node.topics.ensure("Trade", 2)
    node.topics.ensure("Fills", 1)
    queues = [("Trade", 0), ("Trade", 1), ("Fills", 0)]
    acknowledged = dict.fromkeys(queues, 0)
    ended = threading.Event()

    def send() -> None:
        with node.producer() as producer:
            while not ended.is_set():
                queue = topic, queue_id = rng.choice(queues)
                number = acknowledged[queue]
                body = b"%d:" % number + bytes(rng.randrange(3000))
                producer.send(topic, body, queue_id=queue_id, keys=[f"k{number}"])
                acknowledged[queue] = number + 1

    def consume() -> None:
        with node.consumer("audit", "Trade", ALL) as member:
            while not ended.is_set():
                for batch in member.poll(0.01):
                    member.commit(batch.topic, batch.queue_id, batch.next_queue_offset)
                node.state.save()

    pool = ThreadPoolExecutor(2)
    running = [pool.submit(send), pool.submit(consume)]
    try:
        wait_until(lambda: min(acknowledged.values()) > 0)
        for number in range(tenth(15)):
            ended.wait(0.3)
            before = dict(acknowledged)
            backup = tmp_path / f"backup-{number}"
            manifest = copy(node, backup)
            copied = again(backup, tmp_path / f"copy-{number}")
            offsets = json.loads((config_directory(copied) / "groups.json").read_text())
            for (topic, queue_id), count in before.items():
                found = stored(copied, topic, queue_id)
                bodies = [int(body.partition(b":")[0]) for _, body in found]
                assert bodies == list(range(len(found)))
                assert [offset for offset, _ in found] == bodies
                assert len(found) >= count
                assert manifest.queues[f"{topic}/{queue_id}"] == len(found)
                committed = offsets["offsetTable"].get(f"{topic}@audit", {})
                assert int(committed.get(str(queue_id), 0)) <= len(found)
    finally:
        ended.set()
        for each in running:
            each.result()


def everything(data: Path) -> dict[str, list[tuple[int, bytes]]]:
    """All queues of the catalog."""
    return {
        f"{topic.name}/{queue_id}": stored(data, topic.name, queue_id)
        for topic in TopicCatalog.load(data).topics.values()
        for queue_id in range(topic.queues)
    }


def test_topics_of_the_node_and_groups_come_along(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with LocalNode(data) as node, node.producer() as producer:
        node.topics.ensure("Trade", 1)
        node.topics.ensure("Empty", 1)
        for number in range(9):
            producer.send("Trade", b"%d" % number)
        later = producer.send("Trade", b"later", delay=3600)
        assert later.recall_handle is not None
        with node.consumer("audit", "Trade", ALL) as member:
            [batch] = member.poll(30)
            member.commit("Trade", 0, 5)
    identity_of(data)
    copied = again_of(data, tmp_path)
    found = everything(copied)
    assert found == everything(data)
    assert [body for _, body in found["rmq_sys_wheel_timer/0"]] == [b"later"]
    with LocalNode(copied) as node, node.consumer("audit", "Trade", ALL) as member:
        [batch] = member.poll(30)
        assert batch.queue_offsets.tolist() == [5, 6, 7, 8]


def again_of(data: Path, tmp_path: Path) -> Path:
    copy(data, tmp_path / "backup")
    return again(tmp_path / "backup", tmp_path / "copy")


def test_a_node_is_not_started_while_its_stopped_directory_is_copied(tmp_path: Path) -> None:
    data = tmp_path / "data"
    fill(data, 3)
    refused = []

    def start(*_: object) -> None:
        with pytest.raises(StoreLockedError):
            lock_node(data)
        refused.append(True)

    copy(data, tmp_path / "backup", on_progress=start)
    assert refused
    os.close(lock_node(data))


def fill(data: Path, count: int, size: int = 0, queues: int = 1) -> None:
    """Leave a stopped node with some messages in each queue of one topic."""
    with LocalNode(data) as node, node.producer() as producer:
        node.topics.ensure("Trade", queues)
        for number in range(count):
            for queue_id in range(queues):
                body = b"%d" % number + bytes(size)
                producer.send("Trade", body, queue_id=queue_id, keys=[f"k{number}"])
    identity_of(data)


def test_of_a_killed_node_the_log_tells_the_end_and_not_the_control_page(
    node: LocalNode, tmp_path: Path
) -> None:
    """As after a power failure, which the control page need not survive."""
    node.topics.ensure("Trade", 1)
    with node.producer() as producer:
        for number in range(20):
            producer.send("Trade", b"%d" % number)
    killed = tmp_path / "killed"
    shutil.copytree(node.data, killed)
    (shard_directory(killed, "Trade", 0) / "control").write_bytes(bytes(4096))
    log = shard_directory(killed, "Trade", 0) / "commitlog" / ("0" * 20)
    with log.open("r+b") as file:  # a record that was not finished
        file.seek(log.read_bytes().rstrip(b"\0").__len__() + 8)
        file.write(b"unfinished")
    copied = again_of(killed, tmp_path)
    assert [body for _, body in stored(copied, "Trade", 0)] == [b"%d" % n for n in range(20)]


def test_files_that_expire_meanwhile_are_left_out_and_later_messages_come(
    node: LocalNode, tmp_path: Path
) -> None:
    keep = RetentionPolicy(max_bytes=1)
    node.topics.ensure("Brief", 1, retention=keep)
    with node.producer() as producer:

        def send(count: int) -> None:
            for _ in range(count):
                producer.send("Brief", bytes(200_000))

        def expire(what: str, *_: object) -> None:
            if what == "Abc/0" and not expired:
                send(12)
                expired.extend(node.expire())

        expired: list[object] = []
        send(12)
        node.topics.ensure("Abc", 1)  # is copied before
        producer.send("Abc", b"x")
        copy(node, tmp_path / "backup", on_progress=expire)
    assert expired
    found = stored(again(tmp_path / "backup", tmp_path / "copy"), "Brief", 0)
    assert found[0][0] > 0
    assert found[-1][0] == 23


def test_a_table_that_is_compacted_meanwhile_keeps_the_last_value_of_each_key(
    node: LocalNode, tmp_path: Path
) -> None:
    """The live messages of the removed files are behind the bounds that were fixed before."""
    compacts = RetentionPolicy(compacts=True)
    node.topics.ensure("Table", 1, retention=compacts)
    node.topics.ensure("Abc", 1)  # is copied before
    with node.producer() as producer:
        producer.send("Abc", b"x")
        producer.send("Table", b"rare", sharding_key="rare")
        for _ in range(20):
            producer.send("Table", b"often" + bytes(200_000), sharding_key="often")
    shard = node.shard("Table", 0)

    def compact(what: str, *_: object) -> None:
        if what == "Abc/0":
            shard.expire(compacts, None)

    copy(node, tmp_path / "backup", on_progress=compact)
    assert shard.statistics().min_queue_offset > 1
    found = stored(again(tmp_path / "backup", tmp_path / "copy"), "Table", 0)
    assert found[0][0] > 1
    assert b"rare" in [body for _, body in found]


def test_a_topic_that_is_deleted_meanwhile_is_left_out(node: LocalNode, tmp_path: Path) -> None:
    for topic in ("Gone", "Kept", "Swapped"):
        node.topics.ensure(topic, 1)
    gone: list[str] = []
    with node.producer() as producer:
        for topic in ("Gone", "Kept", "Swapped"):
            producer.send(topic, topic.encode())

        def delete(what: str, *_: object) -> None:
            if what == "Gone/0" and not gone:
                gone.append(what)
                for topic in ("Gone", "Swapped"):
                    node.topics.delete(topic)
                node.topics.ensure("Swapped", 1)

        manifest = copy(node, tmp_path / "backup", on_progress=delete)
    assert gone
    assert list(manifest.queues) == ["Kept/0"]
    assert everything(again(tmp_path / "backup", tmp_path / "copy")) == {"Kept/0": [(0, b"Kept")]}


def test_a_queue_that_lost_its_directory_is_reported(node: LocalNode, tmp_path: Path) -> None:
    node.topics.ensure("Trade", 1)
    node.close()
    shutil.rmtree(shard_directory(node.data, "Trade", 0))
    with pytest.raises(StoreError, match=r"Trade/0 is missing, and queue Trade/0 was created"):
        copy(node, tmp_path / "backup")


def test_a_damaged_queue_is_reported_with_its_repair(tmp_path: Path) -> None:
    data = tmp_path / "data"
    fill(data, 12, size=200_000)
    logs = shard_directory(data, "Trade", 0) / "commitlog"
    sorted(logs.iterdir())[1].unlink()
    with pytest.raises(StoreError, match=r"queue Trade/0 cannot be copied: .* is missing.*recover"):
        copy(data, tmp_path / "backup")


@pytest.mark.parametrize("how", ["missing and damaged", "damaged"])
def test_a_queue_without_settings_is_reported_with_what_helps(tmp_path: Path, how: str) -> None:
    """``store recover`` refuses it, too."""
    data = tmp_path / "data"
    fill(data, 2)
    directory = shard_directory(data, "Trade", 0)
    for name in SETTINGS_FILES:
        (directory / name).write_bytes(b"{")
    if how == "missing and damaged":
        (directory / "store.json").unlink()
    with pytest.raises(StoreError, match="store import") as refused:
        copy(data, tmp_path / "backup")
    assert "store recover" not in str(refused.value)


def test_preallocated_files_stay_sparse(tmp_path: Path) -> None:
    data = tmp_path / "data"
    fill(data, 1)
    manifest = copy(data, tmp_path / "backup")
    [log] = (tmp_path / "backup").rglob("commitlog/*")
    assert log.stat().st_size == SEGMENT
    assert log.stat().st_blocks * 512 <= SEGMENT // 8
    assert manifest.used_bytes < SEGMENT // 8
    again(tmp_path / "backup", tmp_path / "copy")


def test_an_interrupted_backup_is_none_and_begins_again(tmp_path: Path) -> None:
    data, backup = tmp_path / "data", tmp_path / "backup"
    fill(data, 3)

    def interrupt(what: str, *_: object) -> None:
        if what == "Trade/0":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        copy(data, backup, on_progress=interrupt)
    assert not manifest_file(backup).exists()
    with pytest.raises(StoreError, match=f"{backup} is incomplete: .* name the directory"):
        again(backup, tmp_path / "copy")
    assert not (tmp_path / "copy").exists()
    left = content_directory(backup) / "config" / "left.json"
    left.write_text("of the first attempt")
    copy(data, backup)
    assert not left.exists()
    assert stored(again(backup, tmp_path / "copy"), "Trade", 0)[-1] == (2, b"2")


def test_a_full_disk_is_named_and_leaves_no_manifest(tmp_path: Path) -> None:
    data, backup = tmp_path / "data", tmp_path / "backup"
    fill(data, 3, size=300_000)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, before[1]))
    try:
        with pytest.raises(StoreError, match=r"not enough space for it .*: free space"):
            copy(data, backup)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert not manifest_file(backup).exists()
    copy(data, backup)


def test_too_little_room_is_found_before_the_queues_are_copied(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data, backup = tmp_path / "data", tmp_path / "backup"
    fill(data, 3, size=300_000)
    monkeypatch.setattr(module, "disk_use", lambda _: DiskUse(used=1, free=900_000))
    with pytest.raises(StoreError, match=r"takes 9\d{5} bytes, and its file system has room for 9"):
        copy(data, backup)
    assert not list(backup.rglob("commitlog"))


def mistake(name: str, data: Path, tmp_path: Path) -> Path:
    """Prepare a mistake; return the target."""
    target = tmp_path / "target"
    if name == "inside":
        return data / "backup"
    if name == "the directory itself":
        return data
    if name == "a file":
        target.write_text("x")
    elif name == "not empty":
        target.mkdir()
        (target / "x").touch()
    elif name == "a backup":
        copy(data, target)
    elif name == "of another disk":
        other = tmp_path / "other"
        other.mkdir()
        identity_of(other)
        copy(other, target)
        manifest_file(target).rename(target / "incomplete.json")
    elif name == "no data directory":
        (data / "directory.json").unlink()
        (data / "directory.json.bak").unlink()
    return target


@pytest.mark.parametrize(
    ("name", "error"),
    [
        ("inside", "is in the data directory"),
        ("the directory itself", "is in the data directory"),
        ("a file", "is not a directory; name a new one"),
        ("not empty", "is not empty; name a new or an empty directory"),
        ("a backup", "has a backup already; name another directory"),
        ("of another disk", "an incomplete backup of another data directory"),
        ("no data directory", "is no data directory of a node: it has no directory.json"),
    ],
)
def test_a_mistake_is_named_before_anything_is_written(
    name: str, error: str, tmp_path: Path
) -> None:
    data = tmp_path / "data"
    data.mkdir()
    identity_of(data)
    target = mistake(name, data, tmp_path)
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(ConfigError, match=error):
        copy(data, target)
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize("whose", ["data", "backup"])
def test_directories_of_another_user_are_refused(
    whose: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data, backup = tmp_path / "data", tmp_path / "backup"
    data.mkdir()
    identity_of(data)
    backup.mkdir()
    own = os.getuid()
    asked = [own] if whose == "backup" else []
    monkeypatch.setattr(os, "getuid", lambda: asked.pop() if asked else own + 1)
    with pytest.raises(StoreError, match=f"{tmp_path / whose} belongs to another user"):
        copy(data, backup)


def test_one_backup_at_a_time_is_made_in_a_directory(tmp_path: Path) -> None:
    data, backup = tmp_path / "data", tmp_path / "backup"
    fill(data, 1)
    write_json(node_file(data), {"pid": os.getpid(), **here()}, backup=False)  # as if it ran
    refused = []

    def twice(*_: object) -> None:
        with pytest.raises(StoreLockedError, match=f"another process makes a backup in {backup}"):
            copy(data, backup)
        refused.append(True)

    copy(data, backup, on_progress=twice)
    assert refused


def test_a_node_that_starts_or_stops_or_is_elsewhere_is_left_alone(tmp_path: Path) -> None:
    data, backup = tmp_path / "data", tmp_path / "backup"
    fill(data, 1)
    lock = lock_node(data)
    try:
        with pytest.raises(StoreLockedError, match=f"is used by pid {os.getpid()}, and its node"):
            copy(data, backup)
        node = {"pid": os.getpid(), **here(), "cluster": "floor"}
        write_json(node_file(data), {**node, "bootId": "x", "machine": "m2"}, backup=False)
        with pytest.raises(StoreLockedError, match=f"the node on {data} runs on m2; run the"):
            copy(data, backup)
        write_json(node_file(data), node, backup=False)
        assert copy(data, backup).cluster == "floor"
    finally:
        os.close(lock)
