"""The shards of a process: who rings is looked at, and a slow or broken disk is its shards' own."""

from __future__ import annotations

import errno
import os
import shutil
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from support.harness.machine import skip
from support.harness.patience import patience, wait_until
from support.nodes.stores import repair

from rocketray.base.ack_mode import Durability
from rocketray.broker.shards import shard_threads
from rocketray.broker.shards.disk_shards import DiskShards
from rocketray.broker.shards.owned_shard import OwnedShard
from rocketray.broker.shards.shard_process import ShardProcess
from rocketray.broker.shards.shard_threads import ShardThreads
from rocketray.broker.topics.catalog import TopicCatalog
from rocketray.broker.topics.placement import Placement
from rocketray.errors import StoreError
from rocketray.message import Message
from rocketray.runtime.files.paths import producer_rings_directory, shard_directory
from rocketray.runtime.ipc.acknowledgement import AppendStatus
from rocketray.runtime.ipc.process_doorbell import SLOTS, ProcessDoorbell
from rocketray.runtime.ipc.ring import ProducerRing
from rocketray.runtime.processes import owned_name
from rocketray.store.batches.encoded_batch import encode_messages, pack_batch
from rocketray.store.files.mapped_file import MappedFile

SIZES = {
    "commit_log_segment_bytes": 64 * 1024,
    "consume_queue_segment_entries": 100,
    "index_hash_slots": 100,
    "index_entries": 1000,
}
QUEUES = 3


def packed(body: bytes) -> bytes:
    """A batch of one message, as producers send it."""
    batch = encode_messages([Message("T", body)], born_host=("127.0.0.1", 1), clock_ms=int)
    return pack_batch(batch)


class Sender:
    """A producer's ring to one queue, and the bell of its process."""

    def __init__(self, process: ShardProcess, queue_id: int) -> None:
        directory = producer_rings_directory(process.data, "T", queue_id)
        self.ring = ProducerRing(directory / owned_name(f"ring-{os.urandom(4).hex()}"))
        self._bell = process.doorbell.bell("T", queue_id)
        process.shard("T", queue_id).attach_ring(str(self.ring.path))

    def send(self, body: bytes, durability: Durability = Durability.MEMORY) -> int:
        sequence = self.ring.try_write(packed(body), durability)
        assert sequence is not None
        self.ring.publish()
        self._bell.ring()
        return sequence

    def is_stored(self, sequence: int, timeout_s: float = patience(60)) -> bool:
        is_acknowledged = self.ring.wait_acknowledged(sequence, timeout_s)
        return is_acknowledged and self.ring.ack(sequence).status is AppendStatus.OK


def make_topic(data: Path) -> None:
    TopicCatalog().with_topic("T", QUEUES, placement=Placement(QUEUES)).save(data)


def open_process(data: Path) -> ShardProcess:
    return ShardProcess(data, "T:0", SIZES, clock_ms=lambda: 1000)


@pytest.fixture
def process(data: Path) -> Iterator[ShardProcess]:
    """A process with the three queues of a topic, and no threads."""
    make_topic(data)
    process = open_process(data)
    yield process
    process.close()


@pytest.fixture
def running(process: ShardProcess) -> Iterator[ShardProcess]:
    """The same with its threads."""
    failed: list[bool] = []
    threads = ShardThreads(process, flush_interval_s=0.05, on_failure=lambda: failed.append(True))
    yield process
    threads.stop()
    assert not failed, "the process would have ended"


def break_disk(
    monkeypatch: pytest.MonkeyPatch, directory: Path, fail: Callable[[], object]
) -> None:
    """Have each sync of a file below *directory* call *fail* first."""
    flush = MappedFile.flush

    def broken(file: MappedFile) -> None:
        if directory.resolve() in file.path.resolve().parents:
            fail()
        flush(file)

    monkeypatch.setattr(MappedFile, "flush", broken)


def fail_with_eio() -> None:
    raise OSError(errno.EIO, os.strerror(errno.EIO))


def test_a_ring_of_the_doorbell_leads_to_its_shard_and_to_no_other(
    process: ShardProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    senders = [Sender(process, queue_id) for queue_id in range(QUEUES)]
    [disk] = process._disks.values()
    disk.drain()
    looked: list[int] = []
    drain = OwnedShard.drain

    def watched(shard: OwnedShard) -> int:
        looked.append(shard.place[1])
        return drain(shard)

    monkeypatch.setattr(OwnedShard, "drain", watched)
    assert disk.drain() == 0
    senders[1].send(b"1")
    assert disk.drain() == 1
    senders[2].send(b"2")
    senders[0].send(b"0")
    senders[0].send(b"0")
    assert disk.drain() == 3
    assert looked == [1, 0, 2]
    silent = Sender(process, 1)
    disk.drain()
    silent._bell = process.doorbell.bell("Other", 5)  # as one that was killed before it rang
    silent.send(b"quiet")
    assert disk.drain() == 0
    assert disk.drain(everything=True) == 1


def test_what_is_sent_during_a_pass_is_stored_without_waiting_for_the_sweep(
    process: ShardProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shard_threads, "_SWEEP_INTERVAL_S", 3600.0)
    sender = Sender(process, 1)
    drain, sent = OwnedShard.drain, list[int]()

    def drain_and_send(shard: OwnedShard) -> int:
        count = drain(shard)
        if shard.place[1] == 1 and len(sent) < 50:
            sent.append(sender.send(b"after the rings were looked at"))
        return count

    monkeypatch.setattr(OwnedShard, "drain", drain_and_send)
    threads = ShardThreads(process, flush_interval_s=3600.0, on_failure=lambda: None)
    try:
        wait_until(lambda: len(sent) == 50)
        assert sender.is_stored(sent[-1])
    finally:
        threads.stop()


def test_queues_of_one_topic_have_slots_of_their_own_and_others_may_share_one() -> None:
    assert len({ProcessDoorbell.slot("Trade", queue_id) for queue_id in range(SLOTS)}) == SLOTS
    assert ProcessDoorbell.slot("Trade", 0) == ProcessDoorbell.slot("Trade", SLOTS)


def test_queues_that_share_a_slot_are_looked_at_together(
    process: ShardProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ProcessDoorbell, "slot", staticmethod(lambda _topic, _queue_id: 7))
    process.remove("T")
    for queue_id in range(QUEUES):
        process.shard("T", queue_id)
    senders = [Sender(process, queue_id) for queue_id in range(QUEUES)]
    process.drain()
    for sender in senders:
        sender.ring.try_write(b"", Durability.MEMORY)  # refused, and taken
        sender.ring.publish()
    senders[0]._bell.ring()
    [disk] = process._disks.values()
    assert disk.drain() == QUEUES


def test_a_failed_sync_closes_one_shard_which_opens_again_when_it_is_repaired(
    running: ShardProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    senders = [Sender(running, queue_id) for queue_id in range(QUEUES)]
    assert all(sender.is_stored(sender.send(b"first", Durability.DISK)) for sender in senders)
    epochs = [running.shard("T", each).statistics().epoch for each in range(QUEUES)]
    with monkeypatch.context() as patch:
        break_disk(patch, shard_directory(running.data, "T", 1), fail_with_eio)
        sequence = senders[1].send(b"second", Durability.DISK)
        closed = wait_until(running.closed)
        assert [*closed] == ["T/1"]
        assert "Input/output error" in closed["T/1"]
        for other in (senders[0], senders[2]):
            assert other.is_stored(other.send(b"second", Durability.DISK))
        assert not senders[1].is_stored(sequence, 0.2)
    with pytest.raises(StoreError, match="its disk may fail again"):
        running.shard("T", 1)
    repair(shard_directory(running.data, "T", 1))
    assert senders[1].is_stored(sequence), "the shard takes over the ring when it opens again"
    wait_until(lambda: not running.closed())
    assert [running.shard("T", each).statistics().epoch for each in (0, 2)] == epochs[::2]
    assert running.shard("T", 1).statistics().epoch > epochs[1]
    assert [one.body for one in running.shard("T", 1).writer.store.reads.scan()] == [
        b"first",
        b"second",
    ]


def test_a_failed_sync_of_the_timer_closes_one_shard(
    running: ShardProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    senders = [Sender(running, queue_id) for queue_id in range(QUEUES)]
    with monkeypatch.context() as patch:
        break_disk(patch, shard_directory(running.data, "T", 2), fail_with_eio)
        senders[2].send(b"memory")
        assert "flushing failed" in wait_until(running.closed)["T/2"]
        assert senders[0].is_stored(senders[0].send(b"memory"))
    repair(shard_directory(running.data, "T", 2))
    wait_until(lambda: not running.closed())
    assert senders[2].is_stored(senders[2].send(b"again", Durability.DISK))


@pytest.mark.proves(
    "producers",
    "The age of the oldest message that is not on disk is never shown too low, and grows while a "
    "flush hangs",
)
def test_the_age_of_what_is_not_on_disk_grows_while_the_timers_flush_hangs(
    running: ShardProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    senders = [Sender(running, queue_id) for queue_id in range(QUEUES)]
    goes_on = threading.Event()
    with monkeypatch.context() as patch:
        break_disk(patch, shard_directory(running.data, "T", 1), lambda: goes_on.wait(patience(60)))
        try:
            senders[1].send(b"memory")
            wait_until(lambda: running.reports.unflushed()["T/1"] > 300)
            senders[0].send(b"memory, on the same disk")
            wait_until(lambda: running.reports.unflushed()["T/0"] > 300)
            assert running.reports.unflushed()["T/1"] > running.reports.unflushed()["T/0"]
            assert running.reports.unflushed()["T/2"] == 0
        finally:
            goes_on.set()
    wait_until(lambda: not any(running.reports.unflushed().values()))


def test_a_shard_whose_store_is_damaged_when_it_is_opened_stays_closed_alone(data: Path) -> None:
    make_topic(data)
    open_process(data).close()
    settings = shard_directory(data, "T", 1) / "store.json"
    content = settings.read_bytes()
    for path in (settings, settings.with_name("store.json.bak")):
        path.write_bytes(b"{")
    process = open_process(data)
    assert [process.find("T", each) is not None for each in range(QUEUES)] == [True, False, True]
    assert str(settings) in process.closed()["T/1"]
    with pytest.raises(StoreError, match=r"store\.json"):
        process.shard("T", 1)
    settings.write_bytes(content)
    assert process.shard("T", 1).statistics().max_queue_offset == 0
    assert not process.closed()
    process.close()


def test_a_ring_that_was_cut_short_is_dropped_and_the_others_go_on(running: ShardProcess) -> None:
    """Touching it would end this process, and the test with it: SIGBUS. So it is cut between passes."""
    cut, other, third = Sender(running, 0), Sender(running, 0), Sender(running, 1)
    assert cut.is_stored(cut.send(b"before"))
    with running.shard("T", 0).writer.reading():
        os.truncate(cut.ring.path, 0)
    running.doorbell.bell("T", 0).ring()
    wait_until(lambda: not cut.ring.path.exists())
    assert other.is_stored(other.send(b"after"))
    assert third.is_stored(third.send(b"after"))
    assert not running.closed()
    wait_until(lambda: running.shard("T", 0).statistics().rings == 1)


@pytest.fixture
def other_disk(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A directory on another disk than the data directory."""
    with tempfile.TemporaryDirectory(prefix="rocketray-test-", dir="/dev/shm") as shared_memory:
        for found in (tmp_path_factory.mktemp("other"), Path(shared_memory)):
            if found.stat().st_dev != tmp_path.stat().st_dev:
                yield found
                return
        skip("two disks", "all directories are on one")


def test_a_disk_that_syncs_slowly_holds_up_no_shard_on_another_disk(
    data: Path, other_disk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_topic(data)
    open_process(data).close()
    moved = shard_directory(data, "T", 1)
    shutil.move(moved, other_disk / "1")
    moved.symlink_to(other_disk / "1")
    is_slow, may_go_on = threading.Event(), threading.Event()

    def wait() -> None:
        is_slow.set()
        may_go_on.wait(patience(60))

    process = open_process(data)
    assert len(process._disks) == 2
    threads = ShardThreads(process, flush_interval_s=0.05, on_failure=lambda: None)
    senders = [Sender(process, queue_id) for queue_id in range(QUEUES)]
    try:
        with monkeypatch.context() as patch:
            break_disk(patch, other_disk, wait)
            slow = senders[1].send(b"slow", Durability.DISK)
            assert is_slow.wait(patience(60))
            for _ in range(3):
                for sender in (senders[0], senders[2]):
                    assert sender.is_stored(sender.send(b"fast", Durability.DISK))
            assert not senders[1].is_stored(slow, 0.1)
            may_go_on.set()
            assert senders[1].is_stored(slow)
    finally:
        may_go_on.set()
        threads.stop()
        process.close()


def test_a_busy_shard_lets_the_others_of_its_process_have_their_turn(
    running: ShardProcess,
) -> None:
    busy, calm = Sender(running, 0), Sender(running, 1)
    stop = threading.Event()

    def flood() -> None:
        while not stop.is_set():
            busy.is_stored(busy.send(bytes(1000)))

    flooding = threading.Thread(target=flood)
    flooding.start()
    try:
        assert all(calm.is_stored(calm.send(b"calm"), 10.0) for _ in range(50))
    finally:
        stop.set()
        flooding.join()


def awake(disk: DiskShards) -> list[int]:
    """The queues that get the work of the timers."""
    found: list[int] = []
    disk.keep_house(lambda shard: found.append(shard.place[1]), everywhere=False)
    return found


def flush_until_quiet(process: ShardProcess) -> None:
    for _ in range(8):
        process.flush()


def test_a_shard_rests_when_all_is_on_disk_until_something_is_appended(
    process: ShardProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    [disk] = process._disks.values()
    assert disk.let_rest(), "nothing was stored since they were opened"
    assert awake(disk) == []
    sender = Sender(process, 1)
    sender.send(b"through a ring")
    disk.drain()
    process.shard("T", 2).append(packed(b"by a call"), Durability.MEMORY)
    assert awake(disk) == [1, 2]
    process.flush()
    assert not disk.let_rest(), "the index follows a second later"
    flush_until_quiet(process)
    rest = OwnedShard.rest

    def rest_and_append(shard: OwnedShard) -> bool:
        rests = rest(shard)
        if shard.place[1] == 2:
            shard.append(packed(b"just then"), Durability.MEMORY)
        return rests

    monkeypatch.setattr(OwnedShard, "rest", rest_and_append)
    assert not disk.let_rest()
    assert awake(disk) == [2]


def test_an_idle_process_hardly_wakes_up_and_stores_at_once_nevertheless(
    process: ShardProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shard_threads, "_SWEEP_INTERVAL_S", 0.01)
    monkeypatch.setattr(shard_threads, "_PREPARE_INTERVAL_S", 0.01)
    passes, drain, keep = Counter[str](), DiskShards.drain, DiskShards.keep_house

    def counted_drain(disk: DiskShards, *, everything: bool = False) -> int:
        passes["drain"] += 1
        return drain(disk, everything=everything)

    def counted_keep(disk: DiskShards, work: Any, *, everywhere: bool = True) -> None:
        passes["keep house"] += 1
        keep(disk, work, everywhere=everywhere)

    def is_quiet() -> bool:
        before = passes.total()
        time.sleep(0.5)  # fifty intervals
        return passes.total() == before

    monkeypatch.setattr(DiskShards, "drain", counted_drain)
    monkeypatch.setattr(DiskShards, "keep_house", counted_keep)
    sender = Sender(process, 0)
    threads = ShardThreads(process, flush_interval_s=0.01, on_failure=lambda: None)
    [disk] = process._disks.values()
    try:
        wait_until(is_quiet)
        assert sender.is_stored(sender.send(b"now"), 2.0)
        wait_until(lambda: passes["keep house"] > 5 and not disk._awake)
        assert process.reports.unflushed()["T/0"] == 0
    finally:
        threads.stop()
