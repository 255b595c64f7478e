"""Importing the store that RocketMQ wrote into a node of this process, whole and in parts."""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.nodes.local_node import LocalNode
from support.nodes.stores import GOLDEN_CONFIG, GOLDEN_STORE, SMALL, FakeClock, open_golden

from rocketray.broker.shards.owned_shard import OwnedShard
from rocketray.errors import ConfigError, CorruptRecordError, StoreError
from rocketray.hashing import tags_code
from rocketray.message import IMPORTED_OFFSET_ID, Message, QueueOffset, StoredMessage
from rocketray.runtime.ipc.acknowledgement import Ack, AppendStatus
from rocketray.services.admin import importer as importer_module
from rocketray.services.admin.importer import Importer, ImportReport, QueueImport
from rocketray.store.batches.encoded_batch import encode_messages, pack_batch
from rocketray.store.files.store_settings import is_foreign
from rocketray.store.formats.record import RecordValues, encode_record
from rocketray.store.importing.import_source import ImportSource
from rocketray.store.message_store import MessageStore

TOPICS = ("TopicA", "TopicB")


@pytest.fixture(autouse=True)
def _small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that 600 messages are some forty batches."""
    monkeypatch.setattr(importer_module, "_BATCH_RECORDS", 17)
    monkeypatch.setattr(importer_module, "_LOOK_EVERY", 10)


@pytest.fixture
def node(tmp_path: Path) -> Iterator[LocalNode]:
    with LocalNode(tmp_path / "node") as node:
        yield node


@pytest.fixture
def golden() -> list[StoredMessage]:
    with open_golden() as store:
        return list(store.reads.scan())


def import_from(
    directory: Path,
    node: LocalNode,
    *topics: str,
    skip_damaged: bool = False,
    stop_at: int | None = None,
) -> ImportReport:
    """Import; stop when that many messages were imported."""
    progress = [0]

    def on_progress(_position: int, imported: int) -> None:
        progress[0] = imported

    config = GOLDEN_CONFIG if is_foreign(directory) else None
    with ImportSource(directory, config, clock_ms=FakeClock()) as source:
        importer = Importer(source, node, skip_damaged=skip_damaged)
        importer.prepare(topics or None, {})
        report = importer.run(
            on_progress=on_progress,
            should_stop=lambda: stop_at is not None and progress[0] >= stop_at,
        )
    assert_adds_up(report)
    return report


def assert_adds_up(report: ImportReport) -> None:
    parts: tuple[ImportReport | QueueImport, ...] = (report, *report.queues)
    for part in parts:
        skipped = sum(part.skipped.values())
        assert part.read == part.imported + part.already_there + skipped


def stored(node: LocalNode) -> dict[tuple[str, int], list[StoredMessage]]:
    return {name: list(shard.writer.store.reads.scan()) for name, shard in node.shards.items()}


def assert_imported(node: LocalNode, golden: list[StoredMessage]) -> None:
    """Each queue has the golden store's messages, as they were but for their place."""
    for (topic, queue_id), messages in stored(node).items():
        expected = [one for one in golden if (one.topic, one.queue_id) == (topic, queue_id)]
        assert len(messages) == len(expected)
        host = node.topics.get(topic).store_hosts[queue_id]
        for offset, (ours, theirs) in enumerate(zip(messages, expected, strict=True)):
            properties = {**theirs.properties, IMPORTED_OFFSET_ID: theirs.offset_message_id}
            assert ours == replace(
                theirs,
                queue_offset=QueueOffset(offset),
                physical_offset=ours.physical_offset,
                size=ours.size,
                offset_message_id=ours.offset_message_id,
                store_host=host,
                properties=properties,
            )


def test_every_message_comes_as_it_was_but_for_its_place(
    node: LocalNode, golden: list[StoredMessage]
) -> None:
    report = import_from(GOLDEN_STORE, node)
    assert report.complete
    assert (report.read, report.imported, report.skipped) == (len(golden), len(golden), {})
    assert sorted(node.topics.all()) == sorted(TOPICS)
    assert_imported(node, golden)
    for (topic, queue_id), shard in node.shards.items():
        store = shard.writer.store
        assert store.reads.flushed_offset == store.reads.max_physical_offset
        for message in store.reads.scan():
            entry = store.reads.queue_entry(topic, queue_id, message.queue_offset)
            assert entry.tags_code == tags_code(message.tags)


def test_imported_messages_are_found_by_every_id_and_key_also_after_a_crash(
    tmp_path: Path, golden: list[StoredMessage]
) -> None:
    def check(node: LocalNode) -> None:
        for theirs in golden[::7]:
            store = node.shard(theirs.topic, theirs.queue_id).writer.store
            for key in (theirs.offset_message_id, theirs.unique_key, *theirs.keys):
                if key is None:
                    continue
                found = store.reads.query(theirs.topic, key, 10_000)
                ids = [one.imported_offset_id for one in found]
                assert theirs.offset_message_id in ids

    with LocalNode(tmp_path) as node:
        import_from(GOLDEN_STORE, node)
        check(node)
    for path in tmp_path.glob("shards/*/*/index/*"):
        path.unlink()
    for shard in tmp_path.glob("shards/*/*"):
        (shard / "abort").touch()
    with LocalNode(tmp_path) as node:
        check(node)
        assert_imported(node, golden)


def test_one_topic_is_imported_and_the_others_are_counted(
    node: LocalNode, golden: list[StoredMessage]
) -> None:
    report = import_from(GOLDEN_STORE, node, "TopicB")
    chosen = [one for one in golden if one.topic == "TopicB"]
    assert report.imported == len(chosen)
    assert report.skipped == {"other topic": len(golden) - len(chosen)}
    assert list(node.topics.all()) == ["TopicB"]
    assert_imported(node, chosen)


@pytest.mark.parametrize("stop_at", [1, 100, 333])
def test_a_stopped_import_goes_on_where_it_was(
    node: LocalNode, golden: list[StoredMessage], stop_at: int
) -> None:
    first = import_from(GOLDEN_STORE, node, stop_at=stop_at)
    assert not first.complete
    assert stop_at <= first.imported < len(golden)
    second = import_from(GOLDEN_STORE, node)
    assert second.complete
    assert (second.already_there, second.imported + first.imported) == (first.imported, len(golden))
    third = import_from(GOLDEN_STORE, node)
    assert (third.imported, third.already_there) == (0, len(golden))
    assert_imported(node, golden)


_append = OwnedShard.append


def _dying(calls: int, *, after: bool) -> Callable[..., Ack]:
    """Appends until the importer dies: before the batch is stored, or after."""
    left = itertools.count(calls, -1)

    def append(shard: OwnedShard, payload: bytes, durability: int, **_: Any) -> Ack:
        is_over = next(left) <= 0
        if is_over and not after:
            raise KeyboardInterrupt
        ack = _append(shard, payload, durability)
        if is_over:
            raise KeyboardInterrupt
        return ack

    return append


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("calls", [0, 1, 5, 30])
def test_an_import_that_died_at_any_batch_goes_on_without_loss_or_duplicate(
    node: LocalNode,
    golden: list[StoredMessage],
    calls: int,
    after: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(OwnedShard, "append", _dying(calls, after=after))
        with pytest.raises(KeyboardInterrupt):
            import_from(GOLDEN_STORE, node)
    there = sum(map(len, stored(node).values()))
    report = import_from(GOLDEN_STORE, node)
    assert (report.already_there, report.imported) == (there, len(golden) - there)
    assert_imported(node, golden)


def test_a_topic_with_other_messages_is_refused(node: LocalNode) -> None:
    node.topics.ensure("TopicA", 2)
    with node.producer() as producer:
        producer.send("TopicA", b"somebody's", queue_id=1)
    with pytest.raises(StoreError, match="topics delete TopicA"):
        import_from(GOLDEN_STORE, node)


def test_messages_of_another_source_are_refused(node: LocalNode, tmp_path: Path) -> None:
    import_from(GOLDEN_STORE, node, "TopicA", stop_at=50)
    other = tmp_path / "other"
    with MessageStore(other, GOLDEN_CONFIG, clock_ms=FakeClock()) as store:
        store.put([Message("TopicA", b"another store's")], 0)
    with pytest.raises(StoreError, match="not from an import of"):
        import_from(other, node, "TopicA")


def test_a_queue_that_somebody_else_writes_to_ends_the_import(
    node: LocalNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    def disturbed(shard: OwnedShard, payload: bytes, durability: int, **_: Any) -> Ack:
        ack = _append(shard, payload, durability)
        batch = encode_messages(
            [Message("TopicA", b"x")], born_host=("127.0.0.1", 1), clock_ms=FakeClock()
        )
        _append(shard, pack_batch(batch), durability)
        return ack

    monkeypatch.setattr(OwnedShard, "append", disturbed)
    with pytest.raises(StoreError, match="another producer writes"):
        import_from(GOLDEN_STORE, node, "TopicA")


def test_two_imports_at_once_end_one_of_them(
    node: LocalNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    def twice(shard: OwnedShard, payload: bytes, durability: int, **_: Any) -> Ack:
        _append(shard, payload, durability)
        return _append(shard, payload, durability)

    monkeypatch.setattr(importer_module, "_BATCH_RECORDS", 1)
    monkeypatch.setattr(OwnedShard, "append", twice)
    with pytest.raises(StoreError, match="stored at offset 1, not 0"):
        import_from(GOLDEN_STORE, node, "TopicA")
    monkeypatch.undo()
    with pytest.raises(StoreError, match="not from an import of this source"):
        import_from(GOLDEN_STORE, node, "TopicA")


def test_a_batch_that_the_shard_refuses_ends_the_import(
    node: LocalNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(OwnedShard, "append", lambda *_, **__: Ack(AppendStatus.STORE_FULL))
    with pytest.raises(StoreError, match="is full; nothing was stored"):
        import_from(GOLDEN_STORE, node)


def test_damage_is_named_or_counted(
    node: LocalNode, golden: list[StoredMessage], tmp_path: Path
) -> None:
    copy = Path(shutil.copytree(GOLDEN_STORE, tmp_path / "damaged"))
    bad = golden[200]
    segment = sorted((copy / "commitlog").iterdir())[bad.physical_offset // 65_536]
    raw = bytearray(segment.read_bytes())
    raw[bad.physical_offset % 65_536 + 90] ^= 1  # in the body
    segment.write_bytes(raw)
    with pytest.raises(CorruptRecordError) as caught:
        import_from(copy, node)
    assert caught.value.physical_offset == bad.physical_offset
    report = import_from(copy, node, skip_damaged=True)
    assert report.skipped == {"damaged": 1}
    assert report.imported + report.already_there == len(golden) - 1
    again = import_from(copy, node, skip_damaged=True)
    assert (again.imported, again.already_there) == (0, len(golden) - 1)
    ids = {one.imported_offset_id for part in stored(node).values() for one in part}
    assert ids == {one.offset_message_id for one in golden} - {bad.offset_message_id}


def test_an_unknown_topic_and_too_few_queues_are_refused(node: LocalNode) -> None:
    with pytest.raises(ConfigError, match="it has: TopicA, TopicB"):
        import_from(GOLDEN_STORE, node, "TopicC")
    node.topics.ensure("TopicA", 1)
    with pytest.raises(ConfigError, match="topics alter TopicA --queues 2"):
        import_from(GOLDEN_STORE, node, "TopicA")
    assert list(node.topics.all()) == ["TopicA"]


def write_log(directory: Path, *records: tuple[str, int, int]) -> None:
    """A crashed broker's log without queues: topic, SYSFLAG and store time of each record."""
    log = bytearray()
    for topic, sys_flag, store_ms in records:
        log += encode_record(
            RecordValues(
                topic,
                b"body",
                f"UNIQ_KEY\x01u{len(log)}\x02".encode(),
                queue_id=0,
                queue_offset=0,
                physical_offset=len(log),
                born_timestamp_ms=1,
                born_host=("192.0.2.1", 1),
                store_timestamp_ms=store_ms,
                store_host=("2001:db8::1", 10_911),
                sys_flag=sys_flag,
            )
        )
    (directory / "commitlog").mkdir(parents=True)
    size = GOLDEN_CONFIG.commit_log_segment_bytes
    (directory / "commitlog" / f"{0:020d}").write_bytes(log.ljust(size, b"\0"))
    (directory / "abort").touch()


def test_what_is_no_message_is_counted_by_its_reason(node: LocalNode, tmp_path: Path) -> None:
    directory = tmp_path / "theirs"
    half, commit, rollback, inner_batch = 0x4, 0x8, 0xC, 0x80
    write_log(
        directory,
        ("Trade", 0, 1_000),
        ("Trade", half, 1_001),
        ("RMQ_SYS_TRANS_HALF_TOPIC", 0, 1_002),
        ("Trade", commit, 1_003),
        ("Trade", rollback, 1_004),
        ("rmq_sys_wheel_timer", 0, 1_005),
        ("Trade", inner_batch, 1_006),
        ("Other", 0, 1_007),
        ("Trade", 0, 900),  # the broker's clock went back
        ("Trade", 0, 1_008),
    )
    with ImportSource(directory, GOLDEN_CONFIG, clock_ms=FakeClock()) as source:
        importer = Importer(source, node)
        importer.prepare(["Trade"], {"Trade": 1})
        report = importer.run()
    assert_adds_up(report)
    assert report.skipped == {
        "half message": 1,
        "inner batch": 1,
        "other topic": 1,
        "rollback": 1,
        "system topic": 2,
    }
    assert report.queues[0].skipped == {"half message": 1, "inner batch": 1, "rollback": 1}
    assert (report.imported, report.retimed) == (4, 1)
    [messages] = stored(node).values()
    assert [one.store_timestamp_ms for one in messages] == [1_000, 1_003, 1_003, 1_008]
    assert [one.sys_flag & 0xC for one in messages] == [0, commit, 0, 0]


def test_a_message_for_a_queue_without_files_ends_the_import(
    node: LocalNode, tmp_path: Path
) -> None:
    write_log(tmp_path / "theirs", ("Trade", 0, 1_000), ("Other", 0, 1_000))
    with ImportSource(tmp_path / "theirs", GOLDEN_CONFIG, clock_ms=FakeClock()) as source:
        importer = Importer(source, node)
        importer.prepare(["Trade"], {"Trade": 1})
        importer._queues.clear()
        with pytest.raises(StoreError, match="has no files"):
            importer.run()


def test_a_queue_with_a_gap_is_imported_without_it(node: LocalNode, tmp_path: Path) -> None:
    """So that a broker can read all of it."""
    with MessageStore(tmp_path / "source", SMALL, clock_ms=FakeClock()) as store:
        store.put([Message("Trade", b"before")], 0)
        store.skip_to("Trade", 0, 1024)
        store.put([Message("Trade", b"behind")], 0)
        before = list(store.reads.scan())
    assert [one.queue_offset for one in before] == [0, 1024]
    assert import_from(tmp_path / "source", node).imported == 2
    assert_imported(node, before)
