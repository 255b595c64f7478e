"""Directories of a release, with every kind of file in them, and what is to be found in them.

    tests/data/releases/<version>/directories.tar.xz   what this release wrote
    tests/data/releases/<version>/content.json         what it read in them, checked by people

``make corpus`` writes those of the version in ``pyproject.toml``, until it is released; those of a
released version never change. tests/unit/test_releases.py opens all of them with today's code.

    node/        a data directory, stopped in the middle of everything
    joined/      a disk of a cluster
    register/    a cluster's documents in a register, and config/register.json
    backup/      a backup of node/; incomplete/ has only begun
    failed/      a store whose disk failed
    checkpoint.json   a position as Spark keeps it
"""

from __future__ import annotations

import json
import tarfile
import tempfile
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from datetime import timedelta
from pathlib import Path
from unittest.mock import patch

from support.harness.release_content import read_content
from support.harness.source_tree import ROOT
from support.nodes.staging import decide, rows_of, stage
from support.nodes.stores import SMALL, FakeClock, message

from rocketray.actors.cluster.coordinator_settings import CoordinatorSettings
from rocketray.actors.cluster.queue_moves import _FORM as MOVES
from rocketray.actors.cluster.queue_moves import _Move
from rocketray.actors.cluster.registered_documents import RegisterOfStart, take_over
from rocketray.broker.backups.backup import back_up
from rocketray.broker.backups.manifest import mark_incomplete
from rocketray.broker.disks.disk_register import DiskRegister
from rocketray.broker.disks.joined_cluster import JoinedCluster, write_joined
from rocketray.broker.filtering.filter_rules import FilterRules
from rocketray.broker.retries.retry_records import dead_lettered
from rocketray.broker.topics.catalog import TopicCatalog
from rocketray.filters.filter_name import FilterName
from rocketray.filters.subscription import Subscription
from rocketray.message import Message
from rocketray.queries.spark import positions
from rocketray.runtime.files.file_documents import FileDocuments
from rocketray.runtime.files.fragment_file import BatchName
from rocketray.runtime.files.home import Home, settle_identity
from rocketray.runtime.files.restorations import Restoration, note_restoration
from rocketray.services.admin.dead_letters import redrive
from rocketray.store.files.failed_disk import note_failed_disk
from rocketray.store.files.file_system import SYSTEM_FILES
from rocketray.store.message_store import MessageStore
from rocketray.store.recovery.problem import Problem
from rocketray.store.recovery.scrub_progress import ScrubProgress, write_progress
from rocketray.store.retention import RetentionPolicy
from rocketray.testing import Broker, stepped_node

RELEASES = ROOT / "tests" / "data" / "releases"
THIS = str(tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"])
_ARCHIVE = "directories.tar.xz"
_SIZES = {
    "commit_log_segment_bytes": 1 << 16,
    "consume_queue_segment_entries": 100,
    "consume_queue_ext_segment_bytes": 1 << 14,
    "index_hash_slots": 50,
    "index_entries": 200,
}
_DISKS = {number: f"0000000{number}-0000-4000-8000-000000000000" for number in range(1, 4)}
_PREDICATE = "support.predicates:body_is_short"
_ALL, _LARGE = Subscription.tags("*"), Subscription.sql("amount >= 2")


def make(root: Path) -> None:
    """Write the directories into *root*."""
    _make_node(root / "node")
    _make_joined(root)
    _make_register(root)
    back_up(root / "node", root / "backup", clock_ms=FakeClock())
    (root / "incomplete").mkdir()
    mark_incomplete(root / "incomplete", _DISKS[1], 1)
    with MessageStore(root / "failed", SMALL, clock_ms=FakeClock()) as store:
        store.put([message(1)], 0)
    note_failed_disk(SYSTEM_FILES, root / "failed", "flushing failed: Input/output error", 1)
    position = positions.Position(
        {("Trade", 0): 1}, {"Trade": "a" * 32}, replace(_LARGE, named="Large@1")
    )
    (root / "checkpoint.json").write_text(json.dumps(positions.to_json(position)))


def pack() -> None:
    """Write the directories of this release, and what is in them."""
    target = RELEASES / THIS
    target.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as made:
        make(Path(made))
        with tarfile.open(target / _ARCHIVE, "w:xz", preset=9) as archive:
            for path in sorted(Path(made).rglob("*")):
                archive.add(path, path.relative_to(made), recursive=False, filter=_of_nobody)
    with unpacked(THIS) as copy:
        content = json.dumps(read_content(copy), indent=1, sort_keys=True)
        (target / "content.json").write_text(content + "\n")


@contextmanager
def unpacked(version: str) -> Iterator[Path]:
    """The directories of a release, in a copy that is removed at the end."""
    with tempfile.TemporaryDirectory() as copy:
        with tarfile.open(RELEASES / version / _ARCHIVE) as archive:
            archive.extractall(copy, filter="data")
        yield Path(copy)


def _of_nobody(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    entry.uid = entry.gid = entry.mtime = 0
    entry.uname = entry.gname = ""
    return entry


def _make_node(data: Path) -> None:
    data.mkdir(mode=0o700)
    settle_identity(data, _DISKS[1])
    FilterRules(allowed=("support.predicates",), time_limit_ms=500).save(data)
    with (
        patch.dict(stepped_node._SIZES, _SIZES),
        patch("socket.gethostname", return_value="Machine1"),  # which members tell
        Broker(data, predicates=["support"]) as broker,
    ):
        _make_topics(broker)
        _send(broker)
        _consume(broker)
        _give_up(broker)
        _stage(broker)
        broker.clock.advance(seconds=20)
    _crash(data / "shards" / "Trade" / "1")
    note_restoration(data / "shards" / "Trade" / "1", Restoration("c" * 32, 3))


def _make_topics(broker: Broker) -> None:
    kept = RetentionPolicy(max_age_ms=30 * 24 * 3_600_000, max_bytes=1 << 40)
    broker.topics.create("Trade", 2, retention=kept)
    broker.topics.set_bitmaps("Trade", "on")
    compacts = RetentionPolicy(compacts=True)
    broker.topics.create("Latest", 1, retention=compacts, queues_per_process="shared")
    broker.topics.create("Closed", 1)
    broker.topics.set_permission("Closed", 4)
    broker.named_filters.save("Trade", "Large", _LARGE, "a test", "a tester")
    broker.named_filters.save("Trade", "Removed", _ALL)
    broker.named_filters.remove("Trade", "Removed")


def _send(broker: Broker) -> None:
    """Store messages of all kinds; one group is there first, for their bitmaps."""
    broker.consumer("Filtered", "Trade", _LARGE, client_id="One").poll()
    broker.node.topic_service.order_bitmaps()
    with broker.producer(compression="zstd", compress_over=100) as producer:
        for number in range(6):
            sent = Message(
                "Trade",
                b"body %d " % number * (100 if number == 5 else 1),
                ("pay", "order")[number % 2],
                (f"Key{number}",),
                {"amount": str(number)},
            )
            producer.send_many("Trade", [sent], queue_id=number % 2)
        producer.send("Latest", b"old", keys="Same")
        producer.send("Latest", b"new", keys="Same")
        producer.send("Trade", b"after a second", queue_id=0, delay_level=1)
        producer.send("Trade", b"after an hour", queue_id=0, delay=timedelta(hours=1), keys="Late")
    with broker.producer(group="Banking", check=lambda _: "unknown") as producer:
        for body in (b"committed", b"undecided"):
            transaction = producer.begin()
            producer.send("Trade", body, transaction=transaction, queue_id=1)
            if body == b"committed":
                transaction.commit()


def _consume(broker: Broker) -> None:
    """Leave groups with offsets, a change and a move, whose members are there to the end."""
    broker.consumer("Predicates", "Trade", Subscription.where(_PREDICATE), client_id="One")
    broker.consumer("Moving", "Trade", _ALL, client_id="One", start="latest")
    broker.consumer("Named", "Trade", FilterName("Large"), client_id="One")
    broker.consumer("Broadcast", "Trade", _ALL, client_id="One", broadcast=True)
    for member in broker.members():
        for batch in member.poll():
            member.commit(batch.topic, batch.queue_id, batch.next_queue_offset)
    broker.clock.advance(seconds=30)
    broker.groups.prepare_change("Predicates", "Trade", Subscription.tags("pay"))
    broker.groups.move_offsets("Moving", "Trade", {0: 1}, "a test")


def _give_up(broker: Broker) -> None:
    """Leave two dead letters, one of which is redriven."""
    broker.topics.ensure("%DLQ%Filtered", 1)
    with broker.producer() as producer:
        for stored in broker.stored("Trade")[:2]:
            letter = dead_lettered(stored, "Filtered", "%DLQ%Filtered", 16, reason="ValueError: 1")
            producer.forward("%DLQ%Filtered", 0, [letter.message])
        redrive(broker.node, producer, "Filtered", _ALL, limit=1)


def _stage(broker: Broker) -> None:
    """Leave a staged batch that is decided, for a topic that takes no messages."""
    batch = BatchName("Job", 7)
    decide(broker, batch, stage(broker, batch, rows_of(["staged"]), topic="Closed"), run="Old")
    decide(broker, batch, run="New")


def _crash(store: Path) -> None:
    """Have a store recovered, which leaves a gap, and stopped again; and note damage in it."""
    (store / "stopped.json").unlink()
    with MessageStore(store, clock_ms=FakeClock()) as again:
        again.skip_to("Trade", 1, again.reads.max_queue_offset("Trade", 1) + 1024)
        again.put([message(7)], 1)
    damage = (Problem("commitlog/00000000000000065536", 90, "a test"),)
    write_progress(SYSTEM_FILES, store, ScrubProgress(65536, 2, 1, damage, ((10, 20),)))


def _make_joined(root: Path) -> None:
    data = root / "joined"
    data.mkdir(mode=0o700)
    settle_identity(data, _DISKS[2])
    write_joined(data, JoinedCluster("Shop", _DISKS[1]))
    TopicCatalog.load(root / "node").save(data)


def _make_register(root: Path) -> None:
    """Have all documents in a register: topics and groups of the node, disks, moves, settings."""
    data = root / "register"
    keys = data / "keys"
    keys.mkdir(parents=True)
    home = Home(str(data), settle_identity(data, _DISKS[1]), "Machine1", "Node1", "Shop")
    for name in ("topics", "groups", "namedFilters"):
        FileDocuments(data).save(name, FileDocuments(root / "node").load(name, dict))
    documents = take_over(home, RegisterOfStart(keys.as_uri(), "start"))
    disks = DiskRegister(home, documents)
    for number in (2, 3):
        disk = Home(f"/data/{number}", _DISKS[number], "Machine2", "Node2", "Shop")
        disks.add(replace(disk, is_joined=True))
    disks.set_draining(_DISKS[3], draining=True)
    move = _Move("Trade", "a" * 32, 1, ("10.0.0.2", 10911), "", _DISKS[2])
    documents.save("moves", MOVES.of({"moves": [asdict(move)]}))
    CoordinatorSettings(home, FilterRules(), _SIZES, "shared").save(documents)


if __name__ == "__main__":
    pack()
